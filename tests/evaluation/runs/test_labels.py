"""`seer eval label`: pages judged by a teacher over HTTP, without guesses and without repeated calls."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from fixtures.data.teacher_server import Body, Say, TeacherServer, serve, user_text
from typer.testing import CliRunner

from data_pipeline.records import Sample
from data_pipeline.steps.annotate import Relevance, TeacherJudge
from data_pipeline.steps.paging import layout_pages
from seer.cli.eval.main import app
from seer.errors import ConfigError, EngineUnavailable, InputError
from seer.evaluation.benchmarks.longbench import LongBenchRecord, read_data
from seer.evaluation.files import read_predictions
from seer.evaluation.runs.labels import COUNTS_NAME, LABELS_NAME, LEDGER_NAME, label_pages
from seer.evaluation.runs.score import EXIT_GAPS
from seer.evaluation.scoring.pages import read_page_labels
from seer.rendering import render_text, resolve_style
from seer.schema import PageStyle
from seer.teaching.ledger import Budget, Ledger
from seer.teaching.settings import TeacherSpec
from seer.teaching.teachers import open_teacher

FILLER = "".join(f"In the year {n} nothing at all was written down in the annals.\n" for n in range(400))


BEACON = "The beacon of Orla was lit by Tamber.\n"


CONTEXT = FILLER + BEACON + FILLER


ELSEWHERE = FILLER.replace("annals", "ledger")
"""Different pages: for pages that two records share, the number of calls depends on the order of replies."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [
        {"_id": "found", "input": "Who lit the beacon?", "context": CONTEXT, "answers": ["Tamber"]},
        {"_id": "absent", "input": "Who lit the beacon?", "context": ELSEWHERE, "answers": ["Tamber"]},
        {"_id": "open", "input": "Who lit the beacon?", "context": ELSEWHERE, "answers": []},
    ]
    (folder / "hotpotqa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def knows_the_beacon(body: Body, n: int) -> Say:
    return Say("YES" if "beacon of Orla" in user_text(body) else "NO")


def run(data: Path, out: Path, server: TeacherServer, *more: object):
    arguments = ["label", "--data", data, "--out", out, "--model", "judge", "--base-url", server.base_url, "--json"]
    arguments += ["--teacher-option", "backoff_s=0.0", "--teacher-option", "attempts=2", *more]
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def beacon_page(style: str | PageStyle = "seer") -> tuple[int, ...]:
    return tuple(page.number for page in render_text(CONTEXT, style).pages if BEACON in page.text)


def test_label_writes_labels_and_counts_for_oracle_selector(data, tmp_path):
    out = tmp_path / "labels"
    with serve(knows_the_beacon) as server:
        result = run(data, out, server)
    assert result.exit_code == 0, result.output
    labels = read_page_labels(out / LABELS_NAME)
    assert labels == {"found": beacon_page(), "absent": ()}
    counts = json.loads(result.stdout.splitlines()[-1])
    num_pages = sum(len(render_text(text, "seer").pages) for text in (CONTEXT, ELSEWHERE))
    assert counts["calls"] == counts["pages"] == len(server.asked) == num_pages > 4
    assert (counts["inputs"], counts["labelled"], counts["labelled_empty"], counts["relevant_pages"]) == (3, 2, 1, 1)
    assert counts["unlabelled"] == {"no_answer": 1}
    stored = json.loads((out / COUNTS_NAME).read_text())
    assert stored["counts"] == counts
    assert (stored["model"], stored["temperature"], stored["style"]["name"]) == ("judge", 0.3, "seer")
    assert {body["temperature"] for body in server.asked} == {0.3}
    oracle = ["predict", "--data", data, "--engine", "scripted", "--selector", "oracle", "--labels", out / LABELS_NAME]
    predicted = CliRunner().invoke(app, [str(one) for one in [*oracle, "--out", tmp_path / "run"]])
    assert predicted.exit_code == 0, predicted.output
    assert read_predictions(tmp_path / "run/hotpotqa.jsonl")[0].selected_pages == beacon_page()


def test_label_repeated_makes_no_calls_and_same_files(data, tmp_path):
    out = tmp_path / "labels"
    with serve(knows_the_beacon) as server:
        run(data, out, server)
        num_calls, first = len(server.asked), [(out / name).read_bytes() for name in (LABELS_NAME, COUNTS_NAME)]
        run(data, out, server)
        assert len(server.asked) == num_calls
    assert [(out / name).read_bytes() for name in (LABELS_NAME, COUNTS_NAME)] == first


def test_label_makes_same_calls_as_data_pipeline_judge(data, tmp_path):
    out = tmp_path / "labels"
    with serve(knows_the_beacon) as server:
        run(data, out, server)
        num_calls = len(server.asked)

        async def judge() -> object:
            spec = TeacherSpec(base_url=server.base_url, model="judge")
            sample = Sample("found", "s", "Who lit the beacon?", CONTEXT, ("Tamber",))
            pages = layout_pages(resolve_style("seer"))(CONTEXT)
            with Ledger(out / LEDGER_NAME) as ledger:
                async with open_teacher(spec, ledger, Budget(), role="judge") as teacher:
                    return await TeacherJudge(teacher, 2)(sample, pages)

        found = asyncio.run(judge())
    assert isinstance(found, Relevance)
    assert found.pages == beacon_page()
    assert len(server.asked) == num_calls, "the ledger of `seer eval label` has every call of the pipeline"


def test_label_repeats_and_counts_unclear_replies(data, tmp_path):
    def script(body: Body, n: int) -> Say:
        if "beacon of Orla" in user_text(body):
            return Say("Hard to say.")
        return Say("NO" if body["seed"] else "")

    with serve(script) as server:
        result = run(data, tmp_path / "labels", server, "--reasks", 1)
    assert result.exit_code == 0, "an unclear judge is a result"
    counts = json.loads(result.stdout.splitlines()[-1])
    assert counts["unlabelled"] == {"no_answer": 1, "unparsed": 1}
    clear = len(server.asked) // 2 - 1
    assert counts["replies"] == {"judge_empty": clear, "judge_replies": 2 * clear + 2, "judge_unclear": 2}
    assert set(read_page_labels(tmp_path / "labels" / LABELS_NAME)) == {"absent"}
    unlabelled = json.loads((tmp_path / "labels" / COUNTS_NAME).read_text())["unlabelled"]
    assert [(one["id"], one["reason"]) for one in unlabelled] == [("found", "unparsed"), ("open", "no_answer")]
    assert unlabelled[0]["detail"] == f"page {beacon_page()[0]}: 'Hard to say.'"


def test_label_completes_failed_inputs_in_next_run(data, tmp_path):
    out = tmp_path / "labels"
    with serve(lambda body, n: Say("NO") if n < 3 else Say(status=503)) as server:
        failed = run(data, out, server, "--teacher-option", "concurrency=1")
        assert failed.exit_code == EXIT_GAPS
        assert json.loads(failed.stdout.splitlines()[-1])["unlabelled"]["failed"] == 2
        assert "the first that failed: " in failed.stderr and "503" in failed.stderr
        assert read_page_labels(out / LABELS_NAME) == {}
    with serve(knows_the_beacon) as server:
        done = run(data, out, server)
    assert done.exit_code == 0
    counts = json.loads(done.stdout.splitlines()[-1])
    assert len(server.asked) == counts["calls"] - 3, "calls of the first run are not repeated"


def test_label_counts_agreement_with_reference_by_page(data, tmp_path):
    (page,) = beacon_page()
    reference = tmp_path / "people.jsonl"
    reference.write_text(json.dumps({"id": "found", "pages": [page, page + 1]}) + "\n")
    with serve(knows_the_beacon) as server:
        result = run(data, tmp_path / "labels", server, "--against", reference)
    agreed = json.loads(result.stdout.splitlines()[-1])["agreement"]
    assert (agreed["both"], agreed["judge_only"], agreed["reference_only"]) == (1, 0, 1)
    assert agreed["both"] + agreed["reference_only"] + agreed["neither"] == len(render_text(CONTEXT, "seer").pages)
    assert (agreed["precision"], agreed["recall"]) == (1.0, 0.5)
    assert 0 < agreed["kappa"] < 1


def test_label_numbers_pages_by_style(data, tmp_path):
    with serve(knows_the_beacon) as server:
        run(data, tmp_path / "labels", server, "--style", "large")
    assert read_page_labels(tmp_path / "labels" / LABELS_NAME)["found"] == beacon_page("large") != beacon_page()


def test_label_in_paper_style_numbers_pages_with_the_newlines_of_the_task(data, tmp_path):
    with serve(knows_the_beacon) as server:
        run(data, tmp_path / "labels", server, "--style", "paper")
    marked = resolve_style("seer", newline="mark")  # hotpotqa is one of the tasks with marks
    assert read_page_labels(tmp_path / "labels" / LABELS_NAME)["found"] == beacon_page(marked) != beacon_page()


def test_label_rejects_wrong_key_and_invalid_input(data, tmp_path):
    with serve(lambda body, n: Say(status=401)) as server:
        assert isinstance(run(data, tmp_path / "a", server).exception, EngineUnavailable)
        assert not (tmp_path / "a" / LABELS_NAME).exists()
        assert isinstance(run(data, tmp_path / "b", server, "--teacher-option", "concurency=2").exception, ConfigError)
        assert "style 'tiny' is unknown" in str(run(data, tmp_path / "b", server, "--style", "tiny").exception)
        with Ledger(_made(tmp_path / "c") / LEDGER_NAME):
            assert "another process" in str(run(data, tmp_path / "c", server).exception)
    records, _ = read_data(data)
    with pytest.raises(InputError, match="'found' occurs twice"):
        label_pages([records[0], records[0]], TeacherSpec(model="m", base_url="http://127.0.0.1:9/v1"), tmp_path)
    with pytest.raises(InputError, match="no inputs to label"):
        label_pages(list[LongBenchRecord](), TeacherSpec(model="m"), tmp_path)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_label_pages_rejects_negative_reasks_and_a_folder_below_a_file(data, tmp_path):
    records, _ = read_data(data)
    spec = TeacherSpec(model="judge", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(InputError, match="reasks=-1: must be at least 0"):
        label_pages(records, spec, tmp_path / "out", reasks=-1)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/out' can't hold labels: Not a directory; give another folder"):
        label_pages(records, spec, tmp_path / "file/out")
