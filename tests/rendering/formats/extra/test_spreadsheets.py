"""Excel workbooks and CSV files: cells as the sheet shows them."""

from __future__ import annotations

import datetime
import io

import pytest

from seer.rendering.formats.extra.numbers import shown
from tests.rendering.formats.extra.test_extra import kinds, read


def workbook(fill) -> bytes:
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra formats")
    book = openpyxl.Workbook()
    fill(book)
    book.save(buffer := io.BytesIO())
    return buffer.getvalue()


def test_load_xlsx_shows_cells_as_the_sheet_does():
    def fill(book) -> None:
        sheet = book.active
        sheet.title = "Stock"
        for row in (
            ["Item", "Count", "Price", "Share", "Since"],
            ["Lamp", None, 10.5, 0.256, datetime.date(2026, 5, 3)],
        ):
            sheet.append(row)
        sheet["C2"].number_format, sheet["D2"].number_format = "#,##0.00", "0.0%"
        sheet["E2"].number_format = "dd.mm.yyyy"
        sheet["A4"], sheet["C4"] = "Total", 1234.5
        sheet["C4"].number_format = '#,##0.00 "EUR"'

    document = read(workbook(fill), "a.xlsx")
    assert document.text.splitlines() == [
        "Sheet: Stock",
        "Item\tCount\tPrice\tShare\tSince",
        "Lamp\t\t10.50\t25.6%\t03.05.2026",
        "Total\t\t1,234.50 EUR",
    ]
    assert not document.warnings


def test_load_xlsx_leaves_out_and_reports_what_is_hidden():
    def fill(book) -> None:
        sheet = book.active
        for row in (["a", "secret column", "c"], ["secret row", "x", "y"], ["d", "e", "f"]):
            sheet.append(row)
        sheet.column_dimensions["B"].hidden = True
        sheet.row_dimensions[2].hidden = True
        book.create_sheet("Secret").append(["secret sheet"])
        book["Secret"].sheet_state = "hidden"

    document = read(workbook(fill))
    assert document.text.splitlines()[1:] == ["a\tc", "d\tf"]
    messages = " ".join(warning.message for warning in document.warnings)
    assert kinds(document) == ["hidden-text", "hidden-text"] and "“Secret”" in messages and "secret column" in messages


def test_load_xlsx_formula_without_a_value_is_shown_itself():
    def fill(book) -> None:
        book.active.append([1, 2, "=A1+B1"])

    document = read(workbook(fill))
    assert document.text.splitlines()[1] == "1\t2\t=A1+B1" and kinds(document) == ["formula"]


def test_load_xlsx_merged_cells_and_comments():
    def fill(book) -> None:
        from openpyxl.comments import Comment

        sheet = book.active
        sheet.append(["wide", None, "c"])
        sheet.merge_cells("A1:B1")
        sheet["C1"].comment = Comment("ask the bank", "A")

    assert read(workbook(fill)).text.splitlines()[1] == "wide\t\tc [comment: ask the bank]"


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (1234567.891, "#,##0.00", "1,234,567.89"), (-5, "0.00", "-5.00"), (-5, "0;(0)", "(5)"), (0, '0;-0;"none"', "none"),
        (0.5, "0%", "50%"), (0.1 + 0.2, "General", "0.3"), (3.0, "General", "3"), (7, "000", "007"), (1.5, "0.0#", "1.5"),
        (99, "[$€-407] #,##0", "€ 99"), (12, '"No. "0', "No. 12"), (1_500_000, "0.0,,", "1.5"), (True, "General", "TRUE"),
        (1e20, "General", "1e+20"), (-0.001, "0.00", "0.00"), ("text", "@", "text"), (None, "General", ""),
        (datetime.datetime(2026, 1, 2, 15, 4, 5), "d/m/yy h:mm", "2/1/26 15:04"),
        (datetime.datetime(2026, 1, 2, 15, 4, 5), "yyyy-mm-dd hh:mm:ss", "2026-01-02 15:04:05"),
        (datetime.time(15, 4), "h:mm AM/PM", "3:04 PM"), (datetime.date(2026, 1, 2), "mmm d, yyyy", "Jan 2, 2026"),
        (datetime.date(2026, 1, 2), "General", "2026-01-02"), (datetime.timedelta(hours=30, minutes=5), "[h]:mm:ss", "30:05:00"),
    ],
)  # fmt: skip
def test_shown_is_what_a_spreadsheet_shows(value, form, text):
    assert shown(value, form) == text


@pytest.mark.parametrize(
    ("data", "name", "text"),
    [
        ('a,"b, c",d\n1,,3\n', "a.csv", "a\tb, c\td\n1\t\t3\n"),
        ("a;b\n1,5;2\n", "a.csv", "a\tb\n1,5\t2\n"),
        ("a\tb\n1\t2\n", "a.tsv", "a\tb\n1\t2\n"),
        ('"two\nlines",x\ny,z\n', "a.csv", "two lines\tx\ny\tz\n"),
        ("plain text, with a comma\n", "a.txt", "plain text, with a comma\n"),
    ],
)
def test_load_csv_has_a_tab_between_fields(data, name, text):
    assert read(data.encode(), name).text == text
