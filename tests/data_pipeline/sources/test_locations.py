"""Locations of records: tables, folders, saved and streamed datasets. Only train splits are accepted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from data_pipeline.settings import SourceSpec
from data_pipeline.sources.registry import load_source
from seer.errors import ConfigError, DocumentNotFound, InputError
from tests.data_pipeline.sources.test_shapes import marked, one, read


def test_load_source_table_maps_columns(tmp_path: Path) -> None:
    row = {"q": "How many?", "text": "There are two. Or three.", "gold": "two", "ev": [[10, 13]], "n": 5}
    columns = {"question": "q", "context": "text", "answers": "gold", "evidence": "ev", "id": "n"}
    for name in ("train.jsonl", "train.parquet"):
        sample = one(read(tmp_path, "table", [row], name, map=columns))
        assert (sample.id, marked(sample)) == ("5", ["two"])
    plain = {"question": "How many?", "context": "There are two.", "answer": "two", "evidence": "are two"}
    assert marked(one(read(tmp_path, "table", [plain]))) == ["are two"]


def test_load_source_reads_saved_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [{"question": "How many?", "context": "There are two.", "answers": ["two"]}]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "plain"))
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(str(tmp_path / "splits"))
    for name in ("plain", "splits"):
        assert one(list(load_source(SourceSpec(path=str(tmp_path / name), split="train")))).answers == ("two",)


def test_load_source_streams_hub_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set" / "data").mkdir(parents=True)
    rows = [{"question": "How many?", "context": "There are two.", "answers": ["two"]}]
    # `datasets` loads a folder in the hub's layout by the same call as a name on the hub.
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "set" / "data" / "train-00000-of-00001.parquet")
    sample = one(list(load_source(SourceSpec(path=f"hub:{tmp_path / 'set'}", split="train"))))
    assert sample.answers == ("two",)


def test_load_source_reads_folder_in_name_order(tmp_path: Path) -> None:
    for n in (2, 1):
        row = {"id": str(n), "question": "?x", "context": "text", "answers": ["a"]}
        (tmp_path / f"part-{n}.jsonl").write_text(json.dumps(row) + "\n")
    assert [item.id for item in load_source(SourceSpec(path=str(tmp_path), split="train"))] == ["1", "2"]


def test_load_source_folder_with_all_splits_reads_requested_split(tmp_path: Path) -> None:
    """A downloaded set has all splits in one folder; its test split must not enter training."""
    names = (
        "data/train-00000-of-00001",
        "data/validation-00000-of-00001",
        "test-00000",
        "devset/search",
        "more/part-1",
    )
    for name in names:
        row = {"id": name, "question": "?x", "context": "text", "answers": ["a"]}
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "devset" / "search.jsonl").rename(tmp_path / "dev" / "search.jsonl")

    def ids(split: str) -> list[str]:
        spec = SourceSpec(path=str(tmp_path), split=split, allow_other_splits=split != "train")
        return [item.id for item in load_source(spec)]

    assert ids("train") == ["data/train-00000-of-00001", "more/part-1"]
    assert ids("validation") == ["data/validation-00000-of-00001", "devset/search", "more/part-1"]
    assert ids("test") == ["more/part-1", "test-00000"]
    for name in ("data", "more"):
        shutil.rmtree(tmp_path / name)
    with pytest.raises(InputError, match="only files of other splits than 'train', e.g. .*; give that split's"):
        ids("train")


def test_load_source_unanswerable_table_row_needs_no_answer(tmp_path: Path) -> None:
    row = {"question": "How many?", "context": "There are two.", "answerable": False}
    sample = one(read(tmp_path, "table", [row]))
    assert (sample.answerable, sample.answers, sample.evidence) == (False, ("unanswerable",), ())


# ── Only train splits ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "name", ["hotpot_dev_distractor_v1.json", "validation-00000.jsonl", "test.jsonl", "musique_dev.jsonl"]
)
def test_load_source_rejects_other_split(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("[]")
    with pytest.raises(ConfigError, match="only train splits"):
        list(load_source(SourceSpec(path=str(tmp_path / name))))


def test_load_source_requires_stated_split(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("")
    with pytest.raises(ConfigError, match="does not state its split"):
        list(load_source(SourceSpec(path=str(tmp_path / "data.jsonl"))))
    with pytest.raises(ConfigError, match="'dev'"):
        list(load_source(SourceSpec(path=str(tmp_path / "data.jsonl"), split="dev")))
    assert list(load_source(SourceSpec(path=str(tmp_path / "data.jsonl"), split="dev", allow_other_splits=True))) == []


def test_load_source_unknown_source_or_path_fails(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'hotpotqa'"):
        list(load_source(SourceSpec(kind="hotpotq", path="train.json")))
    with pytest.raises(DocumentNotFound, match=r"no data at .*train\.json"):
        list(load_source(SourceSpec(path=str(tmp_path / "train.json"))))
    (tmp_path / "train.txt").write_text("x")
    with pytest.raises(InputError, match="unsupported file type"):
        list(load_source(SourceSpec(path=str(tmp_path / "train.txt"))))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no"):
        list(load_source(SourceSpec(path=str(tmp_path / "empty"), split="train")))
