"""`seer eval docqa`: predict questions over documents that are files."""

from __future__ import annotations

from seer.cli.command import AsJson
from seer.cli.eval.predict import describe_run, reasoning_tokens, run_system, show_summary
from seer.cli.options import DocQAOptions, load_policy, page_style, set_became_policy, with_options


@set_became_policy
@with_options(DocQAOptions)
def docqa(options: DocQAOptions, as_json: AsJson = False) -> None:
    """Predict document QA (MMLongBench-Doc, LongDocURL): questions over PDFs. Score with `score --benchmark docqa`.

    Example: seer eval docqa --gold samples.json --documents pdfs/ --model path/to/checkpoint --out runs/docqa
    """
    from seer.evaluation.benchmarks.docqa import read_docqa
    from seer.evaluation.benchmarks.longbench import check_limit
    from seer.evaluation.runs.loop import LoopOptions
    from seer.evaluation.runs.plan_docqa import plan_docqa
    from seer.systems.build import run_name

    check_limit(options.limit)
    policy = load_policy(options.policy)
    inputs, manifest = plan_docqa(
        read_docqa(options.gold)[: options.limit],
        options.documents,
        run_name(options.system, options.selector),
        reasoning_tokens=reasoning_tokens(options),
        style=page_style(options.style, options.font),
        dpi=options.dpi,
        ocr=options.ocr,
        describe=describe_run(options, policy),
    )
    rules = LoopOptions(options.batch_size, options.concurrency, options.retry_rounds, options.retry_failed)
    show_summary(run_system(options, policy, inputs, manifest, rules), options.out, as_json)
