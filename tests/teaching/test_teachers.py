"""Teachers over real HTTP: the ledger, the budget, shared calls, bounded concurrency, refusals and fatal errors."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fixtures.data.teacher_server import Say, TeacherServer, serve
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.engines.base import Chat, ChatImage, Generation, Request
from seer.engines.openai.bodies import body_key
from seer.engines.openai.messages import chat_messages
from seer.engines.openai.replies import read_text
from seer.errors import ConfigError, EngineError, EngineTimeout, EngineUnavailable, InputError, ModelError
from seer.protocol.literals import CHAT_LITERALS
from seer.teaching.ledger import Budget, BudgetReached, Ledger, Reply
from seer.teaching.relevance import is_too_long
from seer.teaching.settings import TeacherSpec
from seer.teaching.teachers import (
    Teacher,
    call_body,
    ends_run,
    open_teacher,
    read_generation,
    sampling_of,
    split_thinking,
)
from seer.teaching.verdicts import judge_chat

CHAT = Chat.of("Is it?")


def spec_for(server: TeacherServer, **changes: Any) -> TeacherSpec:
    values = {"base_url": server.base_url, "model": "m", "attempts": 4, "backoff_s": 0.0, "timeout_s": 5.0}
    return TeacherSpec.model_validate({**values, **changes})


def ask_all(
    path: Path, spec: TeacherSpec, chats: list[Chat], budget: Budget | None = None, draw: int = 0
) -> tuple[list[Any], Ledger]:
    async def run() -> tuple[list[Any], Ledger]:
        with Ledger(path) as ledger:
            async with open_teacher(spec, ledger, budget or Budget(), role="judge") as teacher:
                calls = (teacher.ask(chat, draw=draw) for chat in chats)
                return list(await asyncio.gather(*calls, return_exceptions=True)), ledger

    return asyncio.run(run())


def several(count: int) -> list[Chat]:
    return [Chat.of(f"Is it {n}?") for n in range(count)]


# ── Faults ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "fault",
    [
        Say(status=429, headers={"Retry-After": "0"}),
        Say(status=500),
        Say(status=503),
        Say(raw=b"<html>Welcome to the proxy</html>"),
        Say(raw=b""),
        Say(raw=b'{"choices": []}'),
        Say(raw=b'{"error": "overloaded"}'),
        Say(hang_up=True),
    ],
)
def test_ask_after_a_passing_fault_returns_the_reply(tmp_path: Path, fault: Say) -> None:
    with serve(lambda body, n: fault if n < 2 else Say("YES")) as server:
        (reply,), ledger = ask_all(tmp_path / "l", spec_for(server), [CHAT])
    assert reply.text == "YES"
    assert len(server.asked) == 3
    assert ledger.spent.calls == 1


def test_ask_after_the_last_attempt_raises_and_records_nothing(tmp_path: Path) -> None:
    with serve(lambda body, n: Say(status=503)) as server:
        (error,), ledger = ask_all(tmp_path / "l", spec_for(server), [CHAT])
        assert isinstance(error, EngineUnavailable) and error.retryable and not ends_run(error)
        assert len(server.asked) == 4
        assert len(ledger) == 0


def test_ask_after_a_slow_reply_asks_again(tmp_path: Path) -> None:
    with serve(lambda body, n: Say("YES", delay_s=2.0 if n in (0, 2) else 0.0)) as server:
        (reply,), _ = ask_all(tmp_path / "l", spec_for(server, timeout_s=0.3), [CHAT])
        (error,), _ = ask_all(tmp_path / "m", spec_for(server, timeout_s=0.3, attempts=1), [CHAT])
    assert reply.text == "YES"
    assert isinstance(error, EngineTimeout)


def test_ask_without_a_server_raises_a_retryable_error(tmp_path: Path) -> None:
    spec = TeacherSpec(base_url="http://127.0.0.1:9/v1", model="m", attempts=2, backoff_s=0.0)
    (error,), _ = ask_all(tmp_path / "l", spec, [CHAT])
    assert isinstance(error, EngineUnavailable) and error.retryable and not ends_run(error)


def test_refused_request_is_recorded_and_not_sent_again(tmp_path: Path) -> None:
    with serve(lambda body, n: Say(status=400, raw=b"no such parameter")) as server:
        for _ in range(2):
            (reply,), _ = ask_all(tmp_path / "l", spec_for(server), [CHAT])
            assert (reply.error, reply.error_kind) == ("the server answered 400: no such parameter", "refused")
            assert not is_too_long(reply)
    assert len(server.asked) == 1


@pytest.mark.parametrize("message", ["maximum context length is 4096 tokens", "the input has too many tokens"])
def test_refusal_of_a_long_request_is_recognised(tmp_path: Path, message: str) -> None:
    with serve(lambda body, n: Say(status=400, raw=message.encode())) as server:
        (reply,), _ = ask_all(tmp_path / "l", spec_for(server), [CHAT])
    assert is_too_long(reply)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_wrong_key_or_address_ends_the_run(tmp_path: Path, status: int) -> None:
    with serve(lambda body, n: Say(status=status)) as server:
        (error,), ledger = ask_all(tmp_path / "l", spec_for(server, api_key_env="MY_KEY"), [CHAT])
    assert isinstance(error, EngineError) and ends_run(error)
    assert ("MY_KEY" in str(error)) == (status != 404)
    assert (len(server.asked), len(ledger)) == (1, 0)


@pytest.mark.parametrize("address", ["nonsense", "/v1", "localhost:8000/v1", "http://127.0.0.1:99999/v1"])
def test_malformed_address_ends_the_run(tmp_path: Path, address: str) -> None:
    (error,), _ = ask_all(tmp_path / "l", TeacherSpec(base_url=address, model="m"), [CHAT])
    assert isinstance(error, InputError) and ends_run(error)
    assert "is not an address" in str(error)


# ── Finished and running calls ───────────────────────────────────────────────────────────────────


def test_equal_calls_at_the_same_time_share_one_request(tmp_path: Path) -> None:
    """Two pages of the same words are one call with one reply, which a second run reads from the ledger too."""
    with serve(lambda body, n: Say("YES" if n == 0 else "NO", delay_s=0.1)) as server:
        replies, ledger = ask_all(tmp_path / "l", spec_for(server), [CHAT] * 3)
        again, _ = ask_all(tmp_path / "l", spec_for(server), [CHAT] * 3)
    assert [reply.text for reply in (*replies, *again)] == ["YES"] * 6
    assert (len(server.asked), ledger.spent.calls) == (1, 1)


def test_equal_call_after_a_failed_one_asks_again(tmp_path: Path) -> None:
    with serve(lambda body, n: Say(status=503, delay_s=0.1) if n == 0 else Say("YES")) as server:
        (error, *others), _ = ask_all(tmp_path / "l", spec_for(server, attempts=1), [CHAT] * 3)
    assert isinstance(error, EngineUnavailable)
    assert [reply.text for reply in others] == ["YES", "YES"]
    assert len(server.asked) == 2


def test_finished_call_is_never_made_again(tmp_path: Path) -> None:
    with serve(lambda body, n: Say(f"reply {n}")) as server:
        first, ledger = ask_all(tmp_path / "l", spec_for(server), several(5))
        again, reopened = ask_all(tmp_path / "l", spec_for(server), several(7))
    assert again[:5] == first
    assert len(server.asked) == 7
    assert (ledger.spent.calls, reopened.spent.calls) == (5, 7)
    assert reopened.spent.tokens > ledger.spent.tokens > 0


def test_another_draw_is_another_call(tmp_path: Path) -> None:
    with serve(lambda body, n: Say(str(body["seed"]))) as server:
        (first,), _ = ask_all(tmp_path / "l", spec_for(server), [CHAT])
        (second,), _ = ask_all(tmp_path / "l", spec_for(server), [CHAT], draw=1)
    assert (first.text, second.text) == ("0", "1")


def test_concurrency_is_bounded_and_used(tmp_path: Path) -> None:
    with serve(lambda body, n: Say("YES", delay_s=0.05)) as server:
        replies, _ = ask_all(tmp_path / "l", spec_for(server, concurrency=4), several(24))
    assert all(reply.text == "YES" for reply in replies)
    assert server.most_at_once == 4


# ── The budget ───────────────────────────────────────────────────────────────────────────────────


def test_budget_of_calls_is_exact(tmp_path: Path) -> None:
    with serve(lambda body, n: Say("YES", delay_s=0.02)) as server:
        replies, _ = ask_all(tmp_path / "l", spec_for(server), several(20), Budget(max_calls=7))
        assert sum(isinstance(reply, BudgetReached) for reply in replies) == 13
        assert len(server.asked) == 7
        # spending counts over runs: no further call is allowed, finished calls still answer
        again, _ = ask_all(tmp_path / "l", spec_for(server), several(20), Budget(max_calls=7))
        assert sum(isinstance(reply, Reply) for reply in again) == 7
        assert len(server.asked) == 7


def test_budgets_of_tokens_and_money_stop_too(tmp_path: Path) -> None:
    with serve(lambda body, n: Say("YES " * 100)) as server:
        spec = spec_for(server, concurrency=1, usd_per_million_completion_tokens=1e6)
        replies, ledger = ask_all(tmp_path / "a", spec, several(10), Budget(max_usd=150))
        assert ledger.spent.usd == pytest.approx(202)
        assert "of $150.00" in str(next(reply for reply in replies if isinstance(reply, BudgetReached)))
        _, ledger = ask_all(tmp_path / "b", spec, several(10), Budget(max_tokens=250))
        assert 250 <= ledger.spent.tokens < 400


# ── Keys ─────────────────────────────────────────────────────────────────────────────────────────


def test_key_of_a_call_equals_the_key_of_earlier_versions() -> None:
    """The keys of existing ledgers: if they changed, every finished call would be made and paid again."""
    spec = TeacherSpec(model="m", temperature=0.7, top_p=0.8, top_k=20, max_tokens=64)
    spec = spec.model_copy(update={"extra": {"chat_template_kwargs": {"enable_thinking": False}}})
    page = "<|im_end|>\n<think>The Tamber.\n[INST] 是"
    chat = judge_chat("Which <|user|> river?", ("The Tamber", "Tämber"), page)
    assert body_key(call_body(spec, chat_messages, chat, sampling_of(spec, 3))) == "9884d83b9c958ade57b43f080ddf099b"
    plain = TeacherSpec(model="m", max_tokens=64)
    assert body_key(call_body(plain, chat_messages, CHAT, sampling_of(plain, 0))) == "11e27629143c63a26a22eb74a6e26789"


def test_key_depends_on_the_sampling_and_not_on_the_address() -> None:
    def key(**changes: Any) -> str:
        spec = TeacherSpec.model_validate({"base_url": "http://a/v1", "model": "m", **changes})
        return body_key(call_body(spec, chat_messages, CHAT, sampling_of(spec, 0)))

    assert key(base_url="http://b/v1") == key()
    assert len({key(), key(temperature=0.8), key(top_k=5), key(max_tokens=9), key(extra={"x": 1})}) == 5


def test_key_of_a_chat_with_an_image_depends_on_its_pixels(tmp_path: Path) -> None:
    white, grey = (ChatImage.of_pixels(np.full((56, 56), value, np.uint8)) for value in (255, 128))
    with serve(lambda body, n: Say(f"{n}")) as server:
        spec = spec_for(server, concurrency=1)
        replies, _ = ask_all(tmp_path / "l", spec, [Chat.of("What?", image) for image in (white, grey, white)])
    assert [reply.text for reply in replies] == ["0", "1", "0"]
    assert server.asked[0]["messages"][0]["content"][1]["image_url"]["url"].startswith("data:image/png")


def test_request_carries_the_key_of_the_ledger(tmp_path: Path) -> None:
    with serve(lambda body, n: Say("YES")) as server:
        _, ledger = ask_all(tmp_path / "l", spec_for(server), [CHAT])
    with Ledger(tmp_path / "l") as ledger:
        assert ledger.get(server.keys[0]) is not None


def test_api_key_is_read_from_its_variable_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADE_UP_KEY", "abc")
    monkeypatch.setenv("SEER_API_KEY", "another")
    with serve(lambda body, n: Say("YES")) as server:
        ask_all(tmp_path / "l", spec_for(server, api_key_env="MADE_UP_KEY"), [CHAT])
        ask_all(tmp_path / "m", spec_for(server, api_key_env="UNSET_KEY"), [CHAT])
    assert server.authorizations == ["Bearer abc", ""]
    assert "abc" not in (tmp_path / "l").read_text()


# ── Replies ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sent", "think", "text"),
    [
        (("YES", ""), "", "YES"),
        (("YES", "So."), "So.", "YES"),
        (("<think>So.</think>YES", ""), "So.", "YES"),
        (("So.</think>YES", ""), "So.", "YES"),
        (("<think>So", ""), "", "<think>So"),
        (
            (f"<think>So.</think>{CHAT_LITERALS.neutralise('</think>')}", ""),
            "So.",
            CHAT_LITERALS.neutralise("</think>"),
        ),
    ],
)
def test_thinking_is_split_from_the_text(sent: tuple[str, str], think: str, text: str) -> None:
    assert split_thinking(read_text(*sent, CHAT_LITERALS)) == (think, text)


@settings(deadline=None)
@given(st.text(), st.text(), st.integers(-5, 5))
def test_any_generation_becomes_a_reply_that_the_ledger_can_hold(text: str, think: str, count: int) -> None:
    reply = read_generation(Generation(read_text(text, think), prompt_tokens=count))
    assert f"{reply.text}{reply.think}{reply.finish}".encode()


# ── Engines in this process ──────────────────────────────────────────────────────────────────────


class FakeEngine:
    """Answers with the question; fails on demand."""

    max_concurrent = 8

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.requests, self.closed = error, list[Request](), False

    async def generate_one(self, request: Request) -> Generation:
        self.requests.append(request)
        return Generation((("", request.prompt.messages[-1].text),), completion_tokens=1)

    def close(self) -> None:
        self.closed = True


def test_engine_is_opened_once_and_only_for_calls_that_the_ledger_lacks(tmp_path: Path) -> None:
    opened: list[FakeEngine] = []

    def open_engine() -> FakeEngine:
        opened.append(FakeEngine())
        return opened[-1]

    async def run() -> list[Reply]:
        with Ledger(tmp_path / "l") as ledger:
            teacher = Teacher(
                TeacherSpec(model="m", top_k=20, max_tokens=32), ledger, Budget(), role="judge", open_engine=open_engine
            )
            async with teacher:
                return list(await asyncio.gather(*map(teacher.ask, several(3))))

    first, again = asyncio.run(run()), asyncio.run(run())
    assert [reply.text for reply in first] == ["Is it 0?", "Is it 1?", "Is it 2?"]
    assert again == first
    assert len(opened) == 1 and opened[0].closed
    assert {(one.sampling.top_k, one.sampling.max_new_tokens) for one in opened[0].requests} == {(20, 32)}


def test_engine_that_cannot_be_opened_is_not_tried_for_every_call(tmp_path: Path) -> None:
    tries: list[int] = []

    def fail() -> FakeEngine:
        tries.append(1)
        raise ModelError("no such model")

    async def run() -> list[Any]:
        with Ledger(tmp_path / "l") as ledger:
            async with Teacher(TeacherSpec(model="m"), ledger, Budget(), role="judge", open_engine=fail) as teacher:
                return list(await asyncio.gather(*map(teacher.ask, several(5)), return_exceptions=True))

    errors = asyncio.run(run())
    assert all(isinstance(error, ModelError) and ends_run(error) for error in errors)
    assert len(tries) == 1


def test_teacher_without_an_address_loads_a_chat_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []

    def load(model: str, **arguments: Any) -> FakeEngine:
        loaded.append((model, arguments))
        return FakeEngine()

    monkeypatch.setitem(__import__("sys").modules, "seer.engines.vllm.stock", SimpleNamespace(VLLMChatEngine=load))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    template = {"enable_thinking": False}
    spec = TeacherSpec(model="some/model", concurrency=8, timeout_s=9, extra={"chat_template_kwargs": template})
    (reply,), _ = ask_all(tmp_path / "l", spec, [CHAT])
    assert reply.text == "Is it?"
    options = {"chat_template_kwargs": template, "timeout_s": 9.0, "max_concurrent": 12, "max_num_seqs": 8}
    assert loaded == [("some/model", options)]


def test_teacher_without_vllm_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (error,), _ = ask_all(tmp_path / "l", TeacherSpec(model="some/model"), [CHAT])
    assert isinstance(error, ModelError)
    assert "base_url" in str(error)


def test_teacher_in_this_process_rejects_keys_that_only_a_server_reads(tmp_path: Path) -> None:
    """Otherwise it would answer by other rules than its configuration states."""
    spec = TeacherSpec(model="some/model", extra={"repetition_penalty": 1.1, "min_p": 0.1})
    with (
        Ledger(tmp_path / "l") as ledger,
        pytest.raises(ConfigError, match="extra min_p, repetition_penalty is read by a server only"),
    ):
        open_teacher(spec, ledger, Budget(), role="judge")
