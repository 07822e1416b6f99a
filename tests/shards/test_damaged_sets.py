"""Trajectory sets whose manifest, files and records disagree: every reader names the file, the fault and the remedy."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seer.errors import InputError
from seer.protocol.turns import observation
from seer.schema import Excerpt, PageStyle, Trajectory, Turn
from seer.shards.reader import MANIFEST_NAME, ShardSet, ShardWriter, write_shards


def make(n: int) -> Trajectory:
    turns = (
        Turn(kind="prompt", text=f"Question {n}?", pages=(1,)),
        Turn(kind="call", pages=(1,)),
        observation([Excerpt(page=1, start=0, text="Some text.")]),
        Turn(kind="answer", text=str(n)),
    )
    return Trajectory(id=f"t/{n}", source="Some text.", style=PageStyle(), turns=turns, relevant_pages=(1,), answers=())


def rewrite_manifest(folder: Path, **changes: Any) -> None:
    path = folder / MANIFEST_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def replace_rows(folder: Path, rows: list[dict[str, Any]], schema: pa.Schema, claimed: int | None = None) -> None:
    """Write other rows into the only file of a set and describe that file in the manifest."""
    path = folder / "part-00000.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    content = path.read_bytes()
    shard = {"name": path.name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    rewrite_manifest(folder, shards=[shard | {"rows": len(rows) if claimed is None else claimed}])


def test_read_manifest_rejects_shards_that_do_not_add_up(tmp_path: Path) -> None:
    write_shards(tmp_path, map(make, range(3)))
    rewrite_manifest(tmp_path, rows=4)
    with pytest.raises(InputError, match="has 4 rows, but its shards add up to 3; build or copy it again"):
        ShardSet(tmp_path)


def test_shard_set_rejects_file_with_fewer_rows_than_the_manifest_says(tmp_path: Path) -> None:
    write_shards(tmp_path, map(make, range(3)))
    table = pq.read_table(tmp_path / "part-00000.parquet")
    replace_rows(tmp_path, table.to_pylist()[:2], table.schema, claimed=3)
    with pytest.raises(InputError, match=r"'part-00000.parquet' has 2 rows, but the manifest says 3; build it again"):
        ShardSet(tmp_path)[0]


def test_shard_set_reading_damaged_column_names_the_file(tmp_path: Path) -> None:
    """The file's footer is whole, so it opens; a damaged column shows only when its rows are read."""
    write_shards(tmp_path, map(make, range(200)))
    path = tmp_path / "part-00000.parquet"
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"(?s)part-00000.parquet' is damaged .*; build or copy it again"):
        ShardSet(tmp_path)[0]


def test_shard_set_rejects_record_that_is_not_a_trajectory(tmp_path: Path) -> None:
    write_shards(tmp_path, [make(0)])
    table = pq.read_table(tmp_path / "part-00000.parquet")
    (row,) = table.to_pylist()
    replace_rows(tmp_path, [row | {"provenance": "{"}], table.schema)
    with pytest.raises(InputError, match=r"record 't/0' is not a valid trajectory .*; build the set again"):
        ShardSet(tmp_path)[0]


def test_verify_rejects_records_that_differ_from_the_digest(tmp_path: Path) -> None:
    write_shards(tmp_path, [make(0)])
    table = pq.read_table(tmp_path / "part-00000.parquet")
    (row,) = table.to_pylist()
    replace_rows(tmp_path, [row | {"id": "another"}], table.schema)
    with pytest.raises(InputError, match="do not match the manifest's digest; build it again"):
        ShardSet(tmp_path).verify()


def test_shard_writer_that_is_interrupted_leaves_no_file(tmp_path: Path) -> None:
    def write_two_and_fail() -> None:
        with ShardWriter(tmp_path, rows_per_shard=10) as writer:
            for n in range(2):
                writer.add(make(n))
            assert writer.rows == 2
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_two_and_fail()
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_shard_set_opens_its_files_again_in_a_forked_process(tmp_path: Path) -> None:
    write_shards(tmp_path, map(make, range(3)))
    shards = ShardSet(tmp_path)
    assert shards[0].id == "t/0"
    mine = dict(shards._files)
    shards._pid = os.getppid()  # as a forked process sees a set that its parent opened
    assert shards[1].id == "t/1"
    assert shards._files[0][0] is not mine[0][0]
