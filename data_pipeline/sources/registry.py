"""Sources: every known question set, and unknown tables with named columns, become `Sample`s.

    for item in load(SourceSpec(kind="hotpotqa", path="hotpot_train_v1.1.json", split="train")):
        item                       # a Sample, or a Rejection with its reason

An adapter is a function from one row of the source, in whichever of its published shapes, to samples. Only train
splits are read: a path that names another split, or none, is refused until the configuration says what it is.
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
from data_pipeline.sources import documents as sources_documents
from data_pipeline.sources import multihop as sources_multihop
from data_pipeline.sources import reading as sources_reading
from data_pipeline.sources.adapting import one_of, optional_text, text_field, text_list
from data_pipeline.sources.rawfiles import read_rows, split_in_name
from seer.errors import ConfigError
from seer.storage import replace_surrogates
from seer.teaching.template import UNANSWERABLE

Adapter = Callable[[Mapping[str, Any], SourceSpec], Iterator[Sample]]


@dataclass(frozen=True)
class Source:
    """What is known about a question set."""

    adapt: Adapter
    title: str
    licence: str
    gold_evidence: str
    """What the source itself marks as necessary."""
    shapes: str
    """The published shapes that are read."""
    in_paper: bool = False
    """Whether the paper trained on it; three more it downloaded and dropped."""


SOURCES: dict[str, Source] = {
    "2wikimqa": Source(
        sources_multihop.hotpot_like,
        "2WikiMultihopQA",
        "Apache-2.0",
        "sentences",
        "official JSON; hub rows, columnar",
        True,
    ),
    "hotpotqa": Source(
        sources_multihop.hotpot_like, "HotpotQA", "CC BY-SA 4.0", "sentences", "official JSON; hub rows, columnar", True
    ),
    "musique": Source(
        sources_multihop.musique,
        "MuSiQue",
        "CC BY 4.0",
        "paragraphs, with their hop",
        "official JSONL (ans, full)",
        True,
    ),
    "qasper": Source(
        sources_documents.qasper,
        "Qasper",
        "CC BY 4.0",
        "paragraphs",
        "official JSON; hub rows, columnar; flat tables of paper/questions/answers",
        True,
    ),
    "triviaqa": Source(
        sources_reading.triviaqa,
        "TriviaQA",
        "Apache-2.0 (code); evidence under its publishers' terms",
        "none: answers are found by string (distant supervision)",
        "official JSON with its evidence folder; hub rows (rc), columnar",
        True,
    ),
    "gov_report": Source(
        sources_documents.gov_report,
        "GovReport",
        "public domain (US government reports)",
        "none",
        "report/summary rows; official GAO and CRS JSON with nested sections",
        True,
    ),
    "lcc_python": Source(
        sources_documents.lcc,
        "LCC (Python)",
        "MIT (code); files under their own licences",
        "none",
        "context/gt rows",
        True,
    ),
    "dureader": Source(
        sources_reading.dureader,
        "DuReader",
        "Apache-2.0",
        "the paragraph annotators chose",
        "official JSONL (search, zhidao)",
    ),
    "qmsum": Source(
        sources_documents.qmsum,
        "QMSum",
        "MIT",
        "turns of the meeting, for specific queries",
        "official JSONL, one meeting a line",
    ),
    "narrativeqa": Source(
        sources_reading.narrativeqa,
        "NarrativeQA",
        "Apache-2.0 (annotations); stories under their own terms",
        "none",
        "hub rows; official qaps.csv with its stories folder",
    ),
}
"""Every known source by its name."""


def load(
    spec: SourceSpec, max_bytes: int = 32 << 20, on_row: Callable[[], None] | None = None
) -> Iterator[Sample | Rejection]:
    """All samples of one source, in file order; what cannot be used comes as a Rejection. `on_row` is told of each row.

    Raises ConfigError (unknown source, a split other than train), DocumentNotFound, InputError (unreadable file).
    """
    check_split(spec)
    adapt = adapter_of(spec.kind)
    rows = sources_reading.narrativeqa_rows if _is_narrativeqa_csv(spec) else read_rows
    split = spec.split or split_in_name(spec.path)
    taken = 0
    for number, row in enumerate(rows(spec.path, split=split, hub_config=spec.hub_config, max_bytes=max_bytes), 1):
        if on_row:
            on_row()
        for item in _adapt_row(adapt, row, spec, number):
            if spec.limit is not None and taken >= spec.limit:
                return
            taken += isinstance(item, Sample)
            yield item


def adapter_of(kind: str) -> Adapter:
    """The adapter of a source. Raises ConfigError for an unknown one, naming the nearest."""
    if kind == "table":
        return table
    if kind not in SOURCES:
        near = difflib.get_close_matches(kind, [*SOURCES, "table"], n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise ConfigError(f"no source is called '{kind}'; {hint}known: {', '.join(SOURCES)}, and 'table' for any other")
    return SOURCES[kind].adapt


def check_split(spec: SourceSpec) -> None:
    """Only train splits pass, unless `allow_other_splits` says that this is a trial."""
    found = spec.split or split_in_name(spec.path)
    if found == "train" or spec.allow_other_splits:
        return
    if not found:
        raise ConfigError(
            f"source '{spec.label}': '{spec.path}' does not say which split it is; set split = \"train\" if it is"
        )
    raise ConfigError(
        f"source '{spec.label}' is the split '{found}'; only train splits may be trained on. For a trial that is "
        "never trained on, set allow_other_splits = true"
    )


def _is_narrativeqa_csv(spec: SourceSpec) -> bool:
    return spec.kind == "narrativeqa" and spec.path.endswith(".csv")


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
            yield check(sample, spec, number)
    except Rejected as rejected:
        yield Rejection(rejected.reason, rejected.detail or where, label, where)


def check(sample: Sample, spec: SourceSpec, number: int) -> Sample | Rejection:
    """What every source must hold: a question, a context, an answer, which stands in the context where that is due.
    `number` names records that have no id of their own."""
    problem, detail = _problem(sample, spec)
    name = _storable(sample.id) or f"{number:08d}"
    if problem:
        return Rejection(problem, detail, spec.label, name)
    return replace(
        sample,
        id=name,
        source=spec.label,
        question=_storable(sample.question.strip()),
        context=_storable(sample.context),
        answers=tuple(_storable(answer) for answer in sample.answers if answer.strip()),
        # two sources may use the same name for different documents
        document=f"{spec.label}/{sample.document}" if sample.document else "",
        provenance=_origin(sample, spec),
    )


def _problem(sample: Sample, spec: SourceSpec) -> tuple[str, str]:
    """Why a sample cannot be used, and a detail; ("", "") where it can."""
    if not sample.question.strip():
        return "empty_question", ""
    if not sample.context.strip():
        return "empty_context", ""
    if not sample.answerable:
        return "", ""
    if not any(answer.strip() for answer in sample.answers):
        return "no_answer", ""
    if spec.answer_in_context and not _answer_stands(sample):
        return "answer_not_in_context", f"answer {sample.answers[0][:80]!r}"
    return "", ""


def _origin(sample: Sample, spec: SourceSpec) -> dict[str, str]:
    return {**_file_and_split(spec.path, spec.split), **{k: _storable(v) for k, v in sample.provenance.items()}}


@functools.lru_cache(maxsize=64)
def _file_and_split(path: str, split: str) -> dict[str, str]:
    # the file's name, not its path: shards do not carry where a machine keeps its files
    return {"file": _storable(Path(path).name), "source_split": split or split_in_name(path) or "unknown"}


def _answer_stands(sample: Sample) -> bool:
    context = sample.context.casefold()
    return any(answer.strip().casefold() in context for answer in sample.answers if answer.strip())


_storable = functools.partial(replace_surrogates, by="\ufffd")


# ── Unknown tables with named columns ────────────────────────────────────────────────────────────

MAPPABLE = ("question", "context", "answers", "id", "evidence", "document")


def table(row: Mapping[str, Any], spec: SourceSpec) -> Iterator[Sample]:
    """A row of any table: `map` names its columns; what is not named is looked for under its own name. Where a column
    `answerable` says false, the record is one that no page answers."""
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
    """Evidence given as quotes, or as [start, end] of characters, each a step of reasoning; [start, end, step] says which.

    A quote that is not there is refused."""
    if isinstance(marked, list) and len(marked) in (2, 3) and all(type(item) is int for item in marked):
        marked = [marked]
    marked = [marked] if isinstance(marked, str) else marked
    if not isinstance(marked, list | tuple):
        raise Rejected("wrong_type", f"evidence is {type(marked).__name__}; quotes or [start, end] are required")
    for hop, item in enumerate(marked):
        if isinstance(item, str):
            start = context.find(item) if item else -1
            if start < 0:
                raise Rejected("wrong_type", f"evidence {item[:80]!r} does not stand in the context")
            yield Evidence(start, start + len(item), hop)
            continue
        try:
            start, end, *step = (int(value) for value in item)
            (hop,) = step or (hop,)
        except (TypeError, ValueError, OverflowError):
            raise Rejected("wrong_type", f"evidence {str(item)[:80]!r} is neither a quote nor [start, end]") from None
        if not 0 <= start < end <= len(context):
            raise Rejected(
                "wrong_type", f"evidence [{start}, {end}] lies outside a context of {len(context)} characters"
            )
        yield Evidence(start, end, hop)
