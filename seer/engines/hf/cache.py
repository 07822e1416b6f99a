"""A key-value cache with spare room: a new token is written in place.

The cache of transformers concatenates all keys and values again for every token and layer, which is most of the work of a
small model.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import Cache

SPARE_TOKENS = 64
"""Extra tokens allocated each time the room is used up."""


def growing_cache() -> Cache:
    """Return an empty cache for one batch. Keys and values of a layer are views (B, H, M, D) into larger tensors."""
    from transformers import Cache

    return Cache(layer_class_to_replicate=_layer_class())


@functools.cache
def _layer_class() -> Any:
    from transformers.cache_utils import DynamicLayer

    class GrowingLayer(DynamicLayer):
        def update(
            self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
        ) -> tuple[torch.Tensor, torch.Tensor]:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
                self.room: dict[str, torch.Tensor] = {}
            start = self.get_seq_length()
            self.keys = keys = self._write("keys", key_states, start)
            self.values = values = self._write("values", value_states, start)
            return keys, values

        def batch_select_indices(self, indices: torch.Tensor) -> None:
            self.room = {name: held[indices] for name, held in self.room.items()}
            length = self.get_seq_length()
            self.keys, self.values = (self.room[name][:, :, :length] for name in ("keys", "values"))

        def _write(self, name: str, new: torch.Tensor, start: int) -> torch.Tensor:
            end = start + new.shape[-2]
            room = self.room.get(name)
            if room is None or room.shape[-2] < end:
                batch, heads, _, size = new.shape
                larger = new.new_empty(batch, heads, end + SPARE_TOKENS, size)
                if room is not None:
                    larger[:, :, :start] = room[:, :, :start]
                room = self.room[name] = larger
            room[:, :, start:end] = new
            return room[:, :, :end]

    return GrowingLayer
