"""The command `seer-data`: output, files and exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fixtures.data.world import write_world

from data_pipeline import cli
from data_pipeline.gallery import gallery_html
from data_pipeline.settings import BuildConfig
from data_pipeline.sources.registry import SOURCES, check_split
from seer.config import load_config
from seer.schema import PageStyle, Trajectory, Turn
from seer.shards.reader import ShardSet, write_shards

COLUMNS = "question=q,context=text,answers=a,evidence=quotes,document=doc"


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["seer-data", *map(str, arguments)])
    code = 0
    try:
        cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    out, error = capsys.readouterr()
    return code, out, error


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    data = write_world(tmp_path / "train.jsonl", 6)
    out = tmp_path / "out"
    code, _, error = run(monkeypatch, capsys, "build", "--input", data, "--map", COLUMNS, "--out", out)
    assert code == 0, error
    return out


def test_verify_and_stats_report_records(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(monkeypatch, capsys, "verify", built, "--json")
    assert code == 0
    assert json.loads(out)[str(built / "train")]["rows"] == 6
    code, out, _ = run(monkeypatch, capsys, "stats", built)
    assert re.search(r"table +6 +6", out)
    code, out, _ = run(monkeypatch, capsys, "stats", built, "--json")
    assert json.loads(out)["written"] == 6


def test_build_command_applies_overrides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_world(tmp_path / "train.jsonl", 6)
    config = tmp_path / "config.toml"
    columns = "{question='q', context='text', answers='a', evidence='quotes'}"
    config.write_text(f"out='{tmp_path}/x'\nsources=[{{path='{tmp_path}/train.jsonl', map={columns}}}]\n")
    code, out, error = run(
        monkeypatch, capsys, "build", config, "--set", f"out={tmp_path}/y", "--set", "sources=1", "--json"
    )
    assert (code, out) == (2, "")
    assert "sources" in error
    code, out, _ = run(monkeypatch, capsys, "build", config, "--set", f"out={tmp_path}/y", "--json")
    assert code == 0
    assert json.loads(out)["sets"]["train"]["rows"] == 6
    code, out, _ = run(monkeypatch, capsys, "build", config, "--set", f"out={tmp_path}/y")
    assert "already built" in out


def test_show_and_export_with_json_print_their_output(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(monkeypatch, capsys, "show", built, "--limit", 2, "--json")
    assert json.loads(out) == {"out": str(built / "train" / "gallery.html"), "shown": 2}
    _, out, _ = run(monkeypatch, capsys, "export", built, "--out", tmp_path / "trl", "--format", "trl", "--json")
    assert json.loads(out) == {"out": str(tmp_path / "trl"), "conversations": 6, "format": "trl"}


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "configs").glob("data-*.toml")), ids=lambda path: path.stem
)
def test_shipped_configuration_is_valid(path: Path) -> None:
    config = load_config(BuildConfig, path)
    assert all(source.kind in SOURCES or source.kind == "table" for source in config.sources)
    for source in config.sources:
        check_split(source)


def test_build_command_with_input_replaces_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_world(tmp_path / "world.jsonl", 6)
    config = Path(__file__).parents[2] / "configs" / "data-miniature.toml"
    arguments = (
        "build",
        config,
        "--input",
        data,
        "--map",
        COLUMNS,
        "--out",
        tmp_path / "out",
        "--set",
        "style=seer",
        "--set",
        "validation_share=0.0",
    )
    code, out, error = run(monkeypatch, capsys, *arguments)
    assert code == 0, error
    assert "6 trajectories" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build"], "nothing to build"),
        (["build", "nowhere.toml"], "no configuration at 'nowhere.toml'"),
        (["build", "--input", "train.jsonl"], "out"),
        (["build", "--input", "gone_train.jsonl", "--out", "x"], "no data at 'gone_train.jsonl'"),
        (["build", "--input", "t.jsonl", "--out", "x", "--map", "contxt=text"], "NAME=COLUMN"),
        (["build", "--input", "t.jsonl", "--out", "x", "--kind", "hotpot"], "did you mean 'hotpotqa'"),
        (["build", "--input", "t.jsonl", "--out", "x", "--judge", "coin"], "judge.kind"),
        (["build", "--input", "t.jsonl", "--out", "x", "--runner", "slurm"], "local or ray"),
        (["verify", "nowhere"], "no folder at 'nowhere'"),
        (["verify", "."], "manifest.json"),
        (["stats", "."], "stats.json"),
        (["show", "nowhere"], "no folder"),
        (["export", "nowhere", "--out", "x"], "no folder"),
        (["export", "nowhere", "--out", "x", "--format", "csv"], "known: llamafactory"),
        (["guard", "nowhere", "--out", "x.txt"], "must end in .npz"),
        (["guard", "nowhere", "--out", "x.npz"], "no data at 'nowhere'"),
    ],
)
def test_command_with_wrong_arguments_exits_with_2_and_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, error = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert message in error
    assert "Traceback" not in error + out


def test_verify_damaged_shard_fails(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    part = built / "train" / "part-00000.parquet"
    data = bytearray(part.read_bytes())
    data[500] ^= 1
    part.write_bytes(bytes(data))
    code, _, error = run(monkeypatch, capsys, "verify", built)
    assert code == 2
    assert "sha256" in error


def test_sources_command_lists_known_sources(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(monkeypatch, capsys, "sources")
    assert "musique" in out
    assert "--map" in out
    _, out, _ = run(monkeypatch, capsys, "sources", "--json")
    assert json.loads(out)["hotpotqa"]["in_paper"] is True


def test_guard_command_writes_index_that_build_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_world(tmp_path / "train.jsonl", 3)
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    bench = tmp_path / "bench.jsonl"
    bench.write_text(json.dumps({"input": rows[1]["q"], "context": rows[2]["text"]}) + "\n")
    code, out, _ = run(monkeypatch, capsys, "guard", bench, "--out", tmp_path / "g.npz", "--json")
    assert code == 0 and json.loads(out)["records"] == 1
    arguments = (
        "build",
        "--input",
        data,
        "--map",
        COLUMNS,
        "--out",
        tmp_path / "o",
        "--set",
        f"guard.benchmark={tmp_path}/g.npz",
    )
    code, out, _ = run(monkeypatch, capsys, *arguments)
    assert code == 0
    assert "leaked_question" in out
    assert "leaked_context" in out
    assert "No guard was set" not in (tmp_path / "o" / "README.md").read_text()


def test_cli_import_loads_no_heavy_library() -> None:
    program = (
        "import sys; import data_pipeline.cli;"
        "bad = {'torch', 'transformers', 'vllm', 'ray', 'datasets', 'pyarrow', 'aiohttp'} & set(sys.modules);"
        "sys.exit(', '.join(bad) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ── The gallery ──────────────────────────────────────────────────────────────────────────────────


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg onload=alert(3)>&lt;b&gt;</span>"


def test_gallery_escapes_untrusted_text() -> None:
    turns = (
        Turn(kind="prompt", text=EVIL, pages=(1,)),
        Turn(kind="think", text=EVIL),
        Turn(kind="answer", text=EVIL),
    )
    trajectory = Trajectory(
        id=EVIL, source=EVIL, style=PageStyle(name="seer"), turns=turns, answers=(EVIL,), provenance={EVIL: EVIL}
    )
    reader = _Reader()
    reader.feed(gallery_html(EVIL, [trajectory], 1))
    assert not {"script", "svg"} & set(reader.tags)
    assert reader.tags.count("img") == 1
    assert not [name for name in reader.attributes if name.startswith("on")]
    assert reader.text.count(EVIL) >= 8


def test_show_command_writes_gallery(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(monkeypatch, capsys, "show", built, "--limit", 2, "--first", 1)
    assert code == 0
    page = Path(out.strip()).read_text()
    assert "2 of 6 trajectories" in page
    assert page.count("data:image/png;base64,") >= 2
    assert page.count('<figure class="selected"') == 2
    reader = _Reader()
    reader.feed(page)
    assert "<|observation|>" in reader.text
    code, _, error = run(monkeypatch, capsys, "show", built, "--first", 6)
    assert code == 2
    assert "--first 6" in error


# ── Export ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["llamafactory", "swift", "trl"])
def test_export_writes_messages_and_images(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    target = tmp_path / form
    code, out, _ = run(monkeypatch, capsys, "export", built, "--out", target, "--format", form)
    assert code == 0
    assert "6 conversations" in out
    rows = [json.loads(line) for line in (target / "data.jsonl").read_text().splitlines()]
    shards = ShardSet(built / "train")
    for row, trajectory in zip(rows, shards, strict=True):
        user, call, tool, answer = row["messages"]
        assert [user["role"], call["role"], answer["role"]] == ["user", "assistant", "assistant"]
        assert tool["role"] == {"llamafactory": "observation", "swift": "tool_response", "trl": "tool"}[form]
        pages = trajectory.turns[0].pages
        assert len(row["images"]) == len(pages)
        assert all((target / name).read_bytes().startswith(b"\x89PNG") for name in row["images"])
        if form == "trl":
            assert [part["type"] for part in user["content"]].count("image") == len(pages)
            call_text, answer_text = call["content"][0]["text"], answer["content"][0]["text"]
        else:
            assert user["content"].count("<image>") == len(pages)
            call_text, answer_text = call["content"], answer["content"]
        assert call_text == f'<tool_call>{{"name": "select", "indices": {list(trajectory.relevant_pages)}}}</tool_call>'
        assert answer_text == f"<think>{trajectory.turns[3].text}</think>\n{trajectory.turns[4].text}"
    assert (target / "dataset_info.json").exists() == (form == "llamafactory")
    code, _, error = run(monkeypatch, capsys, "export", built, "--out", target, "--format", form)
    assert code == 2
    assert "export already" in error


def test_export_escapes_placeholders_and_control_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = (
        Turn(kind="prompt", text="Is <image> or <|user|> shown?", pages=(1,)),
        Turn(kind="think", text="</think><video>"),
        Turn(kind="answer", text="<tool_call>"),
    )
    trajectory = Trajectory(id="../../evil", source="text", style=PageStyle(name="seer"), turns=turns)
    write_shards(tmp_path / "set", [trajectory])
    run(monkeypatch, capsys, "export", tmp_path / "set", "--out", tmp_path / "out", "--format", "swift")
    (row,) = [json.loads(line) for line in (tmp_path / "out" / "data.jsonl").read_text().splitlines()]
    user, answer = (message["content"] for message in row["messages"])
    assert user.count("<image>") == 1
    assert "<|user|>" not in user
    assert answer.count("</think>") == 1
    assert "<video>" not in answer
    assert "<tool_call>" not in answer
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "set"]


def test_stats_rejects_file_without_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for content in ("{", "[]", "{}"):
        (tmp_path / "stats.json").write_text(content)
        code, _, error = run(monkeypatch, capsys, "stats", tmp_path)
        assert code == 2
        assert "stats.json' does not hold the statistics of a build" in error and "build it again" in error


def test_verify_prints_a_line_for_each_set(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, error = run(monkeypatch, capsys, "verify", built)
    assert code == 0, error
    shards = ShardSet(built / "train")
    assert f"{built / 'train'}: {len(shards)} trajectories verified, digest {shards.digest[:12]}" in out.splitlines()


def test_export_of_a_build_with_several_sets_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = write_world(tmp_path / "train.jsonl", 12), tmp_path / "out"
    share = ("--set", "validation_share=0.5")
    code, _, error = run(monkeypatch, capsys, "build", "--input", data, "--map", COLUMNS, "--out", out, *share)
    assert code == 0, error
    code, _, error = run(monkeypatch, capsys, "export", out, "--out", tmp_path / "x")
    assert code == 2
    assert f"'{out}' holds 2 sets; pass one of {out / 'train'}, {out / 'validation'}" in error


def test_guard_command_prints_the_size_of_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = tmp_path / "bench.jsonl"
    benchmark.write_text(
        json.dumps({"input": "Who?", "context": "Digger found the ruin. " * 40, "answers": ["Digger"]})
    )
    code, out, error = run(monkeypatch, capsys, "guard", benchmark, "--out", tmp_path / "index.npz")
    assert code == 0, error
    assert out.startswith(f"{tmp_path / 'index.npz'}: 1 records, ")


def test_build_without_uvloop_writes_the_same_records(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    other = tmp_path / "other"
    code, _, error = run(
        monkeypatch, capsys, "build", "--input", tmp_path / "train.jsonl", "--map", COLUMNS, "--out", other
    )
    assert code == 0, error
    assert ShardSet(other / "train").digest == ShardSet(built / "train").digest
