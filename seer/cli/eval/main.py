"""`seer eval`: label, predict, score and compare; one module of this package for each command.

    seer eval longbench --data DIR --model DIR --out RUN       predict and score
    seer eval predict   --data DIR --model DIR --out RUN       only predict; run it again to resume
    seer eval score     --benchmark longbench RUN --json       only score; reads files, needs no model
    seer eval docqa     --gold FILE --documents DIR --out RUN  predict questions over PDFs
    seer eval extract   RUN --gold FILE --model NAME           shorten those answers before they are scored
    seer eval label     --data DIR --model NAME --out LABELS   have a teacher judge which pages answers need
    seer eval harness   --base-url URL --out RUN               lm-evaluation-harness, answered by `seer serve`
    seer eval report    RUN [RUN …] --out DIR                  compare any number of runs
    seer eval probe     RUN --data DIR                         time prefill separately, for the report
    seer eval tokens    --data DIR                             count prompt tokens without a model
    seer eval miniature --report                               the paper's controls on a small synthetic world
    seer eval paper     --data DIR --models FILE           every table of the paper, from one plan of runs
    seer eval frontier  --data DIR --model DIR                 score against prompt tokens, by density and budget

Exit codes: 0 done, 2 bad input, 4 inputs are missing from a run (also if --partial scored the rest). Failed inputs are
results: they are counted and shown, and leave the exit code at 0.
"""

from __future__ import annotations

import typer

from seer.cli.eval.docqa import docqa
from seer.cli.eval.extract import extract
from seer.cli.eval.frontier import frontier
from seer.cli.eval.harness import harness
from seer.cli.eval.label import label
from seer.cli.eval.miniature import miniature
from seer.cli.eval.paper import paper
from seer.cli.eval.predict import longbench, predict
from seer.cli.eval.probe import probe
from seer.cli.eval.report import report
from seer.cli.eval.score import score
from seer.cli.eval.tokens import tokens

app = typer.Typer(
    name="eval",
    help="Predict, score and compare on benchmarks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    *(longbench, predict, docqa, harness, label, extract),
    *(miniature, frontier, paper, score, report, probe, tokens),
):
    app.command()(command)
