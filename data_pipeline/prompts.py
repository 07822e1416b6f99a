"""What teachers are asked, and how their replies are read: pure text in, a verdict or nothing out, never a guess.

Documents and questions come from outside. Spellings that a teacher's tokenizer could take for control tokens are broken
by a zero-width joiner before they are sent, and mended in what comes back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Message = dict[str, str]
Verdict = Literal["yes", "no", "unclear", "contradictory", "truncated"]

_JOINER = "\u2060"
_CONTROL_LIKE = re.compile(
    rf"([<\[])({_JOINER}*)(\|[\w .\-]{{1,40}}\||/?(?:think|tool_call|tool_response|s|bos|eos|unk|pad|image|answer)>"
    r"|/?(?:INST|SYS|gMASK|MASK|sMASK)\]|sop>|eop>|start_of_turn>|end_of_turn>)"
)


def defuse(text: str) -> str:
    """Text in which nothing spells a control token; looks unchanged."""
    return _CONTROL_LIKE.sub(rf"\1{_JOINER}\2\3", text)


def mend(text: str) -> str:
    """The inverse of `defuse`, for what a teacher quotes."""
    return _CONTROL_LIKE.sub(lambda match: match[1] + match[2][1:] + match[3], text)


# ── Phase 1: is this page necessary? ─────────────────────────────────────────────────────────────

_JUDGE_SYSTEM = (
    "You decide whether one page of a longer document is necessary to answer a question. You see the question, its "
    "correct answer and the text of that page alone. A page is necessary if it holds a fact that the answer follows "
    "from, also where other pages must add to it. Reply with one word: YES or NO."
)


def judge_messages(question: str, answers: tuple[str, ...], page_text: str) -> list[Message]:
    """Ask for one page. What stands between the page marks is material, not instruction."""
    user = (
        f"Question: {defuse(question)}\nCorrect answer: {defuse(' / '.join(answers[:3]))}\n\n"
        f"--- page begins ---\n{defuse(page_text)}\n--- page ends ---\n\n"
        "Is this page necessary to answer the question? Reply YES or NO."
    )
    return [{"role": "system", "content": _JUDGE_SYSTEM}, {"role": "user", "content": user}]


_YES_WORDS, _NO_WORDS = r"yes|是(?!否)的?|需要|必要|necessary", r"no|否|不是|不需要|不必要|not necessary|unnecessary"
_LEADING = re.compile(
    rf"(?:answer|verdict|final answer|答案|结论|回答)?\W*(?:(?P<no>{_NO_WORDS})|(?P<yes>{_YES_WORDS}))(?![a-z])", re.I
)
_CONCLUDING = re.compile(
    rf"(?:answer|verdict|conclusion|答案|结论|回答)\s*(?:is|为|是)?\s*[:：]?[\s*\"'`]*(?:(?P<no>{_NO_WORDS})|(?P<yes>{_YES_WORDS}))(?![a-z])",
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


# ── Phase 2: reason and answer ───────────────────────────────────────────────────────────────────

_REASON_SYSTEM = (
    "You answer a question about a long document. You get the document, and again the text of those pages that matter. "
    "First think step by step between <think> and </think>, and refer to pages as image 1, image 2 and so on. Then "
    "write the answer alone, after the word 'Answer:', as short as it can be. If the document does not answer the "
    "question, write 'Answer: unanswerable'."
)
_ANSWER_FORMS = {
    "extractive": "Give the name, number, date or phrase alone, or yes or no.",
    "free": "Give the shortest complete answer; copy the document's words where you can.",
    "summary": "The answer is the whole summary, as flowing text.",
    "code": "The answer is exactly the next line of code, with its indentation, without any mark around it.",
}


def reason_messages(question: str, kind: str, context: str, selected: list[tuple[int, str]]) -> list[Message]:
    """Ask for reasoning and answer. The gold answer is not an argument, so it cannot leak."""
    pages = "\n".join(f"Text from image {number}: {defuse(text)}" for number, text in selected)
    user = (
        f"--- document begins ---\n{defuse(context)}\n--- document ends ---\n\n"
        f"--- pages that matter ---\n{pages or '(none)'}\n--- end of pages ---\n\n"
        f"Question: {defuse(question)}\n{_ANSWER_FORMS[kind]}"
    )
    return [{"role": "system", "content": _REASON_SYSTEM}, {"role": "user", "content": user}]


@dataclass(frozen=True)
class ParsedReasoning:
    """Thinking and answer; or why there are none, as a rejection reason."""

    think: str = ""
    answer: str = ""
    problem: str = ""


_ANSWER_MARK = re.compile(r"^[ \t>*#]*(?:final answer|answer|答案|最终答案)[ \t*]*[:：][ \t*]*", re.I | re.M)
_REFUSAL = re.compile(
    r"^\W*(i['’]?m sorry|i am sorry|sorry,|i (can ?not|can['’]?t|won['’]?t|am unable to|am not able to)\b"
    r"|as an ai\b|对不起|抱歉|很抱歉|我无法|作为(一个)?(AI|人工智能))",
    re.I,
)


def parse_reasoning(text: str, think: str = "", finish: str = "stop") -> ParsedReasoning:
    """Thinking and answer of a reply. `think`: what the server sent apart."""
    if not text.strip() and not think.strip():
        return ParsedReasoning(problem="reason_empty")
    said = strip_thinking(text)
    if said is None or (finish == "length" and not think):
        return ParsedReasoning(problem="reason_truncated")
    if not think and "</think>" in text:
        think = text.rpartition("</think>")[0].replace("<think>", "").replace("</think>", "")
    marks = list(_ANSWER_MARK.finditer(said))
    if marks:
        answer, before = said[marks[-1].end() :], said[: marks[-1].start()]
        think = think or before
    else:
        answer = said
    answer = mend(answer).strip("\r\n").rstrip()
    if finish == "length":
        return ParsedReasoning(problem="reason_truncated")
    if not answer.strip():
        return ParsedReasoning(problem="reason_empty")
    if _REFUSAL.match(answer):
        return ParsedReasoning(problem="reason_refused")
    if not think.strip():
        return ParsedReasoning(problem="no_reasoning", answer=answer)
    return ParsedReasoning(think=mend(think).strip(), answer=answer)


# ── Do two answers mean the same? ────────────────────────────────────────────────────────────────


def same_answer_messages(question: str, answers: tuple[str, ...], given: str) -> list[Message]:
    system = (
        "You compare answers. Reply with one word: YES if the given answer means the same as a correct one, else NO."
    )
    user = (
        f"Question: {defuse(question)}\nCorrect answers: {defuse(' / '.join(answers[:10]))}\n"
        f"Given answer: {defuse(given)}\nDo they mean the same? Reply YES or NO."
    )
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
