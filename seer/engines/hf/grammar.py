"""Which tokens a model may write next: valid select calls, JSON that fits a schema, and no stray control tokens.

A `TokenGate` follows one generation. For a select call it forces <tool_call>, lets xgrammar restrict the body to the
grammar of `seer.protocol.grammar.call_grammar`, and ends at </tool_call>. If a call is allowed but not required, it may
come at once or after thinking. For a JSON schema the whole answer is restricted, and a stop token follows it. Everywhere
else the gate only suppresses control tokens that the model must not write.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.engines.base import Constraint, JsonSchema, SelectCall
from seer.errors import InputError, ModelError
from seer.protocol.control import CONTROL
from seer.protocol.encoding import Encoder
from seer.protocol.grammar import call_grammar

if TYPE_CHECKING:
    import torch


class Grammars:
    """Compiled grammars of one tokenizer, kept for reuse."""

    def __init__(self, tokenizer: Any, encoder: Encoder, vocabulary: int) -> None:
        """`vocabulary`: rows of the output layer. Raises ModelError if xgrammar is not installed."""
        try:
            import xgrammar
        except ImportError:
            raise ModelError("constrained generation needs xgrammar: pip install 'seer-vlm[model]'") from None
        self.encoder = encoder
        self.vocabulary = vocabulary

        def compiler(stop_ids: list[int]) -> Any:
            info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocabulary, stop_token_ids=stop_ids)
            return xgrammar.GrammarCompiler(info)

        # a call ends with </tool_call>, a JSON answer with the end of the model's turn
        self._calls = compiler([encoder.control(CONTROL.close_call)])
        self._schemas = functools.cache(lambda: compiler(list(encoder.stop_ids)))
        self.call = functools.lru_cache(maxsize=256)(self._compile_call)
        self.schema = functools.lru_cache(maxsize=256)(self._compile_schema)

    def gate(self, constraint: Constraint | None) -> TokenGate:
        """A new gate for one generation. Raises InputError for a JSON schema that cannot be compiled."""
        return TokenGate(self, constraint)

    def _compile_call(self, allowed: tuple[int, ...], max_pages: int | None) -> Any:
        return self._calls.compile_grammar(call_grammar(allowed, max_pages))

    def _compile_schema(self, schema: str) -> Any:
        try:
            # separators as json.dumps writes them: free white space would let a model fill its limit with blanks
            return self._schemas().compile_json_schema(schema, any_whitespace=False)
        except Exception as error:  # xgrammar raises bare RuntimeErrors and InvalidJSONError by version
            reason = str(error).strip().partition("\n")[0][:200]
            raise InputError(
                f"the JSON schema {schema[:80]!r} cannot be compiled: {reason}; use a schema that xgrammar supports"
            ) from None


class TokenGate:
    """Follows one generation token by token."""

    def __init__(self, grammars: Grammars, constraint: Constraint | None) -> None:
        import xgrammar

        encoder = grammars.encoder
        self._grammars = grammars
        self._call = constraint if isinstance(constraint, SelectCall) else None
        self._matcher: Any = None
        self._enforced = self._call is not None and self._call.enforced
        self._may_call = self._enforced
        self._open = encoder.control(CONTROL.open_call)
        self._close_think = encoder.control(CONTROL.close_think)
        self._close = encoder.control(CONTROL.close_call)
        self.stop_ids = encoder.stop_ids
        self._is_json = isinstance(constraint, JsonSchema)
        allowed = {*encoder.stop_ids}
        if isinstance(constraint, JsonSchema):
            self._matcher = xgrammar.GrammarMatcher(grammars.schema(constraint.schema))
        else:
            allowed |= {encoder.control(CONTROL.open_think), encoder.control(CONTROL.close_think)}
            if self._call is not None and not self._enforced:
                allowed |= {self._open, self._close}
        self._suppressed = sorted(encoder.added_ids - allowed)

    def mask(self, logits: torch.Tensor) -> None:
        """Set tokens that may not come next to -inf, in place. logits: float (vocabulary,)."""
        import xgrammar

        if self._matcher is not None:
            bitmask = xgrammar.allocate_token_bitmask(1, self._grammars.vocabulary)
            self._matcher.fill_next_token_bitmask(bitmask)
            xgrammar.apply_token_bitmask_inplace(logits.unsqueeze(0), bitmask.to(logits.device))
            if self._is_json:  # a JSON string may hold any text, but no control token
                logits[self._suppressed] = float("-inf")
            return
        if self._may_call and self._call is not None:
            opening = logits[self._open].clone()
            if self._call.required:
                logits.fill_(float("-inf"))
            else:
                logits[self._suppressed] = float("-inf")
            logits[self._open] = opening
            return
        logits[self._suppressed] = float("-inf")

    def accept(self, token: int) -> bool:
        """Record the token that was drawn; True if the generation ends with it."""
        import xgrammar

        if self._matcher is not None:
            self._matcher.accept_token(token)
            return token in self.stop_ids if self._is_json else token == self._close
        if self._may_call and self._call is not None and token == self._open:
            self._matcher = xgrammar.GrammarMatcher(self._grammars.call(self._call.allowed, self._call.max_pages))
            return False
        if self._call is not None and not self._enforced:
            return token in self.stop_ids or token == self._close
        self._may_call = self._enforced and token == self._close_think
        return token in self.stop_ids


def longest_common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """How many leading ids agree."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n
