"""The data set card: README.md of a build, as the hub reads it. Markdown out of statistics; no file is touched here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from data_pipeline.records import REASONS, STAGES
from data_pipeline.settings import BuildConfig, SourceSpec
from data_pipeline.sources.registry import SOURCES


def dataset_card(config: BuildConfig, statistics: Mapping[str, Any]) -> str:
    """The whole card. Names that come from a configuration are escaped."""
    sections = (
        _front_matter(config),
        _opening(config, statistics),
        _retention(statistics["sources"]),
        _rejections(statistics["sources"]),
        _pages(statistics["sources"]),
        _tokens(statistics.get("tokens")),
        _agreement(statistics["sources"]),
        _guard(statistics.get("guard")),
        _licences(config),
        _how(config),
    )
    return "\n".join(line for section in sections for line in section) + "\n"


def _front_matter(config: BuildConfig) -> Iterator[str]:
    yield from ("---", "task_categories: [visual-question-answering, question-answering]", "configs:")
    for form in config.assemble.forms:
        prefix = "" if form == "select" else f"{form}/"
        yield from (f"- config_name: {form}", "  data_files:", f'  - {{split: train, path: "{prefix}train/*.parquet"}}')
        if config.validation_share:
            yield f'  - {{split: validation, path: "{prefix}validation/*.parquet"}}'
    yield from ("---", "")


def _opening(config: BuildConfig, statistics: Mapping[str, Any]) -> Iterator[str]:
    yield from ("# Select-retrieve-reason trajectories", "")
    yield (
        f"{statistics['written']:,} conversations out of {statistics['records']:,} records: a model looks over page images, "
        "selects pages by a tool call, receives their exact text, reasons and answers."
    )
    if any(source.allow_other_splits for source in config.sources):
        yield from ("", "**A trial: some sources are not train splits. Do not train on this set.**")
    made_by = sorted({name for source in statistics["sources"].values() for name in source["reasoning"]})
    if "template" in made_by:
        yield from ("", "Reasoning marked `template` quotes the evidence and was written by no model.")
    yield ""


def _retention(sources: Mapping[str, Any]) -> Iterator[str]:
    names = ("read", *STAGES)
    yield from ("## Retention", "", "Records left after each stage.", "")
    yield from _head("source", *names, "written", "kept")
    total = dict.fromkeys((*names, "written"), 0)
    for name, source in sources.items():
        kept = {**source["retention"], "written": source["written"]}
        for stage in total:
            total[stage] += kept[stage]
        yield _row(_cell(name), *(f"{kept[stage]:,}" for stage in total), _share(kept["written"], kept["read"]))
    yield _row("**all**", *(f"{count:,}" for count in total.values()), _share(total["written"], total["read"]))
    yield ""


def _rejections(sources: Mapping[str, Any]) -> Iterator[str]:
    reasons = [reason for reason in REASONS if any(reason in source["rejected"] for source in sources.values())]
    if not reasons:
        return
    yield from ("## Why records fell away", "")
    yield from _head("reason", "meaning", *map(_cell, sources))
    for reason in reasons:
        counts = (f"{source['rejected'].get(reason, 0):,}" for source in sources.values())
        yield _row(f"`{reason}`", REASONS[reason].meaning, *counts)
    yield ""


def _pages(sources: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Pages", "", "Records by number of necessary pages, and mean pages a document.", "")
    yield from _head("source", "0", "1", "2", "3", "4", "5+", "mean pages")
    for name, source in sources.items():
        relevant = {int(pages): count for pages, count in source["relevant_pages"].items()}
        bins = [relevant.get(pages, 0) for pages in range(5)]
        more = sum(count for pages, count in relevant.items() if pages >= 5)
        pages = {int(number): count for number, count in source["pages"].items()}
        total = sum(pages.values())
        mean = f"{sum(number * count for number, count in pages.items()) / total:.1f}" if total else "–"
        yield _row(_cell(name), *(f"{count:,}" for count in (*bins, more)), mean)
    yield ""


def _tokens(tokens: Mapping[str, Any] | None) -> Iterator[str]:
    if tokens is None:
        return
    yield from ("## Tokens", "")
    yield (
        f"Counted over the first {tokens['records']:,} records: {tokens['total']['text']:,} text tokens "
        f"({tokens['tokenizer']}) as {tokens['total']['vision']:,} vision tokens."
    )
    yield ""
    edges = sorted({*tokens["text"], *tokens["vision"]}, key=lambda edge: int(edge[1:]))
    yield from _head("tokens a document", *edges)
    for name in ("text", "vision"):
        yield _row(name, *(f"{tokens[name].get(edge, 0):,}" for edge in edges))
    yield ""


def _agreement(sources: Mapping[str, Any]) -> Iterator[str]:
    rows = {name: source["agreement_with_gold"] for name, source in sources.items() if "agreement_with_gold" in source}
    if not rows:
        return
    yield from ("## Page labels against the sources' own evidence", "")
    yield from _head("source", "both", "judge only", "gold only", "neither", "precision", "recall", "kappa")
    for name, row in rows.items():
        counts = (f"{row[key]:,}" for key in ("pages_both", "pages_judge_only", "pages_gold_only", "pages_neither"))
        rates = ("–" if row[key] is None else f"{row[key]:.3f}" for key in ("precision", "recall", "kappa"))
        yield _row(_cell(name), *counts, *rates)
    yield ""


def _guard(guard: Mapping[str, Any] | None) -> Iterator[str]:
    yield from ("## Leakage guard", "")
    if guard is None:
        yield from ("**No guard was set: overlap with a benchmark was not checked.**", "")
        return
    yield (
        f"Checked against {guard['benchmark_records']:,} benchmark records. Refused: questions with more than "
        f"{guard['max_question_overlap']:.0%} of their n-grams there, contexts with more than "
        f"{guard['max_context_overlap']:.0%}. Contexts by overlap:"
    )
    yield ""
    tenths = [f"{tenth / 10:.1f}" for tenth in range(10)]
    yield from _head("source", *(f"{tenth}–" for tenth in tenths))
    for name, counts in guard["context_overlap"].items():
        yield _row(_cell(name), *(f"{counts.get(tenth, 0):,}" for tenth in tenths))
    yield ""


def _licences(config: BuildConfig) -> Iterator[str]:
    yield from ("## Sources and licences", "")
    yield from _head("source", "data set", "split", "licence")
    for spec in config.sources:
        known = SOURCES.get(spec.kind)
        split = spec.split or "train (by file name)"
        yield _row(_cell(spec.label), _cell(known.title if known else "a table"), _cell(split), _licence(spec))
    yield ""


def _licence(spec: SourceSpec) -> str:
    known = SOURCES.get(spec.kind)
    return _cell(known.licence) if known else "not known here: state it before you pass this set on"


def _how(config: BuildConfig) -> Iterator[str]:
    yield from ("## How it was made", "")
    judge, reason = config.judge, config.reason
    judged = (
        f"teacher `{_cell(judge.teacher.model)}`" if judge.kind == "teacher" and judge.teacher else f"`{judge.kind}`"
    )
    reasoned = (
        f"teacher `{_cell(reason.teacher.model)}`" if reason.kind == "teacher" and reason.teacher else "`template`"
    )
    yield f"- pages judged by: {judged}; reasoning by: {reasoned}"
    yield f"- page style `{_cell(config.style)}`, seed {config.seed}, at most {config.max_pages} pages a document"
    assemble = config.assemble
    if assemble.distributed_share:
        yield (
            f"- a teacher answers questions over many pages wrong more often, so a strict filter starves them: records with "
            f"{assemble.distributed_pages} or more necessary pages that the teacher failed on are told by the template "
            f"from gold evidence, up to {assemble.distributed_share:.0%} of the set"
        )
    if assemble.multi_round_share:
        yield f"- {assemble.multi_round_share:.0%} of records with several necessary pages select them hop by hop"
    yield "- every setting stands in `config.toml`, every count in `stats.json`"


def _head(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield _row(*("---" for _ in names))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _cell(text: str) -> str:
    """Text that can end neither its cell nor its line, nor become Markdown or HTML."""
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", " ".join(text.split()))
