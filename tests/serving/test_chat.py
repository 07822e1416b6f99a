"""Chats of clients: finding documents and the question, and rejecting malformed requests."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from seer.errors import InputError, SeerError
from seer.reading.policy import ReadingPolicy
from seer.rendering import documents
from seer.rendering.formats import scans
from seer.rendering.formats.pdf import file as pdfsource
from seer.rendering.formats.pdf.reading import PageText
from seer.rendering.layout.lines import lay_out
from seer.serving.chat import ChatRequest, Source, decode_data_url, read_chat
from seer.serving.reading import chat_policy, load_documents, safe_name
from seer.serving.settings import ChatOptions, ServeSettings, read_keys
from seer.serving.turns import split_question
from tests.rendering.makers import WORD, make_docx, make_pdf

SETTINGS = ServeSettings(min_document_chars=100)
LONG = "The quick brown fox jumps over the lazy dog. " * 10


def read(*messages: dict, **fields: object):
    return read_chat({"model": "seer", "messages": list(messages), **fields}, SETTINGS)


def user(content: object) -> dict:
    return {"role": "user", "content": content}


def texts(*parts: str) -> list[dict]:
    return [{"type": "text", "text": part} for part in parts]


def test_read_chat_with_separate_parts_finds_document_and_question():
    chat = read(user(texts(LONG, "Who jumps?")))
    assert chat.question == "Who jumps?"
    assert chat.sources == (Source("text-1", text=LONG),)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (f"{LONG}\n\nWho jumps?", "Who jumps?"),
        (f"Who jumps?\n\n{LONG}\n\nThe end.", "Who jumps?"),
        (f"Summarise this:\n\n{LONG}\n\nThe end.", "Summarise this:"),
        (f"{LONG}\nQuestion: who jumps", "Question: who jumps"),
        (f"Is it so?\n\n{LONG}\n\n谁在跳？", "谁在跳？"),
    ],
)
def test_read_chat_splits_one_text_into_document_and_question(text, question):
    chat = read(user(text))
    assert chat.question == question
    assert LONG.strip() in chat.sources[0].text


def test_read_chat_places_earlier_messages_before_the_question():
    chat = read(
        {"role": "system", "content": "Answer in French."},
        user(LONG),
        {"role": "assistant", "content": "I have read it."},
        user("Who jumps?"),
        {"role": "assistant", "content": "The fox."},
        user("Over whom?"),
    )
    assert [source.text for source in chat.sources] == [LONG]
    assert chat.question == (
        "Answer in French.\n\nEarlier in this conversation:\nAssistant: I have read it.\nUser: Who jumps?\n"
        "Assistant: The fox.\n\nOver whom?"
    )


def test_read_chat_takes_files_and_images_as_documents():
    parts = [
        {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}},
        {"type": "file", "file": {"file_id": "file-1"}},
        *texts("What?"),
    ]
    chat = read(user(parts))
    assert [(source.name, source.data, source.file_id) for source in chat.sources] == [
        ("a.txt", b"hello", ""),
        ("image-2", b"hello", ""),
        ("document-3", None, "file-1"),
    ]


def test_decode_data_url_rejects_everything_but_data_urls():
    assert decode_data_url("data:text/plain,a%20b", "x") == b"a b"
    assert decode_data_url("data:;base64,YQ==", "x") == b"a"
    for bad in ("http://x/y", "file:///etc/passwd", "data:text/plain;base64,?", "", None, 7):
        with pytest.raises(InputError):
            decode_data_url(bad, "x")


@given(st.text(max_size=400), st.integers(1, 300))
def test_split_question_keeps_every_word(text, limit):
    document, question = split_question(text, limit)
    assert "".join((document + question).split()) in ("".join(text.split()), _moved(text))


def _moved(text: str) -> str:
    """The words with the first paragraph last, as where the question comes first."""
    first, _, rest = text.rstrip().lstrip().partition("\n\n")
    return "".join(rest.split()) + "".join(first.split())


KEYS = [
    "messages",
    "role",
    "content",
    "type",
    "text",
    "file",
    "file_data",
    "image_url",
    "url",
    "model",
    "seer",
    "n",
    "user",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=20,
)


@settings(max_examples=200)
@given(JSON)
def test_read_chat_of_any_json_raises_only_errors_of_seer(body):
    with contextlib.suppress(SeerError):  # any other error would be the server's
        read_chat(body, SETTINGS)


@given(st.text(max_size=200))
def test_safe_name_stays_in_its_folder(name):
    safe = safe_name(name)
    assert safe
    assert "/" not in safe
    assert "\\" not in safe
    assert "\0" not in safe
    assert safe not in (".", "..")
    assert len(safe.encode("utf-8", "surrogatepass")) <= 255


# ── More pages than allowed ──────────────────────────────────────────────────────────────────────


def frames(count: int) -> bytes:
    pages = [Image.new("L", (40, 30), value) for value in range(count)]
    pages[0].save(buffer := io.BytesIO(), "TIFF", save_all=True, append_images=pages[1:])
    return buffer.getvalue()


NEWLINES = "\n" * 200_000
PARAGRAPHS = "<w:p/>" * 50_000
LONG_SOURCES = {
    "a text": [Source("a", text=NEWLINES)],
    "a text file": [Source("a.txt", data=NEWLINES.encode())],
    "HTML": [Source("a.html", data=f"<html>{'<li>x' * 20_000}</html>".encode())],
    "a Word file": [Source("a", data=make_docx(f"<w:document {WORD}>{PARAGRAPHS}</w:document>"))],
    "a PDF": [Source("a", data=make_pdf(5))],
    "a picture": [Source("a", data=frames(5))],
    "many texts": [Source(f"{number}", text=f"text {number}\n" * 100) for number in range(50)],
    "many kinds": [Source("a", text="a"), Source("b", data=make_pdf(1)), Source("c", data=frames(3))],
}


@pytest.mark.parametrize("kind", LONG_SOURCES)
@pytest.mark.parametrize("options", [{}, {"reflow": True}, {"pages": "1-"}, {"style": "auto"}])
def test_load_documents_stops_at_the_page_limit(kind, options, monkeypatch):
    taken = []

    def counted(*arguments):
        for layout in lay_out(*arguments):
            taken.append(layout)
            yield layout

    def scanned(image):
        raise AssertionError("a picture was read that is refused")

    monkeypatch.setattr(documents, "lay_out", counted)
    monkeypatch.setattr(scans, "read_picture", scanned)
    monkeypatch.setattr(
        pdfsource.PdfFile, "read", lambda self, index: taken.append(index) or PageText("text\n", "text")
    )
    chat = ChatRequest("seer", "What?", (), ChatOptions(**options))
    with pytest.raises(InputError, match="more than . pages, the limit set by max_pages"):
        load_documents(LONG_SOURCES[kind], chat, ServeSettings(max_pages=3))
    assert len(taken) <= 4


def test_load_documents_reads_up_to_the_page_limit():
    chat = ChatRequest("seer", "What?", (), ChatOptions(ocr="never"))
    sources = [Source("a", text="a"), Source("b", data=make_pdf(3)), Source("c", data=frames(2))]
    assert len(load_documents(sources, chat, ServeSettings(max_pages=6)).pages) == 6
    some = ChatRequest("seer", "What?", (), ChatOptions(pages="2-3"))
    assert len(load_documents(sources[1:2], some, ServeSettings(max_pages=2)).pages) == 2


def test_read_keys_takes_strong_keys_from_file_or_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SEER_SERVER_KEYS", " aaaaaaaaaaaaaaaa, bbbbbbbbbbbbbbbb,")
    assert read_keys() == ("a" * 16, "b" * 16)
    file = tmp_path / "keys"
    file.write_text("\ufeff" + "c" * 16 + "\n\n", encoding="utf-8")
    assert read_keys(file) == ("c" * 16,)
    for weak in ("short", "ключ" * 8):
        file.write_text(weak, encoding="utf-8")
        with pytest.raises(InputError, match="fewer than 16"):
            read_keys(file)
    file.write_text("")
    with pytest.raises(InputError, match="holds no key"):
        read_keys(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_keys(tmp_path / "none")


@pytest.mark.parametrize(
    ("messages", "fields", "message"),
    [
        ([], {}, "'messages' is missing or empty; send at least one user message"),
        (
            [{"role": "system", "content": "x"}],
            {},
            "no message has the role 'user'; ask the question in a user message",
        ),
        ([5, user("x")], {}, r"messages\[0\] is not an object; give it 'role' and 'content'"),
        ([user(5)], {}, r"messages\[0\].content is neither a text nor a list of parts; send one of them"),
        (
            [user([{"type": "audio"}])],
            {},
            r"messages\[0\] holds a part of type 'audio'; Seer reads text, file and image",
        ),
        ([{"role": "tool", "content": "x"}, user("x")], {}, r"messages\[0\] has the role 'tool'; Seer reads system"),
        ([user(texts(LONG, " "))], {}, "the last user message holds no question; write it as the last text part"),
        (
            [user(f"{LONG}\n\nWho?"), {"role": "assistant", "content": "The"}],
            {},
            "does not continue an answer that was begun: end with a user message",
        ),
        ([user(texts(LONG, "Who?" + " and who" * 900))], {}, "characters and 4000 are allowed; put the document"),
        ([user(texts(*[LONG] * 65, "Who?"))], {}, "the chat holds more than 64 documents; join some of them"),
        ([user(texts(LONG, "Who?"))], {"model": 5}, "'model' is missing; see /v1/models"),
        ([user(texts(LONG, "Who?"))], {"n": 2}, "n=2: Seer returns one answer; leave n out"),
        (
            [user(texts(LONG, "Who?"))],
            {"tools": [1]},
            "'tools' is not supported; Seer answers questions about documents",
        ),
        ([user(texts(LONG, "Who?"))], {"seer": [1]}, r"'seer' is \[1\]; an object is needed"),
        ([user(texts(LONG, "Who?"))], {"stream": "yes"}, "'stream' is 'yes'; true or false is needed"),
        ([user(texts(LONG, "Who?"))], {"temperature": 3}, "'temperature' is 3; a number from 0 to 2 is needed"),
        ([user(texts(LONG, "Who?"))], {"temperature": float("nan")}, "'temperature' is nan; a number from 0 to 2"),
        ([user(texts(LONG, "Who?"))], {"max_tokens": True}, "'max_tokens' is True; a number from 1 is needed"),
    ],
)
def test_read_chat_names_what_is_wrong_and_what_to_send(messages, fields, message):
    limits = SETTINGS.model_copy(update={"max_question_chars": 4000})
    with pytest.raises(InputError, match=message):
        read_chat({"model": "seer", "messages": messages, **fields}, limits)


def test_chat_policy_takes_sampling_from_the_chat_and_limits_its_tokens():
    chat = read(user(texts(LONG, "Who?")), temperature=1, top_p=0.5, seed=7, max_tokens=10_000, seer={"rounds": 2})
    policy = chat_policy(ReadingPolicy(), chat, ServeSettings(max_new_tokens=300))
    assert (policy.temperature, policy.top_p, policy.seed, policy.rounds) == (1.0, 0.5, 7, 2)
    assert policy.max_new_tokens == 300
    plain = chat_policy(ReadingPolicy(seed=3), read(user(texts(LONG, "Who?"))), ServeSettings())
    assert (plain.temperature, plain.seed) == (ReadingPolicy().temperature, 3)


def test_read_keys_rejects_a_file_that_is_not_text(tmp_path):
    (tmp_path / "keys").write_bytes(b"\xff\xfe" + b"a" * 20)
    with pytest.raises(InputError, match="keys' is not text; write one key per line, in ASCII"):
        read_keys(tmp_path / "keys")


def test_chat_policy_takes_passages_from_the_chat_only_if_its_system_retrieves_text():
    chat = read(user(texts(LONG, "Who?")), seer={"retrieve": "passages"})
    policy = chat_policy(ReadingPolicy(), chat, ServeSettings())
    assert (policy.retrieve, policy.selector_pages) == ("passages", 3)
    with pytest.raises(InputError, match="retrieve=passages: the system 'seer-k0' retrieves no text"):
        chat_policy(ReadingPolicy(retrieve=False), chat, ServeSettings())


TURN = f"{LONG}\n\nWho jumps?"


def test_read_chat_keeps_the_document_of_the_first_turn_in_later_turns():
    first = read(user(TURN))
    later = read(
        user(TURN),
        {"role": "assistant", "content": "The fox. " * 40},
        user("Over whom?"),
        {"role": "assistant", "content": "The dog."},
        user("Why?"),
    )
    assert later.sources == first.sources
    assert later.question.startswith("Earlier in this conversation:\nUser: Who jumps?\nAssistant: The fox.")
    assert later.question.endswith("User: Over whom?\nAssistant: The dog.\n\nWhy?")


WRAPPED = {
    "short context": (
        "<context>\nThe fee is 90.\n</context>\n<user_query>\nWhat is it?\n</user_query>",
        "The fee is 90.",
        "What is it?",
    ),
    "query first": (f"<query>What is it?</query>\n<documents>\n{LONG}\n</documents>", LONG, "What is it?"),
    "question outside": (
        f"Use the context.\n<context>\n{LONG}\n</context>\nWhat is it?",
        LONG,
        "Use the context.\n\nWhat is it?",
    ),
    "sources inside": (
        f"<context>\n<source id='1'>{LONG}</source>\n<source>b</source>\n</context>\n\nWhat is it?",
        f"<source id='1'>{LONG}</source>\n<source>b</source>",
        "What is it?",
    ),
    "upper case": (f"<CONTEXT>{LONG}</CONTEXT><QUESTION>What is it?</QUESTION>", LONG, "What is it?"),
    "query only": (f"{LONG}\n<user_query>What is it?</user_query>\n", LONG, "What is it?"),
}


@pytest.mark.parametrize(("text", "document", "question"), WRAPPED.values(), ids=WRAPPED)
def test_read_chat_reads_tags_around_context_and_query(text, document, question):
    chat = read(user(text))
    assert [source.text.strip() for source in chat.sources] == [document.strip()]
    assert chat.question.split() == question.split()


def test_read_chat_reads_context_tags_of_a_system_message():
    chat = read(
        {"role": "system", "content": "Answer briefly.\n<context>\nThe fee is 90.\n</context>"}, user("What is it?")
    )
    assert [source.text for source in chat.sources] == ["The fee is 90."]
    assert chat.question == "Answer briefly.\n\nWhat is it?"


@pytest.mark.parametrize(
    "text", [f"{LONG} <context> {LONG}", f"<context>{LONG}", f"{LONG}</context></query>", "<context></context>" + LONG]
)
def test_read_chat_takes_unpaired_tags_as_text(text):
    chat = read(user(texts(text, "What?")))
    assert chat.question == "What?" and chat.sources[0].text == text


def test_split_question_with_many_tags_takes_linear_time():
    text = "<source>" * 200_000 + "<context>" * 100_000 + "</source>" * 200_000
    assert split_question(text, 100)[0]


TITLE = f"### Task:\nGenerate a title.\n<chat_history>\nUSER: {LONG}\nASSISTANT: The fox.\n</chat_history>"


@pytest.mark.parametrize("text", ["Write a title.", TITLE])
def test_read_chat_without_a_document_is_talk(text):
    chat = read(
        {"role": "developer", "content": "Be short."}, user("Hello"), {"role": "assistant", "content": ""}, user(text)
    )
    assert not chat.sources
    assert [(message.role, message.text) for message in chat.talk] == [
        ("system", "Be short."),
        ("user", "Hello"),
        ("user", text),
    ]


def test_read_chat_ignores_an_empty_message_after_the_question():
    assert read(user(TURN), {"role": "assistant", "content": ""}).question == "Who jumps?"
