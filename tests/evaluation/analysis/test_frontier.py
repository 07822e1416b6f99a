"""Frontiers: runs over densities and budgets, points measured from their files, and the Pareto front."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seer.cli.eval.frontier import page_size
from seer.cli.eval.main import app
from seer.errors import ConfigError, InputError
from seer.evaluation.analysis.frontier import Point, RetrievalBudget, budgets, densities, frontier_specs, mark_front
from seer.evaluation.files import read_predictions

WORLD = """
name = "small world"

[tasks.digits]
category = "lookup"
metric = "exact"
max_new_tokens = 8
num_records = 3
"""


def test_densities_scale_line_height_with_font_size():
    (small, large) = densities(["seer"], [4.5, 9])
    assert (small.font_size_pt, small.line_height_pt, large.line_height_pt) == (4.5, 5, 10)
    assert [style.name for style in densities(["dense"], (), [(588, 840), (588, 420)])] == [
        *("dense-7pt-588x840", "dense-7pt-588x420")
    ]
    with pytest.raises(ConfigError, match="less than one line"):
        densities(["seer"], [9], [(595, 28)])


def test_frontier_specs_combine_styles_and_budgets():
    allowed = budgets([4, 0, 1], [256])
    assert allowed == [RetrievalBudget(0), RetrievalBudget(1), RetrievalBudget(4), RetrievalBudget(4, 256)]
    made = frontier_specs(densities(["seer"]), allowed, {"think": False})
    assert [one.name for one in made] == ["seer-9pt-pictures", "seer-9pt-k1", "seer-9pt-k4", "seer-9pt-k4-t256"]
    assert made[0].system == "visual"
    assert made[3].policy == {"think": False, "max_pages": 4, "max_retrieved_tokens": 256}
    for pages, tokens in (([], []), ([-1], []), ([0], [256])):
        with pytest.raises(InputError):
            budgets(pages, tokens)
    assert page_size("595x842") == (595, 842)
    with pytest.raises(InputError, match="write width and height"):
        page_size("595")


def test_mark_front_marks_pareto_front():
    plain = Point("", "", "", None, 0, 0, 0, 0, 0, 1, 0)
    figures = {"a": (10, 50), "b": (20, 50), "c": (20, 80), "d": (30, 70), "e": (40, 90), "f": (40, 90)}
    marked = mark_front([replace(plain, run=name, prompt_tokens=t, score=s) for name, (t, s) in figures.items()])
    assert [one.run for one in marked if one.is_on_front] == ["a", "c", "e", "f"], "equal points are both on the front"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Records with two pages of text each; the scripted engine selects page 1 and answers with its first line."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "benchmark.toml").write_text(WORLD, encoding="utf-8")
    lines = [
        {"id": f"q{n}", "question": "Which?", "context": f"{n} {n}\n" * 90, "answers": [f"{n} {n}"]} for n in range(3)
    ]
    (folder / "digits.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def test_frontier_command_runs_sweep_and_writes_report(data, tmp_path):
    out = tmp_path / "out"
    arguments = ["frontier", "--data", str(data), "--engine", "scripted", "--out", str(out), "--with-text", "--json"]
    arguments += [
        "--font-pt",
        "9",
        "--font-pt",
        "4.5",
        "--max-pages",
        "0",
        "--max-pages",
        "1",
        "--max-retrieved-tokens",
        "20",
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    points = {point["run"]: point for point in json.loads(result.stdout.splitlines()[-1])["points"]}
    assert list(points) == [
        *("seer-9pt-pictures", "seer-9pt-k1", "seer-9pt-k1-t20"),
        *("seer-4.5pt-pictures", "seer-4.5pt-k1", "seer-4.5pt-k1-t20", "text"),
    ]
    normal, small = points["seer-9pt-k1"], points["seer-4.5pt-k1"]
    assert small["visual_tokens"] < normal["visual_tokens"]
    assert small["characters_per_vision_token"] > normal["characters_per_vision_token"]
    assert points["seer-9pt-pictures"]["retrieved_tokens"] == 0
    assert points["seer-9pt-k1-t20"]["retrieved_tokens"] <= 20 + 1 < normal["retrieved_tokens"], (
        "one more token for the marker"
    )
    assert (points["text"]["visual_tokens"], points["text"]["compression"]) == (0, 1)
    assert any(point["is_on_front"] for point in points.values())
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<circle") == 7 + 3, "points, and three densities in the key"
    assert "trained at 11 pt" not in page, "the note is only for the miniature"
    before = read_predictions(out / "seer-9pt-k1" / "digits.jsonl")
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert read_predictions(out / "seer-9pt-k1" / "digits.jsonl") == before, "finished inputs are not repeated"


def test_frontier_command_without_data_uses_miniature(tmp_path):
    from seer.miniature.model import build_untrained

    model = build_untrained(tmp_path / "model")
    arguments = [
        "frontier",
        "--model",
        str(model),
        "--n",
        "10",
        "--tasks",
        "single",
        "--limit",
        "2",
        "--out",
        str(tmp_path / "o"),
    ]
    result = CliRunner().invoke(app, [*arguments, "--max-pages", "0", "--font-pt", "8"])
    assert result.exit_code == 0, result.output
    report = (tmp_path / "o" / "report.md").read_text(encoding="utf-8")
    assert "trained at 11 pt only" in report
    assert "miniature-8pt" in report
