"""Encode turns and page sizes into token ids, loss classes, image slots and positions. There is no other encoder.

Training, every engine and token accounting call `Encoder.encode`, so a model is trained on the same ids that inference
sends. Text is encoded by a copy of the tokenizer without control tokens: no byte of a document, question or observation
can become one.

Shapes: L tokens, n images.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.errors import ModelError
from seer.protocol.control import CONTROL, SYSTEM_TOKEN
from seer.protocol.geometry import GLM_41V, VisionGeometry
from seer.protocol.turns import ChatContent, Piece, chat_layout, layout
from seer.schema import LossClass, Turn
from seer.storage import replace_surrogates

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CLASSES = tuple(LossClass)
CLASS_INDEX = {loss_class: index for index, loss_class in enumerate(CLASSES)}
MAX_RECENT_CHARS = 4 << 20
"""The characters of all texts whose ids are cached: about 10 MB with their ids, at most 32 MB."""


@dataclass(frozen=True)
class ImageSlot:
    """The vision tokens of one page: ids[start : start + tokens] are image placeholders."""

    page: int
    start: int
    rows: int
    columns: int
    """`rows` and `columns` count patches before merging."""
    tokens: int


@dataclass(frozen=True)
class Encoded:
    """An encoded conversation, as the model receives it."""

    ids: np.ndarray
    """int32 (L,)"""
    classes: np.ndarray
    """uint8 (L,): indices into `CLASSES`"""
    slots: tuple[ImageSlot, ...]
    merge: int
    """A vision token covers merge x merge patches."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def pages(self) -> tuple[int, ...]:
        return tuple(slot.page for slot in self.slots)

    @property
    def vision_tokens(self) -> int:
        return sum(slot.tokens for slot in self.slots)

    def count(self, *classes: LossClass) -> int:
        """Return the number of tokens of these loss classes."""
        return int(np.isin(self.classes, [CLASS_INDEX[loss_class] for loss_class in classes]).sum())

    def mm_token_type_ids(self) -> np.ndarray:
        """Return int32 (L,): 1 on image placeholders, 0 elsewhere."""
        types = np.zeros(len(self), np.int32)
        for slot in self.slots:
            types[slot.start : slot.start + slot.tokens] = 1
        return types

    def grid_thw(self) -> np.ndarray:
        """Return int64 (n, 3): frames, rows and columns of patches of each image."""
        return np.array([(1, slot.rows, slot.columns) for slot in self.slots], np.int64).reshape(-1, 3)

    def positions(self) -> np.ndarray:
        """Return int32 (3, L): temporal, height and width positions (M-RoPE), equal to transformers' get_rope_index.

        Each text token advances all three by one. All tokens of an image have one temporal position and lie on a grid
        of rows and columns; the token after the image continues at the larger side of that grid.
        """
        positions = np.empty((3, len(self)), np.int32)
        done = following = 0  # tokens already placed, and the position of the next one
        for slot in self.slots:
            gap = slot.start - done
            positions[:, done : slot.start] = np.arange(following, following + gap)
            following += gap
            rows, columns = slot.rows // self.merge, slot.columns // self.merge
            end = slot.start + slot.tokens
            positions[0, slot.start : end] = following
            positions[1, slot.start : end] = following + np.repeat(np.arange(rows), columns)
            positions[2, slot.start : end] = following + np.tile(np.arange(columns), rows)
            following += max(rows, columns)
            done = end
        positions[:, done:] = np.arange(following, following + len(self) - done)
        return positions

    @property
    def next_position(self) -> int:
        """The M-RoPE position of the token that follows."""
        span = sum(max(slot.rows, slot.columns) // self.merge for slot in self.slots)
        return len(self) - self.vision_tokens + span


class Encoder:
    """Encodes conversations for one tokenizer and one vision geometry. Safe to share between threads."""

    def __init__(self, tokenizer: Any, geometry: VisionGeometry = GLM_41V, plain: Any = None) -> None:
        """Prepare the control ids and the tokenizer for plain text.

        tokenizer: a transformers fast tokenizer or a tokenizers.Tokenizer.
        plain: a tokenizer for text only; by default a copy of `tokenizer` without its control tokens.

        Raises ModelError if a control token is missing or is not a single token, or if plain text can become one.
        """
        self.geometry = geometry
        self.full: Tokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer)
        self.control_ids = resolve_control_ids(self.full)
        self._plain = plain or without_added_tokens(self.full)
        # The fast form skips the offsets of tokens in their text, which nothing here needs.
        self._encode_many = getattr(self._plain, "encode_batch_fast", self._plain.encode_batch)
        self._recent = _Recent()
        self._names = {token_id: name for name, token_id in self.control_ids.items()}
        self.added_ids = frozenset(self.full.get_added_tokens_decoder())
        """Every id that only a control piece can produce."""
        optional = self.full.token_to_id(SYSTEM_TOKEN)
        self._optional_ids = {SYSTEM_TOKEN: optional} if optional in self.added_ids else {}
        self._check_plain_text_stays_plain()

    def control(self, name: str) -> int:
        """Return the id of a control token."""
        return self.control_ids[name]

    def control_name(self, token_id: int) -> str:
        """Return the control token with this id, or "" if Seer uses no control token with it."""
        return self._names.get(token_id, "")

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end generation. The observation marker does not: the model continues after the tool result."""
        return (self.control_ids[CONTROL.user], self.control_ids[CONTROL.end_of_text])

    def encode_text(self, text: str) -> list[int]:
        """Encode plain text. The ids never contain a control token. Lone surrogates become U+FFFD."""
        ids: list[int] = self._encode_batch([text])[0].tolist()
        return ids

    def count_text(self, text: str) -> int:
        """Return the number of tokens of plain text."""
        return len(self._encode_batch([text])[0])

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids into text, leaving out control tokens."""
        return self._plain.decode([i for i in ids if i not in self.added_ids], skip_special_tokens=False)

    def encode(
        self,
        turns: Sequence[Turn],
        page_sizes: Mapping[int, tuple[int, int]],
        written: Mapping[int, Sequence[int]] | None = None,
    ) -> Encoded:
        """Encode a conversation.

        page_sizes: (width_px, height_px) of each page that is shown as an image.
        written: for turns that a model wrote, by their index, the ids that it wrote. They are used unchanged, so that
        a key-value cache stays valid even if the model formatted its call unusually. They count as loss class CALL.

        Raises InputError for an order of turns that the protocol does not allow and for an impossible page size.
        """
        pieces: list[Piece | Sequence[int]] = []
        if not written:
            pieces.extend(layout(turns))
        else:
            done = 0  # pieces of the turns before this one
            for index in range(len(turns)):
                prefix = layout(turns[: index + 1])
                pieces.extend([written[index]] if index in written else prefix[done:])
                done = len(prefix)
        return self._encode_pieces(pieces, page_sizes)

    def encode_chat(self, messages: Sequence[tuple[str, ChatContent]]) -> Encoded:
        """Encode a free chat up to the assistant's next turn.

        messages: (role, content); content holds texts and (width_px, height_px) of images. The images become slots
        with page numbers from 1, in order over the whole chat.

        Raises InputError for an impossible image size.
        """
        pieces = chat_layout(messages, has_system_token=SYSTEM_TOKEN in self._optional_ids)
        images = [part for _, content in messages for part in content if not isinstance(part, str)]
        return self._encode_pieces(pieces, dict(enumerate(images, 1)))

    def _encode_pieces(
        self, pieces: Sequence[Piece | Sequence[int]], page_sizes: Mapping[int, tuple[int, int]]
    ) -> Encoded:
        texts = [piece.value for piece in pieces if isinstance(piece, Piece) and piece.kind == "text"]
        encoded_texts = iter(self._encode_batch(texts))
        # The empty first run lets np.concatenate work, with the right dtype, when there are no pieces.
        ids: list[np.ndarray] = [np.empty(0, np.int32)]
        classes: list[int] = []
        slots: list[ImageSlot] = []
        length = 0
        for piece in pieces:
            if not isinstance(piece, Piece):
                run = np.array(piece, np.int32)
                classes.append(CLASS_INDEX[LossClass.CALL])
            else:
                if piece.kind == "text":
                    run = next(encoded_texts)
                elif piece.kind == "control":
                    token_id = self.control_ids.get(piece.value)
                    run = np.array([self._optional_ids[piece.value] if token_id is None else token_id], np.int32)
                else:
                    rows, columns = self.geometry.grid(*page_sizes[piece.page])
                    tokens = rows * columns // self.geometry.merge**2
                    slots.append(ImageSlot(piece.page, length, rows, columns, tokens))
                    run = np.full(tokens, self.control_ids[CONTROL.image], np.int32)
                classes.append(CLASS_INDEX[piece.loss_class])
            ids.append(run)
            length += len(run)
        each = np.repeat(np.array(classes, np.uint8), [len(run) for run in ids[1:]])
        return Encoded(np.concatenate(ids), each, tuple(slots), self.geometry.merge)

    def _encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return int32 ids of each text. The arrays are cached between calls, so callers must not modify them."""
        clean = [replace_surrogates(text, "\ufffd") for text in texts]
        found = {text: self._recent.get(text) for text in clean}
        new = [text for text, ids in found.items() if ids is None]
        for text, encoding in zip(new, self._encode_many(new, add_special_tokens=False), strict=True):
            found[text] = ids = np.array(encoding.ids, np.int32)
            self._recent.keep(text, ids)
        return [found[text] for text in clean]  # type: ignore[misc]

    # ── Parsing generated ids ────────────────────────────────────────────────────────────────────

    def split(self, ids: Sequence[int]) -> list[tuple[str, str]]:
        """Split generated ids into [(control name, "") or ("", text)], in order.

        A tag that the model spelled as ordinary text stays text.
        """
        parts: list[tuple[str, str]] = []
        buffer: list[int] = []

        def flush() -> None:
            if buffer:
                parts.append(("", self.decode(buffer)))
                buffer.clear()

        for token_id in ids:
            if token_id in self._names:
                flush()
                parts.append((self._names[token_id], ""))
            # Control tokens that Seer does not use are dropped, as in `decode`.
            elif token_id not in self.added_ids:
                buffer.append(token_id)
        flush()
        return parts

    def _check_plain_text_stays_plain(self) -> None:
        """Raise ModelError if the spelling of an added token encodes to its id even as plain text."""
        for token_id, token in self.full.get_added_tokens_decoder().items():
            if token_id in self.encode_text(token.content):
                raise ModelError(
                    f"the tokenizer turns the plain text '{token.content}' into the control token {token_id} even without its "
                    "added tokens; use a tokenizer whose vocabulary cannot produce control tokens from text"
                )


class _Recent:
    """A cache of the ids of recently tokenized texts, shared by threads.

    A conversation is encoded again for each of its requests and for token counts, and most of its texts stay the same.
    """

    def __init__(self) -> None:
        self._ids: OrderedDict[str, np.ndarray] = OrderedDict()
        self._chars = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[_Recent], tuple[()]]:
        return _Recent, ()  # a pickled copy starts empty: locks cannot be pickled

    def get(self, text: str) -> np.ndarray | None:
        with self._lock:
            ids = self._ids.get(text)
            if ids is not None:
                self._ids.move_to_end(text)
            return ids

    def keep(self, text: str, ids: np.ndarray) -> None:
        with self._lock:
            # One long text must not push out all others.
            if text in self._ids or len(text) > MAX_RECENT_CHARS // 8:
                return
            self._ids[text] = ids
            self._chars += len(text)
            while self._chars > MAX_RECENT_CHARS:
                self._chars -= len(self._ids.popitem(last=False)[0])


def resolve_control_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the id of every control token by name. Raises ModelError that names all missing ones."""
    added = {token.content: token_id for token_id, token in tokenizer.get_added_tokens_decoder().items()}
    missing = [name for name in CONTROL.names() if name not in added]
    if missing:
        raise ModelError(
            f"the tokenizer lacks {', '.join(missing)} as single tokens; Seer needs a GLM-4V-family tokenizer with "
            "tool-call and think tokens (Glyph's, or one made by seer.models.small.build_small)"
        )
    return {name: added[name] for name in CONTROL.names()}


def without_added_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy without added tokens, truncation, padding and post-processing, so that text stays plain text."""
    import json

    from tokenizers import Tokenizer as Rebuild

    state = json.loads(tokenizer.to_str())
    state["added_tokens"], state["post_processor"] = [], None
    state["truncation"] = state["padding"] = None
    return Rebuild.from_str(json.dumps(state))
