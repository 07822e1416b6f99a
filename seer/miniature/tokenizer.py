"""The miniature's tokenizer: any byte can be said; every word of the world and every fixed phrase is one token.

A model of two million parameters has neither room nor time for spelling. Digits stand in pairs, as GLM's stand in threes: a
code is copied in two or three steps, and its pieces seldom repeat. Ids for any other text are bytes.
"""

from __future__ import annotations

import re
from dataclasses import astuple
from typing import TYPE_CHECKING

from seer.miniature.lexicon import CHINESE, ENGLISH
from seer.miniature.world import ASKED
from seer.models.small import SPECIAL_TOKENS
from seer.protocol.call import render_call
from seer.protocol.turns import observation, observation_without_text
from seer.teaching import template

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PROTOCOL_PHRASES = (
    *("[Image ", "]", "Query: ", ", ", ": "),
    *(render_call(()).split("[]")[0] + "[", "]}"),
    "Text from image ",
    observation(()).text,
    *(part for part in re.split(r"[\[\]]+", observation_without_text(()).text)),
    *(
        part
        for said in (template.ENGLISH, template.CHINESE)
        for text in astuple(said)
        for part in re.split(r"{\w+}", text)
    ),
    template.UNANSWERABLE,
)
"""What conversations of this world say again and again: the protocol's words and the template's reasoning."""


def phrases() -> list[str]:
    """Everything that is one token, longest first, so that no phrase hides a longer one."""
    asked = {part for parts in ASKED.values() for part in parts if part}
    words = {*CHINESE, *CHINESE.values()}
    return sorted({*filter(None, PROTOCOL_PHRASES), *asked, *words}, key=lambda phrase: (-len(phrase), phrase))


def build_tokenizer(family: str = "glm-4.1v") -> Tokenizer:
    """Byte-level, GLM's special tokens, no merges: a word is its own token or falls into bytes."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    spelling = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [f"{number:02}" for number in range(100)]
    whole = [*phrases(), *ENGLISH, *ENGLISH.values(), "→", *pairs]
    spelled = ["".join(part for part, _ in spelling.pre_tokenize_str(text)) for text in whole]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys([*alphabet, *spelled]))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    pattern = "|".join([*map(re.escape, phrases()), r"\p{L}+", r"[0-9]{2}", r"[^\p{L}]"])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), behavior="isolated"), spelling]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in SPECIAL_TOKENS[family]])
    return tokenizer
