"""The start of `seer serve`: engine options, the address and the self-check."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from seer.cli.serve import bind
from seer.engines.base import Generation, Request
from seer.engines.build import build_engine, make_concurrent
from seer.engines.hf.engine import HFEngine
from seer.errors import EngineError, InputError
from seer.models.checks import Check
from seer.serving import selfcheck as serving_selfcheck
from seer.serving.selfcheck import check_engine, print_checks


@pytest.mark.parametrize(
    ("name", "base_url", "replicas", "message"),
    [
        (
            "hf",
            None,
            "http://a/v1,http://b/v1",
            "--replicas goes with --engine openai, not with hf; leave --engine out",
        ),
        ("openai", "http://c/v1", "http://a/v1", "--replicas names the servers itself; leave --base-url out"),
        ("openai", None, " , ", "--replicas ' , ' holds no address; write URL,URL"),
        ("hf", "http://c/v1", None, "--base-url goes with --engine openai, not with hf; leave --engine out"),
    ],
)
def test_contradictory_engine_options_are_rejected_before_anything_starts(name, base_url, replicas, message):
    with pytest.raises(InputError, match=message):
        make_concurrent(build_engine(name, base_url=base_url, replicas=replicas))


def test_bind_rejects_a_port_in_use():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=f"cannot serve at 127.0.0.1, port {port}: .*; give another --port"):
            bind("127.0.0.1", port)


# ── The self-check ───────────────────────────────────────────────────────────────────────────────


class Altered:
    """The transformers engine with changed replies. `block_tokens` makes the self-check require its cache."""

    constrains = True
    block_tokens = 1

    def __init__(self, engine: HFEngine, change: Callable[[Request, Generation], Generation]) -> None:
        self.engine, self.encoder, self._change = engine, engine.encoder, change
        self.forget = engine.forget

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        replies = self.engine.generate(requests)
        return [self._change(request, one) for request, one in zip(requests, replies, strict=True)]


@pytest.fixture
def checked(small_checkpoint, monkeypatch) -> Callable[..., dict[str, Check]]:
    monkeypatch.setattr("seer.models.checkpoint.load", lambda path, **options: small_checkpoint)

    def look(change: Callable[[Request, Generation], Generation], model: str | None = "model") -> dict[str, Check]:
        engine: Any = Altered(HFEngine(small_checkpoint), change)
        return {check.name: check for check in check_engine(engine, model)}

    return look


def free(change: Callable[[tuple[int, ...]], Any]) -> Callable[[Request, Generation], Generation]:
    """Change the ids of the free text that is compared with transformers."""
    return lambda request, reply: replace(reply, ids=change(reply.ids)) if request.session == "check" else reply


def other_at(place: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    return lambda ids: (*ids[:place], 7 if ids[place] != 7 else 8, *ids[place + 1 :])


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        (lambda ids: None, "the engine returns no token ids to compare"),
        (other_at(5), r"5 of \d+ equal to transformers', then \([78],\); a small model must agree in all"),
    ],
)
def test_check_engine_fails_a_small_model_with_another_token(checked, change, detail):
    found = checked(free(change))
    assert not found["greedy tokens"].ok
    assert re.search(detail, found["greedy tokens"].detail)
    assert found["second stage"].ok, found


def test_check_engine_accepts_nearly_equal_tokens_of_a_large_model(checked, monkeypatch):
    monkeypatch.setattr(serving_selfcheck, "LARGE_PARAMETERS", 0)
    for tolerance, ok in ((100.0, True), (0.0, False)):
        monkeypatch.setattr(serving_selfcheck, "TOLERANCE", tolerance)
        found = checked(free(other_at(5)))["greedy tokens"]
        assert found.ok == ok and "below the best in log-probability" in found.detail
        assert float(found.detail.split("), ")[1].split()[0]) > 0
    found = checked(free(lambda ids: ids[:3]))["greedy tokens"]
    assert not found.ok and "one of them stopped early" in found.detail


def test_check_engine_fails_a_cache_that_supplies_nothing(checked):
    found = checked(lambda request, reply: replace(reply, cached_tokens=0), None)
    assert list(found) == ["select call", "second stage"]  # without a checkpoint there is nothing to compare with
    assert not found["second stage"].ok and "(0%)" in found["second stage"].detail


def test_print_checks_raises_if_a_check_fails(small_checkpoint, capsys):
    failed = Generation.failed(EngineError("out of memory"))
    engine = Altered(HFEngine(small_checkpoint), lambda request, reply: failed)
    with pytest.raises(EngineError, match="the self-check failed: select call, second stage"):
        print_checks(engine, None)
    assert "FAIL  select call: out of memory" in capsys.readouterr().err


@pytest.mark.parametrize(("on_gpu", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_check_engine_loads_the_reference_on_the_cpu(small_checkpoint, monkeypatch, on_gpu, dtype):
    loaded = []

    def load(path, **options):
        loaded.append(options)
        return small_checkpoint

    monkeypatch.setattr("seer.models.checkpoint.load", load)
    monkeypatch.setattr("torch.cuda.is_available", lambda: on_gpu)
    assert next(check_engine(HFEngine(small_checkpoint), "checkpoint")).ok
    assert loaded == [{"device": "cpu", "dtype": dtype}]
