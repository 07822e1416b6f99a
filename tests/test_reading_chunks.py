"""Documents that one request does not hold: scanned in chunks, then the pages that were found are read together."""

from __future__ import annotations

from collections.abc import Sequence

from fakes import make_document, small_encoder

from seer.engines.scripted import ScriptedEngine, oracle_script
from seer.policy import ReadingPolicy
from seer.reading import Reader
from seer.schema import Page


def test_a_document_longer_than_the_window_is_scanned_in_chunks():
    document = make_document([f"page {i}\n" for i in range(1, 41)])
    engine = ScriptedEngine(oracle_script(pages=(3, 20, 39), answer="found"), small_encoder(), max_positions=480)
    policy = ReadingPolicy(max_new_tokens=64, max_call_tokens=32)
    answer = Reader(engine, policy=policy).ask(document, "q")
    assert answer.text == "found"
    assert answer.selected_pages == (3, 20, 39)
    scans = [request for request in engine.requests if request.constraint]
    assert len(scans) > 1
    assert sorted(page for request in scans for page in request.constraint.allowed) == list(range(1, 41))
    assert answer.trace[-5].turn.pages == (3, 20, 39)


class BoundedScript(ScriptedEngine):
    """Takes 1,000 bytes of pictures in one request."""

    max_picture_bytes = 1000

    def picture_bytes(self, conversation: str, pages: Sequence[Page]) -> list[int]:
        return [60 * page.number for page in pages]


def test_chunks_fit_the_window_and_the_bytes_that_an_engine_takes():
    document = make_document([f"page {i}\n" for i in range(1, 17)])
    engine = BoundedScript(oracle_script(pages=(2, 16), answer="found"), small_encoder(), max_positions=220)
    policy = ReadingPolicy(max_new_tokens=64, max_call_tokens=32)
    answer = Reader(engine, policy=policy).ask(document, "q")
    scans = [request.constraint.allowed for request in engine.requests if request.constraint]
    assert [page for pages in scans for page in pages] == list(range(1, 17))
    assert all(60 * sum(pages) <= 1000 for pages in scans)
    assert len(scans[0]) < 5, "few small pages: the window is what ends their chunk"
    assert scans[-1] == (16,), "a page of nearly all the bytes stands alone"
    assert answer.selected_pages == (2,), "both together are more than one request takes"
