"""Text files: their bytes are decoded exactly, or rejected with a clear error."""

from __future__ import annotations

import pytest

from seer.errors import InputError
from seer.rendering import load
from seer.rendering.formats.text import decode
from tests.rendering.makers import write_file


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb\rc\n", "a\r\nb\rc\n"),
        ("\ufeffmarked".encode(), "\ufeffmarked"),
        ("wide é".encode("utf-16"), "\ufeffwide é"),
        ("wide é".encode("utf-32"), "\ufeffwide é"),
        (b"form\ffeed \x1b[0m", "form\ffeed \x1b[0m"),
    ],
)
def test_load_text_file_keeps_every_byte(tmp_path, data, text):
    document = load(write_file(tmp_path, "a.txt", data))
    assert document.text == text and document.name == "a.txt"


def test_load_legacy_encoding_requires_its_name(tmp_path):
    path = write_file(tmp_path, "a.txt", "价格 100 元".encode("gb18030"))
    with pytest.raises(InputError, match="gb18030"):
        load(path)
    assert load(path, encoding="gb18030").text == "价格 100 元"
    with pytest.raises(InputError, match="encoding .klingon. is unknown"):
        load(path, encoding="klingon")
    with pytest.raises(InputError, match="is not ascii"):
        load(path, encoding="ascii")


def test_decode_rejects_empty_data():
    with pytest.raises(InputError, match="'a.txt' is empty; use a document with at least one character"):
        decode(b"", name="a.txt")
