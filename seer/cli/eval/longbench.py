"""`seer eval longbench`: predict LongBench records, then score."""

from __future__ import annotations

from seer.cli.command import AsJson
from seer.cli.eval.predict import predict_longbench
from seer.cli.eval.tables import show_scores
from seer.cli.options import CodeRatio, LongBenchOptions, Postprocess, set_became_policy, with_options


@set_became_policy
@with_options(LongBenchOptions)
def longbench(
    options: LongBenchOptions,
    postprocess: Postprocess = "official",
    code_ratio: CodeRatio = "difflib",
    as_json: AsJson = False,
) -> None:
    """Predict LongBench records with a system, then score. The same command resumes an interrupted run.

    Example: seer eval longbench --data longbench/ --model path/to/checkpoint --out runs/mine
    Example: seer eval longbench --data longbench/ --model path/to/checkpoint --selector bm25 --out runs/bm25
    """
    from seer.evaluation.runs.score import score_folder

    predict_longbench(options)
    show_scores(score_folder(options.out, postprocess=postprocess, code_ratio=code_ratio), as_json)
