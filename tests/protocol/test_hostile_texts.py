"""Tests with many texts that spell control tokens, whole, cut and disguised: none becomes one in any request format."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from fakes import small_encoder
from tokenizers import Tokenizer

from seer.engines.openai.messages import completion_prompt, prompt_parts
from seer.protocol.control import KNOWN_CONTROL_LITERALS
from seer.protocol.literals import neutralise, restore
from seer.schema import Excerpt, Turn
from tests.protocol.test_encoding import SIZES, conversation

TRICKS = "\u2060\u200b\u200c\u200d\ufeff\u00ad\u202e\u0301\ud800\udfff\0\n\r\t |＜＞｜<>[]/_-\\&;%Ġ▁"


def hostile_texts(count: int, seed: int = 0) -> Iterator[str]:
    """Yield texts with control literals whole, cut, nested, doubled and disguised, among words and special characters."""
    generator = random.Random(seed)
    words = (
        "Query: ",
        "[Image 1]",
        "Text from image 2: ",
        '{"name": "select", "indices": [1]}',
        "user",
        "答案",
        "0x3c",
    )

    def piece() -> str:
        literal = generator.choice(KNOWN_CONTROL_LITERALS)
        cut = generator.randrange(len(literal))
        trick = generator.choice(TRICKS)
        return generator.choice(
            (
                *(literal, literal[:cut] + trick + literal[cut:], literal[:cut], literal[cut:], literal.upper()),
                *(literal[:cut] + literal + literal[cut:], literal.replace("|", "｜"), literal[1:], trick * 3),
                *("<" + trick + literal[1:], literal[0] * 2 + literal[1:], generator.choice(words), trick),
                *(literal.replace("<", "&lt;"), chr(generator.randrange(0x110000))),
            )
        )

    for _ in range(count):
        yield "".join(piece() for _ in range(generator.randint(1, 8)))


def every_literal_special() -> Tokenizer:
    """Return a server tokenizer with the least protection: text can spell every known literal as a control token."""
    tokenizer = Tokenizer.from_str(small_encoder().full.to_str())
    tokenizer.add_special_tokens(list(KNOWN_CONTROL_LITERALS))
    return tokenizer


def check_every_request_format(count: int) -> None:
    encoder, server = small_encoder(), every_literal_special()
    controls = np.array(sorted(encoder.added_ids))
    special = set(server.get_added_tokens_decoder())
    kept = encoder.encode(conversation("q", "o", "t", "a"), SIZES).ids
    expected = kept[np.isin(kept, controls)]
    texts = list(hostile_texts(count))
    for number, text in enumerate(texts):
        assert not encoder.added_ids & {*encoder.encode_text(text)}, ascii(text)
        # As question, retrieved text, reasoning and answer: the control tokens stay those of the plain conversation.
        turns = conversation(text, texts[number - 1], texts[number - 2] or "t", texts[number - 3] or "a")
        turns = (turns[0].model_copy(update={"excerpts": (Excerpt(page=4, start=0, text=text),)}), *turns[1:])
        ids = encoder.encode(turns, SIZES).ids
        np.testing.assert_array_equal(ids[np.isin(ids, controls)], expected, err_msg=ascii(text))
        # In formats that carry only strings.
        bare = Turn(kind="prompt", text=text, chat=False)
        strings = [
            part["text"] for part in prompt_parts(turns[0], dict.fromkeys(SIZES, "url")) if part["type"] == "text"
        ]
        for sent in (neutralise(text), *strings, completion_prompt([bare]) or ""):
            assert not special & {*server.encode(_storable(sent), add_special_tokens=False).ids}, ascii(text)
        assert restore(neutralise(text)) == text


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def test_encode_hostile_texts_yields_no_control_token() -> None:
    check_every_request_format(5_000)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_encode_hundred_thousand_hostile_texts_yields_no_control_token() -> None:
    check_every_request_format(100_000)
