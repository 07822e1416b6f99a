"""Tables of costs: prompt tokens, latency, prefill by length and key-value memory."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path

from seer.evaluation.analysis.latency import LatencySummary, latency_summary
from seer.evaluation.analysis.scored_run import ScoredRun
from seer.evaluation.analysis.tokens import TokenRow, TokenTable, token_table
from seer.evaluation.paper import published
from seer.evaluation.paper.loaded import NOT_RUN, Loaded
from seer.evaluation.paper.prefill import DOES_NOT_FIT, kv_bytes_per_token, prefill_rows
from seer.web.tables import Cell, Section, Table, columns, row

_TOKENS = ("textual:1", "visual:1", "retrieved:1", "prompt:1", "completion:1", "compression:2")


def token_budget(loaded: Loaded) -> Section:
    """Return table 2: prompt tokens, means over tasks."""

    def cells(run: ScoredRun) -> list[Cell]:
        found = _tokens(loaded, run)
        return [*_cells(found.overall), found.num_dearer]

    papers = [
        row(name, None, None, None, prompt, None, compression, None, kind="paper")
        for name, prompt, compression in published.TOKENS
    ]
    heads = columns("system", *_TOKENS, "tasks dearer than text")
    table = loaded.table("Prompt tokens", heads, _counted(loaded), cells, papers, _reference(loaded))
    return Section("Table 2: token budget", "", [table])


def tokens_by_task(loaded: Loaded, *, first: bool) -> Section:
    """Return table 11 (`first`) or 12: prompt tokens by task and system."""
    tasks = list(loaded.benchmark.tasks)
    chosen = tasks[: published.FIRST_TOKEN_TASKS] if first else tasks[published.FIRST_TOKEN_TASKS :]
    title = "Table 11: tokens by task, part I" if first else "Table 12: tokens by task, part II"
    if not chosen:
        return Section(title, f"Not applicable: table 11 has all tasks of {loaded.benchmark.name}.")
    names = _counted(loaded)
    counted = {run.name: _tokens(loaded, run) for run in loaded.held(names)}
    rows = [
        row(task, name, *_cells(found.tasks[task]))
        for task in chosen
        for name, found in counted.items()
        if task in found.tasks
    ]
    note = loaded.note(names, _reference(loaded))
    return Section(title, "", [Table("Prompt tokens", columns("task", "system", *_TOKENS), rows, note)])


def _counted(loaded: Loaded) -> list[str]:
    return ["seer", "glyph", *loaded.names("text")]


def _full_text(loaded: Loaded) -> Mapping[str, float] | None:
    """Return the reference model's mean prompt by task; None if there is no such run."""
    run = loaded.runs.get(f"text-{loaded.models.reference}")
    if run is None:
        return None
    return {name: means.prompt for name, means in token_table(run.predictions).tasks.items()}


def _reference(loaded: Loaded) -> str:
    if _full_text(loaded) is not None:
        return f"Compression is against the prompts of text-{loaded.models.reference}"
    return (
        "Compression is against the full text by each run's own tokenizer: models.toml names no reference that has run"
    )


def _tokens(loaded: Loaded, run: ScoredRun) -> TokenTable:
    return token_table(run.predictions, _full_text(loaded))


def _cells(means: TokenRow) -> list[Cell]:
    spent = (means.textual, means.visual, means.retrieved, means.prompt, means.completion)
    return [*spent, means.compression or None]


# ── Time ─────────────────────────────────────────────────────────────────────────────────────────


def latency(loaded: Loaded) -> Section:
    """Return table 13: one input at a time, prefill at the server and with the preparation of pages, and end to end."""

    def cells(run: ScoredRun) -> list[Cell]:
        one: LatencySummary = latency_summary(run.each(), run.probes)
        prepare = [probe.prepare_seconds for probe in run.probes.values()]
        with_client = [probe.seconds + probe.prepare_seconds for probe in run.probes.values()]
        return [
            one.prefill_seconds,
            statistics.median(with_client) if with_client else None,
            statistics.median(prepare) if prepare else None,
            one.seconds,
            one.p90_seconds,
            one.decode_tokens_per_s,
            one.completion_tokens,
            run.at_server.mean("ttft"),
            run.at_server.mean("queue"),
            run.at_server.mean("e2e"),
            one.num_slow,
            one.num_samples,
        ]

    papers = [
        row(name, None, None, None, seconds, None, rate, tokens, None, None, None, None, None, kind="paper")
        for name, seconds, tokens, rate in published.LATENCY
    ]
    heads = columns(
        *("system", "prefill request, s:3", "prefill with preparation, s:3", "preparation, s:3", "end to end, s:3"),
        *("90 %, s:3", "decode tokens/s:1", "completion tokens:1"),
        *("first token at server, s:3", "queue at server, s:3", "request at server, s:3", "over 30 s", "samples"),
    )
    names = loaded.names("latency")
    table = loaded.table("Latency, medians", heads, names, cells, papers, published.LATENCY_NOTE)
    text = (
        "Batch size 1. The prefill request is a cold probe of one token: server time for a local engine, with the transfer "
        "of images over an address. Preparation is the layout and drawing of the pages. Figures at the server are means over "
        "its requests, from vLLM's own histograms; they are empty for engines in this process and for other servers."
    )
    return Section("Table 13: latency", text, [table])


def prefill(loaded: Loaded) -> Section:
    """Return table 14: prefill by length of the document, as text and as pages, and key-value memory."""
    title = "Table 14: prefill and key-value memory"
    rows = prefill_rows(loaded.prefill)
    if not rows:
        return Section(title, f"{NOT_RUN}: prefill ({loaded.reasons.get('prefill', 'no measurements')}).")
    per_token = _kv_bytes(loaded)
    shown = []
    for one in rows:
        saving = None if one.kv_saving is None else 100 * one.kv_saving
        memory = None if per_token is None or one.visual_tokens is None else one.visual_tokens * per_token / 1e9
        seconds: tuple[Cell, Cell] = (
            DOES_NOT_FIT if one.text_seconds is None else one.text_seconds,
            DOES_NOT_FIT if one.visual_seconds is None else one.visual_seconds,
        )
        shown.append(
            row(
                one.num_pages,
                one.text_tokens,
                seconds[0],
                one.visual_tokens,
                seconds[1],
                one.prepare_seconds,
                saving,
                memory,
            )
        )
    if loaded.is_longbench:
        for tokens, taken in published.PREFILL:
            shown.append(row("paper", tokens, taken, None, None, None, 100 * published.KV_SAVING, None, kind="paper"))
    heads = columns(
        *("pages", "text tokens:0", "text prefill, s:3", "visual tokens:0", "visual prefill, s:3"),
        *("preparation, s:3", "KV memory saved, %:1", "KV memory as pages, GB:3"),
    )
    note = f"Medians of {loaded.models.prefill_repetitions} distinct documents, batch size 1, cold caches."
    return Section(title, "", [Table("Prefill by length", heads, shown, note)])


def _kv_bytes(loaded: Loaded) -> int | None:
    """Return the key-value bytes of one token by Seer's config.json; None if the checkpoint is not a local folder."""
    served = loaded.models.seer
    path = Path(served.model) / "config.json" if served and served.model else None
    if path is None or not path.is_file():
        return None
    return kv_bytes_per_token(json.loads(path.read_text(encoding="utf-8")))
