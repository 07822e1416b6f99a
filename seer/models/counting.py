"""Counting text tokens: by the model's own tokenizer where one is given, else by a production-size one, by name.

    counter = load_counter("path/to/checkpoint")     # or load_counter(None): tekken
    counter.count("some text"), counter.name

A tokenizer trained on little text would flatter every compression ratio, so the stand-in is a real one: tekken
(131,072 entries), carried by the mistral-common wheel.
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
    """Counts the tokens of plain text; control tokens never come out."""

    name: str

    def count(self, text: str) -> int: ...


class TokenizerCounter:
    """Counts by a Hugging Face tokenizer.json."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = without_added_tokens(Tokenizer.from_file(str(path)))
        except Exception as error:  # tokenizers raises bare Exception on a broken file
            raise ModelError(f"'{path}' is not a tokenizer.json: {error}") from None
        self.name = path.parent.name or str(path)

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(replace_surrogates(text, "\ufffd"), add_special_tokens=False).ids)


class TekkenCounter:
    """Counts by tekken, as Mistral's models read text."""

    name = "tekken"

    def __init__(self) -> None:
        self._tokenizer = load_tekken()

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(replace_surrogates(text, "\ufffd"), bos=False, eos=False))


@functools.cache
def load_tekken() -> Any:
    """Mistral's tekken tokenizer, from the file that the mistral-common wheel carries."""
    import mistral_common
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    return Tekkenizer.from_file(Path(mistral_common.__file__).parent / "data" / "tekken_240911.json")


@dataclass(frozen=True)
class _Ids:
    ids: list[int]


class _TekkenText:
    """tekken in the place of a model's own text tokenizer; its ids stand behind those of the control tokens."""

    def __init__(self, offset: int) -> None:
        self._tokenizer, self._offset = load_tekken(), offset

    def encode(self, text: str, add_special_tokens: bool = False) -> _Ids:
        return _Ids([token + self._offset for token in self._tokenizer.encode(text, bos=False, eos=False)])

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return self._tokenizer.decode([token - self._offset for token in ids])

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = False) -> list[_Ids]:
        return [self.encode(text) for text in texts]


def tekken_encoder(geometry: VisionGeometry = GLM_41V) -> Encoder:
    """The encoder of Seer's conversations with tekken for text: exact token accounting where no model is at hand."""
    from tokenizers import Tokenizer, models

    controls = Tokenizer(models.BPE())
    controls.add_special_tokens(list(CONTROL.names()))
    return Encoder(controls, geometry, plain=_TekkenText(offset=len(CONTROL.names())))


@functools.lru_cache(maxsize=4)
def load_counter(path: str | Path | None = None) -> TextCounter:
    """The counter of the checkpoint folder or tokenizer.json at `path`; tekken without one."""
    if path is None:
        return TekkenCounter()
    file = Path(path)
    file = file / "tokenizer.json" if file.is_dir() else file
    if not file.is_file():
        raise ModelError(f"no tokenizer at '{path}'; give a checkpoint folder or a tokenizer.json")
    return TokenizerCounter(file)
