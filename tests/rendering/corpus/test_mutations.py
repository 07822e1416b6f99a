"""Damaged files of every format: each gives a document or one clear error, within limits of time and memory."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import time
import zipfile
import zlib
from io import BytesIO

import pytest

from seer.errors import SeerError
from seer.rendering.documents import load_bytes
from tests.rendering.corpus.samples import SAMPLES

NUM_FAST = 60
NUM_SLOW = int(os.environ.get("SEER_MUTATIONS", "1000"))
"""Damaged files of each format in the slow test; a full run takes 10,000."""
MAX_SECONDS = 10
MAX_BYTES = 1 << 30
"""Memory of a process that loads damaged files, above what it takes for a whole one."""


def damaged(data: bytes, chance: random.Random) -> bytes:
    """A copy of a file with one kind of damage; members of a zip archive are damaged inside of it, too."""
    if data[:2] == b"PK" and chance.random() < 0.7:
        return _repacked(data, chance)
    kind = chance.randrange(6)
    copy = bytearray(data)
    if kind == 0:  # bits
        for _ in range(chance.randint(1, 20)):
            copy[chance.randrange(len(copy))] ^= 1 << chance.randrange(8)
    elif kind == 1:  # cut short
        del copy[chance.randrange(len(copy)) :]
    elif kind == 2:  # a part is missing
        start = chance.randrange(len(copy))
        del copy[start : start + chance.randint(1, 200)]
    elif kind == 3:  # a part occurs often
        start = chance.randrange(len(copy))
        part = bytes(copy[start : start + chance.randint(1, 50)])
        copy[start:start] = part * chance.choice((2, 100, 10_000))
    elif kind == 4:  # numbers become large
        start = chance.randrange(len(copy))
        copy[start : start + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"9999"))
    else:  # other bytes
        start = chance.randrange(len(copy))
        copy[start : start + 20] = chance.randbytes(20)
    return bytes(copy)


def _repacked(data: bytes, chance: random.Random) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as archive, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as copy:
        members = archive.namelist()
        chosen = chance.choice(members)
        for member in members:
            content = archive.read(member)
            if member == chosen and content:
                content = damaged(content, chance) if content[:2] != b"PK" else content
                if chance.random() < 0.1:
                    content = b"<a>" * 20_000 + content
            copy.writestr(member, content)
    return out.getvalue()


def try_to_load(name: str, data: bytes) -> str:
    """Load a file: "" for a document or a clear error, else what is wrong."""
    started = time.monotonic()
    try:
        load_bytes(data, name, ocr="never")
    except SeerError as error:
        if "\n" in str(error) or len(str(error)) > 1000:
            return f"the error is not one short line: {str(error)[:200]!r}"
    except Exception as error:  # the fault that this test looks for
        return f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - started
    return f"took {seconds:.0f} s" if seconds > MAX_SECONDS else ""


@pytest.mark.parametrize("kind", SAMPLES)
def test_damaged_files_give_a_document_or_one_error(kind):
    name, make = SAMPLES[kind]
    data = make()
    for seed in range(NUM_FAST):
        mutant = damaged(data, random.Random(f"{kind} {seed}"))
        assert not (fault := try_to_load(name, mutant)), f"seed {seed}: {fault}"


def load_many(kind: str, seeds: range, faults: multiprocessing.Queue) -> None:
    """Load damaged files in a process of its own, whose memory is limited, and report what is wrong."""
    name, make = SAMPLES[kind]
    data = make()
    load_bytes(data, name, ocr="never")
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for seed in seeds:
        if fault := try_to_load(name, damaged(data, random.Random(f"{kind} {seed}"))):
            faults.put(f"seed {seed}: {fault}")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if most - taken > MAX_BYTES:
        faults.put(f"took {(most - taken) / 2**20:.0f} MB")
    faults.put("")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", SAMPLES)
def test_many_damaged_files_give_a_document_or_one_error(kind):
    SAMPLES[kind][1]()  # skips here if the format's library is missing
    context = multiprocessing.get_context("spawn")
    faults = context.Queue()
    worker = context.Process(target=load_many, args=(kind, range(1000, 1000 + NUM_SLOW), faults))
    worker.start()
    found = []
    while fault := faults.get(timeout=1700):
        found.append(fault)
    worker.join()
    assert worker.exitcode == 0 and not found, f"{len(found)} faults: {found[:5]}"


def test_damaged_zip_members_are_valid_archives():
    name, make = SAMPLES["word"]
    mutant = _repacked(make(), random.Random(1))
    with zipfile.ZipFile(BytesIO(mutant)) as archive:
        assert archive.testzip() is None
    assert zlib.crc32(mutant) != zlib.crc32(make()) and name == "a.docx"
