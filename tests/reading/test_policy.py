"""The reading policy: limits of its fields, and exact arithmetic and text when excerpts are trimmed."""

from __future__ import annotations

import pytest
from fakes import small_encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.protocol.turns import observation, render_observation
from seer.reading.policy import ReadingPolicy, choose_mode, chunk_pages, fair_shares, fit_excerpts, trim_to_lines
from seer.schema import Excerpt

COUNT = small_encoder().count_text


@given(st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=5), st.integers(0, 300))
@settings(max_examples=150, deadline=None)
def test_fit_excerpts_keeps_source_text_within_the_budget(texts, budget):
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
def test_fair_shares_never_exceed_needs_nor_the_total(needs, total):
    shares = fair_shares(needs, total)
    assert all(0 <= share <= need for share, need in zip(shares, needs, strict=True))
    assert sum(shares) <= total
    if sum(needs) <= total:
        assert shares == needs


def test_trim_to_lines_keeps_the_lines_around_the_best_match():
    lines = [f"line {n} says nothing of note\n" for n in range(30)]
    lines[17] = "the treaty was signed in 1713\n"
    excerpt = Excerpt(page=4, start=100, text="".join(lines))
    cut = trim_to_lines(excerpt, 120, COUNT, "When was the treaty signed?")
    assert "1713" in cut.text
    assert cut.text in excerpt.text
    assert cut.text.endswith("\n")
    assert cut.start == 100 + excerpt.text.index(cut.text)


def test_choose_mode_is_exact_at_the_limit():
    assert choose_mode(full_text=100, visual=60, call=20, observation_tokens=20) == "select"
    assert choose_mode(full_text=99, visual=60, call=20, observation_tokens=20) == "text"


@given(st.lists(st.integers(1, 500), min_size=1, max_size=50), st.integers(1, 2000))
def test_chunk_pages_covers_every_page_once_within_the_room(costs, room):
    runs = chunk_pages(costs, room)
    assert [page for run in runs for page in run] == list(range(1, len(costs) + 1))
    for run in runs:
        assert sum(costs[page - 1] for page in run) <= room or len(run) == 1


# ── Trimming, to the token ───────────────────────────────────────────────────────────────────────


def observed(*excerpts: Excerpt) -> int:
    return len(f"\n{render_observation(observation(excerpts))}")


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.data())
def test_trim_to_lines_result_cannot_grow_by_a_line(lengths, data):
    lines = [chr(97 + n) * length + "\n" for n, length in enumerate(lengths)]
    asked = data.draw(st.integers(0, len(lines) - 1))
    excerpt = Excerpt(page=1, start=7, text="".join(lines))
    room = data.draw(st.integers(0, observed(excerpt) + 1))
    cut = trim_to_lines(excerpt, room, len, f"Where is {lines[asked].strip()}?")
    whole = observed(Excerpt(page=1, start=0, text=lines[asked])) <= room
    if cut is None:
        assert observed(Excerpt(page=1, start=0, text=lines[asked][0])) > room
        return
    assert observed(cut) <= room
    start = cut.start - excerpt.start
    end = start + len(cut.text)
    assert cut.text == excerpt.text[start:end]
    if not whole:
        assert cut.text == lines[asked][: len(cut.text)] and observed(cut) == room
        return
    assert lines[asked] in cut.text
    before, after = excerpt.text[:start].splitlines(True), excerpt.text[end:].splitlines(True)
    for more in (before[-1:], after[:1]):
        assert not more or observed(cut) + len(more[0]) > room


def test_trim_to_lines_keeps_the_first_of_equal_matches():
    excerpt = Excerpt(page=1, start=0, text="no\nthe rent\nno\nthe rent\n")
    assert trim_to_lines(excerpt, observed(excerpt) - 15, len, "What is the rent?").text == "the rent\n"
    assert trim_to_lines(Excerpt(page=1, start=0, text=""), 100, len, "What?") is None


def test_fit_excerpts_leaves_excerpts_that_fit_exactly():
    excerpts = tuple(Excerpt(page=n, start=0, text="one\ntwo\nthree\n") for n in (1, 2))
    exact = observed(*excerpts) + len("\n")
    assert fit_excerpts(excerpts, exact, len, "two") == excerpts
    assert fit_excerpts(excerpts, exact - 1, len, "two") != excerpts


def test_fit_excerpts_keeps_short_pages_whole():
    long = Excerpt(page=2, start=50, text="".join(f"line {n:02}\n" for n in range(40)))
    short = Excerpt(page=1, start=0, text="short\n")
    first, second = fit_excerpts((short, long), 200, len, "line 20")
    assert first == short
    assert "line 20\n" in second.text
    # less than one line of the room is wasted
    assert 200 - len("line 00\n") < observed(first, second) + len("\n") <= 200


def test_fit_excerpts_keeps_a_line_in_every_budget_that_holds_one():
    long = Excerpt(page=1, start=0, text="".join(f"line {n:02}\n" for n in range(40)))
    least = observed(Excerpt(page=1, start=0, text="line 00\n")) + len("\n")
    for budget in range(least, observed(long)):
        (kept,) = fit_excerpts((long,), budget, len, "line 20")
        assert budget - len("line 00\n") <= observed(kept) + len("\n") <= budget


def test_chunk_pages_joins_pages_that_fit_exactly():
    assert chunk_pages([5, 5, 5], 10) == [range(1, 3), range(3, 4)]
    assert chunk_pages([50, 5], 10) == [range(1, 2), range(2, 3)]


def test_policy_defaults_are_the_single_round_of_the_paper():
    policy = ReadingPolicy()
    assert (policy.mode, policy.rounds, policy.max_pages, policy.selector_pages) == ("select", 1, 8, 2)
    assert (policy.retrieve, policy.think, policy.chat, policy.on_invalid_call) == (True, True, True, "drop")
    assert (policy.max_call_tokens, policy.max_new_tokens, policy.reasks) == (256, 1024, 1)
    assert (policy.temperature, policy.top_p, policy.top_k, policy.max_retrieved_tokens) == (0.0, 1.0, 0, None)


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("rounds", (1, 32), (0, 33)),
        ("reasks", (1, 8), (0, 9)),
        ("max_pages", (1, None), (0,)),
        ("selector_pages", (1,), (0,)),
        ("max_retrieved_tokens", (1, None), (0,)),
        ("max_call_tokens", (16,), (15,)),
        ("max_new_tokens", (1,), (0,)),
        ("temperature", (0, 2), (-0.1, 2.1)),
        ("top_p", (0.1, 1), (0, 1.1)),
        ("top_k", (0,), (-1,)),
    ],
)
def test_policy_rejects_values_beyond_their_limits(name, allowed, refused):
    for value in allowed:
        assert getattr(ReadingPolicy(**{name: value}), name) == value
    for value in refused:
        with pytest.raises(ValueError, match=name):
            ReadingPolicy(**{name: value})


def test_trim_to_lines_keeps_a_page_that_fits_whole():
    page = Excerpt(page=1, start=3, text="a\nb\nc\n")
    assert [trim_to_lines(page, observed(page), len, line) for line in "abc"] == [page] * 3
