"""The prompt of the judge of page relevance and the parser of its reply: YES, NO, or a problem; never a guess.

The prompt is part of the key of a teacher call: changing it invalidates the calls in existing ledgers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from seer.engines.base import Chat

Verdict = Literal["yes", "no", "unclear", "contradictory", "truncated"]

_JUDGE_SYSTEM = (
    "You decide whether one page of a longer document is necessary to answer a question. You see the question, its "
    "correct answer and the text of that page alone. A page is necessary if it holds a fact that the answer follows "
    "from, also where other pages must add to it. Reply with one word: YES or NO."
)


def judge_chat(question: str, answers: Sequence[str], page_text: str) -> Chat:
    """The chat that asks about one page, with the first three gold answers. The engine neutralises its text."""
    user = (
        f"Question: {question}\n"
        f"Correct answer: {' / '.join(answers[:3])}\n\n"
        f"--- page begins ---\n{page_text}\n--- page ends ---\n\n"
        "Is this page necessary to answer the question? Reply YES or NO."
    )
    return Chat.of(user, system=_JUDGE_SYSTEM)


# Possessive quantifiers (`*+`) keep the patterns linear on replies that repeat a beginning without an end.
_YES_WORDS, _NO_WORDS = r"yes|是(?!否)的?|需要|必要|necessary", r"no|否|不是|不需要|不必要|not necessary|unnecessary"
_LEADING = re.compile(
    rf"(?:answer|verdict|final answer|答案|结论|回答)?\W*(?:(?P<no>{_NO_WORDS})|(?P<yes>{_YES_WORDS}))(?![a-z])", re.I
)
_CONCLUDING = re.compile(
    rf"(?:answer|verdict|conclusion|答案|结论|回答)\s*+(?:is|为|是)?\s*+[:：]?[\s*\"'`]*+(?:(?P<no>{_NO_WORDS})|(?P<yes>{_YES_WORDS}))(?![a-z])",
    re.I,
)
_SHOUTED = re.compile(r"(?<![A-Za-z])(?<!not )(?P<word>YES|NO)(?![A-Za-z])")


def parse_verdict(text: str, finish: str = "stop") -> Verdict:
    """The verdict of a reply: its first word, its stated conclusion, or the only word in capitals.

    `unclear`: none of these. `contradictory`: two that differ. `truncated`: thinking that never ended.
    """
    visible = strip_thinking(text)
    if visible is None:
        return "truncated"
    visible = visible.strip().strip("*\"'`#>{}[]()（）【】 \n")
    found = set[str]()
    leading = _LEADING.match(visible)
    if leading:
        found.add("no" if leading["no"] else "yes")
    for match in _CONCLUDING.finditer(visible):
        found.add("no" if match["no"] else "yes")
    found.update(match["word"].lower() for match in _SHOUTED.finditer(visible))
    # Two verdicts that differ are not weighed against each other, because that would be a guess.
    if len(found) > 1:
        return "contradictory"
    if found:
        return "yes" if "yes" in found else "no"
    return "truncated" if finish == "length" else "unclear"


def strip_thinking(text: str) -> str | None:
    """The reply without its thinking; None if the thinking never ends."""
    if "</think>" in text:
        return text.rpartition("</think>")[2]
    return None if re.match(r"\s*<think>", text) else text
