"""Documents larger than one request: they are scanned in chunks, then the pages found are read together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fakes import make_document, small_encoder

from seer.engines.base import Generation, Request
from seer.engines.scripted import ScriptedEngine, oracle_script
from seer.errors import EngineError
from seer.evaluation.runs.loop import is_worth_retrying
from seer.reading.conversation import converse
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader
from seer.schema import Page, Status


def test_document_longer_than_the_window_is_scanned_in_chunks():
    document = make_document([f"page {i}\n" for i in range(1, 41)])
    engine = ScriptedEngine(oracle_script(pages=(3, 20, 39), answer="found"), small_encoder(), max_positions=480)
    policy = ReadingPolicy(max_new_tokens=64, max_call_tokens=32)
    answer = Reader(engine, policy=policy).ask(document, "q")
    assert answer.text == "found"
    assert answer.selected_pages == (3, 20, 39)
    scans = [request for request in engine.requests if request.constraint]
    assert len(scans) > 1
    assert sorted(page for request in scans for page in request.constraint.allowed) == list(range(1, 41))
    assert answer.trace[-5].pages == (3, 20, 39)


class BoundedScript(ScriptedEngine):
    """Accepts 1,000 image bytes in one request."""

    max_picture_bytes = 1000

    def picture_bytes(self, conversation: str, pages: Sequence[Page]) -> list[int]:
        return [60 * page.number for page in pages]


def test_chunks_fit_the_window_and_the_image_bytes_of_the_engine():
    document = make_document([f"page {i}\n" for i in range(1, 17)])
    engine = BoundedScript(oracle_script(pages=(2, 16), answer="found"), small_encoder(), max_positions=220)
    policy = ReadingPolicy(max_new_tokens=64, max_call_tokens=32)
    answer = Reader(engine, policy=policy).ask(document, "q")
    scans = [request.constraint.allowed for request in engine.requests if request.constraint]
    assert [page for pages in scans for page in pages] == list(range(1, 17))
    assert all(60 * sum(pages) <= 1000 for pages in scans)
    assert len(scans[0]) < 5, "small pages: the window ends their chunk"
    assert scans[-1] == (16,), "a page of nearly all the bytes is a chunk by itself"
    assert answer.selected_pages == (2,), "both together exceed one request"


class OneChunkFails(ScriptedEngine):
    """Answers all requests of a batch except one."""

    failing = 0

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        failed = Generation.failed(EngineError("the connection broke"))
        return [
            failed if index == self.failing and len(requests) > 1 else self._one(request)
            for index, request in enumerate(requests)
        ]


SCANNED = ReadingPolicy(max_new_tokens=64, max_call_tokens=32)


@pytest.mark.parametrize("failing", range(4))
def test_failing_chunk_fails_the_answer_with_its_cause_and_is_retryable(failing):
    document = make_document([f"page {i}\n" for i in range(1, 61)])
    engine = OneChunkFails(oracle_script(), small_encoder(), max_positions=480)
    engine.failing = failing
    answer = Reader(engine, policy=SCANNED).ask(document, "q")
    assert (answer.status, answer.cause) == (Status.FAILED, "the connection broke")
    assert answer.failure is not None and answer.failure.kind == "engine"
    assert is_worth_retrying(answer)
    assert {request.session for request in engine.requests} <= {*engine.forgotten}


def test_closed_scan_ends_every_session():
    document = make_document([f"page {i}\n" for i in range(1, 41)])
    engine = ScriptedEngine(oracle_script(), small_encoder(), max_positions=480)
    conversation = converse(document, "q", engine, policy=SCANNED)
    asked = next(conversation)
    conversation.close()
    assert {request.session for request in asked} <= {*engine.forgotten}


def test_scan_with_too_many_pages_keeps_some_of_every_chunk_with_room_for_their_text():
    text = "The ledger of the harbour names every ship and its cargo. "
    document = make_document([f"{text * 3}Page {n}.\n" for n in range(1, 41)])

    def greedy(request: Request) -> str:
        required = request.constraint is not None and request.constraint.required
        pages = request.constraint.allowed[-5:] if required else ()
        return oracle_script(pages=pages, answer="found")(request)

    engine = ScriptedEngine(greedy, small_encoder(), max_positions=700)
    answer = Reader(engine, policy=SCANNED).ask(document, "q")
    chunks = [request.constraint.allowed for request in engine.requests if request.constraint]
    assert len(chunks) > 1
    assert all({*chunk} & {*answer.selected_pages} for chunk in chunks), "no chunk is left out for those before it"
    assert 2 * answer.usage.vision < answer.usage.prompt < 700
    (observed,) = [step for step in answer.trace if step.name == "retrieve"]
    assert {excerpt.page for excerpt in observed.excerpts} == {*answer.selected_pages}
    assert answer.usage.retrieved > 200
