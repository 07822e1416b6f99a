"""Reading order, scripts, hyphens and character maps of PDF pages."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from seer.rendering.documents import load_bytes
from seer.rendering.formats import scans
from seer.rendering.formats.pdf import load as pdfload
from seer.schema import Document

reportlab = pytest.importorskip("reportlab")
WORDS = "the harvest of apples in the valley was larger than in the year before and the price fell again".split()  # noqa: SIM905


def draw(*steps: Callable) -> bytes:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(buffer := io.BytesIO(), pagesize=(595, 842), pageCompression=0)
    for step in steps:
        step(canvas)
    canvas.save()
    return buffer.getvalue()


def rows(cells: list[list[str]], xs: list[int], y: int = 700, pitch: int = 16) -> Callable:
    """A step that writes a table row by row; each cell starts at its column's x."""

    def step(canvas) -> None:
        for number, row in enumerate(cells):
            for x, cell in zip(xs, row, strict=True):
                if cell:
                    canvas.drawString(x, y - pitch * number, cell)

    return step


def prose(start: int, lines: int) -> list[str]:
    """Lines of running text that differ from each other."""
    return [" ".join(WORDS[(start + k + j) % len(WORDS)] for j in range(6)) for k in range(lines)]


def read(data: bytes) -> Document:
    return load_bytes(data, "page.pdf", ocr="never", dpi=72)


def assert_spans_lead_to_their_place(document: Document) -> None:
    """The box of each word of the first page holds the same word when the PDF is asked for the text at that place."""
    page = document.page(1)
    for found in re.finditer(r"\w{4,}", page.text):
        boxes = page.span_boxes(page.start + found.start(), page.start + found.end())
        assert len(boxes) == 1
        # A word of n letters at 12 pt is between 2 and 12 points wide for each letter.
        assert 2 * len(found.group()) < boxes[0].width_px < 12 * len(found.group())


@pytest.mark.parametrize("count", [2, 3])
def test_load_columns_written_across_are_read_one_after_the_other(count):
    columns = [prose(5 * k, 8) for k in range(count)]
    xs = [40 + 190 * k if count == 3 else 60 + 260 * k for k in range(count)]
    shown = [[line[: 24 if count == 3 else 40] for line in column] for column in columns]
    document = read(draw(rows([list(row) for row in zip(*shown, strict=True)], xs)))
    assert document.text.splitlines() == [" ".join(line.split()) for column in shown for line in column]
    assert_spans_lead_to_their_place(document)


def test_load_headline_over_columns_stays_first_and_footer_last():
    headline = "A headline that runs over both columns of the page, from the left to the right"
    footer = "A footer that runs over both columns of the page as well, below everything else"
    body = [list(row) for row in zip(prose(0, 8), prose(7, 8), strict=True)]
    document = read(draw(rows([[headline]], [60], y=760), rows(body, [60, 330]), rows([[footer]], [60], y=400)))
    lines = document.text.splitlines()
    assert (lines[0], lines[-1]) == (headline, footer)
    assert lines[1:-1] == prose(0, 8) + prose(7, 8)


def test_load_columns_written_in_order_are_left_in_order():
    left, right = rows([[line] for line in prose(0, 8)], [60]), rows([[line] for line in prose(7, 8)], [330])
    assert read(draw(left, right)).text.splitlines() == prose(0, 8) + prose(7, 8)


TABLE = [
    ["Item", "Count", "Price", "Total"],
    ["Lamp", "", "10.00", "10.00"],
    ["Chair", "3", "", "30.00"],
    ["", "", "", "40.00"],
]


def test_load_table_keeps_empty_cells_visible():
    document = read(draw(rows(TABLE, [72, 172, 272, 372])))
    assert document.text.splitlines() == ["\t".join(row) for row in TABLE]
    assert_spans_lead_to_their_place(document)


def test_load_table_column_by_column_is_read_by_rows():
    steps = [rows([[row[k]] for row in TABLE], [72 + 100 * k]) for k in range(4)]
    assert read(draw(*steps)).text.splitlines() == ["\t".join(row) for row in TABLE]


def test_load_table_within_one_piece_of_text_keeps_gaps():
    def spaced(canvas) -> None:
        for number, row in enumerate(
            [["Lamp", "10.00", "12.00"], ["Chair", "30.00", "36.00"], ["Desk", "8.00", "9.50"]]
        ):
            # One piece of text whose cells are pushed apart, as TeX writes tables.
            parts = " -9000 ".join(f"({cell})" for cell in row)
            canvas._code.append(f"BT /F1 12 Tf 72 {600 - 16 * number} Td [{parts}] TJ ET")

    def text(canvas) -> None:
        for number, one in enumerate(prose(0, 6)):
            canvas.drawString(72, 760 - 16 * number, one)

    assert "Lamp\t10.00\t12.00\nChair\t30.00\t36.00\nDesk\t8.00\t9.50\n" in read(draw(text, spaced)).text


def test_load_centred_headings_belong_to_their_columns():
    head = rows([["Item", "Count"]], [110, 300], y=716)
    body = rows([["Lamp", "3"], ["Chair", "14"], ["Desk", "5"]], [60, 345])
    assert read(draw(head, body)).text.splitlines() == ["Item\tCount", "Lamp\t3", "Chair\t14", "Desk\t5"]


def test_load_header_line_does_not_make_a_table():
    header = rows([["Chapter 3: Utilities", "7"]], [72, 500], y=780)
    document = read(draw(header, rows([[one] for one in prose(0, 8)], [72])))
    assert document.text.split("the harvest")[0].split() == ["Chapter", "3:", "Utilities", "7"]
    assert document.text.splitlines()[-8:] == prose(0, 8)


def script(text: str, x: float, rise: float, size: float) -> Callable:
    def step(canvas) -> None:
        canvas.setFont("Helvetica", size)
        canvas.drawString(x, 700 + rise, text)
        canvas.setFont("Helvetica", 12)

    return step


def test_load_superscripts_and_subscripts_are_no_digits_of_the_number():
    from reportlab.pdfbase.pdfmetrics import stringWidth

    def after(text: str) -> float:
        return 72 + stringWidth(text, "Helvetica", 12)

    start = rows([["It weighs 10"]], [72])
    document = read(
        draw(start, script("6", after("It weighs 10"), 5, 8), script(" tons of H", after("It weighs 10") + 5, 0, 12))
    )
    assert document.text == "It weighs 10⁶ tons of H\n"
    place = document.text.index("⁶")
    (box,) = document.page(1).span_boxes(place, place + 1)
    assert box.x_px == pytest.approx(after("It weighs 10"), abs=1)
    assert (
        read(draw(rows([["H"]], [72]), script("2", after("H"), -3, 8), script("O", after("H") + 5, 0, 12))).text
        == "H₂O\n"
    )


def test_load_line_that_ends_with_a_hyphen_keeps_its_end():
    lines = [["The contract names the represen-"], ["tative as Ms Over-"], ["street."]]
    document = read(draw(rows(lines, [72])))
    assert document.text == "The contract names the represen-\ntative as Ms Over-\nstreet.\n"
    boxes = document.page(1).line_boxes()
    assert [document.text[one.start : one.end] for one in boxes] == document.text.splitlines(keepends=True)
    assert boxes[0].width_px > boxes[1].width_px > boxes[2].width_px


def with_lying_map(change: Callable[[int], int]) -> bytes:
    """A PDF whose letters are drawn right, and whose ToUnicode map is changed."""
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont

    pdfmetrics.registerFont(TTFont("Vera", str(Path(reportlab.__file__).parent / "fonts" / "Vera.ttf")))

    def step(canvas) -> None:
        canvas.setFont("Vera", 11)
        for number in range(6):
            canvas.drawString(
                72, 750 - 14 * number, f"The total of bill {number} is 1,234.5{number} crowns, due in thirty days."
            )

    data = draw(step)
    first, last = data.index(b"beginbfchar"), data.index(b"endcmap")

    def entry(found: re.Match[bytes]) -> bytes:
        return b"<%s> <%04X>" % (found[1], change(int(found[2], 16)))

    return data[:first] + re.sub(rb"<([0-9A-F]+)> <([0-9A-F]{4})>", entry, data[first:last]) + data[last:]


LIES = {
    "shifted by one": lambda code: code + 1 if 97 <= code < 122 else code,
    "shifted back": lambda code: code - 1 if 98 <= code <= 122 else code,
    "reversed": lambda code: 219 - code if 97 <= code <= 122 else code,
    "control characters": lambda code: code - 96 if 97 <= code <= 122 else code,
    "private use": lambda code: code + 0xF000 if 97 <= code <= 122 else code,
    "cyrillic": lambda code: code - 97 + 0x430 if 97 <= code <= 122 else code,
}


@pytest.mark.parametrize("change", LIES.values(), ids=LIES)
def test_load_wrong_character_map_is_reported_or_read_by_ocr(change, monkeypatch):
    data = with_lying_map(change)
    (warning,) = read(data).warnings
    assert (warning.kind, warning.page) == ("character-map", 1) and "--ocr always" in warning.message
    monkeypatch.setattr(pdfload, "ocr_installed", lambda: False)
    assert [one.kind for one in load_bytes(data, "page.pdf").warnings] == ["character-map"]
    monkeypatch.setattr(pdfload, "ocr_installed", lambda: True)
    monkeypatch.setattr(
        pdfload, "read_picture", lambda image: [scans.ReadLine("The total of bill 0", 0.1, 0.1, 0.5, 0.2)]
    )
    document = load_bytes(data, "page.pdf")
    assert document.text == "The total of bill 0\n"
    assert "read by OCR" in document.warnings[0].message


RIGHT = {
    "english": prose(0, 8),
    "codes": [
        "bdfhkl gpqy aceomn x7f-09ab-QLKH",
        "dGhlIGJhc2U2NCBibG9iIGlzIG5vdCBhIGxpZQ==",
        "hgfdk lmnop qrstu vwxyz",
    ],
    "capitals": [line.upper() for line in prose(0, 8)],
    "numbers": ["1,234.50 2,345.60 3,456.70"] * 4,
}


@pytest.mark.parametrize("lines", RIGHT.values(), ids=RIGHT)
@pytest.mark.parametrize("font", ["Helvetica", "Times-Italic", "Courier", "Vera"])
def test_load_right_character_map_raises_no_alarm(lines, font):
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont

    pdfmetrics.registerFont(TTFont("Vera", str(Path(reportlab.__file__).parent / "fonts" / "Vera.ttf")))

    def step(canvas) -> None:
        canvas.setFont(font, 11)
        for number, one in enumerate(lines):
            canvas.drawString(72, 750 - 14 * number, one)

    document = read(draw(step))
    assert document.text.splitlines() == lines and not document.warnings
