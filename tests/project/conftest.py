"""The folder in which the commands and examples of the guides run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from guides import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, small_checkpoint_dir: Path) -> Path:
    """A folder with the files that the guides name: documents, a checkpoint, benchmarks and the configurations."""
    from reportlab.pdfgen.canvas import Canvas

    here = tmp_path_factory.mktemp("readme")
    text = "The laptop costs 1299.99 dollars.\nThe total was 1749.98 dollars.\n"
    (here / "report.txt").write_text(text)
    (here / "path/to").mkdir(parents=True)
    (here / "path/to/checkpoint").symlink_to(small_checkpoint_dir)
    (here / "models").mkdir()
    (here / "models/glyph").symlink_to(small_checkpoint_dir)
    for name in ("configs", "seer", "scripts"):
        (here / name).symlink_to(ROOT / name)
    (here / "longbench").mkdir()
    record = {"_id": "1", "input": "What was the total?", "context": text, "answers": ["1749.98"]}
    (here / "longbench/hotpotqa.jsonl").write_text(json.dumps(record) + "\n")
    (here / "data").mkdir()
    (here / "data/longbench").symlink_to(here / "longbench")
    question = {"question": "What was the total?", "answer": "1749.98", "doc_id": "report.pdf", "doc_type": "report"}
    labels = {"evidence_pages": "[1]", "evidence_sources": "[]", "answer_format": "Float"}
    (here / "samples.json").write_text(json.dumps([question | labels]))
    (here / "pdfs").mkdir()
    canvas = Canvas(str(here / "pdfs/report.pdf"), pagesize=(300, 200))
    canvas.drawString(20, 150, "The total was 1749.98 dollars.")
    canvas.save()
    shutil.copy(here / "pdfs/report.pdf", here)
    other = "The harbour of Orla was dredged in 1904.\n"  # not in the benchmark, or the leakage guard would reject it
    sample = {"id": "1", "question": "When was it dredged?", "context": other, "answers": ["1904"], "evidence": [other]}
    (here / "questions.jsonl").write_text(json.dumps(sample) + "\n")
    return here


@pytest.fixture
def run_in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test in the folder."""
    monkeypatch.chdir(folder)
