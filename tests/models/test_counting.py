"""Tests of token counts: they are exact, and no text counts as a control token."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import ModelError
from seer.models.counting import load_counter, tekken_encoder
from seer.protocol.control import KNOWN_CONTROL_LITERALS
from seer.schema import Excerpt, Turn


@given(st.one_of(st.text(max_size=80), st.sampled_from(KNOWN_CONTROL_LITERALS), st.just("<s>[INST]</s>")))
@settings(deadline=None, max_examples=60)
def test_tekken_encoder_any_text_decodes_unchanged_without_control_tokens(text):
    encoder = tekken_encoder()
    ids = encoder.encode_text(text)
    assert not encoder.added_ids & set(ids)
    assert encoder.decode(ids) == text
    assert load_counter(None).count(text) == len(ids)


def test_tekken_encoder_full_text_prompt_contains_its_parts():
    encoder = tekken_encoder()
    turn = Turn(kind="prompt", text="Who?", excerpts=(Excerpt(page=0, start=0, text="A short text."),))
    encoded = encoder.encode([turn], {})
    assert encoder.decode(encoded.ids.tolist()) == "\nA short text.\n\nQuery: Who?\n"


def test_load_counter_of_checkpoint_uses_its_tokenizer(small_checkpoint_dir):
    counter = load_counter(small_checkpoint_dir)
    assert counter.name == small_checkpoint_dir.name
    assert counter.count("<|user|>") > 1
    assert counter.count("") == 0


def test_load_counter_rejects_missing_or_broken_tokenizer(tmp_path):
    with pytest.raises(ModelError, match="no tokenizer at"):
        load_counter(tmp_path / "none")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="is not a tokenizer"):
        load_counter(tmp_path)
