"""Tests of `seer demo`: a user's own document, its questions, the live trace, the report, and rejected input."""

from __future__ import annotations

from functools import partial

import pytest
from typer.testing import CliRunner

from seer.cli.display import TracePrinter
from seer.cli.main import app
from seer.errors import DocumentNotFound, InputError, ModelError
from seer.evaluation.analysis.scored_run import load_run
from seer.miniature.demo import DOCUMENT, run_demo
from seer.miniature.model import build_untrained
from seer.miniature.parse import parse_document, pick_questions, read_document
from seer.miniature.world import World


def test_shipped_document_has_a_question_of_every_kind():
    document = read_document(DOCUMENT)
    assert document.num_pages == 5
    picked = pick_questions(document)
    assert [question.kind for question in picked] == ["single", "paraphrase", "hop", "many", "unanswerable"]
    assert len({question.name for question in picked}) == 5
    (hop, many) = picked[2:4]
    assert (hop.answer, hop.pages) == ("64720", (2, 4))
    assert (many.answer, many.pages) == ("2847, 18259, 905183, 71948", (2, 3, 4, 5))


def test_parse_document_reads_documents_of_the_world_back():
    for document in World(0, "validation").documents(40):
        again = parse_document(document.text, document.id)
        assert (again.lines, again.language) == (document.lines, document.language)
        assert {one.text for one in again.questions} >= {
            one.text for one in document.questions if one.kind != "unanswerable"
        }
        assert len(pick_questions(again)) == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("doctor 482139\nwizard 4821\n", r"line 2: the model does not know the name 'wizard'.*such as doctor, lawyer"),
        ("physician 482139\n", "occurs in questions only; write 'doctor'"),
        ("doctor 12\n", "neither a name with its code nor a pointer; write 'doctor 482139'"),
        ("doctor 48213\nlamp 48213\ncup 48213\n", "has 3 lines; the model reads 4 to 24"),
        ("doctor 48213\n" * 25, "has 25 lines"),
        ("doctor 48213\n医生 48213\ncup 48213\ncat 48213\n", "names of two languages"),
        ("doctor -> lamp\ncup 4821\ncat 4821\ndog 4821\n", "points to a name without a code; add 'lamp 482139'"),
    ],
)
def test_parse_document_rejects_unknown_content(text, message):
    with pytest.raises(InputError, match=message):
        parse_document(text, "mine.txt")


def test_parse_document_rejects_document_with_every_name():
    from seer.miniature.lexicon import CHINESE_NAMES

    with pytest.raises(InputError, match="uses every known name"):
        parse_document("".join(f"{name} 4821\n" for name in CHINESE_NAMES), "mine.txt")


def test_parse_document_accepts_ascii_arrows_blank_lines_and_partial_last_page():
    document = parse_document("\ndoctor->lamp\n\ncup 4821\n cat 4821\ndog 4821\nlamp 77777\n", "mine.txt")
    assert document.text == "doctor → lamp\ncup 4821\ncat 4821\ndog 4821\nlamp 77777\n"
    (hop,) = (question for question in document.questions if question.kind == "hop")
    assert (hop.answer, hop.pages) == ("77777", (1, 2))


def test_read_document_rejects_missing_or_binary_file(tmp_path):
    with pytest.raises(DocumentNotFound, match="no document at"):
        read_document(tmp_path / "none.txt")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_document(tmp_path / "bytes.txt")


def test_run_demo_asks_scores_and_reports(tmp_path, monkeypatch):
    import io

    from rich.console import Console

    monkeypatch.setattr(
        "seer.miniature.controls.MAX_NEW_TOKENS",
        dict.fromkeys(("single", "many"), 8) | {"paraphrase": 8, "hop": 8, "unanswerable": 8},
    )
    mine = tmp_path / "mine.txt"
    mine.write_text("cup 4821\ncat 4821\ndog 4821\nlamp 77777\n", encoding="utf-8")
    model = build_untrained(tmp_path / "model")
    printed = io.StringIO()
    console = Console(file=printed, highlight=False, markup=False, width=100)
    printers = partial(TracePrinter, console)
    readings = run_demo(model, mine, tmp_path / "out", console, make_printer=printers, num_scored=10)
    assert [one.question.kind for one in readings] == ["single", "paraphrase", "unanswerable", "single", "paraphrase"]
    shown = printed.getvalue()
    for word in ("look", "select", "retrieve", "truth", "10 questions of a held-out world", "report.html"):
        assert word in shown
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") >= 5 * 2
    assert "Questions about mine.txt" in page
    assert (tmp_path / "out" / "questions" / "1-single" / "report.html").is_file()
    (folder,) = (tmp_path / "out").glob("test-*")
    assert load_run(folder / "full").report.num_inputs == 10


def test_demo_without_shipped_model_says_how_to_train_one(monkeypatch, tmp_path):
    monkeypatch.setattr("seer.miniature.controls.SHIPPED", tmp_path / "none")
    result = CliRunner().invoke(app, ["demo"])
    assert isinstance(result.exception, ModelError)
    assert "train_miniature.sh" in str(result.exception)
