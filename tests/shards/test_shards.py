"""Tests of trajectory shards: reading inverts writing, equal records give equal bytes, unfinished sets are rejected."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seer.errors import DocumentNotFound, InputError
from seer.protocol.turns import observation
from seer.schema import Excerpt, PageStyle, Trajectory, Turn
from seer.shards.reader import MANIFEST_NAME, ShardSet, ShardWriter, write_shards

STYLE = PageStyle(name="seer")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def make(n: int, text: str = "Some text.", style: PageStyle = STYLE) -> Trajectory:
    turns = (
        Turn(kind="prompt", text=f"Question {n}?", pages=(1,)),
        Turn(kind="call", pages=(1,)),
        observation([Excerpt(page=1, start=0, text=text)]),
        Turn(kind="think", text="Because."),
        Turn(kind="answer", text=str(n)),
    )
    return Trajectory(
        id=f"t/{n}",
        source=text,
        style=style,
        turns=turns,
        relevant_pages=(1,),
        answers=(str(n),),
        provenance={"source": "t"},
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXT, max_size=12), rows=st.integers(1, 5))
def test_shard_set_reads_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], rows: int
) -> None:
    folder = tmp_path_factory.mktemp("set")
    records = [make(n, text) for n, text in enumerate(texts)]
    manifest = write_shards(folder, records, rows_per_shard=rows)
    shards = ShardSet(folder)
    assert list(shards) == records
    assert len(shards) == manifest.rows == len(records)
    assert len(manifest.shards) == -(-len(records) // rows)
    shards.verify()


def test_write_shards_equal_records_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_shards(tmp_path / name, (make(n, "x" * n) for n in range(50)), rows_per_shard=20)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["manifest.json", "part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_write_shards_digest_depends_on_records_not_on_files(tmp_path: Path) -> None:
    one = write_shards(tmp_path / "a", map(make, range(10)), rows_per_shard=3)
    other = write_shards(tmp_path / "b", map(make, range(10)), rows_per_shard=10)
    changed = write_shards(tmp_path / "c", map(make, range(1, 11)), rows_per_shard=10)
    assert one.digest == other.digest != changed.digest


def test_shard_set_reads_large_records_at_random(tmp_path: Path) -> None:
    records = [make(n, f"{n} " * 60_000) for n in range(40)]
    write_shards(tmp_path, records, rows_per_shard=15)
    shards = ShardSet(tmp_path)
    order = [39, 0, 17, 3, -1, 14, 15, 38]
    assert [shards[i] for i in order] == [records[i] for i in order]
    assert shards[38:2:-20] == records[38:2:-20]
    with pytest.raises(IndexError, match="record 40"):
        shards[40]


def test_shard_set_works_in_threads_and_other_processes(tmp_path: Path) -> None:
    write_shards(tmp_path, map(make, range(3000)), rows_per_shard=1000)
    shards = ShardSet(tmp_path)
    assert shards[5].id == "t/5"
    assert pickle.loads(pickle.dumps(shards))[2999].id == "t/2999"
    with ThreadPoolExecutor(4) as pool:
        assert [t.id for t in pool.map(shards.__getitem__, range(0, 3000, 7))] == [f"t/{i}" for i in range(0, 3000, 7)]
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as workers:
        assert [t.id for t in workers.map(shards.__getitem__, range(0, 3000, 301))] == [
            f"t/{i}" for i in range(0, 3000, 301)
        ]


def test_write_shards_embedded_pages_are_read_back(tmp_path: Path) -> None:
    from seer.rendering import png_bytes, render_text

    def embed(trajectory: Trajectory) -> list[bytes]:
        document = render_text(trajectory.source, trajectory.style)
        return [png_bytes(page.image()) for page in document.pages]

    manifest = write_shards(tmp_path, map(make, range(3)), embed=embed)
    shards = ShardSet(tmp_path)
    assert manifest.embedded_pages
    assert shards.pages_png(1)[0].startswith(b"\x89PNG")
    assert shards[1] == make(1)
    shards.verify()


def test_write_shards_manifest_contains_statistics_and_meta(tmp_path: Path) -> None:
    manifest = write_shards(tmp_path, map(make, range(3)), meta={"note": "three"})
    assert manifest.statistics["sources"] == {"t": 3}
    assert manifest.statistics["relevant_pages"] == {"1": 3}
    assert manifest.statistics["conversations"] == {"prompt call observation think answer": 3}
    assert ShardSet(tmp_path).manifest.meta == {"note": "three"}


# ── Bad folders ──────────────────────────────────────────────────────────────────────────────────


def test_shard_set_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentNotFound, match="nowhere"):
        ShardSet(tmp_path / "nowhere")


def test_shard_set_rejects_unfinished_folder(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, rows_per_shard=2) as writer:
        for n in range(5):
            writer.add(make(n))
    with pytest.raises(InputError, match="never finished"):
        ShardSet(tmp_path)
    assert not list(tmp_path.glob("*.tmp"))


def test_shard_writer_overwrite_removes_old_manifest_first(tmp_path: Path) -> None:
    write_shards(tmp_path, map(make, range(5)), rows_per_shard=1)
    with ShardWriter(tmp_path, overwrite=True) as writer:
        writer.add(make(0))
        assert not (tmp_path / MANIFEST_NAME).exists()
    assert write_shards(tmp_path, map(make, range(2)), overwrite=True).rows == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "part-00000.parquet"]


def test_write_shards_without_overwrite_rejects_finished_set(tmp_path: Path) -> None:
    write_shards(tmp_path, [make(0)])
    with pytest.raises(InputError, match="finished set"):
        write_shards(tmp_path, [make(1)])


def test_shard_set_rejects_missing_or_shortened_shard(tmp_path: Path) -> None:
    write_shards(tmp_path, map(make, range(10)))
    part = tmp_path / "part-00000.parquet"
    data = part.read_bytes()
    part.write_bytes(data[:-10])
    with pytest.raises(InputError, match="bytes, but the manifest says"):
        ShardSet(tmp_path)
    part.unlink()
    with pytest.raises(InputError, match="lacks part-00000"):
        ShardSet(tmp_path)


def test_verify_finds_flipped_byte(tmp_path: Path) -> None:
    write_shards(tmp_path, map(make, range(100)))
    part = tmp_path / "part-00000.parquet"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 0xFF
    part.write_bytes(bytes(data))
    with pytest.raises(InputError, match="sha256"):
        ShardSet(tmp_path).verify()


def test_shard_set_rejects_file_that_is_not_parquet(tmp_path: Path) -> None:
    write_shards(tmp_path, map(make, range(3)))
    part = tmp_path / "part-00000.parquet"
    part.write_bytes(b"x" * part.stat().st_size)
    with pytest.raises(InputError, match="not readable Parquet"):
        ShardSet(tmp_path)[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 99}, "schema version 99"),
        ({"rows": -1}, "not a manifest"),
        ({"shardz": []}, "not a manifest"),
        ({"shards": [{"name": "../x", "rows": 1, "bytes": 1, "sha256": ""}]}, "outside its folder"),
    ],
)
def test_shard_set_rejects_invalid_manifest(tmp_path: Path, change: dict[str, object], message: str) -> None:
    write_shards(tmp_path, [make(0)])
    path = tmp_path / MANIFEST_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=message):
        ShardSet(tmp_path)


@pytest.mark.parametrize("body", ["", "[]", "{", '"x"'])
def test_shard_set_rejects_manifest_that_is_not_json(tmp_path: Path, body: str) -> None:
    write_shards(tmp_path, [make(0)])
    (tmp_path / MANIFEST_NAME).write_text(body)
    with pytest.raises(InputError):
        ShardSet(tmp_path)


def test_repeated_ids_are_rejected_by_writer_or_verify(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="occurs twice in a row"):
        write_shards(tmp_path, [make(0), make(0)])
    write_shards(tmp_path, [make(0), make(1), make(0)], overwrite=True)
    with pytest.raises(InputError, match="occurs twice in '"):
        ShardSet(tmp_path).verify()


def test_write_shards_rejects_lone_surrogate(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lone surrogate"):
        write_shards(tmp_path, [make(0, "a\ud800b")])


def test_write_shards_rejects_rows_per_shard_below_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 1"):
        write_shards(tmp_path, [], rows_per_shard=0)
