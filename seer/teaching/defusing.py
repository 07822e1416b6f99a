"""Spellings that a teacher's tokenizer could take for control tokens, broken before they are sent.

Documents and questions come from outside. A zero-width joiner breaks such spellings; it is mended in what comes back.
"""

from __future__ import annotations

import re

_JOINER = "\u2060"
_CONTROL_LIKE = re.compile(
    rf"([<\[])({_JOINER}*)(\|[\w .\-]{{1,40}}\||/?(?:think|tool_call|tool_response|s|bos|eos|unk|pad|image|answer)>"
    r"|/?(?:INST|SYS|gMASK|MASK|sMASK)\]|sop>|eop>|start_of_turn>|end_of_turn>)"
)


def defuse(text: str) -> str:
    """Text in which nothing spells a control token; looks unchanged."""
    if "<" not in text and "[" not in text:  # most pages: looking for one character is quick
        return text
    return _CONTROL_LIKE.sub(rf"\1{_JOINER}\2\3", text)


def mend(text: str) -> str:
    """The inverse of `defuse`, for what a teacher quotes."""
    return _CONTROL_LIKE.sub(lambda match: match[1] + match[2][1:] + match[3], text)
