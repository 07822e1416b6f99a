"""Break the spellings of control tokens in text that can only be sent as a string.

A server's or a teacher's own tokenizer may read `<|user|>` in a document as a control token. A zero-width joiner after
the first character prevents that:

    neutralise("a <|user|> b")        "a <" + JOINER + "|user|> b"
    restore(neutralise(text))         the same text again

Two sets of spellings exist. `GLM_LITERALS` lists the control tokens of the GLM family, for servers that run the same
family as Seer. `CHAT_LITERALS` matches the forms that chat models of any family use, for teachers.
"""

from __future__ import annotations

import re

from seer.protocol.control import KNOWN_CONTROL_LITERALS

JOINER = "\u2060"
"""WORD JOINER: it has no width and no glyph, so people see the text unchanged."""


class Literals:
    """A set of control-token spellings: each is one opening character and a rest."""

    def __init__(self, openings: str, rest: str) -> None:
        """Compile the set.

        openings: the characters that a spelling can begin with.
        rest: a regular expression for what follows the opening character.
        """
        self._openings = openings
        # Joiners between opening and rest are part of the match: a text that already holds one gets a second, and
        # `restore` removes exactly one.
        self._pattern = re.compile(f"([{re.escape(openings)}])({JOINER}*)({rest})")

    def neutralise(self, text: str) -> str:
        """Insert a joiner into every spelling in `text`, so that no tokenizer reads it as a control token."""
        # Most pages contain no opening character, and searching for single characters is fast.
        if not any(opening in text for opening in self._openings):
            return text
        return self._pattern.sub(rf"\1{JOINER}\2\3", text)

    def restore(self, text: str) -> str:
        """Invert `neutralise`: remove one joiner from every spelling, in text that quotes neutralised text."""
        return self._pattern.sub(lambda match: match[1] + match[2][1:] + match[3], text)


GLM_LITERALS = Literals("<[/", "|".join(re.escape(name[1:]) for name in KNOWN_CONTROL_LITERALS))
"""The exact control tokens of the GLM family."""

CHAT_LITERALS = Literals(
    "<[",
    r"\|[\w .\-]{1,40}\||/?(?:think|tool_call|tool_response|s|bos|eos|unk|pad|image|answer)>"
    r"|/?(?:INST|SYS|gMASK|MASK|sMASK)\]|sop>|eop>|start_of_turn>|end_of_turn>",
)
"""Forms of control tokens in the chat formats of any model family, such as `<|im_end|>`, `[INST]` and `<s>`."""


def neutralise(text: str) -> str:
    """Insert a joiner into every spelling of a GLM control token."""
    return GLM_LITERALS.neutralise(text)


def restore(text: str) -> str:
    """Invert `neutralise`."""
    return GLM_LITERALS.restore(text)
