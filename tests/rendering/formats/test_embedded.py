"""Encoded files inside a text become short marks; everything else stays."""

from __future__ import annotations

import base64
import random
import time

import pytest

from seer.rendering.documents import load_bytes
from seer.rendering.formats.embedded import replace_embedded

BLOB = random.Random(7).randbytes(3000)
ENCODED = base64.b64encode(BLOB).decode()
LINES = base64.encodebytes(BLOB[:2998]).decode()


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (f"![a](data:image/png;base64,{ENCODED}) end", "![a]([data: image/png, 3,000 bytes]) end"),
        (f"url(DATA:font/woff2;charset=x;BASE64,{ENCODED});", "url([data: font/woff2, 3,000 bytes]);"),
        (f"Body:\n\n{LINES}\nBye\n", "Body:\n\n[data: base64, 2,998 bytes]\n\nBye\n"),
        (f'{{"png": "{ENCODED}"}}', '{"png": "[data: base64, 3,000 bytes]"}'),
        ('["' + LINES.replace("\n", "\\n") + '"]', '["[data: base64, 2,998 bytes]\\n"]'),
        (f"{ENCODED}\nConclusion follows", "[data: base64, 3,000 bytes]\nConclusion follows"),
        (f"{ENCODED} next", "[data: base64, 3,000 bytes] next"),
    ],
)
def test_replace_embedded_marks_encoded_files(text: str, right: str) -> None:
    extract = replace_embedded(text)
    assert extract.text == right
    [notice] = extract.notices
    assert notice.kind == "embedded-data" and notice.offset == right.index("[data:")


@pytest.mark.parametrize(
    "text",
    [
        f"-----BEGIN CERTIFICATE-----\n{LINES}-----END CERTIFICATE-----\n",
        "data:text/plain;base64,SGVsbG8=",
        f"token {ENCODED[:300]} end",
        "0123456789abcdef" * 200,
        "A" * 5000,
        "data:image/png;base64,",
        "word " * 2000,
    ],
)
def test_replace_embedded_keeps_other_text(text: str) -> None:
    assert replace_embedded(text).text == text


def test_replace_embedded_is_linear_in_hostile_text() -> None:
    for piece in ("-----BEGIN A-----", "data:a/b;", "A" * 59 + "\n", "data:" + "a/" * 40):
        start = time.perf_counter()
        replace_embedded(piece * (2_000_000 // len(piece)))
        assert time.perf_counter() - start < 10


def test_load_warns_of_embedded_data_with_its_page() -> None:
    document = load_bytes(f"Total 42.\n![a](data:image/png;base64,{ENCODED})\n".encode(), "a.md")
    assert len(document.pages) == 1
    assert [(warning.kind, warning.page) for warning in document.warnings] == [("embedded-data", 1)]
