"""What the reasoning teacher is asked, and how its replies are read: pure text in, reasoning or nothing out.

What the judge of pages is asked stands in `seer.teaching.verdicts`, since evaluation asks the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from seer.protocol.literals import CHAT_LITERALS
from seer.teaching.verdicts import Message, strip_thinking

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
    pages = "\n".join(f"Text from image {number}: {CHAT_LITERALS.neutralise(text)}" for number, text in selected)
    user = (
        f"--- document begins ---\n{CHAT_LITERALS.neutralise(context)}\n--- document ends ---\n\n"
        f"--- pages that matter ---\n{pages or '(none)'}\n--- end of pages ---\n\n"
        f"Question: {CHAT_LITERALS.neutralise(question)}\n{_ANSWER_FORMS[kind]}"
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
    answer = CHAT_LITERALS.restore(answer).strip("\r\n").rstrip()
    if finish == "length":
        return ParsedReasoning(problem="reason_truncated")
    if not answer.strip():
        return ParsedReasoning(problem="reason_empty")
    if _REFUSAL.match(answer):
        return ParsedReasoning(problem="reason_refused")
    if not think.strip():
        return ParsedReasoning(problem="no_reasoning", answer=answer)
    return ParsedReasoning(think=CHAT_LITERALS.restore(think).strip(), answer=answer)


# ── Do two answers mean the same? ────────────────────────────────────────────────────────────────


def same_answer_messages(question: str, answers: tuple[str, ...], given: str) -> list[Message]:
    system = (
        "You compare answers. Reply with one word: YES if the given answer means the same as a correct one, else NO."
    )
    user = (
        f"Question: {CHAT_LITERALS.neutralise(question)}\n"
        f"Correct answers: {CHAT_LITERALS.neutralise(' / '.join(answers[:10]))}\n"
        f"Given answer: {CHAT_LITERALS.neutralise(given)}\nDo they mean the same? Reply YES or NO."
    )
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
