"""A written dataset is complete or absent, and replaces the remains of a stopped process."""

from __future__ import annotations

from pathlib import Path

import pytest

from seer.errors import InputError
from seer.rendering import load, render_text
from seer.rendering.output import write_dataset, write_pdf
from seer.schema import Document
from tests.rendering.makers import make_pdf, write_file


@pytest.fixture(scope="module")
def document() -> Document:
    return render_text("The total was 42.\n" * 60, name="report")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("leftover", ["folder", "file", "link"])
def test_write_dataset_replaces_remains_of_stopped_process(tmp_path: Path, document: Document, leftover: str) -> None:
    pytest.importorskip("datasets")
    folder, elsewhere = tmp_path / "rows", tmp_path / "elsewhere"
    elsewhere.mkdir()
    write_dataset(document, folder)
    expected = contents(folder)
    assert list(expected) == ["data/train-00000-of-00001.parquet"]
    (folder / "data" / "train-00001-of-00002.parquet").write_bytes(b"of an earlier run")
    (folder / "data" / "README.md").write_bytes(b"written by hand")
    partial = folder / ".data.partial"
    if leftover == "folder":
        (partial / "inner").mkdir(parents=True)
        (partial / "train-00000-of-00009.parquet").write_bytes(b"half")
    elif leftover == "file":
        partial.write_bytes(b"left")
    else:
        partial.symlink_to(elsewhere)
    write_dataset(document, folder)
    assert contents(folder) == expected | {"data/README.md": b"written by hand"}
    assert elsewhere.is_dir()


def test_write_dataset_replaces_lone_surrogates_in_text_and_name(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    parquet = pytest.importorskip("pyarrow.parquet")
    # A file name that is not valid UTF-8 reaches Python with lone surrogates.
    write_dataset(render_text("half \ud83d of a pair", name="caf\udce9.txt"), tmp_path)
    rows = parquet.read_table(tmp_path / "data").to_pylist()
    assert [(row["document"], row["text"]) for row in rows] == [("caf?.txt", "half ? of a pair")]


def test_write_pdf_rejects_a_document_with_its_own_pages(tmp_path: Path) -> None:
    own = load(write_file(tmp_path, "a.pdf", make_pdf(1)))
    with pytest.raises(InputError, match="'a.pdf' keeps its own pages .*; use --format png, or lay its text out with"):
        write_pdf(own, tmp_path / "out.pdf")
    assert not (tmp_path / "out.pdf").exists()
