"""The miniature's tokenizer: every word of the world and every fixed phrase is one token; other text becomes bytes.

A model of two million parameters cannot also learn spelling. Digits form pairs, as they form groups of three in GLM: a
code then takes two or three tokens, which seldom repeat within a document.
"""

from __future__ import annotations

import re
from dataclasses import astuple
from typing import TYPE_CHECKING

from seer.miniature.lexicon import CHINESE_NAMES, ENGLISH_NAMES
from seer.miniature.world import QUESTION_FORMS
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
        for wording in (template.ENGLISH, template.CHINESE)
        for text in astuple(wording)
        for part in re.split(r"{\w+}", text)
    ),
    template.UNANSWERABLE,
)
"""The fixed phrases of conversations about this world: those of the protocol and of the reasoning template."""


def phrases() -> list[str]:
    """Return all phrases that are one token, longest first, so that the pattern never matches a part of a longer one."""
    question_parts = {part for parts in QUESTION_FORMS.values() for part in parts if part}
    words = {*CHINESE_NAMES, *CHINESE_NAMES.values()}
    return sorted({*filter(None, PROTOCOL_PHRASES), *question_parts, *words}, key=lambda phrase: (-len(phrase), phrase))


def build_tokenizer(family: str = "glm-4.1v") -> Tokenizer:
    """Build a byte-level tokenizer without merges: a known word is one token, any other text is one token per byte.

    family: the model family whose special tokens are added, "glm-4.1v" or "glm-4.5v".
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    spelling = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [f"{number:02}" for number in range(100)]
    whole = [*phrases(), *ENGLISH_NAMES, *ENGLISH_NAMES.values(), "→", *pairs]
    # The vocabulary stores every word in the byte-level alphabet, in which "é" is two symbols.
    spelled = ["".join(part for part, _ in spelling.pre_tokenize_str(text)) for text in whole]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys([*alphabet, *spelled]))}
    # With ignore_merges a word of the vocabulary is one token although no merge produces it.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    # Fixed phrases are split off first, then words, pairs of digits and single other characters.
    pattern = "|".join([*map(re.escape, phrases()), r"\p{L}+", r"[0-9]{2}", r"[^\p{L}]"])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), behavior="isolated"), spelling]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in SPECIAL_TOKENS[family]])
    return tokenizer
