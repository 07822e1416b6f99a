"""What stands under every table of a report: how it was made, and what is missing from it."""

from __future__ import annotations

from collections.abc import Sequence

from seer.evaluation.analysis.runs import Run
from seer.evaluation.benchmarks.tasks import LONGBENCH
from seer.evaluation.files import SESSIONS
from seer.evaluation.runs.versions import scored_with


def conditions(runs: Sequence[Run], *more: str) -> str:
    """Post-processing, prompts, versions, failures and gaps; runs that agree are named together."""
    scoring = {
        f"{run.report.postprocess.value} post-processing, code ratio {run.report.code_ratio.value}" for run in runs
    }
    made: dict[str, list[str]] = {}
    for run in runs:
        made.setdefault(_made_with(run), []).append(run.name)
    failed = ", ".join(f"{run.name} {run.report.failures}" for run in runs)
    parts = [f"{' / '.join(sorted(scoring))}, scored with {scored_with()}"]
    parts += [f"{', '.join(names)}: {how}" for how, names in made.items()]
    parts.append(f"Failed inputs: {failed}")
    parts += [f"PARTIAL: {run.name} lacks {sum(run.report.gaps.values())} inputs" for run in runs if run.report.gaps]
    parts += [
        f"{run.name} has {run.report.deep} samples that the published scorer would fail on and count 0"
        for run in runs
        if run.report.deep
    ]
    return ". ".join([*parts, *more]) + "."


def are_of_longbench(runs: Sequence[Run]) -> bool:
    """Whether figures of papers, which are all about LongBench, may stand beside these runs."""
    return all(run.report.benchmark is LONGBENCH for run in runs)


def left_out(runs: Sequence[Run], used: Sequence[Run]) -> list[str]:
    """Names the runs that a table could not use."""
    names = [run.name for run in runs if run not in used]
    return [f"Left out, since they hold no such records: {', '.join(names)}"] if names else []


def _made_with(run: Run) -> str:
    """Prompts and versions. A run gone on with under other versions names all of them."""
    told = run.report.manifest
    versions = [session.get("versions", {}) for session in told.get(SESSIONS, ())]
    listed = dict.fromkeys(", ".join(f"{name} {number}" for name, number in one.items()) for one in versions if one)
    return f"prompts {told.get('prompts', 'not known')}, {' then '.join(listed) or 'versions not known'}"
