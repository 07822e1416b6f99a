"""Two hundred generated documents of each format: the text that comes back is the text that was written, up to white space."""

from __future__ import annotations

import random

import pytest

from seer.rendering.documents import load_bytes
from tests.rendering.corpus.samples import SAMPLES

NUM_DOCUMENTS = 200
LATIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
MANY = (
    LATIN
    + "äéñßøčžœ"
    + "абвгд"
    + "αβγδε"
    + "中文字符"
    + "אבג"
    + "عرب"
    + "ไทย"
    + "€№…–“”«»"
    + "&<>\"'{}|;,.:()[]/#*_~%+="
)
FIRST = "F"
"""Begins each line, so that no line looks like markup, a number in a list or a header."""
WITH_TEXT = [kind for kind in SAMPLES if kind not in ("png", "jpeg", "gif", "tiff", "webp")]


def words(chance: random.Random, alphabet: str) -> list[str]:
    return ["".join(chance.choices(alphabet, k=chance.randint(1, 9))) for _ in range(chance.randint(1, 9))]


def lines(kind: str, seed: int) -> list[str]:
    """Lines of random words. A PDF of a standard font has Latin letters only."""
    chance = random.Random(f"{kind} {seed}")
    alphabet = LATIN if kind == "pdf" else MANY
    return [" ".join((FIRST, *words(chance, alphabet))) for _ in range(chance.randint(1, 40))]


@pytest.mark.parametrize("kind", WITH_TEXT)
def test_load_returns_the_text_that_was_written(kind):
    name, make = SAMPLES[kind]
    for seed in range(NUM_DOCUMENTS):
        written = lines(kind, seed)
        text = load_bytes(make(written), name, ocr="never").text
        if kind == "mail":
            text = text.split("Subject: The fee", 1)[1].split("[attachment:", 1)[0]
        if kind == "excel":
            text = text.removeprefix("Sheet: Sheet\n")
        assert text.split() == " ".join(written).split(), f"seed {seed}"
