"""The parts of a message in which a client wraps its documents and its question.

Chat interfaces with retrieval send both in one text, in tags such as <context> and <user_query>. Others ask the model itself,
without any document, for a title or for further questions; those requests hold the chat so far.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONTEXT = "context|contexts|documents?|docs?|sources?|files?|attachments?|knowledge|retrieved_context|search_results"
_QUERY = "user_query|query|user_question|question|user_message|user_input"
_OPENS_CONTEXT = re.compile(rf"^[ \t]*<({_CONTEXT})>", re.IGNORECASE | re.MULTILINE)
_OPENS_QUERY = re.compile(rf"<({_QUERY})>", re.IGNORECASE)
_CLOSES_QUERY = re.compile(rf"</({_QUERY})>\Z", re.IGNORECASE)
_MAX_OUTSIDE_CHARS = 20_000
"""More text outside of the tags is a document of its own, in which the tags are part of the text."""
_HISTORY = re.compile(r"<chat_history>", re.IGNORECASE)
# Ends like a question in any language, or begins with a label for one.
_ASKS = re.compile(r"[?？]\s*\Z|\A\s*(question|query|q|问题|task|instruction)\s*[:：]", re.I)


@dataclass(frozen=True)
class Wrapped:
    """A text that names its documents and its question by tags."""

    document: str
    question: str


def unwrap(text: str) -> Wrapped | None:
    """Return the document and the question of a text with tags around them; None for a text without such tags.

    >>> unwrap("<context>\\nThe fee is 90.\\n</context>\\n<user_query>\\nWhat is the fee?\\n</user_query>")
    Wrapped(document='The fee is 90.', question='What is the fee?')
    """
    lower = text.lower()
    opening = _OPENS_CONTEXT.search(text)
    if opening is not None:
        closing = lower.rfind(f"</{opening[1].lower()}>")
        outside = text[: opening.start()] + text[closing + len(opening[1]) + 3 :]
        if closing > opening.end() and len(outside) <= _MAX_OUTSIDE_CHARS:
            asked = _OPENS_QUERY.search(outside)
            end = outside.lower().find(f"</{asked[1].lower()}>", asked.end()) if asked else -1
            question = outside[asked.end() : end] if asked and end >= 0 else outside
            return Wrapped(text[opening.end() : closing].strip("\n"), question.strip())
    body = text.rstrip()
    closed = _CLOSES_QUERY.search(body)
    if closed is not None:
        begin = lower.rfind(f"<{closed[1].lower()}>", 0, closed.start())
        if text[: max(begin, 0)].strip():
            return Wrapped(text[:begin].strip("\n"), body[begin + len(closed[1]) + 2 : closed.start()].strip())
    return None


def asks_about_the_chat(text: str) -> bool:
    """Return whether a text holds the chat so far in tags, as requests for titles, tags and further questions do."""
    return _HISTORY.search(text) is not None


def split_question(text: str, max_question_chars: int) -> tuple[str, str]:
    """Split one text into (document, question); the document is empty if the text has one paragraph.

    Tags around them decide. Without tags, the last paragraph is the question, unless only the first one ends with a question
    mark or a colon.
    """
    wrapped = unwrap(text)
    if wrapped is not None:
        return wrapped.document, wrapped.question
    body = text.rstrip()
    head, gap, tail = body.rpartition("\n\n")
    if not gap:
        head, gap, tail = body.rpartition("\n")
    first, _, rest = body.lstrip().partition("\n\n")
    asks_first = len(first) <= max_question_chars and first.rstrip().endswith(("?", "？", ":", "："))
    if rest.strip() and asks_first and not _ASKS.search(tail):
        return rest, first
    return (head + gap, tail) if head.strip() else ("", body)
