"""Build a report that compares any number of runs, in Markdown, one HTML file and JSON.

    report = build_report([load_run("runs/a"), load_run("runs/b")])
    write_report(report, "runs/compared")

Each part of the paper's analysis is a section, built from the runs with the data for it; a section names the runs that
it omits. The other runs are compared with the first one. The manifests identify the controls: no retrieval (k = 0), one
page (k = 1), images only. Figures from papers are marked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seer.errors import InputError
from seer.evaluation.analysis.endings import ending_warnings
from seer.evaluation.analysis.scored_run import ScoredRun
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.reports import cases as report_cases
from seer.evaluation.reports import controls as report_controls
from seer.evaluation.reports import costs as report_costs
from seer.evaluation.reports import scores as report_scores
from seer.evaluation.reports import selection as report_selection
from seer.evaluation.scoring.pages import GoldPages
from seer.storage import write_text
from seer.web.page import to_html
from seer.web.tables import Report, to_json, to_markdown


def build_report(
    runs: Sequence[ScoredRun],
    *,
    title: str | None = None,
    gold_pages: GoldPages | None = None,
    records: Sequence[LongBenchRecord] = (),
    seed: int = 0,
) -> Report:
    """Build all sections for which the runs have data.

    `gold_pages` adds the section on page selection; `records` add its baselines and pictures of pages. `seed` is for
    bootstrap intervals, permutation tests and the random selector.
    Raises InputError if there are no runs, or two runs have the same name.
    """
    if not runs:
        raise InputError("a report needs runs; give the folder of at least one")
    # Tables and the JSON file have one entry per name, so a repeated name would hide a run.
    names = [run.name for run in runs]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InputError(
            f"two runs are named '{min(twice)}'; rename one folder, because a report identifies runs by name"
        )
    built = [
        report_scores.runs_section(runs),
        report_scores.scores_section(runs, seed),
        report_scores.comparison_section(runs, seed),
        report_costs.tokens_section(runs),
        report_selection.selection_section(runs),
        report_selection.page_section(runs, gold_pages or {}, records, seed),
        report_controls.scope_section(runs),
        report_controls.heterogeneity_section(runs),
        report_costs.latency_section(runs),
        report_cases.failures_section(runs),
        report_cases.gallery_section(runs),
        report_cases.pages_section(runs[0], records, gold_pages or {}),
    ]
    figures: dict[str, Any] = {run.name: run.report.to_json() for run in runs}
    title = title or " and ".join(dict.fromkeys(run.report.benchmark.name for run in runs))
    return Report(
        title,
        report_scores.summary_points(runs),
        [section for section in built if section is not None],
        figures,
        ending_warnings([(run.name, run.each()) for run in runs if run.is_ours]),
    )


def write_report(report: Report, out_dir: str | Path) -> list[Path]:
    """Write report.md, report.html and report.json, and return their paths. Raises InputError if the folder is not writable."""
    folder = Path(out_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"'{folder}' can't hold a report: {error.strerror}; give another folder") from None
    contents = {
        "report.md": to_markdown(report),
        "report.html": to_html(report),
        "report.json": json.dumps(to_json(report), ensure_ascii=False, indent=1) + "\n",
    }
    for name, content in contents.items():
        write_text(folder / name, content)
    return [folder / name for name in contents]
