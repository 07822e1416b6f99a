"""The teacher inside this process: calls that wait together go as one batch, and one bad call fails alone.

A stand-in plays vLLM here; `test_pipeline_real_teacher` asks a real model.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from seer.errors import ConfigError, ModelError
from seer.teaching.ledger import Budget, Ledger, Reply
from seer.teaching.settings import TeacherSpec
from seer.teaching.teachers import open_teacher

SPEC = TeacherSpec(model="some/model", concurrency=8, temperature=0.7, top_k=20, max_tokens=32)


class FakeLLM:
    batches: list[int] = []

    def __init__(self, model: str, max_num_seqs: int) -> None:
        assert (model, max_num_seqs) == ("some/model", 8)

    def chat(self, conversations: Sequence[Any], sampling: Sequence[Any], **options: Any) -> list[Any]:
        texts = [conversation[-1]["content"] for conversation in conversations]
        if any("too long" in text for text in texts):
            raise ValueError("the prompt is longer than the maximum model length")
        self.batches.append(len(texts))
        assert all((params.top_k, params.max_tokens) == (20, 32) for params in sampling)
        return [
            SimpleNamespace(
                prompt_token_ids=[1, 2, 3],
                outputs=[SimpleNamespace(text=f"re: {text} {params.seed}", finish_reason="stop", token_ids=[4])],
            )
            for text, params in zip(texts, sampling, strict=True)
        ]


def ask_all(path: Path, texts: Sequence[str]) -> list[Any]:
    async def run() -> list[Any]:
        with Ledger(path) as ledger:
            async with open_teacher(SPEC, ledger, Budget(), role="judge") as teacher:
                calls = (teacher.ask([{"role": "user", "content": text}]) for text in texts)
                return list(await asyncio.gather(*calls, return_exceptions=True))

    return asyncio.run(run())


def test_waiting_calls_are_one_batch_and_a_bad_one_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("vllm")
    module.LLM, module.SamplingParams = FakeLLM, lambda **values: SimpleNamespace(**values)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    FakeLLM.batches.clear()
    replies = ask_all(tmp_path / "a", ["one", "two", "three"])
    assert [(reply.text, reply.prompt_tokens, reply.completion_tokens) for reply in replies] == [
        ("re: one 0", 3, 1),
        ("re: two 0", 3, 1),
        ("re: three 0", 3, 1),
    ]
    assert FakeLLM.batches == [3]
    replies = ask_all(tmp_path / "b", ["one", "too long", "three"])
    assert [reply.text for reply in replies] == ["re: one 0", "", "re: three 0"]
    assert "longer than the maximum" in replies[1].error
    assert isinstance(replies[1], Reply)


def test_without_vllm_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    (error,) = ask_all(tmp_path / "a", ["one"])
    assert isinstance(error, ModelError)
    assert "base_url" in str(error)


def test_what_only_a_server_would_read_is_refused(tmp_path: Path) -> None:
    """Else a teacher answers by other rules than its configuration says, and so does every label."""
    told = SPEC.model_copy(update={"extra": {"chat_template_kwargs": {"enable_thinking": False}}})
    with Ledger(tmp_path / "l") as ledger:
        open_teacher(told, ledger, Budget(), role="judge")
        penalised = SPEC.model_copy(update={"extra": {"repetition_penalty": 1.1, "min_p": 0.1}})
        with pytest.raises(ConfigError, match=r"extra min_p, repetition_penalty is read by a server alone"):
            open_teacher(penalised, ledger, Budget(), role="judge")
