"""Word documents: paragraphs and tables as text, and limits for hostile files."""

from __future__ import annotations

import pytest

from seer.errors import InputError
from seer.rendering import load
from seer.rendering.formats.office import package
from tests.rendering.makers import WORD, make_docx, write_file


def test_load_docx_returns_paragraphs_and_tables(tmp_path):
    body = (
        f"<w:document {WORD}><w:body><w:p><w:r><w:t>Hello</w:t><w:tab/><w:t>there</w:t></w:r></w:p>"
        "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins><w:r><w:t>new</w:t></w:r></w:ins></w:p>"
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr>"
        "</w:tbl></w:body></w:document>"
    )
    assert load(write_file(tmp_path, "no-suffix", make_docx(body))).text == "Hello\tthere\nnew\na\tb\n"


def test_load_docx_nested_table_appears_once(tmp_path):
    def cell(*inside: str) -> str:
        return f"<w:tc>{''.join(inside)}</w:tc>"

    def paragraph(text: str) -> str:
        return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"

    wrapped = f"<w:sdt><w:sdtContent>{cell(paragraph('d'))}</w:sdtContent></w:sdt>"
    inner = f"<w:tbl><w:tr>{cell(paragraph('c'))}{wrapped}</w:tr></w:tbl>"
    outer = f"<w:tbl><w:tr>{cell(paragraph('a'), inner, paragraph('z'))}{cell(paragraph('b'))}</w:tr></w:tbl>"
    body = f"<w:document {WORD}><w:body>{outer}</w:body></w:document>"
    assert load(write_file(tmp_path, "nested.docx", make_docx(body))).text == "a c d z\tb\n"


def test_load_rejects_hostile_docx(tmp_path, monkeypatch):
    monkeypatch.setattr(package, "MAX_XML_BYTES", 1 << 20)
    for body, message in (
        ("<a>" + " " * (2 << 20) + "</a>", "unpacks to more than 1 MB"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>', "document type"),
        ("<a>" * 20_000 + "</a>" * 20_000, "too deeply"),
        ("<a><b></a>", "damaged"),
    ):
        with pytest.raises(InputError, match=message):
            load(write_file(tmp_path, "x.docx", make_docx(body)))


def test_load_docx_keeps_breaks_and_hyphens(tmp_path):
    run = "<w:r><w:t>a</w:t><w:br/><w:t>b</w:t><w:noBreakHyphen/><w:t>c</w:t></w:r>"
    body = f"<w:document {WORD}><w:body><w:p>{run}</w:p></w:body></w:document>"
    assert load(write_file(tmp_path, "a.docx", make_docx(body))).text == "a\nb\u2011c\n"


def test_load_rejects_docx_with_a_password(tmp_path):
    data = bytearray(make_docx("<a/>"))
    # The lowest bit of the flags marks an encrypted member, in its own header and in the archive's directory.
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(InputError, match="'a.docx' cannot be unpacked .*; save it without a password"):
        load(write_file(tmp_path, "a.docx", bytes(data)))
