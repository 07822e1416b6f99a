"""Budgets and the gate: exact arithmetic, exact text."""

from __future__ import annotations

from fakes import small_encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.policy import choose_mode, chunk_pages, fair_shares, fit_excerpts, trim_to_lines
from seer.protocol import observation, render_observation
from seer.schema import Excerpt

COUNT = small_encoder().count_text


@given(st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=5), st.integers(0, 300))
@settings(max_examples=150, deadline=None)
def test_fitted_excerpts_fit_and_are_the_source(texts, budget):
    source = "".join(texts)
    excerpts, start = [], 0
    for number, text in enumerate(texts, 1):
        excerpts.append(Excerpt(page=number, start=start, text=text))
        start += len(text)
    kept = fit_excerpts(excerpts, budget, COUNT, "a question")
    if kept:
        assert COUNT(f"\n{render_observation(observation(kept))}\n") <= budget
    assert [e.page for e in kept] == sorted({e.page for e in kept})
    for excerpt in kept:
        assert source[excerpt.start : excerpt.end] == excerpt.text
    if COUNT(f"\n{render_observation(observation(excerpts))}\n") <= budget:
        assert list(kept) == excerpts


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.integers(0, 5000))
def test_shares_never_exceed_needs_nor_the_total(needs, total):
    shares = fair_shares(needs, total)
    assert all(0 <= share <= need for share, need in zip(shares, needs, strict=True))
    assert sum(shares) <= total
    if sum(needs) <= total:
        assert shares == needs


def test_trimming_keeps_the_lines_around_the_one_that_was_asked_for():
    lines = [f"line {n} says nothing of note\n" for n in range(30)]
    lines[17] = "the treaty was signed in 1713\n"
    excerpt = Excerpt(page=4, start=100, text="".join(lines))
    cut = trim_to_lines(excerpt, 120, COUNT, "When was the treaty signed?")
    assert "1713" in cut.text
    assert cut.text in excerpt.text
    assert cut.text.endswith("\n")
    assert cut.start == 100 + excerpt.text.index(cut.text)


def test_the_gate_is_exact():
    assert choose_mode(full_text=100, visual=60, call=20, observation_tokens=20) == "select"
    assert choose_mode(full_text=99, visual=60, call=20, observation_tokens=20) == "text"


@given(st.lists(st.integers(1, 500), min_size=1, max_size=50), st.integers(1, 2000))
def test_chunks_cover_every_page_once_and_fit(costs, room):
    runs = chunk_pages(costs, room)
    assert [page for run in runs for page in run] == list(range(1, len(costs) + 1))
    for run in runs:
        assert sum(costs[page - 1] for page in run) <= room or len(run) == 1
