"""Font chains: which font draws a character, missing characters, and unreadable font files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seer.errors import DocumentNotFound, GlyphError, InputError
from seer.rendering import render_text, resolve_style
from seer.rendering.drawing.reportlab import pdf_bytes, rasterise
from seer.rendering.layout.boxes import box_width_px, missing_box
from seer.rendering.layout.fonts import BLANK, DATA_DIR, ZERO_WIDTH_ENTRY, bundled_fonts, load_chain
from seer.rendering.layout.measure import Measure, code_points
from seer.schema import PageStyle

CHAIN = ("DejaVuSans", "DroidSansFallback")


def test_bundled_fonts_have_licence_files():
    assert bundled_fonts() == ["DejaVuSans", "DroidSansFallback"]
    for name in ("LICENSE-DejaVu.txt", "LICENSE-DroidSansFallback.txt"):
        assert (DATA_DIR / name).stat().st_size > 1000


def test_chain_uses_first_font_with_glyph():
    chain = load_chain(CHAIN)
    entries = chain.entries(code_points("a中"))
    assert [chain.locate(int(slot))[0].name for slot in chain.slot[entries]] == list(CHAIN)


def test_chain_white_space_and_invisible_characters_are_never_missing():
    text = " \u00a0\u1680\u2003\u3000\u00ad\u200b\u200d\ufeff\u2060\u202e\ufe0f\t\n\r\f\U000e0100"
    chain = load_chain(("DejaVuSans",))
    entries = chain.entries(code_points(text))
    assert (entries >= ZERO_WIDTH_ENTRY).all() and (chain.slot[entries] == BLANK).all()
    assert render_text(text).missing_glyphs == ()


def test_render_text_reports_missing_glyphs_with_counts_and_offsets():
    text = "a\ue000b\ue000" + "\U0001f9ec" * 30 + "\0"
    first, second, third = render_text(text).missing_glyphs
    assert (first.code_point, first.count, first.offsets) == ("U+E000", 2, (1, 3))
    assert (second.character, second.count, len(second.offsets)) == ("\U0001f9ec", 30, 20)
    assert third.code_point == "U+0000"


def test_render_text_strict_glyphs_raises_glyph_error():
    with pytest.raises(GlyphError, match="U\\+E000 x1"):
        render_text("a\ue000", strict_glyphs=True)
    render_text("plain", strict_glyphs=True)


def test_missing_character_is_drawn_as_code_point_box():
    image = render_text("\ue000").page(1).image()
    box = missing_box(0xE000, 9.0)
    ink = np.argwhere(image < 255)
    top, left = ink.min(0)
    height, width = box.shape
    assert ((image[top : top + height, left : left + width] == 0) == (box == 1)).all()
    assert not (missing_box(0xE000, 9.0) == missing_box(0xE001, 9.0)).all()
    assert missing_box(0x10FFFF, 18.0).shape == (18, box_width_px(6, 18.0))


def test_measure_missing_character_advance_exceeds_box():
    style = resolve_style("large")
    measure = Measure(style, load_chain(style.fonts))
    advance = measure.text("\ue000").advances_sub[0] / 4096
    assert advance == box_width_px(4, style.font_size_px) + 1


def test_load_chain_accepts_paths_and_rejects_unreadable_fonts(tmp_path):
    path = str(DATA_DIR / "DejaVuSans.ttf")
    assert render_text("x", resolve_style("seer", fonts=(path,))).page(1).image().min() < 100
    with pytest.raises(DocumentNotFound, match="no font file"):
        load_chain(("/nowhere/at/all.ttf",))
    with pytest.raises(
        InputError,
        match=r"font 'No Such Font' is neither bundled \(DejaVuSans, DroidSansFallback\) nor installed .*the path of a font",
    ):
        load_chain(("No Such Font",))
    bad = tmp_path / "bad.ttf"
    bad.write_bytes(b"these bytes are not a font")
    with pytest.raises(InputError, match="is not a readable font"):
        load_chain((str(bad),))


BLOCK = str(Path(__file__).parents[2] / "fixtures/rendering/block.otf")
"""A font with PostScript outlines: A is a block of 500x700 units, B one with a round corner, ¶ and ↵ are A."""


def block_style(**changes: object) -> PageStyle:
    return resolve_style("seer", fonts=(BLOCK,), font_size_pt=20, line_height_pt=24, **changes)


def test_cff_font_is_drawn_by_raster_and_pdf():
    image = render_text("A", block_style()).page(1).image()
    assert (image == 0).sum() == pytest.approx(10 * 14, rel=0.25)


@pytest.mark.parametrize(("text", "newline"), [("A", "break"), ("BAB", "break"), ("A\nB", "mark")])
def test_cff_font_in_a_pdf_looks_as_in_the_raster(text, newline):
    document = render_text(text, block_style(newline=newline))
    (drawn,) = rasterise(pdf_bytes(document))
    assert np.abs(drawn.astype(int) - document.page(1).image()).mean() < 1


def test_cff_curve_takes_away_ink_of_a_corner():
    block, rounded = (render_text(letter, block_style()).page(1).image() for letter in "AB")
    assert (block == 0).sum() > (rounded == 0).sum() > 0.9 * (block == 0).sum()


def test_load_chain_rejects_an_empty_chain_and_a_file_that_cannot_be_read(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="the font chain is empty; name at least one font"):
        load_chain(())
    path = tmp_path / "secret.ttf"
    path.write_bytes(b"x")

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "read_bytes", refuse)
    with pytest.raises(InputError, match="secret.ttf' cannot be read: Permission denied; check its permissions"):
        load_chain((str(path),))
