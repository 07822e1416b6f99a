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


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("gb18030", "合同编号 4711，金额 1,000 元，于五月一日支付。"),
        ("gb18030", "价格是四十二克朗。请于五月付款。"),
        ("big5", "價格是四十二克朗。請於五月付款。"),
        ("shift_jis", "価格は四十二クローネです。五月に支払ってください。"),
        ("euc-kr", "가격은 사십이 크로나입니다. 오월에 지불하세요."),
        ("cp1251", "Цена сорок две кроны. Оплатите в мае."),
    ],
)
def test_load_guesses_clear_encoding_and_says_so(tmp_path, encoding, text):
    document = load(write_file(tmp_path, "a.txt", text.encode(encoding)))
    (warning,) = [warning for warning in document.warnings if warning.kind != "missing-glyph"]
    assert document.text == text and warning.kind == "encoding" and "--encoding" in warning.message
    assert load(tmp_path / "a.txt", encoding=encoding).text == text


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("koi8-r", "Цена сорок две кроны. Оплатите в мае."),
        ("latin-1", "Le prix est de quarante-deux couronnes, payé à l'été à Zürich."),
        ("iso-8859-2", "Cena je čtyřicet dva korun, zaplaťte v květnu."),
        ("latin-1", "café"),
    ],
)
def test_load_never_guesses_unclear_encoding(tmp_path, encoding, text):
    with pytest.raises(InputError, match="name its encoding, e.g. --encoding gb18030"):
        load(write_file(tmp_path, "a.txt", text.encode(encoding)))


def test_load_legacy_encoding_by_its_name(tmp_path):
    path = write_file(tmp_path, "a.txt", "价格 100 元".encode("gb18030"))
    assert load(path, encoding="gb18030").text == "价格 100 元"
    with pytest.raises(InputError, match="encoding .klingon. is unknown"):
        load(path, encoding="klingon")
    with pytest.raises(InputError, match="is not ascii"):
        load(path, encoding="ascii")


def test_decode_rejects_empty_data():
    with pytest.raises(InputError, match="'a.txt' is empty; use a document with at least one character"):
        decode(b"", name="a.txt")
