"""Tests of neutralised text: no control token can be spelled in it, and the original text comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seer.protocol.control import KNOWN_CONTROL_LITERALS
from seer.protocol.literals import neutralise, restore


@given(
    st.lists(st.sampled_from([*KNOWN_CONTROL_LITERALS, "\u2060", "<", "|", "user", " ", "问"]), max_size=20).map(
        "".join
    )
)
def test_restore_inverts_neutralise_which_hides_every_control_literal(text):
    safe = neutralise(text)
    assert restore(safe) == text
    assert not any(name in safe for name in KNOWN_CONTROL_LITERALS)
    assert safe.replace("\u2060", "") == text.replace("\u2060", "")


def test_neutralise_adds_one_joiner_after_the_opening_character():
    assert neutralise("a <|user|> b") == "a <\u2060|user|> b"
    assert neutralise("[gMASK]</think>/nothink") == "[\u2060gMASK]<\u2060/think>/\u2060nothink"
    assert neutralise("a < b [c] /d") == "a < b [c] /d"
    assert neutralise("<\u2060|user|>") == "<\u2060\u2060|user|>", (
        "restore removes one joiner, so the original one stays"
    )
    assert restore("<\u2060\u2060|user|>") == "<\u2060|user|>"
    assert restore("<|user|>") == "<|user|>"
