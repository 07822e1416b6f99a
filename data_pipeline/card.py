"""Render the dataset card: the README.md of a build, with front matter for the Hugging Face hub.

Pure functions from configuration and statistics to Markdown; `data_pipeline.collect` writes the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from data_pipeline.records import REASONS, STAGES
from data_pipeline.settings import BuildConfig, ReasonSpec, SourceSpec
from data_pipeline.sources.registry import SOURCES, task_of


def dataset_card(config: BuildConfig, statistics: Mapping[str, Any]) -> str:
    """Return the complete card as Markdown.

    `statistics` is the content of stats.json. Names that come from the configuration are escaped.
    """
    sections = (
        _front_matter(config),
        _opening(config, statistics),
        _retention(statistics["sources"], statistics.get("targets", {})),
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
        f"{statistics['written']:,} conversations from {statistics['records']:,} records. In each, a model views page "
        "images, selects pages by a tool call, receives their exact text, reasons and answers."
    )
    if any(source.allow_other_splits for source in config.sources):
        yield from ("", "**Trial build: some sources are not train splits. Do not train on this set.**")
    made_by = sorted({name for source in statistics["sources"].values() for name in source["reasoning"]})
    if "template" in made_by:
        yield from ("", "Reasoning marked `template` quotes the evidence; no model wrote it.")
    yield ""


def _retention(sources: Mapping[str, Any], targets: Mapping[str, int]) -> Iterator[str]:
    names = ("read", *STAGES)
    yield from ("## Retention", "", "Records left after each stage. `judge` is Phase 1, `reason` Phase 2.", "")
    yield from _head("source", *names, "written", "kept")
    total = dict.fromkeys((*names, "written"), 0)
    for name, source in sources.items():
        kept = {**source["retention"], "written": source["written"]}
        for stage in total:
            total[stage] += kept[stage]
        yield _row(_cell(name), *(f"{kept[stage]:,}" for stage in total), _percent(kept["written"], kept["read"]))
    yield _row("**all**", *(f"{count:,}" for count in total.values()), _percent(total["written"], total["read"]))
    yield ""
    if targets:
        reached = {name: sources[name]["retention"][STAGES[-1]] if name in sources else 0 for name in targets}
        yield "A source is read until its target is reached; a source that ends before it has fewer records."
        yield ""
        yield from _head("source", "target", "kept")
        for name, target in targets.items():
            yield _row(_cell(name), f"{target:,}", f"{reached[name]:,}")
        yield _row("**all**", f"{sum(targets.values()):,}", f"{sum(reached.values()):,}")
        yield ""


def _rejections(sources: Mapping[str, Any]) -> Iterator[str]:
    reasons = [reason for reason in REASONS if any(reason in source["rejected"] for source in sources.values())]
    if not reasons:
        return
    yield from ("## Rejected records", "")
    yield from _head("reason", "meaning", *map(_cell, sources))
    for reason in reasons:
        counts = (f"{source['rejected'].get(reason, 0):,}" for source in sources.values())
        yield _row(f"`{reason}`", REASONS[reason].meaning, *counts)
    yield ""


def _pages(sources: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Pages", "", "Records by number of necessary pages, and mean number of pages per document.", "")
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
        f"The first {tokens['records']:,} records hold {tokens['total']['text']:,} text tokens "
        f"({tokens['tokenizer']}); their pages take {tokens['total']['vision']:,} vision tokens."
    )
    yield ""
    # Histogram bins are named by their upper edge, such as "<1024".
    edges = sorted({*tokens["text"], *tokens["vision"]}, key=lambda edge: int(edge[1:]))
    yield from _head("tokens per document", *edges)
    for name in ("text", "vision"):
        yield _row(name, *(f"{tokens[name].get(edge, 0):,}" for edge in edges))
    yield ""


def _agreement(sources: Mapping[str, Any]) -> Iterator[str]:
    rows = {name: source["agreement_with_gold"] for name, source in sources.items() if "agreement_with_gold" in source}
    if not rows:
        return
    yield from ("## Page labels compared with the sources' own evidence", "")
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
        f"Every record was compared with {guard['benchmark_records']:,} benchmark records. A record was rejected if more "
        f"than {guard['max_question_overlap']:.0%} of its question's n-grams or more than "
        f"{guard['max_context_overlap']:.0%} of its context's n-grams occur in the benchmark. Number of contexts by overlap:"
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
        split = split if spec.include else f"{split}; counted only, no record is in the set"
        yield _row(_cell(spec.label), _cell(known.title if known else "a table"), _cell(split), _licence(spec))
    yield ""


def _licence(spec: SourceSpec) -> str:
    known = SOURCES.get(spec.kind)
    return _cell(known.licence) if known else "unknown: state it before you redistribute this set"


def _how(config: BuildConfig) -> Iterator[str]:
    yield from ("## Build settings", "")
    judge, reason = config.judge, config.reason
    judged = (
        f"teacher `{_cell(judge.teacher.model)}`" if judge.kind == "teacher" and judge.teacher else f"`{judge.kind}`"
    )
    reasoned = (
        f"teacher `{_cell(reason.teacher.model)}`" if reason.kind == "teacher" and reason.teacher else "`template`"
    )
    yield f"- pages judged by: {judged}; reasoning by: {reasoned}"
    yield f"- page style `{_cell(config.style)}`, seed {config.seed}, at most {config.max_pages} pages per document"
    if config.max_tokens:
        counted = f"the tokenizer of `{_cell(Path(config.tokenizer).name)}`" if config.tokenizer else "tekken"
        yield f"- trajectories of more than {config.max_tokens:,} tokens, counted with {counted}, are rejected"
    if not judge.keep_unanswerable:
        yield "- Phase 1 drops questions that the document does not answer"
    if reason.kind == "teacher":
        yield from _correctness(reason)
    yield from _order_and_prompts(config)
    assemble = config.assemble
    if assemble.distributed_share:
        yield (
            f"- a teacher fails more often on questions over many pages, so the answer filter removes more of them: for "
            f"records with {assemble.distributed_pages} or more necessary pages that the teacher failed on, the template "
            f"writes the reasoning from gold evidence, up to {assemble.distributed_share:.0%} of the set"
        )
    if assemble.multi_round_share:
        yield (
            f"- {assemble.multi_round_share:.0%} of records with several necessary pages select them hop by hop; the "
            f"fraction is a choice of this configuration, not a figure of the paper"
        )
    yield "- `config.toml` holds every setting, `stats.json` every count"


def _correctness(reason: ReasonSpec) -> Iterator[str]:
    answer = "the teacher's own answer" if reason.target == "teacher" else "the gold answer, in place of the teacher's"
    if reason.correct_by == "official":
        rule = (
            f"the official metric of its source: token F1 of 1 for short spans, of {reason.min_token_f1:g} for free answers, "
            f"ROUGE-L of {reason.min_rouge_l:g} for summaries, an equal line for code"
        )
    else:
        rule = (
            f"its type: equal short spans, token F1 of {reason.min_token_f1:g} for free answers, ROUGE-L of "
            f"{reason.min_rouge_l:g} for summaries, an equal line for code"
        )
    yield f"- the target is {answer}; an answer counts as correct by {rule}"


def _order_and_prompts(config: BuildConfig) -> Iterator[str]:
    drawn = [source.label for source in config.sources if source.order == "random"]
    if drawn:
        yield f"- rows are read in a random order that depends on the seed: {', '.join(map(_cell, drawn))}"
    tasks = {source.label: task_of(source) for source in config.sources}
    posed = [f"{_cell(label)} as `{task}`" for label, task in tasks.items() if task]
    if posed:
        yield f"- prompts carry the instruction that evaluation uses for the task: {', '.join(posed)}"


def _head(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield _row(*("---" for _ in names))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _cell(text: str) -> str:
    """Escape text for a table cell: it cannot end the cell or the line, or become Markdown or HTML."""
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", " ".join(text.split()))
