"""Citations: quotes are found in the retrieved text, or marked as not found."""

from __future__ import annotations

import pytest
from fakes import make_document
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seer.reading.citations import find_citations, locate
from seer.rendering import render_text
from seer.schema import Document, Excerpt
from seer.selection.lexical import words

DOCUMENT = make_document(
    ["Alpha cost 1,204 euros in 1999.\n", "“Beta”  was\nbuilt by Dr. Grey; nobody asked why it leaned.\n"]
)


def excerpts_of(document: Document, *pages: int) -> list[Excerpt]:
    """The whole text of these pages, of all pages by default, in this order."""
    numbers = pages or [page.number for page in document]
    return [Excerpt(page=n, start=document.page(n).start, text=document.page(n).text) for n in numbers]


EXCERPTS = excerpts_of(DOCUMENT)


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("1,204 euros", "1,204 euros"),
        ("ALPHA COST", "Alpha cost"),
        ("Beta was built by dr. grey", "Beta”  was\nbuilt by Dr. Grey"),
        ("nobody asked why it leanned", "nobody asked why it leaned"),
        ("cost 1,205 euros in 1999", None),  # a near miss in a number is a different number
        ("99", None),  # and so is a part of one
        ("204 EUROS IN 199", None),
        ("1999", "1999"),
        ("gamma rays everywhere today", None),
    ],
)
def test_locate_finds_exact_then_normalised_then_similar_text(quote, found):
    span = locate(quote, EXCERPTS)
    assert (span is None) == (found is None)
    if span:
        start, end = span
        assert DOCUMENT.text[start:end].strip() == found


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_locate_any_piece_of_the_text_finds_equal_text(data):
    text = data.draw(st.text(min_size=1, max_size=60))
    document = make_document(["before\n", text])
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    for edge in (start, end):  # a piece of a number is a different number
        assume(not (text[max(0, edge - 1) : edge].isdigit() and text[edge : edge + 1].isdigit()))
    found_start, found_end = locate(text[start:end], excerpts_of(document))
    assert document.text[found_start:found_end] == text[start:end]


def test_find_citations_marks_an_invented_quote_as_not_verified():
    answer = 'It cost "1,204 euros", he said "and it was cheap at that".'
    good, bad = find_citations(DOCUMENT, EXCERPTS, answer)
    assert (good.page, good.verified, good.quote) == (1, True, "1,204 euros")
    assert (bad.verified, bad.quote, bad.regions) == (False, "and it was cheap at that", ())


def test_find_citations_leaves_out_a_quote_inside_another():
    (citation,) = find_citations(DOCUMENT, EXCERPTS, "Alpha cost 1,204 euros in 1999.", 'It says "1,204 euros".')
    assert citation.quote == "Alpha cost 1,204 euros in 1999."


def test_locate_rejects_a_short_text_that_is_part_of_the_quote():
    short = Excerpt(page=1, start=0, text="repair the old pier\n")
    assert locate("repair the old pier", [short]) == (0, 19)
    assert locate("nobody ever agreed to repair the old pier in summer", [short]) is None
    assert locate("repair the old pierr", [short]) == (0, 19)


# ── Quotes that continue on the next page ────────────────────────────────────────────────────────

BROKEN = make_document(["The council agreed to\n", "repair the old pier\n", "before the winter.\n"])


@pytest.mark.parametrize(
    ("quote", "pages"),
    [
        ("agreed to\nrepair the old", [1, 2]),
        ("The council AGREED to repair the old pier", [1, 2]),
        ("council agreed to repair the old pier before the winter", [1, 2, 3]),
        ("agreed too repair the old pier before the winter", [1, 2, 3]),
    ],
)
def test_find_citations_across_page_breaks_has_a_region_for_each_page(quote, pages):
    (citation,) = find_citations(BROKEN, excerpts_of(BROKEN), "Yes.", f"It says “{quote}”.".replace("\n", " "))
    assert citation.verified and citation.page == 1
    assert [region.page for region in citation.regions] == pages
    assert "".join(BROKEN.text[region.start : region.end] for region in citation.regions) == citation.quote
    assert (citation.regions[0].start, citation.regions[-1].end) == (citation.start, citation.end)


def test_find_citations_across_a_page_break_needs_both_pages_in_any_order():
    quote = 'It says "agreed to repair the old pier".'
    assert find_citations(BROKEN, excerpts_of(BROKEN, 2, 1), "Yes.", quote)[0].verified
    assert not find_citations(BROKEN, excerpts_of(BROKEN, 1, 3), "Yes.", quote)[0].verified


def test_find_citations_prefers_the_page_that_was_retrieved_first():
    document = make_document(["It rained.\n", "It rained.\n"])
    (citation,) = find_citations(document, excerpts_of(document, 2, 1), "It rained.")
    assert citation.page == 2


def test_find_citations_of_laid_out_pages_have_boxes_on_each_page():
    document = render_text("a line of the report\n" * 200)
    page_break = document.page(1).end
    excerpts = [
        Excerpt(page=1, start=page_break - 21, text=document.text[page_break - 21 : page_break]),
        Excerpt(page=2, start=page_break, text="a line of the report\n"),
    ]
    (citation,) = find_citations(document, excerpts, "Yes.", 'It says "of the report a line of".')
    before, after = citation.regions
    assert (before.kind, before.page, after.page) == ("quote", 1, 2)
    line = document.page(2).line_boxes()[0]
    assert before.boxes[0].x_px > line.x_px and before.boxes[0].y_px > 700
    assert after.boxes[0].x_px == line.x_px and after.boxes[0].width_px < line.width_px


def test_locate_finds_a_single_letter_only_as_it_is_written():
    excerpt = Excerpt(page=1, start=10, text="see a dog")
    assert locate("a", [excerpt]) == (14, 15)
    assert locate("A", [excerpt]) is None


# ── One letter, several spellings ────────────────────────────────────────────────────────────────

SPELLINGS = [
    ("Café Noir", "Cafe\u0301 Noir"),
    ("Île Saint-Louis", "I\u0302le Saint-Louis"),
    ("in Zürich", "in Zu\u0308rich"),
    ("Việt Nam", "Vie\u0323\u0302t Nam"),
    ("the final office", "the ﬁnal oﬃce"),
    ("Total 42", "Ｔｏｔａｌ　４２"),
    ("cooperate today", "co\u00adoperate to\u200bday"),
    ("“Straße” closed", "»STRASSE« closed"),
    ("각하 말했다", "\u1100\u1161\u11a8\u1112\u1161 말했다"),
]


@pytest.mark.parametrize(("quote", "source"), [*SPELLINGS, *((b, a) for a, b in SPELLINGS)])
def test_locate_finds_other_spellings_of_the_same_letters(quote, source):
    before, after = "We met there. ", " It was late."
    excerpt = Excerpt(page=1, start=7, text=before + source + after)
    start, end = locate(quote, [excerpt])
    assert excerpt.text[start - 7 : end - 7].strip("“”»«") == source.strip("“”»«")


@pytest.mark.parametrize("quote", ["Cafe", "the Cafe", "e Noir", "\u0301 Noir"])
def test_locate_never_separates_a_letter_from_its_accent(quote):
    assert locate(quote, [Excerpt(page=1, start=0, text="We met at the Cafe\u0301 Noir on Monday.")]) is None


def test_words_are_equal_in_every_spelling():
    assert words("Cafe\u0301 ﬁnal Ｔｏｔａｌ co\u00adoperate") == words("Café final Total cooperate")


DIVIDED = (
    "The contract names the applicant's represen-\ntative as Ms Over- \n  street, who is well-\nknown, "
    "and pages 12-\n14 of it."
)


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("the applicant's representative as Ms Overstreet", "the applicant's represen-\ntative as Ms Over- \n  street"),
        ("representative", "represen-\ntative"),
        ("who is well-known", "who is well-\nknown"),
        ("who is wellknown", "who is well-\nknown"),
        ("REPRESEN-\nTATIVE", "represen-\ntative"),
        ("pages 12-\n14 of it", "pages 12-\n14 of it"),
    ],
)
def test_locate_finds_words_divided_at_the_end_of_a_line(quote, found):
    start, end = locate(quote, [Excerpt(page=1, start=100, text=DIVIDED)])
    assert DIVIDED[start - 100 : end - 100] == found


@pytest.mark.parametrize("quote", ["tative", "represen-tive", "pages 1214", "well known fact"])
def test_locate_does_not_find_parts_that_only_look_like_divided_words(quote):
    span = locate(quote, [Excerpt(page=1, start=0, text=DIVIDED)])
    assert span is None or DIVIDED[slice(*span)] == quote


def test_words_of_a_divided_word_are_its_parts_and_the_whole():
    assert words(DIVIDED).count("representative") == 1 and "wellknown" in words(DIVIDED)
    assert {"represen", "tative", "known"} <= set(words(DIVIDED))
    assert "1214" not in words(DIVIDED)
