"""The system and the selector of a server: its own choice, and that of a chat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from fakes import small_encoder
from serving_fakes import listening

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from seer.engines.batched import BatchedEngine
from seer.engines.scripted import ScriptedEngine
from seer.errors import InputError
from seer.reading.policy import ReadingPolicy
from seer.serving.server import create_app
from seer.serving.settings import ServeSettings

TEXT = "".join(f"Item {n} costs {n * 7} dollars.\n" for n in range(300))


def make_app(policy: ReadingPolicy | None = None, **choice: str) -> Any:
    engine = BatchedEngine(ScriptedEngine(encoder=small_encoder()))
    return create_app(engine, policy or ReadingPolicy(max_new_tokens=64), ServeSettings(), **choice)


@contextmanager
def serving(**choice: str) -> Iterator[str]:
    with listening(make_app(**choice)) as address:
        yield f"{address}/v1/chat/completions"


def selected(address: str, **options: str) -> list[int]:
    """The pages that a chat with these `seer` options selects."""
    messages = [
        {"role": "user", "content": [{"type": "text", "text": part} for part in (TEXT, "What costs 7 dollars?")]}
    ]
    reply = httpx.post(address, json={"model": "seer", "messages": messages, "seer": options}, timeout=60)
    assert reply.status_code == 200, reply.text
    return [page["number"] for page in reply.json()["seer"]["selected_pages"]]


def test_server_choice_applies_unless_a_chat_names_its_own():
    with serving(selector="first") as address:
        assert selected(address) == [1, 2]
        assert selected(address, selector="model") == [1]
        assert selected(address, system="text") == []
    with serving(system="text") as address:
        assert selected(address) == []
        assert selected(address, system="seer", selector="first") == [1, 2]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"system": "bm25"}, "it is a selector; use --selector bm25"),
        ({"selector": "oracle"}, "--selector oracle: a server offers model, bm25, first, all"),
        ({"system": "visual", "selector": "bm25"}, "the system 'visual' selects no pages"),
    ],
)
def test_create_app_rejects_unknown_and_contradictory_choices(choice, message):
    with pytest.raises(InputError, match=message):
        make_app(**choice)


def test_create_app_rejects_a_policy_that_sets_the_mode():
    with pytest.raises(InputError, match="policy mode=auto: the system sets the mode; use --system auto"):
        make_app(ReadingPolicy(mode="auto"))
