"""Several addresses as one engine, over real sockets: sessions stay with a replica and move when it fails."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from fakes import make_document
from serving_fakes import FakeServer, Say, serve

from seer.engines.base import Conversation, Request
from seer.engines.build import build_engine, make_concurrent
from seer.engines.openai.engine import OpenAIEngine
from seer.engines.replicas import ReplicatedEngine
from seer.errors import InputError
from seer.reading.reader import Reader
from seer.schema import Status, Turn

DOCUMENT = make_document(["One.\n", "Two.\n"])


def reading(body: dict, number: int) -> Say:
    select = body["messages"][-1]["role"] == "user"
    return Say('{"name": "select", "indices": [1]}' if select else "One.")


def replicated(stack: ExitStack, *scripts) -> tuple[ReplicatedEngine, list[FakeServer]]:
    servers = [stack.enter_context(serve(script)) for script in scripts]
    options = {"structure": "none", "continuation": "tool", "attempts": 1, "timeout_s": 5.0}
    engine = ReplicatedEngine([OpenAIEngine(server.base_url, **options) for server in servers])
    stack.callback(engine.close)
    return engine, servers


def test_replicas_keep_a_session_and_balance_new_ones():
    with ExitStack() as stack:
        engine, servers = replicated(stack, reading, reading)
        answers = Reader(engine).ask_many([(DOCUMENT, f"What {n}?") for n in range(8)])
        assert all(answer.text == "One." for answer in answers)
        for server in servers:
            asked = [str(body["messages"][0]["content"][-1]["text"]) for body in server.asked]
            assert len(asked) == 8
            assert all(asked.count(text) == 2 for text in asked)
        assert not engine._home


def test_replicas_move_sessions_of_a_failed_replica():
    with ExitStack() as stack:
        engine, servers = replicated(stack, lambda body, n: Say(status=500), reading)
        answers = Reader(engine).ask_many([(DOCUMENT, f"What {n}?") for n in range(4)])
        assert [answer.status for answer in answers] == [Status.ANSWERED] * 4
        broken = len(servers[0].asked)
        assert Reader(engine).ask(DOCUMENT, "And now?").text == "One."
        assert len(servers[0].asked) == broken  # it is left alone for a while
        assert engine.trouble() == ""


def test_replicas_stay_in_use_after_a_request_that_is_itself_at_fault():
    with ExitStack() as stack:
        engine, servers = replicated(stack, lambda body, n: Say(status=400), lambda body, n: Say(status=400))
        (said,) = engine.generate([Request(Conversation((Turn(kind="prompt", text="?"),)), "c")])
        assert said.finish == "error"
        assert sum(len(server.asked) for server in servers) == 1
        assert engine.trouble() == ""


def test_replica_addresses_become_one_engine_with_the_local_tokenizer(small_checkpoint_dir):
    plain = {"structure": "none", "continuation": "tool"}
    with serve(reading) as one, serve(reading) as two:
        several = make_concurrent(build_engine(replicas=f"{one.base_url}, {two.base_url},", **plain))
        assert isinstance(several, ReplicatedEngine) and len(several.replicas) == 2
        several.close()
        served = make_concurrent(build_engine(model=str(small_checkpoint_dir), base_url=one.base_url, **plain))
        # the folder's name is ours, the model's name the server's to say
        assert isinstance(served, OpenAIEngine) and served.abilities.model == "fake" and served.encoder is not None
        served.close()
    with pytest.raises(
        InputError, match="--device cpu: vLLM uses the device that it was built for; leave --device out"
    ):
        build_engine("vllm", model="model", device="cpu")


def test_replicas_streamed_request_is_not_sent_again():
    """What was streamed cannot be taken back, so a second replica would repeat it."""
    with ExitStack() as stack:
        engine, servers = replicated(stack, lambda body, n: Say(status=500), lambda body, n: Say(status=500))
        prompt = Conversation((Turn(kind="prompt", text="?"),))
        (reply,) = engine.generate([Request(prompt, "c", on_text=lambda text: None)])
        assert reply.retryable
        assert sum(len(server.asked) for server in servers) == 1


@pytest.mark.parametrize("replicas", [",", " , "])
def test_build_engine_rejects_replicas_without_an_address(replicas):
    with pytest.raises(InputError, match=f"--replicas '{replicas}' holds no address; write URL,URL"):
        build_engine(replicas=replicas)
