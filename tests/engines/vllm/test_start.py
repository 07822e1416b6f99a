"""The vLLM engine's parts that need no vLLM: arguments, versions, prompts."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import draw_noise, make_document, small_encoder

from seer.engines.background import BackgroundEngine, BackgroundLoop
from seer.engines.base import Conversation, Request
from seer.engines.build import build_engine, parse_engine_arguments
from seer.engines.drawn import DrawnPages
from seer.engines.prompts import encode_prompt
from seer.engines.vllm import engine as vllm
from seer.engines.vllm import runtime, start
from seer.errors import ConfigError, InputError, ModelError
from seer.protocol.control import CONTROL
from seer.schema import Page, Turn


def test_vllm_prompt_has_one_placeholder_an_image():
    document = make_document(["a", "b"], width_px=140, height_px=112)
    sizes = {page.number: (page.width_px, page.height_px) for page in document}
    encoder = small_encoder()
    encoded = encoder.encode([Turn(kind="prompt", text="<|image|> what?", pages=(1, 2))], sizes)
    ids = vllm.one_placeholder_an_image(encoded)
    image = encoder.control(CONTROL.image)
    assert ids.count(image) == 2
    assert len(ids) == len(encoded) - encoded.vision_tokens + 2
    assert [i for i in ids if i != image] == [i for i in encoded.ids.tolist() if i != image]


def test_engine_arguments_passes_known_names_and_rejects_others():
    known = ("model", "max_model_len", "dtype", "enable_prefix_caching")
    arguments = start.engine_arguments("m", {"max_model_len": 8192, "dtype": "bfloat16"}, known, on_cpu=True)
    assert (arguments["max_model_len"], arguments["dtype"], arguments["model"]) == (8192, "bfloat16", "m")
    assert arguments["enable_prefix_caching"]
    with pytest.raises(ConfigError, match="did you mean 'max_model_len'"):
        start.engine_arguments("m", {"max_modellen": 1}, known, on_cpu=True)


@pytest.mark.parametrize(("on_cpu", "cores", "executor"), [(True, 2, "uni"), (True, 16, None), (False, 2, None)])
def test_engine_arguments_on_two_cores_uses_the_uni_executor(monkeypatch, on_cpu, cores, executor):
    monkeypatch.setattr(start, "usable_cores", lambda: cores)
    arguments = start.engine_arguments("m", {}, (), on_cpu=on_cpu)
    assert arguments.get("distributed_executor_backend") == executor
    given = {"distributed_executor_backend": "mp"}
    assert start.engine_arguments("m", given, tuple(given), on_cpu=on_cpu)["distributed_executor_backend"] == "mp"


def test_parse_engine_arguments_reads_json_values():
    pairs = [
        "max-model-len=8192",
        "dtype=float32",
        'limit_mm_per_prompt={"image": 4}',
        "enforce_eager=true",
        "trust=True",
    ]
    assert parse_engine_arguments(pairs) == {
        "max_model_len": 8192,
        "dtype": "float32",
        "limit_mm_per_prompt": {"image": 4},
        "enforce_eager": True,
        "trust": True,
    }
    with pytest.raises(InputError, match="key=value"):
        parse_engine_arguments(["max_model_len"])
    with pytest.raises(
        InputError, match="--engine-arg base-url=http://a: this argument has its own option; use --base-url"
    ):
        parse_engine_arguments(["base-url=http://a"])


def test_drawn_pages_draws_once_a_session_within_bounds():
    drawn: DrawnPages[str] = DrawnPages(len, max_bytes=4)
    draws: list[str] = []

    def draw(key: str) -> str:
        draws.append(key)
        return key.upper()

    for conversation in ("a", "b", "a"):
        for key in ("x", "y"):
            assert drawn.get(conversation, key, lambda key=key: draw(key)) == key.upper()
    assert (draws, len(drawn)) == (["x", "y", "x", "y"], 4)
    drawn.get("c", "z", lambda: draw("z"))  # one too many: b, quiet the longest, goes
    assert len(drawn) == 3
    drawn.forget("a")
    drawn.forget("never seen")
    assert len(drawn) == 1
    drawn.get("d", "huge", lambda: "a picture beyond the bound stands alone")
    assert len(drawn) == 1


def test_vllm_draws_pages_outside_its_event_loop():
    threads: set[str] = set()

    def draw(page: Page) -> np.ndarray:
        threads.add(threading.current_thread().name)
        return draw_noise(page)

    document = make_document(["a", "b"])
    for page in document:
        page.attach(draw)
    engine = vllm.VLLMEngine.__new__(vllm.VLLMEngine)
    BackgroundEngine.__init__(engine, runtime._image_bytes)
    engine.encoder, engine._numbers, engine._llm = small_encoder(), itertools.count(), Replies()
    turns = (Turn(kind="prompt", text="what?", pages=(1, 2)),)
    request = Request(Conversation(turns, {page.number: page for page in document}), "c")
    prompt = encode_prompt(engine.encoder, request.prompt)
    said = engine.run(engine._send(request, prompt, (), SimpleNamespace(structured_outputs=None)))
    engine._loop.close()
    assert said.prompt_tokens == len(prompt.encoded)
    assert threads and "seer-vllm" not in threads
    assert [image.size for image in engine._llm.prompt["multi_modal_data"]["image"]] == [(112, 84)] * 2


class Replies:
    """A stand-in for vLLM that serves one request."""

    async def generate(self, prompt, sampling, request_id):
        self.prompt = prompt
        document = make_document(["a", "b"])
        turns = [Turn(kind="prompt", text="what?", pages=(1, 2))]
        whole = small_encoder().encode(turns, {page.number: (112, 84) for page in document})
        completion = SimpleNamespace(index=0, token_ids=[small_encoder().stop_ids[0]], finish_reason="stop")
        yield SimpleNamespace(prompt_token_ids=whole.ids, num_cached_tokens=0, outputs=[completion])


def test_background_loop_serves_threads_and_other_loops():
    loop = BackgroundLoop("test")

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    async def nested() -> int:
        return await loop.call(double(4))

    async def waits_for_itself() -> int:
        return loop.run(double(1))

    assert loop.run(double(2)) == 4
    assert asyncio.run(nested()) == 8
    assert loop.run(nested()) == 8
    with pytest.raises(RuntimeError, match="await the work instead"):
        loop.run(waits_for_itself())
    loop.close()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.run(double(1))


def test_check_version_reads_versions_and_rejects_old_ones(monkeypatch):
    assert start.version_tuple("0.32.0+cpu") == (0, 32)
    assert start.version_tuple("1.4") >= start.OLDEST
    with pytest.raises(ModelError, match="not a released version"):
        start.version_tuple("dev")
    monkeypatch.setattr("importlib.metadata.version", lambda package: "0.11.2")
    with pytest.raises(ModelError, match=r"vLLM 0\.11\.2 is installed and Seer needs 0\.24"):
        start.check_version()


def test_check_version_names_the_install_command_if_vllm_is_absent(monkeypatch):
    from importlib.metadata import PackageNotFoundError

    def absent(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr("importlib.metadata.version", absent)
    with pytest.raises(ModelError, match="install_vllm_cpu"):
        start.check_version()


def test_build_engine_names_missing_arguments(small_checkpoint_dir):
    with pytest.raises(InputError, match="--base-url"):
        build_engine("openai")
    with pytest.raises(InputError, match="no model given"):
        build_engine("vllm")
    with pytest.raises(InputError, match="did you mean 'max_concurrent'"):
        build_engine("openai", base_url="http://127.0.0.1:9/v1", max_concurrency=3)
    with pytest.raises(InputError, match="did you mean 'max_batch'"):
        build_engine("hf", model=str(small_checkpoint_dir), max_batches=3)


@pytest.mark.parametrize(
    ("folder", "held", "expected"),
    [
        ("venv", "", "{library}"),
        ("venv", "/lib/libother.so", "{library}:/lib/libother.so"),
        ("venv", "/lib/libgomp.so.1", "/lib/libgomp.so.1"),
        ("my venv", "", ""),
    ],
)
def test_preloaded_openmp_is_set_if_installed(tmp_path, monkeypatch, folder, held, expected):
    library = tmp_path / folder / "lib" / "libiomp5.so"
    monkeypatch.setenv("LD_PRELOAD", held)
    with start.preloaded_openmp(tmp_path / folder):
        assert os.environ["LD_PRELOAD"] == held, "it is not installed"
    library.parent.mkdir(parents=True)
    library.touch()
    with start.preloaded_openmp(tmp_path / folder):
        assert os.environ["LD_PRELOAD"] == expected.format(library=library)
    assert os.environ["LD_PRELOAD"] == held
    monkeypatch.delenv("LD_PRELOAD")
    with start.preloaded_openmp(tmp_path / folder):
        pass
    assert "LD_PRELOAD" not in os.environ
