"""What a judge of page relevance is asked, and how its reply is read: YES, NO, or nothing; never a guess."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from seer.protocol.literals import CHAT_LITERALS

Message = dict[str, str]
Verdict = Literal["yes", "no", "unclear", "contradictory", "truncated"]

_JUDGE_SYSTEM = (
    "You decide whether one page of a longer document is necessary to answer a question. You see the question, its "
    "correct answer and the text of that page alone. A page is necessary if it holds a fact that the answer follows "
    "from, also where other pages must add to it. Reply with one word: YES or NO."
)


def judge_messages(question: str, answers: Sequence[str], page_text: str) -> list[Message]:
    """Ask for one page. What stands between the page marks is material, not instruction."""
    user = (
        f"Question: {CHAT_LITERALS.neutralise(question)}\n"
        f"Correct answer: {CHAT_LITERALS.neutralise(' / '.join(answers[:3]))}\n\n"
        f"--- page begins ---\n{CHAT_LITERALS.neutralise(page_text)}\n--- page ends ---\n\n"
        "Is this page necessary to answer the question? Reply YES or NO."
    )
    return [{"role": "system", "content": _JUDGE_SYSTEM}, {"role": "user", "content": user}]


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
    """YES or NO out of a reply: the word it begins with, or its stated conclusion, or the one word in capitals.

    `unclear`: none of these. `contradictory`: two that differ. `truncated`: thinking that never ended.
    """
    said = strip_thinking(text)
    if said is None:
        return "truncated"
    said = said.strip().strip("*\"'`#>{}[]()（）【】 \n")
    found = set[str]()
    leading = _LEADING.match(said)
    if leading:
        found.add("no" if leading["no"] else "yes")
    for match in _CONCLUDING.finditer(said):
        found.add("no" if match["no"] else "yes")
    found.update(match["word"].lower() for match in _SHOUTED.finditer(said))
    if len(found) > 1:
        return "contradictory"
    if found:
        return "yes" if "yes" in found else "no"
    return "truncated" if finish == "length" else "unclear"


def strip_thinking(text: str) -> str | None:
    """The reply without its thinking; None where the thinking never ends."""
    if "</think>" in text:
        return text.rpartition("</think>")[2]
    return None if re.match(r"\s*<think>", text) else text
