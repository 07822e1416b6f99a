"""Installed fonts: found by file or family name, after the bundled ones, and put first by one option."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seer.errors import InputError
from seer.rendering import render_text
from seer.rendering.layout import systemfonts
from seer.rendering.layout.fonts import DATA_DIR, load_chain, load_font
from seer.rendering.layout.systemfonts import find_system_font
from seer.rendering.styles import with_font

CHAIN = ("DejaVuSans", "DroidSansFallback")


@pytest.fixture
def uncached() -> Iterator[None]:
    """Forget opened fonts before and after a test that changes which fonts are installed."""
    for opened in (load_font, load_chain):
        opened.cache_clear()
    yield
    for opened in (load_font, load_chain):
        opened.cache_clear()


@pytest.mark.parametrize(
    ("file", "name"),
    [("Sub/verdana.ttf", "Verdana"), ("XY_1.TTF", "dejavu sans"), ("Some Font-Regular.ttf", "DejaVu Sans")],
)
def test_load_chain_finds_installed_font_by_file_or_family_name(tmp_path, monkeypatch, uncached, file, name):
    path = tmp_path / "fonts" / file
    path.parent.mkdir(parents=True)
    path.write_bytes((DATA_DIR / "DejaVuSans.ttf").read_bytes())
    (tmp_path / "fonts" / "broken.ttf").write_bytes(b"not a font")
    (tmp_path / "fonts" / "verdana.txt").write_bytes(b"not a font file")
    monkeypatch.setattr(systemfonts, "font_folders", lambda: [tmp_path / "missing", tmp_path / "fonts"])
    assert find_system_font(name) == load_font(name).path == path
    assert find_system_font("DejaVu Sans Bold") is None
    style = with_font("seer", name)
    assert style.fonts == (name, *CHAIN)
    # The glyphs are those of the bundled font, so the pages are the same.
    assert (render_text("A page.", style).page(1).image() == render_text("A page.").page(1).image()).all()


def test_load_font_prefers_bundled_to_installed_font(tmp_path, monkeypatch, uncached):
    (tmp_path / "DejaVuSans.ttf").write_bytes((DATA_DIR / "DroidSansFallback.ttf").read_bytes())
    monkeypatch.setattr(systemfonts, "font_folders", lambda: [tmp_path])
    assert load_font("DejaVuSans").path == DATA_DIR / "DejaVuSans.ttf"


def test_with_font_puts_font_first_and_rejects_unknown_font():
    assert with_font("paper", "DroidSansFallback").fonts == ("DroidSansFallback", "DejaVuSans")
    assert with_font("paper", "DroidSansFallback").newline == "auto"
    with pytest.raises(InputError, match="neither bundled"):
        with_font("paper", "No Such Font")
