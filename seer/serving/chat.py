"""Reads an OpenAI-style chat as documents and a question. All functions are pure.

Documents are file parts (a data URL or an uploaded file), image parts (a data URL), texts in tags such as <context>, and texts
of at least `min_document_chars` characters. The question is the last text part of the last user message. If one long text holds
both, `seer.serving.turns` splits it. Earlier questions and all messages of the assistant are placed before the question, so that
the model understands "and the second one?"; an earlier message is split as it was when it was the last one, so a document stays
the same over all turns. A chat without a document is talk, which the model answers itself. Nothing is fetched from addresses.
"""

from __future__ import annotations

import base64
import binascii
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seer.config import build_config
from seer.engines.base import Message
from seer.errors import InputError
from seer.serving.settings import ChatOptions, ServeSettings
from seer.serving.turns import asks_about_the_chat, split_question, unwrap

MAX_EARLIER_CHARS = 4_000
"""Characters of earlier messages that are placed before the question; the latest are kept."""
MAX_SOURCES = 64
UNSUPPORTED = (
    *("tools", "tool_choice", "functions", "function_call", "response_format", "audio"),
    *("logprobs", "top_logprobs", "logit_bias", "stop", "frequency_penalty", "presence_penalty"),
)


@dataclass(frozen=True)
class Source:
    """One document of a chat: its text, its bytes, or the id of an uploaded file."""

    name: str
    text: str | None = None
    data: bytes | None = None
    file_id: str = ""


@dataclass(frozen=True)
class ChatRequest:
    """A validated chat completion request. None means that the server's choice applies."""

    model: str
    question: str
    sources: tuple[Source, ...]
    options: ChatOptions
    stream: bool = False
    include_usage: bool = False
    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    talk: tuple[Message, ...] = ()
    """The messages of a chat without a document; the last one is the user's."""


@dataclass
class _Parts:
    """The parts of a chat that were found so far."""

    settings: ServeSettings
    sources: list[Source] = field(default_factory=list)
    instructions: list[str] = field(default_factory=list)
    earlier: list[str] = field(default_factory=list)


def read_chat(body: Any, settings: ServeSettings) -> ChatRequest:
    """Return the documents, the question and the options of a chat.

    Raises InputError for a malformed or unsupported request, ConfigError for a wrong field of `seer`.
    """
    if not isinstance(body, Mapping):
        raise InputError("the body is not a JSON object; send a chat completion request")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InputError("'messages' is missing or empty; send at least one user message")
    _refuse_unsupported(body)
    question, sources = _read_messages(messages, settings)
    talk = () if sources else _talk(messages)
    if not sources and not settings.talks:
        raise InputError(
            "the chat holds no document: add a file part, an image part, or a text of at least "
            f"{settings.min_document_chars} characters, and then the question"
        )
    if sources and len(question) > settings.max_question_chars:
        raise InputError(
            f"the question takes {len(question)} characters and {settings.max_question_chars} are allowed; put the document "
            "into a separate part or message before the question"
        )
    stream_options = body.get("stream_options")
    return ChatRequest(
        model=_text(body, "model"),
        question=question,
        sources=tuple(sources),
        options=build_config(ChatOptions, _object(body, "seer"), where="seer"),
        stream=_flag(body, "stream"),
        include_usage=isinstance(stream_options, Mapping) and bool(stream_options.get("include_usage")),
        max_new_tokens=_number(body, "max_completion_tokens", int, 1) or _number(body, "max_tokens", int, 1),
        temperature=_number(body, "temperature", float, 0, 2),
        top_p=_number(body, "top_p", float, 1e-6, 1),
        seed=_number(body, "seed", int, -(2**63), 2**63 - 1),
        talk=talk,
    )


def _read_messages(messages: Sequence[Any], settings: ServeSettings) -> tuple[str, list[Source]]:
    """The question, with instructions and earlier messages before it, and the documents."""
    parts = _Parts(settings)
    last = max((n for n, m in enumerate(messages) if isinstance(m, Mapping) and m.get("role") == "user"), default=None)
    if last is None:
        raise InputError("no message has the role 'user'; ask the question in a user message")
    _refuse_prefilled(messages[last + 1 :])
    question = ""
    for index, message in enumerate(messages[: last + 1]):
        if not isinstance(message, Mapping):
            raise InputError(f"messages[{index}] is not an object; give it 'role' and 'content'")
        role, texts = message.get("role"), _content(message.get("content"), index, parts)
        if index == last:
            question = _question(texts, parts)
        elif role in ("system", "developer"):
            _sort(texts, parts.instructions, parts)
        elif role == "assistant":
            parts.earlier += [f"Assistant: {text}" for text in texts if text.strip()]
        elif role == "user":
            short: list[str] = []
            if _has_reply(messages, index):
                texts = _as_it_was_asked(texts, parts)
            _sort(texts, short, parts)
            parts.earlier += [f"User: {text}" for text in short]
        else:
            raise InputError(
                f"messages[{index}] has the role '{role!s:.40}'; Seer reads system, developer, user and assistant"
            )
    if not question.strip():
        raise InputError("the last user message holds no question; write it as the last text part")
    return _with_context(question, parts), parts.sources


def _refuse_prefilled(rest: Sequence[Any]) -> None:
    """Refuse an answer that the client has begun; an empty message, which some clients append, is ignored."""
    for message in rest:
        if isinstance(message, Mapping) and message.get("role") == "assistant" and message.get("content"):
            raise InputError(
                "the last message is the assistant's; Seer does not continue an answer that was begun: end with a user message"
            )


def _has_reply(messages: Sequence[Any], index: int) -> bool:
    """Whether the assistant answered a message, so that it was the last one of an earlier request."""
    following = messages[index + 1] if index + 1 < len(messages) else None
    return isinstance(following, Mapping) and following.get("role") == "assistant"


def _as_it_was_asked(texts: list[str], parts: _Parts) -> list[str]:
    """The texts of an earlier message with the document and the question of its last text apart, as when it was asked."""
    if not texts:
        return texts
    *others, last = texts
    if len(last) < parts.settings.min_document_chars and unwrap(last) is None:
        return texts
    document, question = split_question(last, parts.settings.max_question_chars)
    if not document or len(question) > MAX_EARLIER_CHARS:
        return texts
    short: list[str] = []
    _sort(others, short, parts)
    _add(parts, Source(f"text-{len(parts.sources) + 1}", text=document))
    return [*short, question]


def _talk(messages: Sequence[Any]) -> tuple[Message, ...]:
    """A chat without a document, as messages for the model. System messages are joined into one at the start."""
    system: list[str] = []
    turns: list[Message] = []
    for message in messages:
        content = message.get("content")
        texts = [content] if isinstance(content, str) else [part["text"] for part in content or ()]
        text = "\n".join(text for text in texts if text.strip())
        if not text:
            continue
        if message.get("role") in ("system", "developer"):
            system.append(text)
        else:
            turns.append(Message("user" if message["role"] == "user" else "assistant", (text,)))
    head = (Message("system", ("\n".join(system),)),) if system else ()
    return (*head, *turns)


def _with_context(question: str, parts: _Parts) -> str:
    """The question after the instructions and the earlier messages."""
    head = "\n".join(parts.instructions)
    messages = "\n".join(parts.earlier)[-MAX_EARLIER_CHARS:]
    earlier = f"Earlier in this conversation:\n{messages}" if messages else ""
    return "\n\n".join(part for part in (head, earlier, question) if part)


def _content(content: Any, index: int, parts: _Parts) -> list[str]:
    """The texts of a message. Its files and images are added to the sources."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise InputError(f"messages[{index}].content is neither a text nor a list of parts; send one of them")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "file" and isinstance(part.get("file"), Mapping):
            _add(parts, _file_source(part["file"], len(parts.sources) + 1))
        elif kind == "image_url" and isinstance(part.get("image_url"), Mapping | str):
            # Some clients send the address itself in place of an object with `url`.
            image = part["image_url"]
            data = decode_data_url(image if isinstance(image, str) else image.get("url"), "image_url")
            _add(parts, Source(f"image-{len(parts.sources) + 1}", data=data))
        else:
            raise InputError(
                f"messages[{index}] holds a part of type '{kind!s:.40}'; Seer reads text, file and image_url parts"
            )
    return texts


def _add(parts: _Parts, source: Source) -> None:
    if len(parts.sources) >= MAX_SOURCES:
        raise InputError(f"the chat holds more than {MAX_SOURCES} documents; join some of them")
    parts.sources.append(source)


def _file_source(file: Mapping[str, Any], number: int) -> Source:
    name = str(file.get("filename") or f"document-{number}")
    if isinstance(file.get("file_id"), str) and file["file_id"]:
        return Source(name, file_id=file["file_id"])
    return Source(name, data=decode_data_url(file.get("file_data"), "file_data"))


def _sort(texts: Sequence[str], short: list[str], parts: _Parts) -> None:
    """Add long texts, and those in tags, to the documents, and the others to `short`."""
    for text in texts:
        wrapped = unwrap(text)
        if wrapped is not None:
            _add(parts, Source(f"text-{len(parts.sources) + 1}", text=wrapped.document))
            text = wrapped.question
            if text:
                short.append(text)
        elif len(text) >= parts.settings.min_document_chars:
            _add(parts, Source(f"text-{len(parts.sources) + 1}", text=text))
        elif text.strip():
            short.append(text)


def _question(texts: Sequence[str], parts: _Parts) -> str:
    """The question in the last user message. Its long texts are added to the documents."""
    if not texts:
        return ""
    *others, last = texts
    short: list[str] = []
    _sort(others, short, parts)
    if asks_about_the_chat(last) and not parts.sources:
        return "\n".join([*short, last])
    if len(last) >= parts.settings.min_document_chars or unwrap(last) is not None:
        document, last = split_question(last, parts.settings.max_question_chars)
        if document:
            _add(parts, Source(f"text-{len(parts.sources) + 1}", text=document))
    return "\n".join([*short, last])


_DATA_URL = re.compile(r"\s*data:(?P<type>[\w.+-]+/[\w.+-]+)?(?P<parameters>(;[^;,]*+)*+),", re.A | re.I)
"""The scheme and the parameters in any case; values may hold spaces, as file names do."""
_URL_SAFE = str.maketrans("-_", "+/")


def decode_data_url(url: Any, where: str) -> bytes:
    """The bytes of a data URL; `where` names its field. Raises InputError for damaged data and for other addresses."""
    if not isinstance(url, str) or not url:
        raise InputError(f"{where} is missing; send a data URL such as data:application/pdf;base64,...")
    match = _DATA_URL.match(url)
    if match is None:
        raise InputError(
            f"{where} is not a data URL; nothing is fetched from the network: send data:application/pdf;base64,..."
        )
    payload = url[match.end() :]
    parameters = [one.strip().lower() for one in match["parameters"].split(";")]
    if "base64" not in parameters:
        return urllib.parse.unquote_to_bytes(payload)
    # Clients wrap lines, use the alphabet that is safe in addresses, escape characters, and leave the padding out.
    if "%" in payload:
        payload = urllib.parse.unquote(payload)
    payload = "".join(payload.split()).translate(_URL_SAFE).rstrip("=")
    try:
        return base64.b64decode(payload + "=" * (-len(payload) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InputError(f"{where} holds damaged base64; encode the file again") from None


# ── Fields ───────────────────────────────────────────────────────────────────────────────────────


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    if body.get("n") not in (None, 1):
        raise InputError(f"n={body['n']!r:.40}: Seer returns one answer; leave n out")
    for name in UNSUPPORTED:
        value = body.get(name)
        # Clients send defaults such as tool_choice "auto"; they ask for nothing that is missing here.
        if value and value not in ("none", "auto") and not (isinstance(value, Mapping) and value.get("type") == "text"):
            raise InputError(f"'{name}' is not supported; Seer answers questions about documents in plain text")


def _text(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"'{key}' is missing; see /v1/models")
    return value


def _object(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = body.get(key) or {}
    if not isinstance(value, Mapping):
        raise InputError(f"'{key}' is {value!r:.40}; an object is needed")
    return value


def _flag(body: Mapping[str, Any], key: str) -> bool:
    value = body.get(key)
    if value is not None and not isinstance(value, bool):
        raise InputError(f"'{key}' is {value!r:.40}; true or false is needed")
    return bool(value)


def _number(body: Mapping[str, Any], key: str, kind: type, low: float | None = None, high: float | None = None) -> Any:
    value = body.get(key)
    if value is None:
        return None
    right = isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
    # NaN fails every comparison, so the bounds are tested in the form that it fails.
    if not right or (low is not None and not value >= low) or (high is not None and not value <= high):
        bounds = f" from {low:g}" + (f" to {high:g}" if high is not None else "") if low is not None else ""
        raise InputError(f"'{key}' is {value!r:.40}; a number{bounds} is needed")
    return kind(value)
