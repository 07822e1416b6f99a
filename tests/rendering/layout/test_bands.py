"""Bands: every band leads to its characters, every character to one band, and names parse back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.rendering import render_text, resolve_style
from seer.rendering.layout.bands import BAND_PX, band_name, band_regions, bands_of_span, num_bands, parse_band

SMALL = resolve_style("seer", page_width_px=140, page_height_px=252, margin_x_px=8, margin_y_px=8)
COLUMNS = resolve_style(SMALL, columns=2, column_gap_px=6, page_width_px=200)
AWKWARD = "ab c-d.\n\r\t\f\0\u2028\u00ad\u200d\u0301中文，。אב\u202eعر😀  "
texts = st.text(st.sampled_from(AWKWARD), min_size=1, max_size=500) | st.text(min_size=1, max_size=200)
styles = st.sampled_from([SMALL, COLUMNS, resolve_style(SMALL, newline="mark")])


@settings(deadline=None, max_examples=60)
@given(texts, styles)
def test_bands_divide_page_text_without_overlap(text, style):
    for page in render_text(text, style).pages:
        regions = [region for band in range(num_bands(page.height_px)) for region in band_regions(page, [band])]
        spans = sorted((region.start, region.end) for region in regions)
        assert "".join(text[start:end] for start, end in spans) == page.text


@settings(deadline=None, max_examples=60)
@given(texts, styles, st.data())
def test_bands_of_span_lead_back_to_its_characters(text, style, data):
    page = data.draw(st.sampled_from(render_text(text, style).pages))
    start = data.draw(st.integers(page.start, page.end - 1))
    end = data.draw(st.integers(start + 1, page.end))
    bands = bands_of_span(page, start, end)
    covered = {k for region in band_regions(page, bands) for k in range(region.start, region.end)}
    assert covered >= set(range(start, end))
    for band in bands:
        own = {k for region in band_regions(page, [band]) for k in range(region.start, region.end)}
        assert own & set(range(start, end))


@given(st.lists(st.integers(1, BAND_PX * 26), min_size=1, max_size=12), st.data())
def test_parse_band_inverts_band_name(heights, data):
    page = data.draw(st.integers(1, len(heights)))
    band = data.draw(st.integers(0, num_bands(heights[page - 1]) - 1))
    assert parse_band(band_name(page, band), heights) == (page, band)
    assert parse_band(str(page), heights) == (page, None)


@pytest.mark.parametrize(
    "name", ["", "b", "0a", "01a", "1A", "1ab", "1 a", " 1a", "1a\n", "-1a", "+1", "1.0", "١a", "1ａ", "9" * 5000]
)
def test_parse_band_rejects_malformed_name(name):
    with pytest.raises(InputError, match="must be a page number with an optional letter"):
        parse_band(name, [840])


@pytest.mark.parametrize(
    ("name", "message"), [("3a", "has 2 pages"), ("2b", "page 2 ends with band 'a'"), ("1k", "ends with band 'j'")]
)
def test_parse_band_rejects_name_outside_document(name, message):
    with pytest.raises(InputError, match=message):
        parse_band(name, [840, 84])


@pytest.mark.parametrize(
    ("height_px", "count"), [(1, 1), (84, 1), (85, 1), (112, 2), (420, 5), (840, 10), (842, 10), (2184, 26)]
)
def test_num_bands_counts_shorter_last_band(height_px, count):
    assert num_bands(height_px) == count


@pytest.mark.parametrize("height_px", [-84, 0, 2212])
def test_num_bands_rejects_height_without_letters(height_px):
    with pytest.raises(InputError, match=f"page height {height_px} px: bands need 1 to 2184 px"):
        num_bands(height_px)


def test_band_regions_rejects_band_outside_page():
    page = render_text("a b c", SMALL).pages[0]
    with pytest.raises(InputError, match="band 26: must be 0 to"):
        band_regions(page, [26])


def test_band_regions_rejects_page_without_lines():
    page = render_text("a b c", SMALL).pages[0].model_copy()
    page.attach(lambda _: None)
    with pytest.raises(InputError, match="select whole pages"):
        band_regions(page, [0])


def test_band_functions_return_nothing_for_empty_request():
    page = render_text("a b c", SMALL).pages[0]
    assert band_regions(page, []) == ()
    assert bands_of_span(page, 2, 2) == ()
    assert bands_of_span(page, 900, 950) == ()


@pytest.mark.parametrize(
    ("style", "bands", "count"), [(SMALL, [0, 1], 1), (SMALL, [0, 2], 2), (COLUMNS, [0], 2), (COLUMNS, [0, 1, 2], 1)]
)
def test_band_regions_merges_only_adjacent_lines(style, bands, count):
    page = render_text("word " * 800, style).pages[0]
    regions = band_regions(page, bands)
    assert len(regions) == count
    covered = {k for region in regions for k in range(region.start, region.end)}
    alone = {k for band in bands for region in band_regions(page, [band]) for k in range(region.start, region.end)}
    assert covered == alone
