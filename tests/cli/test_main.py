"""The `seer` command as a user runs it: clear errors and exit codes for bad input, answers and records for good."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from serving_fakes import Say, serve

TEXT = "The laptop costs 1299.99 dollars.\nThe monitor costs 449.99 dollars.\n"


def seer(
    *arguments: str | Path, stdin: bytes | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seer.cli.main", *map(str, arguments)]
    result = subprocess.run(command, input=stdin, capture_output=True, cwd=cwd)
    return subprocess.CompletedProcess(command, result.returncode, result.stdout.decode(), result.stderr.decode())


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "prices.txt"
    path.write_text(TEXT)
    return path


def test_help_lists_commands_and_their_usage():
    result = seer("--help")
    assert result.returncode == 0
    for command in ("render", "plan", "ask", "check", "eval", "make-small"):
        assert command in result.stdout
        assert "Usage" in seer(command, "--help").stdout


def test_version_prints_name_and_number():
    assert re.fullmatch(r"seer \d+\.\d+\.\d+\n", seer("--version").stdout)


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """A folder of files that no command can use."""
    (tmp_path / "good.txt").write_text(TEXT)
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "bytes.txt").write_bytes(b"caf\xe9 \xff\xfe\x81 \xc3\x28")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path


BAD_INPUTS = {
    "missing file": ("ask none.txt q --engine scripted", "no document at"),
    "folder": ("ask model q --engine scripted", "is a folder"),
    "empty file": ("ask empty.txt q --engine scripted", "is empty"),
    "binary file": ("ask binary.txt q --engine scripted", "binary"),
    "undecodable bytes": ("ask bytes.txt q --engine scripted", "encoding"),
    "question of spaces": ("ask good.txt '  ' --engine scripted", "the question is empty"),
    "no question": ("ask good.txt --engine scripted", "only 'good.txt' was given"),
    "no model": ("ask good.txt q", "--model"),
    "model folder missing": ("ask good.txt q --model nowhere", "no checkpoint folder"),
    "model folder incomplete": ("ask good.txt q --model model", "lacks tokenizer.json"),
    "page limit of 0": ("ask good.txt q --engine scripted --policy max_pages=0", "max_pages"),
    "unknown setting": ("ask good.txt q --engine scripted --policy max_page=2", "did you mean 'max_pages'"),
    "unknown system": ("ask good.txt q --engine scripted --system telepathy", "known: seer, seer-k0"),
    "unknown selector": ("ask good.txt q --engine scripted --selector bm52", "known: model"),
    "unknown style": ("ask good.txt q --engine scripted --style seeer", "did you mean 'seer'"),
    "unknown engine": ("ask good.txt q --engine abacus", "known: hf, scripted"),
    "oracle without gold": ("ask good.txt q --engine scripted --selector oracle", "gold pages"),
    "gold pages not numbers": (
        "ask good.txt q --engine scripted --gold-pages one",
        "--gold-pages one: not page numbers; write them as 1,3",
    ),
    "gold page beyond the end": (
        "ask good.txt q --engine scripted --selector oracle --gold-pages 1,5",
        "no page 5, only 1 to 1",
    ),
    "address for another engine": (
        "ask good.txt q --engine scripted --base-url http://127.0.0.1:1/v1",
        "--engine openai, not with scripted",
    ),
    "argument of an engine without any": (
        "ask good.txt q --engine scripted --engine-arg foo=1",
        "the engine 'scripted' has no option 'foo'; leave --engine-arg out",
    ),
    "policy value out of range": (
        "ask good.txt q --engine scripted --policy rounds=0",
        "rounds: must be greater than or equal to 1 (got 0)",
    ),
    "benchmark folder missing": (
        "eval longbench --data none --engine scripted --out o",
        "no folder at 'none'; give a folder of <task>.jsonl files",
    ),
    "benchmark folder without records": (
        "eval longbench --data model --engine scripted --out o",
        "'model' has no <task>.jsonl; give a folder with the records of longbench, one file per task",
    ),
    "glob without match": ("ask *.pdf q --engine scripted", "no file matches"),
    "web address": ("ask https://example.org/a.txt q --engine scripted", "address"),
    "page range beyond the end": ("ask good.txt q --engine scripted --pages 7-9", "page"),
    "render a missing file": ("render none.txt --out o", "no document at"),
    "plan an empty file": ("plan empty.txt", "is empty"),
    "make-small over something": ("make-small model", "exists already"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_command_rejects_bad_input_with_one_clear_error(bad, name):
    command, message = BAD_INPUTS[name]
    result = seer(*shlex.split(command), cwd=bad)
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_debug_shows_the_traceback_of_ask(tmp_path):
    result = seer("--debug", "ask", tmp_path / "none.txt", "q", "--engine", "scripted")
    assert result.returncode != 0
    assert "Traceback" in result.stderr


def test_ask_prints_trace_answer_citation_and_tokens(document):
    result = seer("ask", document, "What does the laptop cost?", "--engine", "scripted")
    assert result.returncode == 0
    assert "select  pages [1]" in result.stdout
    assert 'prices.txt:p.1 "The laptop costs 1299.99 dollars." verified' in result.stdout
    assert "vision" in result.stdout


def test_ask_with_json_prints_the_answer_record(document):
    result = seer("ask", document, "What?", "--engine", "scripted", "--json")
    record = json.loads(result.stdout)
    assert record["status"] == "answered"
    assert record["question"] == "What?"
    assert [step["name"] for step in record["trace"]] == ["look", "select", "retrieve", "reason", "answer"]
    assert record["usage"]["prompt"] > 0


def test_ask_reads_standard_input_and_several_files(document, tmp_path):
    assert "laptop" in seer("ask", "-", "What?", "--engine", "scripted", stdin=TEXT.encode()).stdout
    (tmp_path / "other.txt").write_text("Nothing about prices.\n")
    result = seer("ask", tmp_path / "*.txt", "What?", "--engine", "scripted", "--json")
    assert json.loads(result.stdout)["trace"][0]["pages"] == [1, 2]


def test_ask_with_an_address_selects_the_openai_engine(document):
    result = seer("ask", document, "What?", "--base-url", "http://127.0.0.1:1/v1", "--model", "any")
    assert result.returncode == 1
    assert "http://127.0.0.1:1/v1 is not reachable" in result.stderr


@pytest.mark.parametrize("as_json", [False, True])
def test_ask_with_a_failing_engine_exits_1_with_the_full_message(document, as_json):
    options = ["--engine-arg", "structure=none", "--engine-arg", "continuation=tool", "--engine-arg", "attempts=1"]
    with serve(lambda body, number: Say(status=503, headers={"Retry-After": "2"})) as upstream:
        form = ["--json"] if as_json else []
        result = seer("ask", document, "What?", "--base-url", upstream.base_url, *options, *form)
    message = f"{upstream.base_url} answered 503: told to fail"
    assert result.returncode == 1
    assert f"failed  {message}" in (result.stderr if as_json else result.stdout)
    if as_json:
        record = json.loads(result.stdout)
        assert (record["cause"], record["failure"]["kind"]) == (message, "unavailable")


def test_ask_with_save_trace_writes_an_escaped_report(document, tmp_path):
    folder = tmp_path / "trace"
    document.write_text(TEXT + "<script>alert('x')</script> [a](javascript:alert) **bold**\n")
    result = seer("ask", document, "<img src=x onerror=alert(1)>?", "--engine", "scripted", "--save-trace", folder)
    assert result.returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "answer.json",
        "page-0001.png",
        "report.html",
        "report.md",
    ]
    page = (folder / "report.html").read_text()
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;" in page


def test_ask_with_a_small_model_selects_and_reuses_its_cache(document, small_checkpoint_dir):
    arguments = ["--model", small_checkpoint_dir, "--policy", "max_new_tokens=8", "--json", "--device", "cpu"]
    result = seer("ask", document, "What does the monitor cost?", *arguments)
    record = json.loads(result.stdout)
    assert result.returncode in (0, 1, 3)
    call = record["trace"][1]
    assert call["name"] == "select"
    assert call["deviations"] == []
    assert record["trace"][-1]["usage"]["cached"] > 0


def test_check_names_the_checks_that_fail(small_checkpoint_dir, tmp_path):
    import shutil

    good = json.loads(seer("check", small_checkpoint_dir, "--json").stdout.splitlines()[-1])
    assert good["ok"]
    assert [check["name"] for check in good["checks"]] == [
        "folder",
        "control tokens",
        "configuration",
        "stop tokens",
        "plain text",
        "chat template",
        "processor",
        "positions",
    ]
    broken = tmp_path / "broken"
    shutil.copytree(small_checkpoint_dir, broken)
    settings = json.loads((broken / "generation_config.json").read_text())
    settings["eos_token_id"] = [*settings["eos_token_id"], 551]
    (broken / "generation_config.json").write_text(json.dumps(settings))
    config = json.loads((broken / "config.json").read_text())
    config["text_config"]["head_dim"] = 64
    (broken / "config.json").write_text(json.dumps(config))
    (broken / "chat_template.jinja").write_text("{{ messages[0].role }}")
    result = seer("check", broken, "--no-weights")
    assert result.returncode == 2
    failed = [line.split(":")[0].split("  ")[1] for line in result.stdout.splitlines() if line.startswith("FAIL")]
    assert "configuration" in failed
    noted = [line.split(":")[0].split("  ")[1] for line in result.stdout.splitlines() if line.startswith("note")]
    assert noted == ["chat template"]
