"""Pose a sample's question as evaluation poses it, with the instruction of its benchmark task.

Training and evaluation share one table, `seer.evaluation.benchmarks.tasks`, so that a model never sees an instruction in
evaluation that it was not trained on.
"""

from __future__ import annotations

import difflib

from data_pipeline.records import Sample
from seer.errors import ConfigError
from seer.evaluation.benchmarks.tasks import TASKS, build_question
from seer.evaluation.scoring.scorers import Metric

SUMMARY_QUESTION = "Write a one-page summary of the report."
NEXT_LINE_QUESTION = "What is the next line of this code?"
FIXED_QUESTIONS = frozenset({SUMMARY_QUESTION, NEXT_LINE_QUESTION})
"""Questions that an adapter asks about every document of its source. The benchmark's records have no input there."""

NO_TASK = "none"

SUMMARY_WORDS = {"gov_report": 400, "qmsum": 60}
"""Expected length of a task's summaries, in words. Evaluation cuts a GovReport summary at 512 tokens, about 400 words;
the gold summaries have about 550. Those of QMSum have 50 to 70."""


def posed_question(sample: Sample) -> str:
    """Return the text of the prompt turn: the task's instruction and the question, or the bare question without a task."""
    if not sample.task:
        return sample.question
    return build_question(TASKS[sample.task], "" if sample.question in FIXED_QUESTIONS else sample.question)


def metric_of(sample: Sample) -> Metric | None:
    """Return the official metric of the sample's task, or None without a task."""
    return TASKS[sample.task].metric if sample.task else None


def resolve_task(name: str, default: str, label: str) -> str:
    """Return the name of the benchmark task of a source, or "" for the bare question.

    Args:
        name: `SourceSpec.task`.
        default: The task of the known source, or "".
        label: Names the source in the error.

    Raises ConfigError if the task is unknown, with the nearest known name.
    """
    if not name:
        return default
    if name == NO_TASK:
        return ""
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise ConfigError(f"source '{label}': unknown task '{name}'; {hint}known: {', '.join(TASKS)}, and '{NO_TASK}'")
    return name
