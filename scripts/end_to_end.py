"""Run the project's commands end to end on a text that ships with it.

    python scripts/end_to_end.py [--out runs/end-to-end]

render → plan → build trajectories → make a small model → train it a few steps → ask → score → report. The model is
complete but small and hardly trained: the report shows that every step works, not that the answers are right.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from seer.web.components import callout, note_line, page_strip, thumbnail, thumbnails, verbatim
from seer.web.html import Html, element, fragment, render_page

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "seer" / "data" / "sample.txt"
QUESTIONS = ROOT / "seer" / "data" / "sample_questions.jsonl"
TITLE = "Seer, end to end"
UNTRAINED = (
    "This small model was created a minute ago and trained for a few steps: its answers mean nothing. "
    "Every step of the pipeline is real."
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
    say(f"\n{UNTRAINED}\nOpen {show(out / 'report.html')} ({time.time() - started:.0f} s)")


def run_steps(out: Path) -> list[tuple[str, str, str]]:
    """Run every step; returns its title, its command line and its output."""
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
        ("Estimate the cost of page images", ["seer", "plan", SAMPLE]),
        (
            "Build trajectories from questions with known evidence",
            ["seer-data", "build", "--input", questions, "--map", "evidence=evidence", "--judge", "gold"]
            + ["--out", out / "data"],
        ),
        ("Make a small GLM-4V model", ["seer", "make-small", small]),
        ("Check that the model fits Seer", ["seer", "check", small]),
        ("Train the model for a few steps", ["seer-train", "run", train_config(out, small)]),
        (
            "Ask a question",
            ["seer", "ask", SAMPLE, question, "--model", model, *style, "--policy", "max_new_tokens=48"]
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
    """Write the training configuration; returns its path."""
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
    """Convert a sample question to a LongBench record with `text` as its context."""
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
    """Run a command; returns its command line and its output.

    Exits if the command fails. `seer ask` may also fail to find an answer, which is expected of this model.
    """
    words = [show(part) if isinstance(part, Path) else str(part) for part in command]
    typed = shlex.join(words)
    say(f"\n$ {typed}")
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=ROOT)
    printed = result.stdout.strip()
    say(printed)
    unanswered = {0, 1, 3} if words[:2] == ["seer", "ask"] else {0}
    if result.returncode not in unanswered:
        say(result.stderr.strip())
        sys.exit(f"'{typed}' failed with exit code {result.returncode}; its error output is above")
    return typed, printed


def write_report(out: Path, steps: list[tuple[str, str, str]], seconds: float) -> None:
    """Write report.md and report.html: every command with its output, then the pages and answer of the question."""
    took = f"All steps took {seconds:.0f} s."
    lines = [f"# {TITLE}\n\n> {UNTRAINED}\n\n{took}\n"]
    sections = []
    for number, (what, typed, printed) in enumerate(steps):
        shown = printed or "(nothing printed)"
        indented = "\n".join(f"    {line}" for line in [f"$ {typed}", *shown.splitlines()])
        lines.append(f"\n## {what}\n\n{indented}\n")
        sections.append(fragment(element("h2", what, id=f"s{number}"), verbatim(shown, heading=f"$ {typed}")))
    lines.append("\nThe question's pages, selection and answer: [trace/report.md](trace/report.md)\n")
    (out / "report.md").write_text("".join(lines), encoding="utf-8")
    links = [(f"s{number}", what) for number, (what, _, _) in enumerate(steps)]
    page = render_page(
        TITLE,
        callout(UNTRAINED, tone="warn"),
        note_line(took),
        sections,
        trace_section(out / "trace"),
        links=[*links, ("pages", "Pages, selection and answer")],
    )
    (out / "report.html").write_text(page, encoding="utf-8")


def trace_section(folder: Path) -> Html:
    """The question with its answer and page pictures, from the trace that `seer ask` wrote to `folder`."""
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    selected = set(answer["selected_pages"])
    figures = [
        thumbnail(number, path.read_bytes(), f"page {number}", is_selected=number in selected, anchor=f"p{number}")
        for number, path in enumerate(sorted(folder.glob("page-*.png")), 1)
    ]
    return fragment(
        element("h2", "Pages, selection and answer", id="pages"),
        element("p", answer["question"], dir="auto"),
        callout(answer["text"] or f"({answer['status']}: {answer['cause']})"),
        page_strip(len(figures), selected),
        thumbnails(figures),
        element("p", element("a", "The whole trace", href=f"{folder.name}/report.html")),
    )


def write_lines(path: Path, records: list[dict]) -> None:
    """Write records as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def show(path: Path) -> str:
    """The path relative to the project if it is inside it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def say(text: str) -> None:
    """Print at once, so that the output appears while later commands run."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
