"""`seer render`, `seer plan` and `seer cache` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from seer.cli.cache import cache
from seer.cli.plan import plan
from seer.cli.progress import print_warnings
from seer.cli.render import render
from seer.errors import InputError, SeerError
from seer.rendering import checking, output, render_text
from seer.rendering.formats import scans
from seer.schema import DocumentWarning

app = typer.Typer()
for command in (render, plan, cache):
    app.command()(command)


def run(*arguments: str | Path, stdin: bytes | None = None):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    if isinstance(result.exception, SeerError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.txt"
    path.write_text("A line of the report, with 中文 in it.\n" * 300, encoding="utf-8")
    return path


def test_render_writes_pages_text_and_manifest_last(report, tmp_path):
    out = tmp_path / "pages"
    run("render", report, "-o", out, "--contact-sheet", tmp_path / "sheet.png")
    manifest = json.loads((out / "manifest.json").read_text())
    document = render_text(report.read_text(encoding="utf-8"))
    assert (out / "text.txt").read_text(encoding="utf-8") == document.text
    assert [page["content_hash"] for page in manifest["pages"]] == [page.content_hash for page in document]
    for record, page in zip(manifest["pages"], document, strict=True):
        assert (np.array(Image.open(out / record["file"])) == page.image()).all()
        assert document.text[record["start"] : record["end"]] == page.text
    assert Image.open(tmp_path / "sheet.png").width > 400


def test_render_with_several_processes_writes_the_same_files(report, tmp_path):
    run("render", report, "-o", tmp_path / "one")
    run("render", report, "-o", tmp_path / "two", "-j", 2)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_render_with_json_prints_the_manifest_of_a_changed_style(report, tmp_path):
    result = run(
        "render", report, "-o", tmp_path / "o", "--style", "auto", "--style-option", "font_size_pt=8", "--json"
    )
    record = json.loads(result.stdout)
    assert record["style"]["font_size_pt"] == 8 and record["style"]["name"].startswith("auto:")
    assert record["vision_tokens"] == sum(page["vision_tokens"] for page in record["pages"])


def test_render_writes_pdf_and_dataset(report, tmp_path):
    run("render", report, "-o", tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF-")
    datasets = pytest.importorskip("datasets")
    run("render", report, "-o", tmp_path / "rows", "--format", "hf")
    rows = datasets.load_dataset(str(tmp_path / "rows"), split="train", cache_dir=str(tmp_path / "cache"))
    assert "".join(rows["text"]) == report.read_text(encoding="utf-8")
    assert rows[0]["image"].size == (595, 842)


@pytest.mark.parametrize("whole_shards", [0, 1, 2])
@pytest.mark.parametrize("rendered_before", [True, False])
def test_render_interrupted_leaves_the_former_dataset_or_none(
    report, tmp_path, monkeypatch, whole_shards, rendered_before
):
    datasets = pytest.importorskip("datasets")
    out, cache = tmp_path / "rows", str(tmp_path / "cache")
    if rendered_before:
        output.write_dataset(render_text("A former text."), out)
        (out / "data" / "notes.md").write_text("kept")
    monkeypatch.setattr(output, "_SHARD_PAGES", 1)
    write, written = Path.write_bytes, []

    def dying(path: Path, data: bytes) -> None:
        if len(written) == whole_shards:
            write(path, data[:-8])
            raise KeyboardInterrupt
        written.append(write(path, data))

    document = render_text(report.read_text(encoding="utf-8"))
    monkeypatch.setattr(Path, "write_bytes", dying)
    with pytest.raises(KeyboardInterrupt):
        output.write_dataset(document, out)
    monkeypatch.setattr(Path, "write_bytes", write)
    if rendered_before:
        assert datasets.load_dataset(str(out), split="train", cache_dir=cache)["text"] == ["A former text."]
    else:
        with pytest.raises(FileNotFoundError):
            datasets.load_dataset(str(out), split="train", cache_dir=cache)
    output.write_dataset(document, out)
    rows = datasets.load_dataset(str(out), split="train", cache_dir=cache)
    assert "".join(rows["text"]) == document.text
    assert [path.name for path in out.iterdir()] == ["data"]
    assert (out / "data" / "notes.md").exists() == rendered_before


def test_render_with_compare_writes_one_image(report, tmp_path):
    run("render", report, "--compare", "seer", "dense", "-o", tmp_path / "both.png")
    assert Image.open(tmp_path / "both.png").width > 700


def test_render_reports_missing_glyphs_of_standard_input(tmp_path):
    result = run("render", "-", "-o", tmp_path / "o", stdin="x \U0001f9ec".encode())
    assert "U+1F9EC" in result.stderr
    with pytest.raises(SeerError, match="U\\+1F9EC"):
        run("render", "-", "-o", tmp_path / "o", "--strict-glyphs", stdin="x \U0001f9ec".encode())


def test_plan_compares_styles(report):
    record = json.loads(run("plan", report, "--styles", "seer,dense,auto", "--json").stdout)
    seer, dense, auto = record["styles"]
    assert seer["vision_tokens"] > dense["vision_tokens"]
    assert auto["vision_tokens"] <= seer["vision_tokens"]
    assert seer["ratio"] == pytest.approx(seer["text_tokens"] / seer["vision_tokens"], abs=1e-3)
    assert "vision tokens" in run("plan", report).stdout


def test_plan_shows_newline_decision_of_the_document(tmp_path):
    for name, line, newline, reason in (
        ("mail.txt", "The bridge has to be repaired before the winter, they wrote.", "mark", "of the text is in lines"),
        ("code.py", "total = total + 1", "break", "100% of the lines are code or tables"),
    ):
        (tmp_path / name).write_text(f"{line}\n" * 90)
        shown = run("plan", tmp_path / name).stdout
        assert f"Newlines of this document: {newline}, because" in shown and reason in shown
        record = json.loads(run("plan", tmp_path / name, "--styles", "seer,paper", "--json").stdout)
        assert record["newline"]["newline"] == newline and reason in record["newline"]["reason"]
        assert [row["layout"] for row in record["styles"]] == ["seer", f"paper:{newline}"]
        assert (record["styles"][0]["pages"] > record["styles"][1]["pages"]) == (newline == "mark")


def test_render_with_font_option_draws_that_font(report, tmp_path):
    run("render", report, "-o", tmp_path / "pages", "--font", "DroidSansFallback", "--style", "paper")
    style = json.loads((tmp_path / "pages" / "manifest.json").read_text())["style"]
    assert style["fonts"] == ["DroidSansFallback", "DejaVuSans"] and style["newline"] == "mark"
    with pytest.raises(InputError, match="font 'No Such Font' is neither bundled"):
        run("render", report, "--font", "No Such Font")


def test_plan_of_a_pdf_includes_its_own_pages(report, tmp_path):
    run("render", report, "-o", tmp_path / "report.pdf")
    record = json.loads(run("plan", tmp_path / "report.pdf", "--styles", "seer", "--json").stdout)
    own, seer = record["styles"]
    assert own["style"] == "pdf" and own["pages"] == len(render_text(report.read_text(encoding="utf-8")).pages)
    assert own["vision_tokens"] > seer["vision_tokens"]


def test_cache_holds_rendered_pages_of_a_pdf(report, tmp_path, monkeypatch):
    monkeypatch.setenv("SEER_CACHE_DIR", str(tmp_path / "cache"))
    run("render", report, "-o", tmp_path / "report.pdf")
    run("render", tmp_path / "report.pdf", "-o", tmp_path / "pages", "--pages", "1-2")
    assert json.loads(run("cache", "info", "--json").stdout)["pages"] == 2
    assert json.loads(run("cache", "clear", "--json").stdout)["removed"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["render", "missing.txt"], "no document at"),
        (["render", "REPORT", "--style", "sear"], "did you mean 'seer'"),
        (["render", "REPORT", "--style-option", "font_siz=3"], "font_size_pt"),
        (["render", "REPORT", "--format", "gif"], "png, pdf or hf"),
        (["render", "REPORT", "-o", "REPORT"], "is a file"),
        (["render", "REPORT", "--pages", "900"], "document.s pages, 1 to"),
        (["plan", "REPORT", "--styles", "nope"], "style 'nope' is unknown"),
        (["cache", "purge"], "info or clear"),
    ],
)
def test_command_rejects_bad_options_with_a_remedy(report, arguments, message):
    with pytest.raises(SeerError, match=message):
        run(*[str(report) if argument == "REPORT" else argument for argument in arguments])


def test_plan_reports_whether_rendering_pays(tmp_path):
    from seer.rendering.plan import PAGE_OVERHEAD_TOKENS, reading_tokens

    assert reading_tokens(1000, 1, 600) == 600 + PAGE_OVERHEAD_TOKENS + 1000
    assert reading_tokens(10_000, 10, 6000) == 6000 + 10 * PAGE_OVERHEAD_TOKENS + 1590
    (tmp_path / "short.txt").write_text("A few words.\n")
    (tmp_path / "long.txt").write_text("A sentence of a much longer document, said again. " * 4000)
    for name, pays in (("short.txt", False), ("long.txt", True)):
        (row,) = json.loads(run("plan", tmp_path / name, "--styles", "seer", "--json").stdout)["styles"]
        assert row["pays"] is pays
        assert ("Rendering pays" if pays else "does not pay") in run("plan", tmp_path / name).stdout


def test_render_reports_eight_missing_characters_and_counts_the_others(tmp_path):
    emoji = "".join(chr(0x1F9E0 + k) for k in range(11))
    result = run("render", "-", "-o", tmp_path / "o", "--json", stdin=emoji.encode())
    (line,) = [line for line in result.stderr.splitlines() if "no font covers" in line]
    assert line.count("U+") == 8 and "and 3 more: drawn as boxes" in line
    (warning,) = json.loads(result.stdout)["warnings"]
    assert warning == {"kind": "missing-glyph", "message": line.removeprefix("warning: "), "page": None}


def test_print_warnings_prints_each_message_once_with_its_pages(capsys):
    document = render_text("words " * 9000)
    warnings = [DocumentWarning(kind="formula", message="a formula is lost", page=n) for n in (1, 2)]
    print_warnings(document.model_copy(update={"warnings": (*warnings, DocumentWarning(kind="name", message="odd"))}))
    assert capsys.readouterr().err == "warning: pages 1, 2: a formula is lost\nwarning: odd\n"


def write_pdf_page(path: Path, *lines: str) -> Path:
    canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas(str(path))
    for number, line in enumerate(lines):
        canvas.drawString(72, 750 - 16 * number, line)
    canvas.save()
    return path


def test_render_check_of_equal_pages_ends_with_zero(tmp_path, monkeypatch):
    path = write_pdf_page(tmp_path / "a.pdf", "The fee is 90 crowns a month.", "The deposit is 180 crowns.")
    seen = [
        scans.ReadLine("The fee is 90 crowns a rnonth.", 0, 0, 1, 1),
        scans.ReadLine("The deposit is180 crowns.", 0, 0, 1, 1),
    ]
    monkeypatch.setattr(scans, "ocr_installed", lambda: True)
    monkeypatch.setattr(checking, "read_picture", lambda image: seen)
    result = json.loads(run("render", path, "--check", "--json").stdout.splitlines()[-1])
    assert result["differing"] == 0 and result["pages"][0]["score"] > checking.MIN_SCORE
    assert not (tmp_path / "a-pages").exists()


def test_render_check_lists_what_only_one_side_has(tmp_path, monkeypatch):
    path = write_pdf_page(tmp_path / "a.pdf", "The fee is 90 crowns a month.", "The deposit is 180 crowns.")
    seen = [
        scans.ReadLine("The fee is 95 crowns a month.", 0, 0, 1, 1),
        scans.ReadLine("\x1b[31mEller Example 4711", 0, 0, 1, 1),
    ]
    monkeypatch.setattr(scans, "ocr_installed", lambda: True)
    monkeypatch.setattr(checking, "read_picture", lambda image: seen)
    result = CliRunner().invoke(app, ["render", str(path), "--check"])
    assert result.exit_code == 4
    assert (
        "only in the picture:" in result.output
        and "Eller Example 4711" in result.output
        and "\x1b" not in result.output
    )
    assert "only in the text: The deposit is 180 crowns." in result.output
    assert "1 of 1 page differ" in result.output


def test_render_check_without_ocr_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(scans, "ocr_installed", lambda: False)
    with pytest.raises(InputError, match=r"seer-vlm\[ocr\]"):
        run("render", write_pdf_page(tmp_path / "a.pdf", "text " * 20), "--check")


def test_render_check_by_real_ocr_finds_a_wrong_character_map(tmp_path):
    pytest.importorskip("rapidocr", reason="needs the extra ocr")
    path = write_pdf_page(tmp_path / "a.pdf", "The fee is 90 crowns a month.", "The deposit is 180 crowns.")
    assert "0 of 1 page differ" in run("render", path, "--check").output
