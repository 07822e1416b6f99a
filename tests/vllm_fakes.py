"""A stand-in for vLLM: `stand_in` replaces its modules, `engine_for` opens our engine over a script of replies."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fakes import make_document, small_encoder

from seer.engines.base import (
    Conversation,
    Request,
    Sampling,
)
from seer.engines.vllm import engine as vllm
from seer.engines.vllm import start
from seer.protocol.control import CONTROL
from seer.schema import Turn

DOCUMENT = make_document(["a\n", "b\n", "c\n"], width_px=112, height_px=112)
PAGES = {page.number: page for page in DOCUMENT}
PROMPT = (Turn(kind="prompt", text="What?", pages=(1, 2, 3)),)
SIZES = {page.number: (page.width_px, page.height_px) for page in DOCUMENT}
ENCODER = small_encoder()
SPREAD = ENCODER.encode(PROMPT, SIZES).vision_tokens // 3
THINK, END_THINK, CALL, END_CALL, USER = (
    ENCODER.control(name)
    for name in (CONTROL.open_think, CONTROL.close_think, CONTROL.open_call, CONTROL.close_call, CONTROL.user)
)
WAIT_S = 30


@dataclass
class Writes:
    """The stand-in's reply to one request."""

    ids: list[int]
    finish: str | None = "stop"
    cached: int | None = None


@dataclass
class AsyncEngineArgs:
    model: str = ""
    max_model_len: int = 4096
    limit_mm_per_prompt: dict[str, int] = field(default_factory=dict)
    enable_prefix_caching: bool = False
    disable_log_stats: bool = False
    dtype: str = "auto"
    enforce_eager: bool = False
    block_size: int = 16
    distributed_executor_backend: str | None = None


class AsyncLLM:
    """The part of vLLM's engine that ours uses: it expands each image and writes what the script returns."""

    spread = SPREAD
    script: Callable[[Any, Any], Writes]

    def __init__(self, arguments: AsyncEngineArgs) -> None:
        self.asked: list[tuple[dict[str, Any], Any, str]] = []
        self.ended = self.errored = False
        self.output_handler: asyncio.Task[None] | None = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
        self.model_config = SimpleNamespace(max_model_len=arguments.max_model_len)
        self.vllm_config = SimpleNamespace(cache_config=SimpleNamespace(block_size=16))

    @classmethod
    def from_engine_args(cls, arguments: AsyncEngineArgs) -> AsyncLLM:
        if arguments.model == "unfit":
            raise ValueError from RuntimeError("no weights for layer 7\nand a long trace")
        return cls(arguments)

    async def generate(self, prompt: dict[str, Any], sampling: Any, request_id: str) -> AsyncIterator[Any]:
        self.asked.append((prompt, sampling, request_id))
        writes = self.script(prompt, sampling)
        await asyncio.sleep(0)
        image, seen = ENCODER.control(CONTROL.image), []
        for token in prompt["prompt_token_ids"]:
            seen += [token] * (self.spread if token == image else 1)
        pieces = [[token] for token in writes.ids] if sampling.output_kind == "delta" else [writes.ids]
        for number, piece in enumerate(pieces, 1):
            finish = writes.finish if number == len(pieces) else None
            text = "".join(part for _, part in ENCODER.split(piece))
            outs = [
                SimpleNamespace(index=index, token_ids=piece, text=text, finish_reason=finish)
                for index in range(sampling.n)
            ]
            yield SimpleNamespace(prompt_token_ids=seen, num_cached_tokens=writes.cached, outputs=outs)

    def shutdown(self) -> None:
        self.ended = True


@pytest.fixture
def stand_in(monkeypatch) -> None:
    """Replace vLLM by the stand-in; every checkpoint has the small encoder."""

    def module(name: str, **members: Any) -> None:
        made = ModuleType(name)
        made.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, made)

    kinds = SimpleNamespace(DELTA="delta", FINAL_ONLY="final")

    def params(**values: Any) -> SimpleNamespace:
        return SimpleNamespace(**{"structured_outputs": None, **values})

    for package in ("vllm", "vllm.engine", "vllm.v1", "vllm.v1.engine"):
        module(package)
    module("vllm.engine.arg_utils", AsyncEngineArgs=AsyncEngineArgs)
    module("vllm.platforms", current_platform=SimpleNamespace(is_cpu=lambda: True))
    module("vllm.v1.engine.async_llm", AsyncLLM=AsyncLLM)
    module(
        "vllm.sampling_params", SamplingParams=params, RequestOutputKind=kinds, StructuredOutputsParams=SimpleNamespace
    )
    monkeypatch.setattr("importlib.metadata.version", lambda package: "0.32.0")
    monkeypatch.setattr("seer.models.checkpoint.load_encoder", lambda path: (ENCODER, None, None))
    monkeypatch.setattr(start, "usable_cores", lambda: 2)
    for name in ("VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS", "VLLM_ENABLE_V1_MULTIPROCESSING"):
        monkeypatch.setenv(name, "")  # which is undone, while what is set where nothing was would stay
        monkeypatch.delenv(name)


@contextmanager
def engine_for(script: Callable[[Any, Any], Writes], **options: Any) -> Iterator[tuple[vllm.VLLMEngine, AsyncLLM]]:
    engine = vllm.VLLMEngine("model", **options)
    engine._llm.script = script
    try:
        yield engine, engine._llm
    finally:
        engine.close()


def saying(*replies: list[int], finish: str = "stop") -> Callable[[Any, Any], Writes]:
    told = iter(replies)
    return lambda prompt, sampling: Writes(next(told), finish)


def text(words: str) -> list[int]:
    return ENCODER.encode_text(words)


def request(**more: Any) -> Request:
    return Request(Conversation(PROMPT, PAGES), "c", **{"sampling": Sampling(max_new_tokens=64), **more})
