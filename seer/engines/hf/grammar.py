"""Which tokens a model may write next: select calls that are valid by construction, and no stray control tokens.

One `TokenGate` watches one generation. For a select call it forces <tool_call>, lets xgrammar hold the body to the
grammar of `seer.protocol.grammar.call_grammar`, and ends at </tool_call>. Where a call is allowed but not required it may come
at once or after thinking. Anywhere else it only suppresses control tokens that the model may not write.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.engines.base import SelectConstraint
from seer.errors import ModelError
from seer.protocol.control import CONTROL
from seer.protocol.encoding import Encoder
from seer.protocol.grammar import call_grammar

if TYPE_CHECKING:
    import torch


class CallGrammars:
    """Compiled grammars of select calls for one tokenizer, kept by (pages, limit)."""

    def __init__(self, tokenizer: Any, encoder: Encoder, vocabulary: int) -> None:
        try:
            import xgrammar
        except ImportError:
            raise ModelError("constrained selection needs xgrammar: pip install 'seer-vlm[model]'") from None
        self.encoder = encoder
        self.vocabulary = vocabulary
        close = encoder.control(CONTROL.close_call)
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocabulary, stop_token_ids=[close])
        self._compiler = xgrammar.GrammarCompiler(info)
        self.compiled = functools.lru_cache(maxsize=256)(self._compile)

    def _compile(self, allowed: tuple[int, ...], max_pages: int | None) -> Any:
        return self._compiler.compile_grammar(call_grammar(allowed, max_pages))

    def gate(self, constraint: SelectConstraint | None) -> TokenGate:
        return TokenGate(self, constraint)


class TokenGate:
    """Follows one generation token by token."""

    def __init__(self, grammars: CallGrammars, constraint: SelectConstraint | None) -> None:
        encoder = grammars.encoder
        self._grammars, self._constraint = grammars, constraint
        self._matcher: Any = None
        self._may_call = constraint is not None
        self._open = encoder.control(CONTROL.open_call)
        self._close_think = encoder.control(CONTROL.close_think)
        self._close = encoder.control(CONTROL.close_call)
        self.stop_ids = encoder.stop_ids
        spoken = {encoder.control(CONTROL.open_think), encoder.control(CONTROL.close_think), *encoder.stop_ids}
        self._suppressed = sorted(encoder.added_ids - spoken)

    def mask(self, logits: torch.Tensor) -> None:
        """Set what may not come next to -inf, in place. logits: float (vocabulary,)."""
        import xgrammar

        if self._matcher is not None:
            bitmask = xgrammar.allocate_token_bitmask(1, self._grammars.vocabulary)
            self._matcher.fill_next_token_bitmask(bitmask)
            xgrammar.apply_token_bitmask_inplace(logits.unsqueeze(0), bitmask.to(logits.device))
            return
        if self._may_call and self._constraint is not None:
            opening = logits[self._open].clone()
            if self._constraint.required:
                logits.fill_(float("-inf"))
            else:
                logits[self._suppressed] = float("-inf")
            logits[self._open] = opening
            return
        logits[self._suppressed] = float("-inf")

    def accept(self, token: int) -> bool:
        """Take the token that was drawn; True where the generation ends with it."""
        import xgrammar

        if self._matcher is not None:
            self._matcher.accept_token(token)
            return token == self._close
        if self._may_call and self._constraint is not None and token == self._open:
            compiled = self._grammars.compiled(self._constraint.allowed, self._constraint.max_pages)
            self._matcher = xgrammar.GrammarMatcher(compiled)
            return False
        self._may_call = self._constraint is not None and token == self._close_think
        return token in self.stop_ids


def longest_common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """How many leading ids agree."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n
