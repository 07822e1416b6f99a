"""The registry of sources: load every known question set, or any table with named columns, as `Sample`s.

    for item in load_source(SourceSpec(kind="hotpotqa", path="hotpot_train_v1.1.json", split="train")):
        item                       # a Sample, or a Rejection with its reason

An adapter is a function from one row, in any published shape of its source, to samples. Only train splits are read: a
path that names another split, or none, is an error until the configuration states the split.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_pipeline.records import Evidence, Rejected, Rejection, Sample
from data_pipeline.settings import SourceSpec
from data_pipeline.sources import documents, multihop, published, reading
from data_pipeline.sources.adapting import one_of, optional_text, text_field, text_list
from data_pipeline.sources.posing import resolve_task
from data_pipeline.sources.rawfiles import read_rows, split_in_name
from data_pipeline.sources.spool import shuffled
from seer.errors import ConfigError
from seer.storage import replace_surrogates
from seer.teaching.template import UNANSWERABLE

Adapter = Callable[[Mapping[str, Any], SourceSpec], Iterator[Sample]]


@dataclass(frozen=True)
class KnownSource:
    """A known question set."""

    adapt: Adapter
    title: str
    licence: str
    gold_evidence: str
    """The evidence that the source itself marks."""
    shapes: str
    """The published file shapes that the adapter reads."""
    task: str
    """The benchmark task that poses its questions."""
    in_paper: bool = False
    """True if the paper trained on it. The paper downloaded three more sources and dropped them."""


SOURCES: dict[str, KnownSource] = {
    "2wikimqa": KnownSource(
        multihop.hotpot_like,
        "2WikiMultihopQA",
        "Apache-2.0",
        "sentences",
        "official JSON; hub rows, columnar",
        task="2wikimqa",
        in_paper=True,
    ),
    "hotpotqa": KnownSource(
        multihop.hotpot_like,
        "HotpotQA",
        "CC BY-SA 4.0",
        "sentences",
        "official JSON; hub rows, columnar",
        task="hotpotqa",
        in_paper=True,
    ),
    "musique": KnownSource(
        multihop.musique,
        "MuSiQue",
        "CC BY 4.0",
        "paragraphs, with their hop",
        "official JSONL (ans, full)",
        task="musique",
        in_paper=True,
    ),
    "qasper": KnownSource(
        documents.qasper,
        "Qasper",
        "CC BY 4.0",
        "paragraphs",
        "official JSON; hub rows, columnar; flat tables of paper/questions/answers",
        task="qasper",
        in_paper=True,
    ),
    "triviaqa": KnownSource(
        reading.triviaqa,
        "TriviaQA",
        "Apache-2.0 (code); evidence under its publishers' terms",
        "none: answers are found by string (distant supervision)",
        "official JSON with its evidence folder; hub rows (rc), columnar",
        # LongBench's TriviaQA is a few-shot task over solved examples. A question over one evidence document is posed as
        # that benchmark poses questions over one document.
        task="multifieldqa_en",
        in_paper=True,
    ),
    "gov_report": KnownSource(
        documents.gov_report,
        "GovReport",
        "public domain (US government reports)",
        "none",
        "report/summary rows; the official folder (gao/, crs/, split_ids/) with nested sections",
        task="gov_report",
        in_paper=True,
    ),
    "lcc_python": KnownSource(
        documents.lcc,
        "LCC (Python)",
        "MIT (code); files under their own licences",
        "none",
        "context/gt rows",
        task="lcc",
        in_paper=True,
    ),
    "dureader": KnownSource(
        reading.dureader,
        "DuReader",
        "Apache-2.0",
        "the paragraph annotators chose",
        "official JSON Lines, named .json (search, zhidao)",
        task="dureader",
    ),
    "qmsum": KnownSource(
        documents.qmsum,
        "QMSum",
        "MIT",
        "turns of the meeting, for specific queries",
        "official JSONL, one meeting a line",
        task="qmsum",
    ),
    "narrativeqa": KnownSource(
        reading.narrativeqa,
        "NarrativeQA",
        "Apache-2.0 (annotations); stories under their own terms",
        "none",
        "hub rows; official qaps.csv with its stories folder or summaries.csv",
        task="narrativeqa",
    ),
}
"""Every known source by its name."""


def load_source(
    spec: SourceSpec, max_bytes: int = 32 << 20, on_row: Callable[[], None] | None = None, seed: int = 0
) -> Iterator[Sample | Rejection]:
    """Yield the samples of one source in the order that `spec.order` states, and a Rejection for each unusable record.

    Args:
        spec: The source. `spec.limit` counts samples, not rows.
        max_bytes: Longer lines of JSON Lines files are rejected.
        on_row: Called for every row that is adapted.
        seed: Decides a random order.

    Raises ConfigError if the source or its task is unknown or the split is not train, DocumentNotFound if there is no data at the
    path, InputError if a file is unreadable.
    """
    check_split(spec)
    adapt = adapter_of(spec.kind)
    task_of(spec)
    rows = _READERS.get(spec.kind, read_rows)
    split = spec.split or split_in_name(spec.path)
    taken = 0  # samples only: rejections do not count towards the limit
    numbered = enumerate(rows(spec.path, split=split, hub_config=spec.hub_config, max_bytes=max_bytes), 1)
    for number, row in shuffled(numbered, seed, spec.label) if spec.order == "random" else numbered:
        if on_row:
            on_row()
        for item in _adapt_row(adapt, row, spec, number):
            if spec.limit is not None and taken >= spec.limit:
                return
            taken += isinstance(item, Sample)
            yield item


def adapter_of(kind: str) -> Adapter:
    """Return the adapter of a source. Raises ConfigError if it is unknown, with the nearest known name."""
    if kind == "table":
        return adapt_table
    if kind not in SOURCES:
        near = difflib.get_close_matches(kind, [*SOURCES, "table"], n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise ConfigError(f"unknown source '{kind}'; {hint}known: {', '.join(SOURCES)}, and 'table' for any other")
    return SOURCES[kind].adapt


def task_of(spec: SourceSpec) -> str:
    """Return the benchmark task that poses the questions of a source, or "". Raises ConfigError if it is unknown."""
    known = SOURCES.get(spec.kind)
    return resolve_task(spec.task, known.task if known else "", spec.label)


def check_split(spec: SourceSpec) -> None:
    """Raises ConfigError if the split is unstated or not train, unless `allow_other_splits` declares a trial."""
    found = spec.split or split_in_name(spec.path)
    if found == "train" or spec.allow_other_splits:
        return
    if not found:
        raise ConfigError(
            f"source '{spec.label}': '{spec.path}' does not state its split; set split = \"train\" if it is the train split"
        )
    raise ConfigError(
        f"source '{spec.label}' is the split '{found}'; only train splits may be used for training. For a trial set that "
        "is never trained on, set allow_other_splits = true"
    )


_READERS = {"gov_report": published.gov_report_rows, "narrativeqa": published.narrativeqa_rows}
"""Readers of the sources whose official download is not one file of rows; they read such files too."""


def _adapt_row(
    adapt: Adapter, row: Mapping[str, Any] | Rejection, spec: SourceSpec, number: int
) -> Iterator[Sample | Rejection]:
    label = spec.label
    if isinstance(row, Rejection):
        yield replace(row, source=label)
        return
    where = f"row {number}"
    try:
        for sample in adapt(row, spec):
            yield validate_sample(sample, spec, number)
    except Rejected as rejected:
        yield Rejection(rejected.reason, rejected.detail or where, label, where)


def validate_sample(sample: Sample, spec: SourceSpec, number: int) -> Sample | Rejection:
    """Check and complete a sample: it needs a question, a context and an answer, or it is rejected.

    `number` is the row number, which names records without an id. `spec.answer_in_context` also requires the answer to
    occur in the context.
    """
    problem, detail = _problem(sample, spec)
    name = _storable(sample.id) or f"{number:08d}"
    if problem:
        return Rejection(problem, detail, spec.label, name)
    return replace(
        sample,
        id=name,
        source=spec.label,
        task=task_of(spec),
        question=_storable(sample.question.strip()),
        context=_storable(sample.context),
        answers=tuple(_storable(answer) for answer in sample.answers if answer.strip()),
        # Two sources may use the same name for different documents.
        document=f"{spec.label}/{sample.document}" if sample.document else "",
        provenance=_origin(sample, spec),
    )


def _problem(sample: Sample, spec: SourceSpec) -> tuple[str, str]:
    """Return a rejection reason and a detail, or ("", "") if the sample is usable."""
    if not sample.question.strip():
        return "empty_question", ""
    if not sample.context.strip():
        return "empty_context", ""
    if not sample.answerable:
        return "", ""
    if not any(answer.strip() for answer in sample.answers):
        return "no_answer", ""
    if spec.answer_in_context and not _answer_occurs(sample):
        return "answer_not_in_context", f"answer {sample.answers[0][:80]!r}"
    return "", ""


def _origin(sample: Sample, spec: SourceSpec) -> dict[str, str]:
    return {**_file_and_split(spec.path, spec.split), **{k: _storable(v) for k, v in sample.provenance.items()}}


@functools.lru_cache(maxsize=64)
def _file_and_split(path: str, split: str) -> dict[str, str]:
    # The file name only: shards must not reveal the folders of the machine that built them.
    return {"file": _storable(Path(path).name), "source_split": split or split_in_name(path) or "unknown"}


def _answer_occurs(sample: Sample) -> bool:
    context = sample.context.casefold()
    return any(answer.strip().casefold() in context for answer in sample.answers if answer.strip())


_storable = functools.partial(replace_surrogates, by="\ufffd")
"""Replace each lone surrogate, which UTF-8 cannot encode, by U+FFFD. The length, and so every offset, is kept."""


# ── Unknown tables with named columns ────────────────────────────────────────────────────────────

MAPPABLE = ("question", "context", "answers", "id", "evidence", "document")


def adapt_table(row: Mapping[str, Any], spec: SourceSpec) -> Iterator[Sample]:
    """Adapt a row of any table. `spec.map` names its columns; any other field is read from the column with its name.

    If the column `answerable` is false, the sample is unanswerable. Raises Rejected if a field is missing or mistyped.
    """
    columns = {name: spec.map.get(name, name) for name in MAPPABLE}
    context = text_field(row, columns["context"])
    answerable = row.get("answerable", True) is not False
    named = (columns["answers"], *(() if "answers" in spec.map else ("answer", "output")))
    answers = text_list(one_of(row, *named)) if answerable else []
    marked = row.get(columns["evidence"])
    yield Sample(
        id=optional_text(row, columns["id"]),
        source=spec.label,
        question=text_field(row, columns["question"]),
        context=context,
        answers=tuple(answers) if answerable else (UNANSWERABLE,),
        kind=spec.answers_are,
        evidence=() if not answerable else None if marked is None else tuple(find_evidence(context, marked)),
        answerable=answerable,
        document=optional_text(row, columns["document"]),
    )


def find_evidence(context: str, marked: Any) -> Iterator[Evidence]:
    """Yield evidence from quotes or character spans.

    `marked` is one item or a list of them. An item is a quote, [start, end], or [start, end, hop]; without a hop, the
    position in the list is the hop. Raises Rejected if a quote does not occur in the context, or a span is invalid.
    """
    if isinstance(marked, list) and len(marked) in (2, 3) and all(type(item) is int for item in marked):
        marked = [marked]
    marked = [marked] if isinstance(marked, str) else marked
    if not isinstance(marked, list | tuple):
        raise Rejected("wrong_type", f"evidence is {type(marked).__name__}; quotes or [start, end] are required")
    for hop, item in enumerate(marked):
        if isinstance(item, str):
            start = context.find(item) if item else -1
            if start < 0:
                raise Rejected("wrong_type", f"evidence {item[:80]!r} does not occur in the context")
            yield Evidence(start, start + len(item), hop)
            continue
        try:
            start, end, *step = (int(value) for value in item)
            (hop,) = step or (hop,)
        except (TypeError, ValueError, OverflowError):
            raise Rejected(
                "wrong_type", f"evidence {str(item)[:80]!r} is neither a quote nor [start, end, hop]"
            ) from None
        if not 0 <= start < end <= len(context):
            raise Rejected("wrong_type", f"evidence [{start}, {end}] is outside a context of {len(context)} characters")
        yield Evidence(start, end, hop)
