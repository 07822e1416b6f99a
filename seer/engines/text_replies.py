"""Model output that arrives as text: control tokens become parts, and quotations of neutralised text are restored."""

from __future__ import annotations

import re

from seer.engines.base import Parts
from seer.protocol.control import CONTROL
from seer.protocol.literals import Literals

_CONTROL = re.compile("(" + "|".join(re.escape(name) for name in CONTROL.names()) + ")")
_NAMES = frozenset(CONTROL.names())


def parts_of_text(text: str) -> Parts:
    """Split text at the spellings of control tokens."""
    return tuple((piece, "") if piece in _NAMES else ("", piece) for piece in _CONTROL.split(text) if piece)


def read_parts(text: str, literals: Literals) -> Parts:
    """Split a reply at the control tokens that the model wrote itself, and restore what it quotes.

    literals: the spellings that were neutralised in the prompt.
    """
    return tuple((name, literals.restore(part)) for name, part in parts_of_text(text))
