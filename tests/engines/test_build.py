"""Engines by name: which engine an option or an address selects, and what contradicts what."""

from __future__ import annotations

import importlib.util

import pytest
from fakes import small_encoder

from seer.engines.base import Chat, ConcurrentEngine, Request, Sampling
from seer.engines.batched import BatchedEngine
from seer.engines.build import build_chat_engine, build_engine, choose_engine, make_concurrent, parse_engine_arguments
from seer.engines.scripted import ScriptedEngine
from seer.errors import EngineUnavailable, InputError, ModelError

ADDRESS = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "hf"),
        ({"default": "vllm"}, "vllm"),
        ({"name": "scripted", "default": "vllm"}, "scripted"),
        ({"base_url": ADDRESS}, "openai"),
        ({"name": "openai", "base_url": ADDRESS, "default": "vllm"}, "openai"),
        ({"replicas": f"{ADDRESS},{ADDRESS}", "default": "vllm"}, "openai"),
    ],
)
def test_choose_engine_prefers_the_address_then_the_name_then_the_default(options, expected):
    assert choose_engine(options.pop("name", None), **options) == expected


@pytest.mark.parametrize("name", ["hf", "vllm", "scripted"])
@pytest.mark.parametrize("option", ["base_url", "replicas"])
def test_choose_engine_rejects_an_address_with_another_engine(name, option):
    written = "--" + option.replace("_", "-")
    with pytest.raises(InputError, match=f"{written} goes with --engine openai, not with {name}; leave --engine out"):
        choose_engine(name, **{option: ADDRESS})


def test_choose_engine_rejects_base_url_beside_replicas():
    with pytest.raises(InputError, match="--replicas names the servers itself; leave --base-url out"):
        choose_engine(None, base_url=ADDRESS, replicas=ADDRESS)


def test_build_engine_rejects_unknown_name():
    with pytest.raises(InputError, match="no engine 'abacus'; known: hf, scripted, vllm, openai"):
        build_engine("abacus")


def test_build_engine_rejects_options_of_scripted_engine():
    with pytest.raises(InputError, match="'scripted' has no option 'max_model_len'; leave --engine-arg out"):
        build_engine("scripted", max_model_len=4)


@pytest.mark.parametrize(
    ("pair", "remedy"),
    [
        ("model=x", "use --model x"),
        ("base-url=http://a", "use --base-url http://a"),
        ("replicas=a,b", "use --replicas a,b"),
        ("device=cpu", "use --device cpu"),
    ],
)
def test_engine_arguments_reject_keys_that_have_an_option(pair, remedy):
    with pytest.raises(InputError, match=f"--engine-arg {pair}: this argument has its own option; {remedy}"):
        parse_engine_arguments([pair])


@pytest.mark.parametrize("pair", ["max_model_len", "=3", " =3"])
def test_engine_arguments_reject_pairs_without_key_or_value(pair):
    with pytest.raises(InputError, match="is not an engine argument; write it as key=value"):
        parse_engine_arguments([pair])


def test_make_concurrent_wraps_only_engines_that_take_batches():
    engine = ScriptedEngine(encoder=small_encoder())
    wrapped = make_concurrent(engine)
    assert isinstance(wrapped, BatchedEngine) and wrapped.engine is engine
    wrapped.close()

    class Concurrent(ScriptedEngine):
        max_concurrent = 1

        async def generate_one(self, request):
            raise NotImplementedError

        def run(self, work):
            raise NotImplementedError

    concurrent = Concurrent(encoder=small_encoder())
    assert isinstance(concurrent, ConcurrentEngine) and make_concurrent(concurrent) is concurrent


@pytest.mark.parametrize("package", ["pyreqwest", "tenacity"])
def test_build_chat_engine_names_the_extra_of_a_missing_package(monkeypatch, package):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(ModelError, match=rf"need {package}; install with: pip install .seer-vlm\[openai\]"):
        build_chat_engine("model", base_url="http://127.0.0.1:1/v1")


def test_build_chat_engine_without_address_or_vllm_names_both_remedies(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="install the extra 'vllm', or name a server in base_url"):
        build_chat_engine("model")


def test_build_chat_engine_contacts_no_server_before_the_first_request():
    engine = build_chat_engine("model", base_url="http://127.0.0.1:1/v1", attempts=1)
    try:
        (failed,) = engine.generate([Request(Chat.of("?"), "c", sampling=Sampling(4))])
    finally:
        engine.close()
    assert isinstance(failed.error, EngineUnavailable)
