"""End to end: the project's own commands, one after another, on a text that ships with it.

    python scripts/end_to_end.py [--out runs/end-to-end]

render → plan → build trajectories → make a small model → train it a few steps → ask → score → report. The model is real
in every part and knows next to nothing: what is shown is the road, not an ability.
"""

from __future__ import annotations

import argparse
import html
import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "seer" / "data" / "sample.txt"
QUESTIONS = ROOT / "seer" / "data" / "sample_questions.jsonl"
UNTRAINED = (
    "The model is a small one made a minute ago and trained for a few steps: its answers mean nothing. "
    "Every part it passed through is real."
)
TRAIN_STEPS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/end-to-end"))
    out = parser.parse_args().out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    started = time.time()
    steps = run_steps(out)
    write_report(out, steps, time.time() - started)
    say(f"\n{UNTRAINED}\nLook at {show(out / 'report.html')} ({time.time() - started:.0f} s)")


def run_steps(out: Path) -> list[tuple[str, str, str]]:
    """[(what, command, output)] of every step."""
    records = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    text = SAMPLE.read_text(encoding="utf-8")
    questions = out / "questions.jsonl"
    write_lines(questions, [{**record, "context": text} for record in records])
    benchmark = out / "benchmark" / "multifieldqa_en.jsonl"
    write_lines(benchmark, [longbench_shape(record, text) for record in records if record["question"].isascii()])
    small, model = out / "small", out / "train" / "model"
    question = records[0]["question"]
    style = ["--style", "large"]
    commands = [
        ("Render the text to pages", ["seer", "render", SAMPLE, "--out", out / "pages", *style]),
        ("Plan: what would pictures cost?", ["seer", "plan", SAMPLE]),
        (
            "Build trajectories from questions with known evidence",
            ["seer-data", "build", "--input", questions, "--map", "evidence=evidence", "--judge", "gold"]
            + ["--out", out / "data"],
        ),
        ("Make a small GLM-4V model", ["seer", "make-small", small]),
        ("Is it fit for Seer?", ["seer", "check", small]),
        ("Train it for a few steps", ["seer-train", "run", train_config(out, small)]),
        (
            "Ask a question",
            ["seer", "ask", SAMPLE, question, "--model", model, *style, "--set", "max_new_tokens=48"]
            + ["--save-trace", out / "trace"],
        ),
        (
            "Predict and score",
            ["seer", "eval", "longbench", "--data", benchmark.parent, "--model", model, "--out", out / "scores", *style]
            + ["--reasoning-tokens", "0"],
        ),
    ]
    return [(what, *run(command)) for what, command in commands]


def train_config(out: Path, model: Path) -> Path:
    path = out / "train.toml"
    path.write_text(
        f"out = {json.dumps(str(out / 'train'))}\nsteps = {TRAIN_STEPS}\n"
        f"[model]\npath = {json.dumps(str(model))}\n"
        f"[data]\nsets = [{{ path = {json.dumps(str(out / 'data' / 'train'))} }}]\n"
        "[optimizer]\nlr = 1e-3\nwarmup_steps = 2\n",
        encoding="utf-8",
    )
    return path


def longbench_shape(record: dict, text: str) -> dict:
    return {
        "input": record["question"],
        "context": text,
        "answers": record["answers"],
        "length": len(text.split()),
        "dataset": "multifieldqa_en",
        "language": "en",
        "all_classes": None,
        "_id": record["id"],
    }


def run(command: list) -> tuple[str, str]:
    """(command as typed, what it printed). Ends here where a command fails; asking may find no answer."""
    words = [show(part) if isinstance(part, Path) else str(part) for part in command]
    typed = shlex.join(words)
    say(f"\n$ {typed}")
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=ROOT)
    printed = result.stdout.strip()
    say(printed)
    unanswered = {0, 1, 3} if words[:2] == ["seer", "ask"] else {0}
    if result.returncode not in unanswered:
        say(result.stderr.strip())
        sys.exit(f"stopped: '{typed}' ended with exit code {result.returncode}")
    return typed, printed


def write_report(out: Path, steps: list[tuple[str, str, str]], seconds: float) -> None:
    """report.md and report.html: every command with its output, and the trace of the question."""
    body = [f"# Seer, end to end\n\n> {UNTRAINED}\n\nThe whole road took {seconds:.0f} s.\n"]
    page = [
        f"<h1>Seer, end to end</h1><p><b>{html.escape(UNTRAINED)}</b></p><p>The whole road took {seconds:.0f} s.</p>"
    ]
    for what, typed, printed in steps:
        shown = printed or "(nothing printed)"
        indented = "\n".join(f"    {line}" for line in [f"$ {typed}", *shown.splitlines()])
        body.append(f"\n## {what}\n\n{indented}\n")
        page.append(f"<h2>{html.escape(what)}</h2><pre><b>$ {html.escape(typed)}</b>\n{html.escape(shown)}</pre>")
    body.append("\nThe question's pages, selection and answer: [trace/report.md](trace/report.md)\n")
    page.append('<h2>Pages, selection and answer</h2><iframe src="trace/report.html" title="trace"></iframe>')
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:24px auto;padding:0 16px}"
        "pre{background:#f5f6f8;padding:12px;overflow-x:auto}iframe{width:100%;height:90vh;border:1px solid #d9dde3}"
    )
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    (out / "report.md").write_text("".join(body), encoding="utf-8")
    (out / "report.html").write_text(
        f"{head}<title>Seer</title><style>{style}</style>{''.join(page)}", encoding="utf-8"
    )


def write_lines(path: Path, records: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def show(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
