"""Records of document-QA benchmarks, and the extraction of short answers."""

from __future__ import annotations

import pytest

from seer.errors import InputError
from seer.evaluation.benchmarks.docqa import (
    extraction_prompt,
    read_docqa,
    read_extraction,
)


def test_read_extraction_finds_short_answer():
    prompt = extraction_prompt("How many?", "I counted eight of them.")
    assert "How many?" in prompt
    assert "eight" in prompt
    assert read_extraction("Extracted answer: 8\nAnswer format: Int") == "8"
    assert read_extraction("Well.\nextracted answer: ['a',\n 'b']\n") == "['a',\n 'b']"
    assert read_extraction("I do not know") is None
    assert read_extraction("Extracted answer: \nAnswer format: None") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "needs an object with question"),
        ('[{"question": "a", "answer": "b", "answer_format": "Date"}]', "unknown answer format 'Date'"),
        (
            '[{"question": "a", "answer": "b", "answer_format": "Int", "evidence_pages": "x("}]',
            "is not a list; write it as one",
        ),
        ("[", "cannot be read as JSON: .*; give the benchmark's file of questions"),
    ],
)
def test_read_docqa_rejects_invalid_file(tmp_path, content, message):
    path = tmp_path / "gold.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_docqa(path)
    with pytest.raises(InputError, match="no file of questions at"):
        read_docqa(tmp_path / "none.json")
