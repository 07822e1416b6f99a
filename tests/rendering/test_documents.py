"""Documents: sources are read or rejected, pages can be selected, and no text is lost."""

from __future__ import annotations

import io
import json
import sys
import unicodedata

import pytest

from seer.errors import DocumentNotFound, InputError
from seer.rendering import STYLES, load, render_text, stream
from seer.rendering.layout.fonts import load_font
from tests.rendering.makers import write_file


def test_load_dash_reads_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("from stdin é".encode())))
    document = load("-")
    assert (document.name, document.text) == ("stdin", "from stdin é")


def test_load_rejects_missing_files_folders_and_urls(tmp_path):
    with pytest.raises(DocumentNotFound, match="no document at"):
        load(tmp_path / "missing.txt")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.txt")
    with pytest.raises(InputError, match="is a folder"):
        load(tmp_path)
    with pytest.raises(InputError, match="nothing is fetched"):
        load("https://example.org/report.pdf")


def test_load_text_page_selection_keeps_numbers_as_labels(tmp_path):
    text = "".join(f"line {number}\n" for number in range(400))
    path = write_file(tmp_path, "a.txt", text)
    whole, part = load(path), load(path, pages="2-3,5")
    assert [page.text for page in part] == [whole.page(number).text for number in (2, 3, 5)]
    assert [page.label for page in part] == ["2", "3", "5"]
    box = part.page(3).line_boxes()[0]
    assert part.text[box.start : box.end] == "line 320\n"
    assert (part.page(1).image() == whole.page(2).image()).all()


def test_render_text_longbench_contexts_lose_nothing(shared_data):
    tasks = sorted((shared_data / "longbench" / "samples").glob("*.jsonl"))
    assert len(tasks) == 21
    covered = {chr(code) for name in STYLES["seer"].fonts for code in load_font(name).face.unicodes}
    for path in tasks:
        with path.open(encoding="utf-8") as lines:
            text = json.loads(next(lines))["context"]
        document = render_text(text, name=path.stem)
        assert "".join(page.text for page in document) == text
        reported = {glyph.character for glyph in document.missing_glyphs}
        invisible = {
            character for character in set(text) if unicodedata.category(character) in ("Zs", "Cf", "Mn", "Cc")
        }
        assert set(text) - covered - invisible <= reported
        assert not reported & covered
        document.page(1).image()


def test_load_rejects_file_above_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("seer.rendering.documents.MAX_FILE_BYTES", 3)
    path = tmp_path / "large.txt"
    path.write_text("four")
    with pytest.raises(InputError, match="large.txt' is larger than 0 GB, the limit; split it"):
        load(str(path))


def test_stream_rejects_the_style_that_needs_the_whole_text():
    with pytest.raises(
        InputError, match="style='auto': needs the whole text, which a stream does not have; use a named"
    ):
        next(stream("text", "auto"))
