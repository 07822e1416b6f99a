"""The transformers engine: batched, constrained, with a key-value cache that lasts over the stages of a session.

The second stage of a session repeats the prompt and the call of the first, so only the observation is fed and no image is
encoded twice. Rows of a batch have different lengths: caches and new tokens are padded on the left. The padding is masked
and takes no position (M-RoPE positions are passed explicitly), so it changes nothing.

Shapes: B rows, H heads, D head size, M cached tokens, T new tokens, V vocabulary.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.engines.base import ChatImage, Completion, Generation, Request, Sampling
from seer.engines.hf.cache import growing_cache
from seer.engines.hf.grammar import Grammars, TokenGate, longest_common_prefix
from seer.engines.prompts import encode_prompt
from seer.errors import EngineError, PromptTooLong, SeerError
from seer.protocol.encoding import Encoded, Encoder, ImageSlot

if TYPE_CHECKING:
    import torch

    from seer.models.checkpoint import Checkpoint


@dataclass
class _Memory:
    """The state kept for a session: the ids that were fed, and their keys and values by layer, each (H, M, D)."""

    ids: np.ndarray
    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    images: dict[int, str]
    """The content hash of each image, by the index of its first token."""


@dataclass
class _Row:
    """One sample of a request in a batch."""

    request: Request
    sample: int
    """Its number among the request's samples, from 0."""
    encoded: Encoded
    images: tuple[ChatImage, ...]
    """One image for every slot of `encoded`."""
    positions: np.ndarray
    known: int
    """Tokens that the memory of the session covers."""
    memory: _Memory | None
    gate: TokenGate
    written: list[int] = field(default_factory=list)
    finish: str = ""

    @property
    def new_images(self) -> list[tuple[ImageSlot, ChatImage]]:
        """Images that the memory does not cover."""
        slots = zip(self.encoded.slots, self.images, strict=True)
        return [(slot, image) for slot, image in slots if slot.start >= self.known]


class HFEngine:
    """Generates with a checkpoint loaded by transformers. Threads that call it wait for each other."""

    name = "hf"
    constrains = True

    def __init__(self, checkpoint: Checkpoint, *, max_batch: int = 8, max_cached_tokens: int = 262_144) -> None:
        self.checkpoint = checkpoint
        self.encoder = checkpoint.encoder
        self.max_positions = checkpoint.max_positions
        self.max_batch = max_batch
        self.max_cached_tokens = max_cached_tokens
        vocabulary = checkpoint.model.get_output_embeddings().weight.shape[0]
        self._grammars = Grammars(checkpoint.tokenizer, checkpoint.encoder, vocabulary)
        self._memories: OrderedDict[str, _Memory] = OrderedDict()
        self._one_at_a_time = threading.RLock()
        self.images_encoded = 0

    # ── The interface ────────────────────────────────────────────────────────────────────────────

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        with self._one_at_a_time:
            return self._generate(requests)

    def forget(self, session: str) -> None:
        with self._one_at_a_time:
            self._memories.pop(session, None)

    # ── One batch ────────────────────────────────────────────────────────────────────────────────

    def _generate(self, requests: Sequence[Request]) -> list[Generation]:
        results: list[list[Generation]] = [[] for _ in requests]
        rows: list[tuple[int, _Row]] = []
        for index, request in enumerate(requests):
            try:
                rows += [(index, self._prepare(request, sample)) for sample in range(request.n)]
            except SeerError as error:
                results[index] = [Generation.failed(error)]
        # rows of similar length share a batch: less padding
        rows.sort(key=lambda item: len(item[1].encoded) - item[1].known)
        for start in range(0, len(rows), self.max_batch):
            batch = rows[start : start + self.max_batch]
            for (index, _), generation in zip(batch, self._try_batch([row for _, row in batch]), strict=True):
                results[index].append(generation)
        return [_joined(samples) for samples in results]

    def _try_batch(self, rows: list[_Row]) -> list[Generation]:
        """Generate a batch. If an image cannot be drawn or memory runs out, retry each row alone."""
        import torch

        try:
            return self._generate_batch(rows)
        except SeerError as error:
            failed = Generation.failed(error)
        except torch.OutOfMemoryError as error:
            reason = str(error).partition("\n")[0][:200]
            failed = Generation.failed(EngineError(f"{reason}; use fewer pages or a smaller max_cached_tokens"))
        # outside the except block, so that the tensors of the failed batch can be freed
        if len(rows) == 1:
            return [failed]
        # streamed text cannot be revoked
        fresh = [
            None if row.written and row.request.on_text else self._prepare(row.request, row.sample) for row in rows
        ]
        return [failed if row is None else self._try_batch([row])[0] for row in fresh]

    def _prepare(self, request: Request, sample: int) -> _Row:
        prompt = encode_prompt(self.encoder, request.prompt)
        encoded = prompt.encoded
        needed = encoded.next_position + request.sampling.max_new_tokens
        if needed > self.max_positions:
            raise PromptTooLong(
                f"the prompt takes {encoded.next_position} positions and {request.sampling.max_new_tokens} tokens may "
                f"follow; the model has {self.max_positions}: use fewer pages, a denser style or a smaller --max-new-tokens"
            )
        memory = self._memories.get(request.session)
        known = longest_common_prefix(memory.ids, encoded.ids) if memory else 0
        known = min(known, len(encoded) - 1)  # at least one token is fed: the generation starts from its logits
        held = memory.images if memory else {}
        for slot, image in zip(encoded.slots, prompt.images, strict=True):
            # Images of one size have equal ids, so the ids do not show whether the state is that of another image.
            if known < slot.start + slot.tokens or held.get(slot.start) != image.content_hash:
                known = min(known, slot.start)
                break
        gate = self._grammars.gate(request.constraint)
        positions = encoded.positions()
        return _Row(request, sample, encoded, prompt.images, positions, known, memory if known else None, gate)

    def _generate_batch(self, rows: list[_Row]) -> list[Generation]:
        import torch

        start = time.perf_counter()
        with torch.inference_mode():
            cache, mask = self._restore(rows)
            logits, mask = self._prefill(rows, cache, mask)
            self._decode(rows, logits, cache, mask)
        seconds = time.perf_counter() - start
        return [
            Generation(
                parts=tuple(self.encoder.split(row.written)),
                ids=tuple(row.written),
                finish="stop" if row.finish == "stop" else "length",
                prompt_tokens=len(row.encoded),
                cached_tokens=row.known,
                completion_tokens=len(row.written),
                seconds=seconds / len(rows),
            )
            for row in rows
        ]

    def _restore(self, rows: list[_Row]) -> tuple[Any, torch.Tensor]:
        """Join the memories of the rows into one cache, padded on the left. Returns it with its mask, bool (B, M)."""
        import torch

        cache = growing_cache()
        longest = max(row.known for row in rows)
        device = self.checkpoint.model.device
        mask = torch.zeros(len(rows), longest, dtype=torch.bool, device=device)
        for b, row in enumerate(rows):
            mask[b, longest - row.known :] = True
        if longest == 0:
            return cache, mask
        template = next(row.memory for row in rows if row.memory)
        for layer in range(len(template.keys)):
            for_keys: list[torch.Tensor] = []
            for_values: list[torch.Tensor] = []
            for row in rows:
                for source, padded in (("keys", for_keys), ("values", for_values)):
                    block = template.keys[layer][:, :0] if row.memory is None else getattr(row.memory, source)[layer]
                    padded.append(torch.nn.functional.pad(block[:, : row.known], (0, 0, longest - row.known, 0)))
            cache.update(torch.stack(for_keys), torch.stack(for_values), layer)
        return cache, mask

    def _prefill(self, rows: list[_Row], cache: Any, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Feed the new tokens. Returns the next logits, float (B, V), and the mask over cache and new tokens (B, M + T)."""
        import torch

        device = self.checkpoint.model.device
        longest = max(len(row.encoded) - row.known for row in rows)
        ids = np.full((len(rows), longest), self.encoder.stop_ids[1], np.int64)
        types = np.zeros((len(rows), longest), np.int32)
        positions = np.zeros((3, len(rows), longest), np.int64)
        fed = np.zeros((len(rows), longest), bool)
        for b, row in enumerate(rows):
            gap = longest - (len(row.encoded) - row.known)
            ids[b, gap:] = row.encoded.ids[row.known :]
            types[b, gap:] = row.encoded.mm_token_type_ids()[row.known :]
            positions[:, b, gap:] = row.positions[:, row.known :]
            fed[b, gap:] = True
        mask = torch.cat([mask, torch.from_numpy(fed).to(device)], dim=1)
        inputs = dict(
            input_ids=torch.from_numpy(ids).to(device),
            mm_token_type_ids=torch.from_numpy(types).to(device),
            position_ids=torch.from_numpy(positions).to(device),
            attention_mask=_added_mask(mask, longest, self.checkpoint.model.dtype),
            past_key_values=cache,
            use_cache=True,
        )
        slots = [shown for row in rows for shown in row.new_images]
        if slots:
            images = [image.draw() for _, image in slots]
            inputs["pixel_values"] = self.checkpoint.pixels(images, [slot for slot, _ in slots]).to(device)
            grids = [(1, slot.rows, slot.columns) for slot, _ in slots]
            inputs["image_grid_thw"] = torch.tensor(grids, device=device)
            self.images_encoded += len(slots)
        output = self.checkpoint.model(**inputs, logits_to_keep=1)
        return output.logits[:, -1].float(), mask

    def _decode(self, rows: list[_Row], logits: torch.Tensor, cache: Any, mask: torch.Tensor) -> None:
        """Draw tokens until every row has ended, and keep the keys and values of each row.

        Rows that have ended leave the batch once they are half of it; until then their results are discarded. A
        smaller batch outweighs the cost of its copies only then.
        """
        import torch

        draws = [_Draw(row.request.sampling, row.sample) for row in rows]
        streams = [TextStream(self.encoder, row.request.on_text, row.request.on_control) for row in rows]
        following = [row.encoded.next_position for row in rows]
        while True:
            # one token for every row that has not ended; `fed[b]`: row b continues
            fed = []
            for b, row in enumerate(rows):
                if row.finish:
                    fed.append(False)
                    continue
                row.gate.mask(logits[b])
                token = draws[b](logits[b])
                row.written.append(token)
                streams[b](token)
                if row.gate.accept(token):
                    row.finish = "stop"
                elif len(row.written) >= row.request.sampling.max_new_tokens:
                    row.finish = "length"
                fed.append(not row.finish)
            active = [b for b, continues in enumerate(fed) if continues]
            # shrink the batch to its active rows
            if len(active) <= len(rows) // 2:
                self._remember(rows, [b for b, continues in enumerate(fed) if not continues], cache, mask)
                if not active:
                    return
                rows, following = [rows[b] for b in active], [following[b] for b in active]
                draws, streams = [draws[b] for b in active], [streams[b] for b in active]
                fed = [True] * len(active)
                kept = torch.tensor(active, device=logits.device)
                cache.batch_select_indices(kept)
                mask = mask[kept]
            # feed the drawn tokens; a row that has ended gets a masked one
            device = logits.device
            mask = torch.cat([mask, torch.tensor(fed, device=device)[:, None]], dim=1)
            step = torch.tensor([[row.written[-1]] for row in rows], device=device)
            # the position of a row's newest token: the first one after the prompt plus the tokens written before it
            at = [position + len(row.written) - 1 for position, row in zip(following, rows, strict=True)]
            output = self.checkpoint.model(
                input_ids=step,
                position_ids=torch.tensor(at, device=device)[None, :, None].expand(3, -1, -1),
                attention_mask=None if bool(mask.all()) else _added_mask(mask, 1, self.checkpoint.model.dtype),
                past_key_values=cache,
                use_cache=True,
            )
            logits = output.logits[:, -1].float()

    def _remember(self, rows: list[_Row], ended: Sequence[int], cache: Any, mask: torch.Tensor) -> None:
        """Keep the keys and values of the rows that ended, without padding, for the next stage of their sessions.

        They are copied unless the row was alone: a view would keep the cache of the whole batch alive.
        """
        alone = len(rows) == 1 and bool(mask.all())
        for b in ended:
            row = rows[b]
            if row.sample:
                continue  # the first sample is the one that a conversation continues
            chosen = slice(None) if alone else mask[b].nonzero().squeeze(1)
            keys = [layer.keys[b][:, chosen] for layer in cache.layers]
            values = [layer.values[b][:, chosen] for layer in cache.layers]
            ids = np.concatenate([row.encoded.ids, np.array(row.written, np.int32)])[: keys[0].shape[1]]
            images = {slot.start: image.content_hash for slot, image in zip(row.encoded.slots, row.images, strict=True)}
            self._memories[row.request.session] = _Memory(ids, keys, values, images)
            self._memories.move_to_end(row.request.session)
        while len(self._memories) > 1 and sum(len(m.ids) for m in self._memories.values()) > self.max_cached_tokens:
            self._memories.popitem(last=False)


def _joined(samples: Sequence[Generation]) -> Generation:
    """The samples of one request, in order, as one generation; the first error if any of them failed."""
    first, *others = samples
    failed = next((sample for sample in samples if sample.error is not None), None)
    if failed is not None or not others:
        return failed or first
    return replace(
        first,
        others=tuple(Completion(sample.parts, sample.ids, sample.finish) for sample in others),
        completion_tokens=sum(sample.completion_tokens for sample in samples),
        seconds=sum(sample.seconds for sample in samples),
    )


class TextStream:
    """Emits text as tokens arrive, whole characters only, and the names of control tokens between."""

    def __init__(
        self,
        encoder: Encoder,
        on_text: Callable[[str], None] | None,
        on_control: Callable[[str], None] | None = None,
    ) -> None:
        self._encoder, self._on_text, self._on_control = encoder, on_text, on_control
        self._ids: list[int] = []

    def __call__(self, token: int) -> None:
        if token in self._encoder.added_ids:
            if self._on_text and self._ids:  # an incomplete character, which the next text does not continue
                self._on_text(self._encoder.decode(self._ids))
                self._ids.clear()
            if self._on_control and (name := self._encoder.control_name(token)):
                self._on_control(name)
            return
        if self._on_text is None:
            return
        self._ids.append(token)
        text = self._encoder.decode(self._ids)
        if not text.endswith("\ufffd") or len(self._ids) > 4:  # a character of UTF-8 has at most four bytes
            self._ids.clear()
            self._on_text(text)


def _added_mask(mask: torch.Tensor, new: int, dtype: torch.dtype) -> torch.Tensor | None:
    """The tensor to add to attention scores, (B, 1, new, M + new); None if plain causal attention is correct.

    mask: bool (B, M + new), of which the last `new` are fed now. It is built once in the type of the scores: from a
    boolean mask, attention would build it again in every layer, a third of the time of a second stage on a CPU.
    """
    import torch

    total = mask.shape[1]
    if total == new and bool(mask.all()):
        return None
    keys = torch.arange(total, device=mask.device)
    causal = keys <= keys[total - new :, None]
    # a finite minimum: a row of padding alone must not become NaN
    added = torch.zeros(mask.shape[0], 1, new, total, dtype=dtype, device=mask.device)
    return added.masked_fill_(~(causal & mask[:, None, None, :]), torch.finfo(dtype).min)


class _Draw:
    """Draws one token at a time from logits."""

    def __init__(self, sampling: Sampling, sample: int) -> None:
        import torch

        self.sampling = sampling
        self._generator = torch.Generator().manual_seed(sampling.seed + sample)

    def __call__(self, logits: torch.Tensor) -> int:
        """logits: float (V,)."""
        import torch

        if self.sampling.temperature <= 0:
            return int(logits.argmax())
        scaled = (logits / self.sampling.temperature).cpu()
        if self.sampling.top_k > 0:
            kept = scaled.topk(min(self.sampling.top_k, len(scaled))).values[-1]
            scaled = scaled.masked_fill(scaled < kept, float("-inf"))
        probabilities = scaled.softmax(-1)
        if self.sampling.top_p < 1:
            ordered, order = probabilities.sort(descending=True)
            beyond = ordered.cumsum(-1) - ordered >= self.sampling.top_p
            probabilities[order[beyond]] = 0
        return int(torch.multinomial(probabilities, 1, generator=self._generator))
