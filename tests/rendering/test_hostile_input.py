"""Hostile input: every reader of untrusted bytes returns a value or raises a SeerError.

The long inputs test for linear time. A reader that backtracks takes minutes to hours for them, so it exceeds the time
limit of the test suite.
"""

from __future__ import annotations

import copy
import functools
import io
import json
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from data_pipeline.records import Rejection, Sample
from data_pipeline.settings import BuildConfig, SourceSpec
from data_pipeline.sources.registry import load_source
from seer.config import load_config
from seer.engines.base import Generation
from seer.engines.openai.replies import all_choices, first_choice, read_sample, usage_counts
from seer.errors import InputError, SeerError
from seer.evaluation.benchmarks.docqa import read_docqa, read_extraction
from seer.evaluation.benchmarks.tasks import load_templates
from seer.evaluation.files import read_predictions
from seer.evaluation.runs.score_docqa import read_docqa_predictions
from seer.miniature.parse import parse_document
from seer.protocol.call import parse_call_text
from seer.protocol.literals import CHAT_LITERALS, neutralise
from seer.rendering import STYLES, load
from seer.rendering.formats.markup.html import html_text
from seer.rendering.formats.office.docx import read_docx
from seer.rendering.formats.office.package import MAX_XML_BYTES
from seer.rendering.formats.pageranges import parse_pages
from seer.rendering.formats.sniff import sniff
from seer.rendering.layout.fonts import load_chain
from seer.rendering.layout.shaping import shape
from seer.shards.reader import ShardSet, write_shards
from seer.teaching.ledger import Budget, Ledger, Reply
from seer.teaching.teachers import read_generation
from seer.teaching.verdicts import parse_verdict
from tests.data_pipeline.sources.test_shapes import HOTPOT, MUSIQUE, QASPER_ANSWERS, qasper_paper
from tests.rendering.makers import WORD, make_docx, make_pdf
from tests.shards.test_shards import make

anything = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read(reader: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a reader; return its result, or None if it raises a SeerError. Any other exception fails the test."""
    try:
        return reader(*arguments, **options)
    except SeerError:
        return None


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """A file in which some ranges are overwritten, repeated or removed."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 24))
        data[at : at + length] = draw(
            st.one_of(st.binary(max_size=24), st.just(bytes(data[at : at + 2 * length])), st.just(b""))
        )
    return bytes(data)


numbers = st.one_of(st.integers(), st.floats(), st.sampled_from([10**30, -1, 2**31, True]))
texts = st.text(st.characters(exclude_categories=()), max_size=20)
atoms = st.none() | numbers | texts
values = atoms | st.lists(atoms, max_size=3) | st.dictionaries(texts, atoms | st.lists(atoms, max_size=3), max_size=3)


def objects(*keys: str) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects in which each of these keys has any value or is missing."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(keys, values))


# ── Documents ────────────────────────────────────────────────────────────────────────────────────


def encoded_image(kind: str, **options: Any) -> bytes:
    Image.new("L", (60, 40), 200).save(buffer := io.BytesIO(), kind, **options)
    return buffer.getvalue()


BODY = f"<w:document {WORD}><w:body><w:p><w:r><w:t>Hello</w:t><w:tab/></w:r></w:p></w:body></w:document>"
FRAMES = {"save_all": True, "append_images": [Image.new("L", (60, 40), value) for value in (10, 90)]}
DOCUMENTS = {
    "pdf": make_pdf(2),
    "docx": make_docx(BODY),
    "html": b"<html><head><meta charset=gb2312></head><body><p>a<img alt='b'><pre>c</pre>&#65;<!-- d --></body>",
    "txt": "\ufeffplain text, 中文".encode(),
    **{kind: encoded_image(kind) for kind in ("png", "jpeg", "bmp", "webp")},
    **{kind: encoded_image(kind, **FRAMES) for kind in ("gif", "tiff")},
}


def read_document(path: Path) -> None:
    """Load a document, and compute the images and line boxes of its first pages."""
    document = read(load, path, ocr="never")
    if document is None:
        return
    assert "".join(page.text for page in document) == document.text
    for page in document.pages[:3]:
        read(page.image)
        read(page.line_boxes)


@pytest.mark.filterwarnings("ignore")  # image readers warn about damage that they repair
@pytest.mark.parametrize("kind", DOCUMENTS)
@given(data=st.data())
@anything
def test_load_damaged_document_loads_or_raises_seer_error(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / f"damaged.{kind}"
    path.write_bytes(data.draw(damaged(DOCUMENTS[kind])))
    read_document(path)


@given(body=damaged(BODY.encode()), encoding=st.sampled_from(["utf-8", "utf-16"]))
@anything
def test_load_docx_with_damaged_xml_loads_or_raises_seer_error(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, encoding: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "inner.docx"
    path.write_bytes(make_docx(body.decode("utf-8", "replace").encode(encoding)))
    read_document(path)


@pytest.mark.filterwarnings("ignore")
@given(st.binary(max_size=80), st.sampled_from([b"", b"%PDF-1.7\n", b"PK\x03\x04", b"II*\x00", b"BM", b"<html>"]))
@anything
def test_load_signature_with_random_tail_loads_or_raises_seer_error(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes, signature: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "beginning"
    path.write_bytes(signature + tail)
    read_document(path)


@pytest.mark.parametrize("name", ["undefined", "idna", "punycode", "zip", "rot13", "utf-7", "unicode_escape", "x" * 90])
def test_load_html_with_any_declared_encoding_never_fails(tmp_path: Path, name: str) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(f"<html><meta charset={name}>".encode() + b"\\ud800 xn--zz.. \xff")
    read_document(path)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "/proc/self/mem"])
def test_load_impossible_path_raises_seer_error(path: str) -> None:
    assert read(load, path) is None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_load_docx_rejects_document_type_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    bomb = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;">]><a>&c;</a>'
    (tmp_path / "bomb.docx").write_bytes(make_docx(bomb.encode(encoding)))
    with pytest.raises(InputError, match="document type"):
        load(tmp_path / "bomb.docx")


NUMBERED = range(20_000)
XML = {
    "empty elements": "<a/>" * 60_000,
    "cells": "<w:tr>" + "<w:tc/>" * 40_000 + "</w:tr>",
    "attributes": '<a b=""/>' * 30_000,
    "names": "".join(f"<a{n:x}/>" for n in NUMBERED),
    "attributes of one element": "<a " + " ".join(f'b{n:x}=""' for n in NUMBERED) + "/>",
    "names of attributes": "".join(f'<a b{n:x}=""/>' for n in NUMBERED),
}


@pytest.mark.parametrize("kind", XML)
def test_read_docx_of_largest_xml_stays_below_two_gigabytes(kind: str) -> None:
    xml = f"<w:document {WORD}>{XML[kind]}</w:document>"
    tracemalloc.start()
    read_docx(make_docx(xml), "a", None)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes / len(xml) * MAX_XML_BYTES < 2 << 30


def test_load_image_checks_size_of_every_frame(tmp_path: Path, monkeypatch) -> None:
    from seer.rendering.formats.images import frames

    small, large = Image.new("L", (50, 50)), Image.new("L", (400, 400))
    small.save(tmp_path / "grows.tiff", save_all=True, append_images=[large])
    assert len(load(tmp_path / "grows.tiff", ocr="never").pages) == 2
    monkeypatch.setattr(frames, "_MAX_FRAMES_BYTES", 100_000)
    with pytest.raises(InputError, match="split the file"):
        load(tmp_path / "grows.tiff", ocr="never")
    monkeypatch.setattr(frames, "MAX_IMAGE_PIXELS", 10_000)
    with pytest.raises(InputError, match="400x400 px"):
        load(tmp_path / "grows.tiff", ocr="never")


# ── Long and repetitive ──────────────────────────────────────────────────────────────────────────

MARKUP = (
    *("<!--", "<a ", "<", "</", "</a ", "<a b='", '<a b="', "<a/", "<![CDATA[", "<![", "<!", "<?", "&#"),
    *("&a", "<svg>", "<table><tr><td>", "<ul><li>", "<p hidden>", "<math>", "<sup>"),
)
LONG = {
    **{f"html {part}": (html_text, "<html>" + part * 100_000) for part in MARKUP},
    "html script": (html_text, "<script>" + "</" * 100_000),
    "html reference": (html_text, "&#" + "9" * 100_000),
    "comments before html": (lambda text: sniff(text.encode(), "a"), "<!---->" * 100_000),
    "page range of spaces": (lambda text: parse_pages(text, 9), " " * 100_000 + "x"),
    "page range of digits": (lambda text: parse_pages(text, 9), "9" * 100_000),
    "verdict": (parse_verdict, "the answer" + " " * 100_000 + "x"),
    "verdict in marks": (parse_verdict, "the answer" + " *" * 50_000 + "x"),
    "short answer": (read_extraction, "extracted answer:" + "\n" * 100_000 + "x"),
    "call": (lambda text: parse_call_text(text, range(9)), "<tool_call>" * 50_000),
    "call in XML": (lambda text: parse_call_text(text, range(9)), "<arg_value>1" * 50_000),
    "marks on one letter": (lambda text: shape(load_chain(STYLES["seer"].fonts), 0, text, False), "\u0301" * 700_000),
    "neutralised": (neutralise, "<\u2060" * 50_000 + "|user|>"),
    "miniature": (lambda text: parse_document(text, "a"), "->" * 1_000 + " x"),
}


@pytest.mark.parametrize("case", LONG)
def test_reader_of_long_repetitive_input_takes_linear_time(case: str) -> None:
    reader, text = LONG[case]
    read(reader, text)


# ── Configurations and data files ────────────────────────────────────────────────────────────────

toml = st.lists(
    st.sampled_from([*"[]{}=.,'\"#\n\\", "a", "out", "sources", "9" * 5000, "1e999", "[" * 3000, "é", "\0"])
)


@given(toml.map("".join) | st.text(max_size=60))
@anything
def test_load_config_random_toml_loads_or_raises_seer_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "hostile.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    read(load_config, BuildConfig, path)
    read(load_config, BuildConfig, None, [f"out={text}", text])


def lines_of(tmp_path_factory: pytest.TempPathFactory, rows: list[Any], name: str = "rows.jsonl") -> Path:
    path = tmp_path_factory.getbasetemp() / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


LITERALS = ("{[]:1}", "-" * 50_000 + "1", "1+" * 50_000 + "1", "[1e999]", "[None]", "9" * 5000)
QUESTION = {"question": "q", "answer": "a", "answer_format": "Str"}


@given(st.sampled_from(["evidence_pages", "evidence_sources", "start_end_idx"]), st.sampled_from(LITERALS) | values)
@anything
def test_read_docqa_odd_values_load_or_raise_seer_error(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any
) -> None:
    row = {**QUESTION, key: value}
    read(read_docqa, lines_of(tmp_path_factory, [row]))
    path = tmp_path_factory.getbasetemp() / "whole.json"
    path.write_text(json.dumps([row]))
    read(read_docqa, path)


json_bytes = st.binary(max_size=60) | values.map(json.dumps).map(str.encode) | st.just(b"[" * 99_999)


@pytest.mark.parametrize("reader", [read_docqa, read_docqa_predictions, read_predictions, load_templates])
@given(content=json_bytes)
@anything
def test_json_readers_random_json_load_or_raise_seer_error(
    tmp_path_factory: pytest.TempPathFactory, reader: Any, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "hostile.json"
    path.write_bytes(content)
    read(reader, path)


ROWS: dict[str, Any] = {
    "hotpotqa": HOTPOT,
    "musique": MUSIQUE,
    "qasper": qasper_paper(QASPER_ANSWERS),
    "gov_report": {
        "id": "g",
        "report": [{"section_title": "a", "paragraphs": ["b"], "subsections": []}],
        "highlight": [],
    },
    "qmsum": {
        "meeting_transcripts": [{"speaker": "a", "content": "b"}],
        "specific_query_list": [{"query": "q", "answer": "a", "relevant_text_span": [["0", "0"]]}],
    },
    "table": {"id": "t", "question": "q", "context": "c", "answers": ["a"], "evidence": ["c"]},
}


def places_in(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of keys and indices to every value within a JSON value."""
    yield from [place] if place else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places_in(item, (*place, key))


@pytest.mark.parametrize("kind", ROWS)
@given(data=st.data())
@settings(anything, max_examples=100)
def test_load_source_row_with_odd_value_gives_sample_or_rejection(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    row = copy.deepcopy(ROWS[kind])
    *path_to, last = data.draw(st.sampled_from(list(places_in(row))))
    holder = functools.reduce(lambda value, key: value[key], path_to, row)
    holder[last] = data.draw(values)
    path = lines_of(tmp_path_factory, [row], "train.jsonl")
    for item in read(lambda: list(load_source(SourceSpec(kind=kind, path=str(path))))) or ():
        assert isinstance(item, Sample | Rejection)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    write_shards(folder := tmp_path_factory.mktemp("shards"), map(make, range(4)), rows_per_shard=2)
    return folder


@given(data=st.data(), name=st.sampled_from(["manifest.json", "part-00000.parquet"]))
@settings(anything, max_examples=150)
def test_shard_set_damaged_file_loads_or_raises_seer_error(
    shards: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str
) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged-shards"
    shutil.copytree(shards, folder, dirs_exist_ok=True)
    whole = (shards / name).read_bytes()
    changed = data.draw(damaged(whole))
    if name != "manifest.json":  # keep the size in the manifest, so that only reading finds the damage
        changed = changed[: len(whole)].ljust(len(whole), b"\0")
    (folder / name).write_bytes(changed)

    def everything() -> None:
        one = ShardSet(folder)
        assert all(trajectory.id for trajectory in one)
        one.verify()

    read(everything)


@given(st.lists(objects("usd", "text", "think", "finish", "prompt_tokens", "seconds"), max_size=3), values)
@anything
def test_ledger_odd_lines_are_read_or_skipped(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], other: Any
) -> None:
    lines = [{"key": "aa", "text": "kept"}, other, *({"key": "bb"} | row for row in rows)]
    with Ledger(lines_of(tmp_path_factory, lines, "calls.jsonl")) as ledger:
        assert ledger.get("aa") == Reply(text="kept")
        assert isinstance(ledger.get("bb"), Reply | None)
        assert not Budget(max_usd=1e300).exceeded_by(ledger.spent, 0)


# ── What models, teachers and servers reply ──────────────────────────────────────────────────────

choices = objects("message", "delta", "text") | st.fixed_dictionaries({"message": objects("content", "tool_calls")})
usages = objects("prompt_tokens", "completion_tokens", "prompt_tokens_details")
replies = st.fixed_dictionaries({"choices": st.lists(choices, max_size=2)}, optional={"usage": values | usages})


@given(replies | values)
@settings(anything, max_examples=200)
def test_reply_parsers_odd_bodies_parse_or_raise_seer_error(body: Any) -> None:
    if sample := read(lambda: read_sample(all_choices(body)[0], CHAT_LITERALS)):
        reply = read_generation(Generation(sample.parts, finish=sample.finish))
        assert f"{reply.text}{reply.think}{reply.finish}".encode()
    read(first_choice, body)
    if isinstance(body, dict):
        assert all(count >= 0 for count in usage_counts(body))
