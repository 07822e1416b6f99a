"""A build from sources to finished sets: the same bytes every time, whatever interrupts it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fixtures.data.teacher_server import Body, Say, TeacherServer, is_judge, serve, user_text
from fixtures.data.world import MAP, NAMES, fact, write_world

from data_pipeline.build import build, locked
from data_pipeline.progress import ProgressLine, describe, total_rows
from data_pipeline.settings import BuildConfig, SourceSpec
from data_pipeline.tally import BuildStopped, Tally
from seer.config import build_config
from seer.errors import ConfigError, InputError
from seer.shards.reader import ShardSet
from seer.teaching.ledger import BudgetReached, Ledger, Spending


def configure(tmp_path: Path, count: int = 12, out: str = "out", **changes: Any) -> BuildConfig:
    path = tmp_path / "train.jsonl"
    if not path.exists():
        write_world(path, count)
    source = {"kind": "table", "path": str(path), "map": MAP, "name": "world"}
    values = {"out": str(tmp_path / out), "sources": [source], **changes}
    return build_config(BuildConfig, values, where="test")


def files(folder: Path, *, but: tuple[str, ...] = ("ledger.jsonl", "config.toml")) -> dict[str, bytes]:
    """Every file a build wrote, but for those that tell of the run and not of the set."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in but)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def right_teacher(body: Body, n: int) -> Say:
    """Judges by the evidence and answers from the text, as a good teacher would."""
    text = user_text(body)
    record = text.partition(" in entry ")[2].partition("?")[0]
    wanted = 100 + int(record)
    if is_judge(body):
        return Say("YES" if f"has {wanted} steps" in text else "NO")
    return Say(f"<think>The page says {wanted} steps.</think>Answer: {wanted}")


def with_teachers(server: TeacherServer, **reason: Any) -> dict[str, Any]:
    teacher = {"base_url": server.base_url, "model": "scripted", "backoff_s": 0.0, "attempts": 3, "max_tokens": 256}
    return {
        "judge": {"kind": "teacher", "teacher": teacher},
        "reason": {"kind": "teacher", "teacher": teacher, **reason},
    }


def test_a_build_without_any_model(tmp_path: Path) -> None:
    report = build(configure(tmp_path))
    shards = ShardSet(tmp_path / "out" / "train")
    shards.verify()
    assert len(shards) == 12
    for n, told in enumerate(shards):
        seen = "".join(excerpt.text for excerpt in told.turns[2].excerpts)
        assert fact(NAMES[n % 10], 100 + n) in seen
        assert told.answers == (str(100 + n),)
        assert told.provenance["reason"] == "template"
    assert report.statistics["sources"]["world"]["retention"]["read"] == 12
    assert (tmp_path / "out" / "config.toml").is_file()
    assert "| world |" in (tmp_path / "out" / "README.md").read_text()


def test_equal_builds_write_equal_bytes(tmp_path: Path) -> None:
    options = {
        "validation_share": 0.4,
        "variants": {"shuffle_share": 0.5, "unanswerable_share": 0.5},
        "assemble": {"forms": ["select", "iso_control"], "multi_round_share": 0.5},
    }
    for out in ("a", "b"):
        build(configure(tmp_path, count=24, out=out, **options))
    written = files(tmp_path / "a")
    assert written == files(tmp_path / "b")
    assert {name.rpartition("/")[0] for name in written} == {
        "", "train", "validation", "iso_control/train", "iso_control/validation"
    }  # fmt: skip


def test_every_question_of_a_document_falls_on_one_side(tmp_path: Path) -> None:
    variants = {"shuffle_share": 1.0, "unanswerable_share": 1.0}
    build(configure(tmp_path, count=40, validation_share=0.5, variants=variants))
    sides = {}
    for side in ("train", "validation"):
        for told in ShardSet(tmp_path / "out" / side):
            text = "\n".join(sorted(line for line in told.source.splitlines() if line))
            number = int(next(line for line in text.splitlines() if line.startswith("Entry")).split()[1].split("-")[0])
            sides.setdefault(number // 2, set()).add(side)
    assert len(sides) == 20
    assert all(len(where) == 1 for where in sides.values())
    assert {side for where in sides.values() for side in where} == {"train", "validation"}


def test_an_ended_build_is_not_done_twice_and_not_overwritten(tmp_path: Path) -> None:
    build(configure(tmp_path))
    before = files(tmp_path / "out")
    again = build(configure(tmp_path))
    assert again.already_built
    assert again.statistics["written"] == 12
    with pytest.raises(InputError, match="another configuration"):
        build(configure(tmp_path, seed=1))
    assert files(tmp_path / "out") == before
    assert not build(configure(tmp_path, seed=1), force=True).already_built


def test_two_builds_in_one_folder_keep_out_of_each_others_way(tmp_path: Path) -> None:
    config = configure(tmp_path)
    Path(config.out).mkdir()
    with locked(Path(config.out)), pytest.raises(InputError, match="another process"):
        build(config)
    assert build(config).statistics["written"] == 12


def test_a_build_whose_sets_are_not_all_finished_goes_on(tmp_path: Path) -> None:
    config = configure(tmp_path, validation_share=0.4)
    build(config)
    before = files(tmp_path / "out")
    (tmp_path / "out" / "train" / "manifest.json").unlink()
    assert not build(config).already_built
    assert files(tmp_path / "out") == before


def test_pages_can_be_embedded(tmp_path: Path) -> None:
    build(configure(tmp_path, count=2, embed_pages=True))
    shards = ShardSet(tmp_path / "out" / "train")
    assert len(shards.pages_png(0)) == len(shards[0].turns[0].pages)
    shards.verify()


def test_faults_beyond_their_share_stop_the_build_with_the_table(tmp_path: Path) -> None:
    path = write_world(tmp_path / "train.jsonl", 60, filler_sentences=2)
    path.write_text(path.read_text() + "broken\n" * 40)
    with pytest.raises(BuildStopped, match=r"(?s)max_fault_share = 0\.2.*broken_json"):
        build(configure(tmp_path))
    assert not (tmp_path / "out" / "train" / "manifest.json").exists()
    report = build(configure(tmp_path, max_fault_share=0.5))
    source = report.statistics["sources"]["world"]
    assert source["rejected"] == {"broken_json": 40}
    assert len(source["examples"]["broken_json"]) == 3
    assert "line 61" in source["examples"]["broken_json"][0]["detail"]


def test_nothing_kept_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"(?s)no record of 12 was kept.*too_many_pages"):
        build(configure(tmp_path, max_pages=1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"judge": {"kind": "teacher"}}, "name one in"),
        ({"reason": {"kind": "oracle"}}, "reason.kind"),
        ({"variants": {"shufle_share": 1}}, "did you mean 'shuffle_share'"),
        ({"max_pages": 0}, "max_pages"),
        ({"sources": []}, "sources"),
        ({"assemble": {"forms": ["dance"]}}, "forms"),
    ],
)
def test_bad_settings_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configure(tmp_path, **changes)
    with pytest.raises(ConfigError, match="two sources"):
        configure(tmp_path, sources=[{"path": "train.jsonl"}, {"path": "train.jsonl"}])


def test_an_unknown_style_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'seer'"):
        build(configure(tmp_path, style="ser"))


# ── With teachers over HTTP ──────────────────────────────────────────────────────────────────────


def test_a_build_with_two_phases(tmp_path: Path) -> None:
    with serve(right_teacher) as server:
        report = build(configure(tmp_path, **with_teachers(server)))
    shards = ShardSet(tmp_path / "out" / "train")
    assert len(shards) == 12
    source = report.statistics["sources"]["world"]
    assert source["agreement_with_gold"]["precision"] == source["agreement_with_gold"]["recall"] == 1.0
    assert source["agreement_with_gold"]["kappa"] == 1.0
    assert {told.provenance["judge"] for told in shards} == {"teacher"}
    assert {told.provenance["reason"] for told in shards} == {"teacher:scripted"}
    assert shards[0].turns[3].text == "The page says 100 steps."
    with Ledger(tmp_path / "out" / "ledger.jsonl") as ledger:
        assert len(ledger) == len(server.asked)


def test_faults_and_nonsense_are_counted_and_the_rest_is_kept(tmp_path: Path) -> None:
    def script(body: Body, n: int) -> Say:
        record = int(user_text(body).partition(" in entry ")[2].partition("?")[0])
        bad = {
            0: Say("Perhaps."),
            1: Say(status=500),
            2: Say(raw=b"<html>proxy</html>"),
            3: Say(""),
        }
        if is_judge(body):
            return bad.get(record, Say("NO") if record == 4 else right_teacher(body, n))
        wrong = {5: "<think>x</think>Answer: 7", 6: "I'm sorry, I can't.", 7: "", 8: "<html></html>"}
        return Say(wrong[record]) if record in wrong else right_teacher(body, n)

    with serve(script) as server:
        report = build(configure(tmp_path, max_fault_share=1.0, **with_teachers(server)))
    assert report.statistics["sources"]["world"]["rejected"] == {
        "judge_unparsed": 2, "judge_failed": 2, "no_relevant_pages": 1,
        "answer_differs": 1, "reason_refused": 1, "reason_empty": 1, "no_reasoning": 1,
    }  # fmt: skip
    assert report.statistics["written"] == 3
    assert report.statistics["faults"] == 2
    # record 4, of which the judge kept no page, counts against its recall
    assert report.statistics["sources"]["world"]["agreement_with_gold"]["pages_gold_only"] == 1


def test_a_teacher_that_cannot_be_used_stops_the_build(tmp_path: Path) -> None:
    with (
        serve(lambda body, n: Say(status=401)) as server,
        pytest.raises(BuildStopped, match="judge teacher cannot be used"),
    ):
        build(configure(tmp_path, **with_teachers(server)))


def test_a_spent_budget_stops_and_more_budget_goes_on(tmp_path: Path) -> None:
    with serve(right_teacher) as server:
        undisturbed = configure(tmp_path, out="whole", **with_teachers(server))
        build(undisturbed)
        calls = len(server.asked)
        for limit in (5, 17):
            with pytest.raises(BudgetReached, match="raise the budget"):
                build(configure(tmp_path, budget={"max_calls": limit}, **with_teachers(server)))
            assert len(server.asked) == calls + limit
        build(configure(tmp_path, **with_teachers(server)))
        assert len(server.asked) == 2 * calls
        few = with_teachers(server)
        for part in few.values():
            part["teacher"]["concurrency"] = 2
        finished = build(configure(tmp_path, out="part", budget={"max_calls": 25, "then": "finish"}, **few))
    assert files(tmp_path / "out", but=("ledger.jsonl", "config.toml", "manifest.json")) == files(
        tmp_path / "whole", but=("ledger.jsonl", "config.toml", "manifest.json")
    )
    counts = finished.statistics["sources"]["world"]
    assert counts["rejected"]["budget"] + counts["written"] == 12
    assert counts["written"] >= 4


def test_distributed_evidence_keeps_a_share_by_design(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    with path.open("w") as file:
        for n in range(24):
            quotes = [f"Fact {part} of record {n} holds." for part in range(4)]
            text = "\n".join(f"{quote}\n" + f"Filler {n} sentence about geese and weather.\n" * 90 for quote in quotes)
            spread = n % 2 == 0
            evidence = quotes if spread else quotes[:1]
            row = {"id": n, "question": f"What of record {n} in entry {n}?", "context": text, "answers": ["holds"]}
            file.write(json.dumps({**row, "evidence": evidence}) + "\n")

    def script(body: Body, n: int) -> Say:
        record = int(user_text(body).partition(" in entry ")[2].partition("?")[0])
        return Say(f"<think>x</think>Answer: {'wrong' if record % 2 == 0 else 'holds'}")

    source = [{"kind": "table", "path": str(path)}]
    reason = {"kind": "teacher"}
    with serve(script) as server:
        teacher = {"base_url": server.base_url, "model": "scripted"}
        starved = build(configure(tmp_path, sources=source, reason={**reason, "teacher": teacher}))
        kept = build(
            configure(
                tmp_path,
                out="kept",
                sources=source,
                reason={**reason, "teacher": teacher},
                assemble={"distributed_share": 0.25},
            )
        )
    assert starved.statistics["sources"]["table"]["reasoning"] == {"teacher:scripted": 12}
    assert starved.statistics["sources"]["table"]["rejected"] == {"answer_differs": 12}
    assert kept.statistics["sources"]["table"]["reasoning"] == {"teacher:scripted": 12, "template": 3}
    assert kept.statistics["sources"]["table"]["rejected"] == {"answer_differs": 9}
    assert sum(len(told.relevant_pages) >= 4 for told in ShardSet(tmp_path / "kept" / "train")) == 3


def test_a_build_killed_again_and_again_ends_with_the_same_bytes(tmp_path: Path) -> None:
    def slowly(body: Body, n: int) -> Say:
        say = right_teacher(body, n)
        say.delay_s = 0.01
        return say

    generator = random.Random(7)
    with serve(slowly) as server:
        teachers = with_teachers(server)
        for part in teachers.values():
            part["teacher"]["concurrency"] = 4
        config = configure(tmp_path, count=40, **teachers)
        build(config.model_copy(update={"out": str(tmp_path / "whole")}))
        server.keys.clear()
        settings = tmp_path / "settings.json"
        settings.write_text(config.model_dump_json())
        program = (
            "import sys; from pathlib import Path; from data_pipeline.build import build;"
            "from data_pipeline.settings import BuildConfig;"
            "build(BuildConfig.model_validate_json(Path(sys.argv[1]).read_text()))"
        )
        finished_calls: set[str] = set()
        repeated = kills = 0
        for attempt in range(30):
            before = len(server.keys)
            process = subprocess.Popen([sys.executable, "-c", program, str(settings)], cwd=Path(__file__).parents[2])
            if attempt < 4:
                # wait until it calls, so that every kill lands in the middle of something
                deadline = time.monotonic() + 60
                while len(server.keys) < before + generator.randint(1, 30) and process.poll() is None:
                    assert time.monotonic() < deadline
                    time.sleep(0.002)
                kills += process.poll() is None
                os.kill(process.pid, signal.SIGKILL)
            code = process.wait(60)
            repeated += sum(key in finished_calls for key in server.keys[before:])
            finished_calls = recorded_keys(tmp_path / "out" / "ledger.jsonl")
            if code == 0:
                break
    assert kills >= 3
    assert repeated == 0
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def recorded_keys(path: Path) -> set[str]:
    """Keys of the calls whose whole line stands in the ledger."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return {json.loads(line)["key"] for line in lines}


# ── Progress ─────────────────────────────────────────────────────────────────────────────────────


def test_progress_tells_rate_cost_and_time_left() -> None:
    tally = Tally()
    tally.records, tally.written = 500, 400
    spent = Spending(calls=30, prompt_tokens=1000, completion_tokens=200, usd=1.5)
    assert describe(tally, 500, 2000, spent, 50.0) == (
        "500 records · 400 kept · 10.0/s · 30 calls, 1,200 tokens, $1.50 · 25% of the rows read, about 2 min 30 s left"
    )
    assert describe(tally, 500, None, None, 50.0) == "500 records · 400 kept · 10.0/s"
    assert "1 h 00 min left" in describe(tally, 10, 730, None, 50.0)


def test_progress_lines_are_written_now_and_then(tmp_path: Path) -> None:
    import io

    times = iter(range(100))
    stream = io.StringIO()
    line = ProgressLine(None, stream, clock=lambda: float(next(times)), every_s=5.0)
    for _ in range(11):
        line(Tally(), 0, None)
    assert stream.getvalue().count("records") == 2
    config = configure(tmp_path, count=7)
    assert total_rows(config.sources) == 7
    assert total_rows([config.sources[0].model_copy(update={"limit": 3})]) is None


def test_progress_on_a_terminal_is_one_line_that_ends() -> None:
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    times = iter(range(100))
    line = ProgressLine(None, stream := Terminal(), clock=lambda: float(next(times)), every_s=1.0)
    for _ in range(3):
        line(Tally(), 0, None)
    line.close()
    line.close()
    assert stream.getvalue().count("\r") == 3 and stream.getvalue().count("\n") == 1


def test_rows_are_counted_where_a_file_tells_them(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"question": ["a", "b", "c"]}), tmp_path / "train.parquet")
    (tmp_path / "train.json").write_text("[]")
    parquet, plain = (SourceSpec(path=str(tmp_path / f"train.{ending}")) for ending in ("parquet", "json"))
    assert total_rows([parquet, parquet]) == 6
    assert total_rows([parquet, plain]) is None
