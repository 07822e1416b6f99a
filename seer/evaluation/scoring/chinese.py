"""Segment Chinese text into the words of jieba's default mode, in time linear in the length of the text.

LongBench's Chinese metrics compare words found by jieba, so jieba's dictionary and hidden Markov model define them; both
are read from the installed package. The search is our own implementation, because jieba copies the whole path at every
character, which takes quadratic time for long runs of characters outside its dictionary (minutes for 100,000 characters).

    cut_words("我爱北京天安门") → ("我", "爱", "北京", "天安门")

The segmentation has three levels, each of which splits the pieces of the previous one:

    text       → stretches of Chinese, Latin letters and digits, and everything else (whitespace, single characters)
    stretches  → the most probable split into dictionary words
    runs       → consecutive single characters left over, grouped into words by the Markov model
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from math import log
from typing import Any

_WORD_STRETCH = re.compile(r"([\u4E00-\u9FD5a-zA-Z0-9+#&\._%\-]+)")
_WHITE_SPACE = re.compile(r"(\r\n|\s)")
_CHINESE = re.compile(r"([\u4E00-\u9FD5]+)")
_LATIN = re.compile(r"([a-zA-Z0-9]+(?:\.\d+)?%?)")
_NEVER = -3.14e100
"""jieba's value for the logarithm of zero."""


@lru_cache(maxsize=8)
def cut_words(text: str) -> tuple[str, ...]:
    """Return all words and separators of `text` in order; joined, they equal the text.

    The cache serves metrics that compare one prediction with several answers.
    """
    words: list[str] = []
    # re.split with one group alternates between text outside the group (even) and inside it (odd).
    for index, stretch in enumerate(_WORD_STRETCH.split(text)):
        if index % 2:
            words.extend(_dictionary_words(stretch))
        else:
            for number, piece in enumerate(_WHITE_SPACE.split(stretch)):
                if number % 2:
                    words.append(piece)
                else:
                    words.extend(piece)  # Punctuation and symbols: one word per character.
    return tuple(words)


def _dictionary_words(stretch: str) -> Iterator[str]:
    """Split one stretch into dictionary words. Consecutive single characters are grouped by the Markov model."""
    frequency, _ = _dictionary()
    ends = _best_ends(stretch)
    start = run_start = 0
    while start < len(stretch):
        end = ends[start]
        if end - start > 1:
            yield from _single_characters(stretch[run_start:start], frequency)
            yield stretch[start:end]
            run_start = end
        start = end
    yield from _single_characters(stretch[run_start:], frequency)


def _best_ends(stretch: str) -> list[int]:
    """Return, for each position, the end of the word that starts there in the most probable split of the rest.

    Dynamic programming from right to left: the score of a split is the sum of log(frequency / total) over its words. Among
    equally probable words the longest wins.
    """
    frequency, log_total = _dictionary()
    size = len(stretch)
    ends = [0] * size
    best_from = [0.0] * (size + 1)
    unknown = log(1) - log_total
    for start in range(size - 1, -1, -1):
        # A character outside the dictionary is a word of frequency 1, as in jieba.
        best, best_end = unknown + best_from[start + 1], start + 1
        known = False
        end = start + 1
        # The dictionary also has every prefix of a word, with frequency 0, so the search ends at the first unknown prefix.
        while end <= size and (count := frequency.get(stretch[start:end])) is not None:
            if count:
                score = log(count) - log_total + best_from[end]
                if not known or score >= best:
                    best, best_end, known = score, end, True
            end += 1
        best_from[start], ends[start] = best, best_end
    return ends


def _single_characters(run: str, frequency: dict[str, int]) -> Iterator[str]:
    """Group consecutive single characters into words, unless the run is itself a dictionary word."""
    # jieba applies the Markov model only to runs that are not in its dictionary; runs in it stay single characters.
    if len(run) < 2 or frequency.get(run):
        yield from run
        return
    for index, piece in enumerate(_CHINESE.split(run)):
        if index % 2:
            yield from _markov_words(piece)
        else:
            yield from (part for part in _LATIN.split(piece) if part)


def _markov_words(run: str) -> Iterator[str]:
    """Group characters into words with the Viterbi algorithm.

    Each character has one of four states: B, M and E are the beginning, middle and end of a word, S a single character.
    """
    starts, steps, emissions = _markov_model()
    scores = {state: starts[state] + emissions[state].get(run[0], _NEVER) for state in "BMES"}
    # `scores`: log probability of the best path that ends in each state. `came_from`: its previous state, by character.
    came_from: list[dict[str, str]] = []
    for character in run[1:]:
        moved: dict[str, float] = {}
        previous: dict[str, str] = {}
        for state, (first, second) in _PREVIOUS.items():
            emission = emissions[state].get(character, _NEVER)
            score_first = scores[first] + steps[first].get(state, _NEVER) + emission
            score_second = scores[second] + steps[second].get(state, _NEVER) + emission
            # On a tie jieba takes max() over (score, state), so the later letter wins; `first` is the later one.
            moved[state], previous[state] = (
                (score_first, first) if score_first >= score_second else (score_second, second)
            )
        scores = moved
        came_from.append(previous)
    # A run can only end with the end of a word or a single character. Follow the best path back to the first character.
    state = "S" if scores["S"] >= scores["E"] else "E"
    states = [state]
    for previous in reversed(came_from):
        state = previous[state]
        states.append(state)
    begin = 0
    for index, state in enumerate(reversed(states)):
        if state in "ES":
            yield run[begin : index + 1]
            begin = index + 1


_PREVIOUS = {"B": ("S", "E"), "M": ("M", "B"), "S": ("S", "E"), "E": ("M", "B")}
"""The two possible previous states of each state, with the later letter of the alphabet first."""


@lru_cache(maxsize=1)
def _dictionary() -> tuple[dict[str, int], float]:
    """Return jieba's word frequencies and the logarithm of their sum."""
    import logging
    import warnings

    with warnings.catch_warnings():
        # jieba's sources use invalid escapes and the deprecated pkg_resources.
        warnings.simplefilter("ignore")
        import jieba

    jieba.setLogLevel(logging.WARNING)
    jieba.dt.check_initialized()
    return jieba.dt.FREQ, log(jieba.dt.total)


@lru_cache(maxsize=1)
def _markov_model() -> tuple[dict[str, float], dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Return jieba's start, transition and emission log probabilities."""
    from jieba import finalseg

    model: Any = finalseg
    return model.start_P, model.trans_P, model.emit_P
