"""Replies over real sockets, whole and streamed, as the openai engine reads them."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from openai_fakes import CALL, DOCUMENT, FREE, PAGES, PROMPT, engine_for
from serving_fakes import Say

from seer.engines.base import Chat, Conversation, Request, Sampling, split_reasoning
from seer.engines.openai.engine import OpenAIEngine
from seer.errors import EngineUnavailable
from seer.protocol.call import parse_call_text, render_call
from seer.protocol.literals import neutralise
from seer.reading.reader import Reader

QUOTED = f"It says </think> and <tool_call>{render_call((3,))}</tool_call>."


@pytest.mark.parametrize("stream", [False, True])
def test_quoted_tags_in_a_reply_stay_text(stream):
    """Neither does it end the thinking, nor is it a call."""
    heard: list[str] = []
    names: list[str] = []
    listening = {"on_text": heard.append, "on_control": names.append} if stream else {}
    request = Request(Conversation(PROMPT, PAGES), "q", sampling=Sampling(max_new_tokens=64), **listening)
    with engine_for(lambda body, n: Say(f"<think>So.</think>\n{neutralise(QUOTED)}")) as (engine, _):
        (said,) = engine.generate([request])
    assert split_reasoning(said.parts) == ("So.", QUOTED, True)
    if stream:
        assert (names, "".join(heard)) == (["<think>", "</think>"], f"So.\n{QUOTED}")


def test_call_after_a_quoted_call_is_the_one_that_counts():
    said = f"{neutralise(QUOTED)} <tool_call>{render_call((1,))}</tool_call>"
    with engine_for(lambda body, n: Say(said if n == 0 else "done")) as (engine, _):
        answer = Reader(engine).ask(DOCUMENT, "q")
    assert answer.selected_pages == (1,)


@pytest.mark.parametrize(
    ("say", "pages", "deviations"),
    [
        (Say('<tool_call>{"name": "select", "indices": [1, 3]}</tool_call>'), (1, 3), ()),
        (Say('{"name": "select", "indices": [2]}'), (2,), ()),
        (Say('```json\n{"name": "select", "indices": [2]}\n```'), (2,), ("text_around",)),
        (
            Say("", message={"tool_calls": [{"function": {"name": "select", "arguments": '{"indices": [3]}'}}]}),
            (3,),
            (),
        ),
        (Say("", message={"tool_calls": [{"function": {"name": "pick", "arguments": "[9"}}]}), (), ("not_json",)),
        (Say("I would look at page 2."), (), ("no_call",)),
        (Say('{"name": "select", "indices": [9, 1, 1]}'), (1,), ("out_of_range", "duplicate")),
    ],
)
def test_call_in_any_spelling_is_read_and_deviations_are_named(say, pages, deviations):

    with engine_for(lambda body, n: say) as (engine, _):
        (said,) = engine.generate([CALL])
    parsed = parse_call_text(said.raw, (1, 2, 3), 2)
    assert (parsed.pages, parsed.deviations) == (pages, deviations)


def test_separate_reasoning_becomes_thinking():
    with engine_for(lambda body, n: Say("42", message={"reasoning_content": "so"})) as (engine, _):
        (said,) = engine.generate([FREE])
    assert said.raw == "<think>so</think>42"


def test_stream_passes_text_and_control_tokens_separately():
    pieces: list[str] = []
    names: list[str] = []
    text = "<think>a [b] < c</think>\nThe answer is 42, " + neutralise("not <think>") + "."
    request = Request(Conversation(PROMPT, PAGES), "s", on_text=pieces.append, on_control=names.append)
    with engine_for(lambda body, n: Say(text)) as (engine, server):
        (said,) = engine.generate([request])
    assert server.asked[0]["stream"]
    assert names[:2] == ["<think>", "</think>"]
    assert "".join(pieces).startswith("a [b] < c\nThe answer is 42, ")
    assert len(pieces) > 3
    assert said.prompt_tokens == 11


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_stream_passes_separate_reasoning_as_thinking(key):
    pieces: list[str] = []
    request = Request(Conversation(PROMPT, PAGES), "s", on_text=pieces.append, on_control=pieces.append)
    with engine_for(lambda body, n: Say("42", message={key: "so"})) as (engine, _):
        (said,) = engine.generate([request])
    assert pieces == ["<think>", "so", "</think>", "42"]
    assert said.raw == "<think>so</think>42"


STREAM = 'data: {"choices": [{"delta": {"content": "Größe 是"}, "finish_reason": "stop"}]}\n\n'


@pytest.mark.parametrize(
    "ending", ["data: [DONE]\n\n", "data: [DONE]", "data: [DONE]\r\n\r\n", ": comment\ndata:[DONE]"]
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_stream_in_any_line_ending_is_read(ending, newline):
    raw = (STREAM.replace("\n", newline) + ending).encode()
    say = Say(raw=raw, headers={"Content-Type": "text/event-stream"})
    pieces: list[str] = []
    with engine_for(lambda body, n: say) as (engine, _):
        (answer,) = engine.generate([Request(Conversation(PROMPT, PAGES), "s", on_text=pieces.append)])
    assert (answer.raw, "".join(pieces)) == ("Größe 是", "Größe 是")


def test_stream_without_done_is_an_answer_if_it_gave_a_finish_reason():
    say = Say(raw=STREAM.encode(), headers={"Content-Type": "text/event-stream"})
    with engine_for(lambda body, n: say, attempts=1) as (engine, _):
        (answer,) = engine.generate([Request(Conversation(PROMPT, PAGES), "s", on_text=print)])
    assert (answer.error, answer.raw) == (None, "Größe 是")


@pytest.mark.parametrize("ending", ["", "data: [DONE]\n\n"])
def test_stream_without_finish_reason_is_a_failure(ending):
    raw = STREAM.replace('"stop"', "null") + ending
    say = Say(raw=raw.encode(), headers={"Content-Type": "text/event-stream"})
    with engine_for(lambda body, n: say, attempts=1) as (engine, _):
        (failed,) = engine.generate([Request(Conversation(PROMPT, PAGES), "s", on_text=print)])
    assert isinstance(failed.error, EngineUnavailable) and "broke off" in str(failed.error)
    assert not failed.retryable  # its text was passed on


@pytest.mark.parametrize("finish", ["error", "abort"])
def test_reply_that_the_server_could_not_finish_is_a_failure(finish):
    with engine_for(lambda body, n: Say("42", finish=finish), attempts=1) as (engine, _):
        for on_text in (None, print):
            (failed,) = engine.generate([Request(Conversation(PROMPT, PAGES), "s", on_text=on_text)])
            assert f"ended the reply with '{finish}'" in str(failed.error)


def test_characters_cut_by_network_packets_stay_whole():
    raw = (STREAM + "data: [DONE]\n\n").encode()

    def serve_bytes(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            for byte in raw:
                connection.sendall(bytes([byte]))
                time.sleep(0.0005)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_bytes, args=(listener,))
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        engine = OpenAIEngine(address, "m", check_at_start=False, attempts=1)
        (answer,) = engine.generate([Request(Chat.of("?"), "s", on_text=print)])
        engine.close()
        thread.join()
    assert answer.text == "Größe 是"


def test_server_that_does_not_stream_is_read():
    request = Request(Conversation(PROMPT, PAGES), "s", on_text=lambda text: None)
    with engine_for(lambda body, n: Say("whole", whole=True)) as (engine, _):
        (said,) = engine.generate([request])
    assert said.raw == "whole"
