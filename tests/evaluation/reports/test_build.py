"""Reports: conditions under every table, marked figures of papers, and no markup from untrusted text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seer.cli.eval.main import app
from seer.errors import InputError
from seer.evaluation.analysis.scored_run import ScoredRun, load_run
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.files import MANIFEST_NAME, to_line
from seer.evaluation.reports.build import build_report, write_report
from seer.evaluation.runs.score import EXIT_GAPS
from seer.schema import Prediction, Status, Step, Usage
from seer.web.page import to_html
from seer.web.tables import columns, to_json, to_markdown

HOSTILE = "<script>alert(1)</script> | `x` **b** [l](u)\n# h\n{x}"


def write_run(folder: Path, wrong: int, **manifest: object) -> Path:
    """Write twelve inputs of two tasks. In each task the first `wrong` answers are wrong and the last input has failed."""
    folder.mkdir()
    for task in ("hotpotqa", "trec"):
        lines = []
        for number in range(6):
            failed = number == 5
            trace = (
                Step(name="look", inputs={"question": f"{HOSTILE} {number}?"}, pages=(1, 2)),
                Step(name="select", pages=(1,)),
                Step(name="reason", outputs={"text": HOSTILE}),
                Step(name="select"),
                Step(name="reason", outputs={"text": "so"}),
                Step(name="navigate", pages=(2,), outputs={"note": HOSTILE, "raw": "left out"}),
            )
            one = Prediction(
                id=f"{task}-{number}",
                task=task,
                pred="" if failed else HOSTILE if number < wrong else "Food",
                answers=("Food",),
                all_classes=("Food", "Date"),
                status=Status.FAILED if failed else Status.ANSWERED,
                cause=HOSTILE if failed else "",
                pages=2,
                selected_pages=(1,),
                usage=Usage(vision=30, retrieved=5, prompt=50, completion=4, full_text=100),
                seconds=0.5,
                trace=trace,
            )
            lines.append(f"{to_line(one)}\n")
        (folder / f"{task}.jsonl").write_text("".join(lines), encoding="utf-8")
    settings = {"system": "seer", "prompts": "seer", "sessions": [{"versions": {"jieba": "0.42.1"}, "batch_size": 3}]}
    settings |= {"num_inputs": {"hotpotqa": 6, "trec": 6}} | manifest
    (folder / MANIFEST_NAME).write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[ScoredRun]:
    folders = [
        write_run(tmp_path / "full", 1),
        write_run(tmp_path / "pictures", 3, system="visual"),
        write_run(tmp_path / "none", 4, system="seer-k0"),
        write_run(tmp_path / "one", 2, policy={"max_pages": 1}),
    ]
    return [load_run(folder) for folder in folders]


def test_build_report_makes_sections_for_available_data(runs):
    report = build_report(runs, gold_pages={"hotpotqa-0": (1,), "hotpotqa-1": (2,), "trec-0": ()})
    assert [section.title for section in report.sections] == [
        *("Runs", "Scores", "Paired comparison", "Tokens", "Pages selected", "Page selection", "Retrieval scope"),
        *("Where retrieval helps", "Time", "Failures", "Cases"),
    ]
    assert [section.title for section in build_report(runs[:1]).sections] == [
        *("Runs", "Scores", "Tokens", "Pages selected", "Time", "Failures", "Cases")
    ]


def test_build_report_notes_conditions_under_every_table(runs):
    tables = [table for section in build_report(runs).sections for table in section.tables]
    assert len(tables) > 10
    for table in tables:
        for condition in ("official post-processing", "difflib", "prompts seer", "jieba 0.42.1", "Failed inputs: "):
            assert condition in table.note, table.title
        for row in table.rows:
            assert len(row.cells) == len(table.columns), table.title
            assert ("(paper)" in str(row.cells[0])) == (row.kind == "paper"), "figures of papers are marked"


def test_build_report_has_expected_figures(runs):
    result = to_json(build_report(runs, gold_pages={"hotpotqa-0": (1,), "hotpotqa-1": (2,), "trec-0": ()}))
    assert result["runs"]["full"]["macro"] == 66.67
    tables = {table["title"]: table for table in result["tables"]}
    scope = tables["Scores by number of retrieved pages"]["rows"][0]
    assert scope[1:] == [pytest.approx(value, abs=0.02) for value in (16.67, 50.0, 66.67, 50.0, 66.67)]
    difference = tables["Difference of overall scores"]["rows"][0]
    assert difference[:3] == ["pictures", "full", pytest.approx(-100 / 3)]
    assert difference[6:] == [12, 0, 4, 0]
    tokens = tables["Prompt tokens, means over tasks"]["rows"][0]
    assert tokens[1:8] == [20, 30, 5, 50, 4, 100, 2]
    pages = tables["Page selection"]["rows"][0]
    assert pages[1:8] == [0.5, 0.5, 0.5, 1, 2, pytest.approx(1 / 3), 3]
    assert tables["Time per sample"]["rows"][0][1] == 0.5
    cells = tables["full, by number of selected pages, minus the task's score by pictures"]["rows"][0]
    assert cells[2] == pytest.approx(66.67 - 33.33, abs=0.01)


def test_build_report_with_records_compares_other_selectors(runs):
    text = "The ruin lies behind the hill. " * 300
    records = [
        LongBenchRecord(f"hotpotqa-{n}", "hotpotqa", "Where is the ruin?", text, ("x",), 1, "en", None)
        for n in range(2)
    ]
    report = build_report(runs[:1], gold_pages={"hotpotqa-0": (1,), "hotpotqa-1": ()}, records=records)
    (section,) = (section for section in report.sections if section.title == "Page selection")
    assert [table.title for table in section.tables] == [
        *("Page selection", "full compared with other selectors", "full compared with other selectors, by task")
    ]
    rows = {row.cells[0]: row.cells for row in section.tables[1].rows}
    assert rows["full"][3] == rows["first, matched budget"][3] == rows["oracle"][3] == 1
    (by_task,) = section.tables[2].rows
    assert by_task.cells == ("hotpotqa", 1, 1, 1, 1, 0.5, 2)
    shown = next(section for section in report.sections if section.title == "Pages and selections")
    captions = [[picture.caption for picture in case.pictures] for case in shown.cases]
    assert captions == [["page 1 · selected"], ["page 1 · selected · gold"]], "a success, then a failure"
    steps = shown.cases[0].fields[-5:]
    assert steps == [
        ("selected", "pages 1"),
        ("reasoning", HOSTILE),
        ("selected", "no page"),
        ("reasoning", "so"),
        ("navigate", f"pages [2]\nnote: {HOSTILE}"),
    ]
    page = to_html(report)
    tags = Tags()
    tags.feed(page)
    assert all(address.startswith("data:image/png;base64,") for address in tags.loads)


def test_build_report_marks_partial_run_under_every_table(tmp_path):
    folder = write_run(tmp_path / "part", 1, num_inputs={"hotpotqa": 9, "trec": 6})
    report = build_report([load_run(folder, partial=True)])
    assert all("PARTIAL: part lacks 3 inputs" in table.note for section in report.sections for table in section.tables)
    assert "PARTIAL, 3 inputs missing" in report.summary[0]


class Tags(HTMLParser):
    """Counts scripts, checks that tags are closed, and collects the addresses that the page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts = 0
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        self.loads += [value for name, value in attributes if name in ("src", "href") and not value.startswith("#")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_to_html_escapes_text_and_loads_nothing(runs):
    page = to_html(build_report(runs, title=HOSTILE))
    tags = Tags()
    tags.feed(page)
    assert (tags.scripts, tags.open, tags.loads) == (1, [], [])
    assert "alert(1)</script>" not in page
    assert "@import" not in page
    assert "url(" not in page


def test_to_markdown_escapes_text_of_model(runs):
    text = to_markdown(build_report(runs))
    assert "<script>" not in text
    for line in text.splitlines():
        assert not line.startswith("# h")
        if line.startswith("|") and not line.startswith("|--"):
            assert re.sub(r"\\\|", "", line).endswith("|")
    assert "\\*\\*b\\*\\*" in text


def test_build_report_rejects_equal_names_and_no_runs(runs):
    with pytest.raises(InputError, match="two runs are named 'full'"):
        build_report([runs[0], runs[0]])
    with pytest.raises(InputError, match="a report needs runs"):
        build_report([])


def test_build_report_compares_published_run(runs, shared_data, tmp_path):
    published = load_run(shared_data / "longbench/predictions/llama3-8b-instruct")
    report = build_report([runs[0], published])
    paths = write_report(report, tmp_path / "out")
    assert [path.name for path in paths] == ["report.md", "report.html", "report.json"]
    assert json.loads(paths[2].read_text(encoding="utf-8"))["runs"]["llama3-8b-instruct"]["macro"] == 47.48
    tokens = next(section for section in report.sections if section.title == "Tokens")
    assert "Left out, since they hold no such records: llama3-8b-instruct" in tokens.tables[0].note


def test_report_command_writes_report_of_partial_run(tmp_path):
    first = write_run(tmp_path / "a", 1)
    second = write_run(tmp_path / "b", 2, num_inputs={"hotpotqa": 7, "trec": 6})
    result = CliRunner().invoke(app, ["report", str(first), str(second), "--out", str(tmp_path / "out"), "--partial"])
    assert result.exit_code == EXIT_GAPS, result.output
    assert (tmp_path / "out/report.html").is_file()


def test_columns_parse_short_form():
    plain, two, signed, odd = columns("name", "F1:2", "gain:+1", "run: a")
    assert (plain.show("x"), two.show(0.5), signed.show(0.25), odd.name) == ("x", "0.50", "+0.2", "run: a")
    assert (plain.show(1234), plain.show(None)) == ("1,234", "–")


def test_write_report_below_a_file_names_the_reason_and_the_remedy(tmp_path):
    run = load_run(write_run(tmp_path / "run", 1))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/report' can't hold a report: Not a directory; give another folder"):
        write_report(build_report([run]), tmp_path / "file/report")
