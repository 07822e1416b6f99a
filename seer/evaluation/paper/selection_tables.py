"""Page selection: table 17, figures 2 to 4, and select calls without a grammar."""

from __future__ import annotations

from collections import Counter

from seer.evaluation.analysis.selections import retrieval_scope
from seer.evaluation.analysis.selector_baselines import select_with_budgets, selector_rows
from seer.evaluation.paper import published
from seer.evaluation.paper.loaded import NOT_RUN, Loaded
from seer.evaluation.reports.controls import heterogeneity_section
from seer.evaluation.reports.notes import conditions
from seer.evaluation.reports.selection import selection_section
from seer.web.tables import Section, Table, columns, row


def page_selection(loaded: Loaded) -> Section:
    """Return table 17: the selection against page labels, and fixed selectors with the same budgets."""
    title = "Table 17: page selection"
    run = loaded.runs.get("seer")
    if run is None or not loaded.gold:
        why = [] if loaded.gold else [f"{NOT_RUN}: labels ({loaded.reasons.get('labels', 'no page labels')})"]
        return Section(title, ". ".join([*loaded.why_not(["seer"]), *why]) + ".")
    own = {one.id: one.selected_pages for one in run.each() if one.id in loaded.gold}
    budgets = {identifier: max(1, len(pages)) for identifier, pages in own.items()}
    seed = loaded.models.seed
    documents = select_with_budgets(
        loaded.records, loaded.gold, budgets, benchmark=loaded.benchmark, style=run.style, seed=seed
    )
    rows = []
    for one in selector_rows("seer", own, loaded.gold, documents):
        subset = one.gold_nonempty
        whole = (subset.precision, subset.recall, subset.f1, subset.mean_pages, one.all_samples.f1)
        parts = (one.low_overlap, one.high_overlap, one.many_pages)
        rows.append(row(one.name, *whole, *(part.f1 if part else None for part in parts)))
    if loaded.is_longbench:
        for name, f1, pages, whole_f1, low, high in published.SELECTORS:
            rows.append(row(name, None, None, f1, pages, whole_f1, low, high, None, kind="paper"))
    heads = columns(
        *("selector", "precision:3", "recall:3", "F1:3", "pages:2", "all-sample F1:3"),
        *("F1, low overlap:3", "F1, high overlap:3", "F1, over 3 gold pages:3"),
    )
    note = f"Budgets matched per sample, at least one page; random with seed {seed}; overlap split at its median"
    return Section(title, "", [Table("Selectors", heads, rows, conditions([run], note))])


def selected_pages(loaded: Loaded) -> Section:
    """Return figure 2: how many pages are selected, overall and by length of the document."""
    title = "Figure 2: pages selected"
    found = selection_section(loaded.held(["seer"]))
    if found is None:
        return Section(title, loaded.note(["seer"], "No run has selections by the model"))
    return Section(title, found.text, found.tables, found.charts)


def retrieval(loaded: Loaded) -> Section:
    """Return figure 3: scores with no retrieved page, one and all, in both readings of one page."""
    title = "Figure 3: retrieval scope"
    names = ("seer", "k0", "k1-select", "k1-retrieve")
    none, every = loaded.runs.get("k0"), loaded.runs.get("seer")
    if none is None or every is None:
        return Section(title, loaded.note(names))
    rows = []
    for label, name in (("one page selected", "k1-select"), ("one page retrieved", "k1-retrieve")):
        one = loaded.runs.get(name)
        scope = retrieval_scope(none.report, every.report, one.report if one else None)
        parts = {"mean of categories": scope.macro, "mean of tasks": scope.overall, **scope.categories, **scope.tasks}
        for over, part in parts.items():
            recovered = None if part.recovered_by_one is None else 100 * part.recovered_by_one
            shown = label if one else f"{label}: {NOT_RUN}"
            rows.append(row(shown, over, part.none, part.one, part.all, part.gain, recovered))
    if loaded.is_longbench:
        rows += [row("reading not known", *figures, kind="paper") for figures in published.SCOPE]
    heads = columns("k = 1", "over", "k = 0:2", "k = 1:2", "k = all:2", "gain:+2", "recovered by k = 1, %:1")
    text = (
        "k = 1 has two readings: the model may select one page only, or selects freely and only the first page's text is "
        "retrieved. The paper does not say which it uses."
    )
    return Section(title, text, [Table("Scores by number of retrieved pages", heads, rows, loaded.note(names))])


def heterogeneity(loaded: Loaded) -> Section:
    """Return figure 4: scores by number of selected pages, minus Glyph's score of the task."""
    title = "Figure 4: where retrieval helps"
    names = ("seer", "glyph", "k0")
    found = heterogeneity_section(loaded.held(names))
    if found is None:
        reasons = loaded.why_not(names) or ["no task has 5 samples with the same number of selected pages"]
        return Section(title, ". ".join(reasons) + ".")
    return Section(title, " ".join(loaded.why_not(names)), found.tables, found.charts)


def free_calls(loaded: Loaded) -> Section:
    """Return the count of invalid select calls without a grammar: the paper's first limitation."""
    title = "Select calls without a grammar"
    run = loaded.runs.get("unconstrained")
    if run is None:
        return Section(title, loaded.note(["unconstrained"]))
    steps = [step for one in run.each() for step in one.trace if step.name == "select"]
    kinds = Counter(deviation for step in steps for deviation in set(step.deviations))
    invalid = sum(bool(step.deviations) for step in steps)
    total = len(steps) or 1
    rows = [row("invalid in any way", invalid, 100 * invalid / total, kind="total")]
    rows += [row(name, number, 100 * number / total) for name, number in sorted(kinds.items())]
    heads = columns("calls", "number", "% of calls:2")
    note = conditions([run], f"{len(steps):,} calls; the paper reports out-of-range indices without a number")
    return Section(title, "", [Table("Invalid select calls", heads, rows, note)])
