"""Counts of text tokens, by the model's own tokenizer or, without a model, by a production-size one.

    counter = load_counter("path/to/checkpoint")     # load_counter(None) uses tekken
    counter.count("some text"), counter.name

A tokenizer trained on little text needs more tokens and would inflate every compression ratio. The default is therefore
a production tokenizer: tekken (131,072 entries), from the mistral-common wheel.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from seer.errors import ModelError
from seer.protocol.control import CONTROL
from seer.protocol.encoding import Encoder, without_added_tokens
from seer.protocol.geometry import GLM_41V, VisionGeometry
from seer.storage import replace_surrogates


class TextCounter(Protocol):
    """Counts the tokens of plain text, in which no control token is recognised."""

    name: str

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`."""
        ...


class TokenizerCounter:
    """A counter that uses a Hugging Face tokenizer.json."""

    def __init__(self, path: Path) -> None:
        """Load the tokenizer file at `path`. Raises ModelError if it is broken."""
        from tokenizers import Tokenizer

        try:
            self._tokenizer = without_added_tokens(Tokenizer.from_file(str(path)))
        except Exception as error:  # tokenizers raises bare Exception on a broken file
            raise ModelError(f"'{path}' is not a tokenizer.json ({error}); copy the file again") from None
        self.name = path.parent.name or str(path)

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(replace_surrogates(text, "\ufffd"), add_special_tokens=False).ids)


class TekkenCounter:
    """A counter that uses tekken, the tokenizer of Mistral's models."""

    name = "tekken"

    def __init__(self) -> None:
        self._tokenizer = load_tekken()

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(replace_surrogates(text, "\ufffd"), bos=False, eos=False))


@functools.cache
def load_tekken() -> Any:
    """Load Mistral's tekken tokenizer from the file in the mistral-common wheel."""
    import mistral_common
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    return Tekkenizer.from_file(Path(mistral_common.__file__).parent / "data" / "tekken_240911.json")


@dataclass(frozen=True)
class _Ids:
    ids: list[int]


class _TekkenText:
    """tekken with the interface of a text tokenizer. `offset` moves its ids behind those of the control tokens."""

    def __init__(self, offset: int) -> None:
        self._tokenizer, self._offset = load_tekken(), offset

    def encode(self, text: str, add_special_tokens: bool = False) -> _Ids:
        return _Ids([token + self._offset for token in self._tokenizer.encode(text, bos=False, eos=False)])

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return self._tokenizer.decode([token - self._offset for token in ids])

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = False) -> list[_Ids]:
        return [self.encode(text) for text in texts]


def tekken_encoder(geometry: VisionGeometry = GLM_41V) -> Encoder:
    """Return an encoder that uses tekken for text: exact token accounting without a model."""
    from tokenizers import Tokenizer, models

    # The vocabulary of this tokenizer is the control tokens alone, so their ids are 0 to n - 1 and tekken's follow.
    controls = Tokenizer(models.BPE())
    controls.add_special_tokens(list(CONTROL.names()))
    return Encoder(controls, geometry, plain=_TekkenText(offset=len(CONTROL.names())))


@functools.lru_cache(maxsize=4)
def load_counter(path: str | Path | None = None) -> TextCounter:
    """Return the counter for a checkpoint folder or tokenizer.json; without `path`, a counter that uses tekken.

    Raises ModelError if there is no usable tokenizer at `path`.
    """
    if path is None:
        return TekkenCounter()
    file = Path(path)
    file = file / "tokenizer.json" if file.is_dir() else file
    if not file.is_file():
        raise ModelError(f"no tokenizer at '{path}'; give a checkpoint folder or a tokenizer.json")
    return TokenizerCounter(file)
