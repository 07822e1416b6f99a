"""Prompts of the reasoning teacher and the parser of its replies, as pure functions over text.

The prompts are part of the key of a teacher call: changing one invalidates the calls in existing ledgers. The prompts of
the page judge are in `seer.teaching.verdicts`, because evaluation uses them too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from seer.engines.base import Chat
from seer.protocol.literals import CHAT_LITERALS
from seer.teaching.verdicts import strip_thinking

_REASON_SYSTEM = (
    "You answer a question about a long document. You get the document, and again the text of those pages that matter. "
    "First think step by step between <think> and </think>, and refer to pages as image 1, image 2 and so on. Then "
    "write the answer alone, after the word 'Answer:'. If the document does not answer the question, write 'Answer: "
    "unanswerable'."
)
_ANSWER_FORMS = {
    "extractive": "Give the name, number, date or phrase alone, or yes or no, as short as it can be.",
    "free": "Give the shortest complete answer; copy the document's words where you can.",
    "summary": "The answer is the whole summary, as flowing text.",
    "code": "The answer is exactly the next line of code, with its indentation, without any mark around it.",
}


def reason_chat(
    question: str, kind: str, context: str, selected: list[tuple[int, str]], summary_words: int = 0
) -> Chat:
    """Return the chat that requests reasoning and an answer. The gold answer is not an argument, so it cannot leak.

    Args:
        question: The question with the instruction of its task.
        kind: The type of the answer.
        context: The document.
        selected: Number and text of each necessary page.
        summary_words: Expected length of a summary; 0 leaves it open.

    The engine neutralises the text of the user message.
    """
    form = _ANSWER_FORMS[kind]
    if kind == "summary" and summary_words:
        form += f" Write about {summary_words} words."
    pages = "\n".join(f"Text from image {number}: {text}" for number, text in selected)
    user = (
        f"--- document begins ---\n{context}\n--- document ends ---\n\n"
        f"--- pages that matter ---\n{pages or '(none)'}\n--- end of pages ---\n\n"
        f"Question: {question}\n{form}"
    )
    return Chat.of(user, system=_REASON_SYSTEM)


_HOP_SYSTEM = (
    "You read a long document in steps. You get a question and the pages that were read so far; more pages follow. In at "
    "most three sentences, state what these pages say that the question needs, and what must be found next. Refer to "
    "pages as image 1, image 2 and so on. Do not guess what the other pages say, and do not answer the question."
)


def hop_chat(question: str, seen: list[tuple[int, str]]) -> Chat:
    """Return the chat that requests the thought before a further call.

    `seen` holds number and text of the pages retrieved so far. The other pages and the gold answer are not arguments, so
    the thought cannot build on them. The engine neutralises the text of the user message.
    """
    pages = "\n".join(f"Text from image {number}: {text}" for number, text in seen)
    user = (
        f"--- pages read so far ---\n{pages}\n--- end of pages ---\n\n"
        f"Question: {question}\nWhat do these pages contribute, and what is missing?"
    )
    return Chat.of(user, system=_HOP_SYSTEM)


def parse_hop(text: str, finish: str = "stop") -> str:
    """Return the thought of a reply without the teacher's own thinking, or "" if it is cut, empty or a refusal."""
    visible = strip_thinking(text)
    thought = CHAT_LITERALS.restore(visible or "").strip()
    return "" if finish == "length" or _REFUSAL.match(thought) else thought


@dataclass(frozen=True)
class ParsedReasoning:
    """The thinking and the answer of a reply, or in `problem` the rejection reason if it is unusable."""

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
    """Split a reply into thinking and answer.

    Args:
        text: The text of the reply, which may hold the thinking in <think> tags or before the word "Answer:".
        think: The thinking, if the server returned it separately.
        finish: The server's finish reason; `length` means that the reply was cut.
    """
    if not text.strip() and not think.strip():
        return ParsedReasoning(problem="reason_empty")
    visible = strip_thinking(text)  # None if the thinking was not closed
    if visible is None or (finish == "length" and not think):
        return ParsedReasoning(problem="reason_truncated")
    if not think and "</think>" in text:
        think = text.rpartition("</think>")[0].replace("<think>", "").replace("</think>", "")
    marks = list(_ANSWER_MARK.finditer(visible))
    if marks:
        # The last mark counts: a reply may quote the word "Answer:" while it reasons.
        answer, before = visible[marks[-1].end() :], visible[: marks[-1].start()]
        think = think or before
    else:
        answer = visible
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


# ── Comparing answers ────────────────────────────────────────────────────────────────────────────


def same_answer_chat(question: str, answers: tuple[str, ...], given: str) -> Chat:
    """Return the chat that asks whether `given` has the meaning of one of the gold answers (the first ten)."""
    system = (
        "You compare answers. Reply with one word: YES if the given answer means the same as a correct one, else NO."
    )
    user = (
        f"Question: {question}\n"
        f"Correct answers: {' / '.join(answers[:10])}\n"
        f"Given answer: {given}\nDo they mean the same? Reply YES or NO."
    )
    return Chat.of(user, system=system)
