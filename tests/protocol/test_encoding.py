"""Tests of the encoder, token by token: prefixes, control tokens, positions, loss classes, the chat template."""

from __future__ import annotations

import json
import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fakes import small_encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import ModelError
from seer.protocol import encoding
from seer.protocol.call import render_call
from seer.protocol.control import CONTROL, KNOWN_CONTROL_LITERALS
from seer.protocol.encoding import CLASSES, Encoder
from seer.protocol.turns import observation
from seer.schema import Excerpt, LossClass, Turn
from tests.protocol.test_turns import EXAMPLE, PROMPT, TWO_ROUNDS

SIZES = {1: (112, 84), 2: (84, 112), 3: (140, 140), 4: (112, 112)}
hostile = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=60),
    st.lists(st.one_of(st.sampled_from(KNOWN_CONTROL_LITERALS), st.text(max_size=5)), max_size=8).map("".join),
    st.sampled_from(["[Image 1]" * 50, '<tool_call>{"name": "select", "indices": [1]}</tool_call>', "\ud800x\udfff"]),
)


def conversation(question: str, observed: str, think: str, answer: str) -> tuple[Turn, ...]:
    return (
        Turn(kind="prompt", text=question, pages=(1, 2, 3)),
        Turn(kind="call", pages=(2,)),
        observation([Excerpt(page=2, start=0, text=observed)]),
        Turn(kind="think", text=think),
        Turn(kind="answer", text=answer),
    )


@given(hostile, hostile, hostile, hostile)
@settings(max_examples=300, deadline=None)
def test_encode_any_text_yields_no_control_token(question, observed, think, answer):
    encoder = small_encoder()
    plain = encoder.encode(conversation("q", "o", "t", "a"), SIZES)
    encoded = encoder.encode(conversation(question, observed, think or "t", answer or "a"), SIZES)
    controls = sorted(encoder.added_ids)
    assert [i for i in encoded.ids if i in encoder.added_ids] == [i for i in plain.ids if i in encoder.added_ids]
    assert controls
    assert [slot.tokens for slot in encoded.slots] == [slot.tokens for slot in plain.slots]
    assert not encoder.added_ids & set(encoder.encode_text(question))


@given(hostile)
@settings(deadline=None)
def test_decode_inverts_encode_text(text):
    encoder = small_encoder()
    expected = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert encoder.decode(encoder.encode_text(text)) == expected


@given(hostile, hostile, hostile, hostile)
@settings(max_examples=100, deadline=None)
def test_encode_first_turns_is_a_prefix(question, observed, think, answer):
    """The generation prompt equals the training prefix: the first n turns encode to a prefix of the whole conversation."""
    encoder = small_encoder()
    turns = conversation(question, observed, think, answer)
    whole = encoder.encode(turns, SIZES)
    for n in range(1, len(turns)):
        part = encoder.encode(turns[:n], SIZES)
        np.testing.assert_array_equal(part.ids, whole.ids[: len(part)])
        np.testing.assert_array_equal(part.classes, whole.classes[: len(part)])
        np.testing.assert_array_equal(part.positions(), whole.positions()[:, : len(part)])


def test_encode_paper_example_has_expected_classes():
    encoder = small_encoder()
    encoded = encoder.encode(EXAMPLE, SIZES)
    by_class = {
        c: encoder.full.decode([int(i) for i in encoded.ids[encoded.classes == n]], skip_special_tokens=False)
        for n, c in enumerate(CLASSES)
    }
    assert by_class[LossClass.CALL] == render_call((1, 3))
    assert by_class[LossClass.STRUCTURE] == "<tool_call></tool_call><think></think>"
    assert by_class[LossClass.THINK] == "1,299.99 + 449.99 = 1,749.98"
    assert by_class[LossClass.ANSWER] == "\nThe total price is $1,749.98."
    assert by_class[LossClass.STOP] == "<|user|>"
    assert by_class[LossClass.OBSERVATION].startswith("<|observation|>\nText from image 1: Laptop")
    assert by_class[LossClass.PROMPT].startswith("[gMASK]<sop><|user|>\n[Image 1]<|begin_of_image|><|image|>")
    assert encoded.count(*LossClass) == len(encoded)
    assert encoded.vision_tokens == 12 + 12 + 25
    assert encoded.pages == (1, 2, 3)
    assert encoder.stop_ids == (encoder.control("<|user|>"), encoder.control("<|endoftext|>"))


def test_encode_written_ids_are_used_unchanged():
    encoder = small_encoder()
    odd = [encoder.control(CONTROL.open_call), *(encoder.encode_text(c)[0] for c in render_call((1, 3)))]
    odd.append(encoder.control(CONTROL.close_call))
    encoded = encoder.encode(EXAMPLE[:3], SIZES, written={1: odd})
    start = len(encoder.encode(EXAMPLE[:1], SIZES))
    assert encoded.ids[start : start + len(odd)].tolist() == odd
    assert encoder.decode(encoded.ids[start:].tolist()).startswith(render_call((1, 3)))
    # The turns after it encode as usual, and the written ids count as the call.
    usual = encoder.encode(EXAMPLE[:3], SIZES)
    behind = len(usual) - len(encoder.encode(EXAMPLE[:2], SIZES))
    np.testing.assert_array_equal(encoded.ids[-behind:], usual.ids[-behind:])
    np.testing.assert_array_equal(encoded.classes[-behind:], usual.classes[-behind:])
    assert len(encoded.classes) == len(encoded) == start + len(odd) + behind
    assert encoded.count(LossClass.CALL) == len(odd)


def test_encode_several_written_turns_leaves_others_unchanged():
    """Two rounds in which every model turn is replaced by other ids: all other tokens stay the same."""
    encoder = small_encoder()
    spoken = {n: turn for n, turn in enumerate(TWO_ROUNDS) if turn.kind in ("call", "think")}
    written = {n: [encoder.control(CONTROL.open_call), *encoder.encode_text(f"turn {n}")] for n in spoken}
    encoded = encoder.encode(TWO_ROUNDS, SIZES, written)
    parts = []
    for n in range(len(TWO_ROUNDS)):
        before = len(encoder.encode(TWO_ROUNDS[:n], SIZES)) if n else 0
        usual = encoder.encode(TWO_ROUNDS[: n + 1], SIZES).ids[before:].tolist()
        parts += written.get(n, usual)
    assert encoded.ids.tolist() == parts
    assert encoded.count(LossClass.CALL) == sum(map(len, written.values()))
    assert encoded.count(LossClass.THINK, LossClass.STRUCTURE) == 0
    assert encoded.slots == encoder.encode(TWO_ROUNDS, SIZES).slots


def test_count_sums_loss_classes():
    encoder = small_encoder()
    encoded = encoder.encode(EXAMPLE, SIZES)
    answer = encoder.count_text("\nThe total price is $1,749.98.")
    assert encoded.count(LossClass.ANSWER) == answer
    assert encoded.count(LossClass.ANSWER, LossClass.STOP, LossClass.STRUCTURE) == answer + 1 + 4
    assert encoded.count() == 0
    assert json.dumps(encoded.count(LossClass.STOP)) == "1", "a count must be serialisable as JSON"


def test_encode_uses_small_integer_types():
    """Training keeps a million samples in memory, and torch and the shards rely on these types."""
    encoded = small_encoder().encode(EXAMPLE, SIZES)
    assert (encoded.ids.dtype, encoded.classes.dtype) == (np.int32, np.uint8)
    assert (encoded.positions().dtype, encoded.mm_token_type_ids().dtype) == (np.int32, np.int32)
    assert encoded.grid_thw().dtype == np.int64
    without_pages = small_encoder().encode((Turn(kind="prompt", text="q"),), SIZES)
    assert without_pages.grid_thw().shape == (0, 3)
    assert without_pages.positions().tolist() == [list(range(len(without_pages)))] * 3


def test_encode_image_tokens_are_exactly_in_the_slots():
    encoder = small_encoder()
    encoded = encoder.encode(EXAMPLE, SIZES)
    inside = {i for slot in encoded.slots for i in range(slot.start, slot.start + slot.tokens)}
    assert inside == set(np.flatnonzero(encoded.ids == encoder.control(CONTROL.image)).tolist())
    assert [(slot.page, slot.rows, slot.columns) for slot in encoded.slots] == [(1, 6, 8), (2, 8, 6), (3, 10, 10)]
    assert encoded.merge == encoder.geometry.merge
    assert hash(encoded.slots) == hash(encoder.encode(EXAMPLE, SIZES).slots), "slots must be immutable"


def test_encoder_with_plain_tokenizer_uses_its_text_ids():
    """Text ids come from `plain` and control ids from the main tokenizer, as for token accounting without a model."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    plain = Tokenizer(models.WordLevel({"?": 1000, "q": 1001, "[start]": 1002}, unk_token="?"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    # This tokenizer would add a token before every text by default.
    plain.post_processor = processors.TemplateProcessing(single="[start] $A", special_tokens=[("[start]", 1002)])
    encoder = Encoder(small_encoder().full, plain=plain)
    assert encoder.encode_text("q q x") == [1001, 1001, 1000]
    assert encoder.control_ids == small_encoder().control_ids
    ids = encoder.encode((Turn(kind="prompt", text="q", chat=False),), {}).ids
    assert ids.tolist() == [encoder.control(CONTROL.mask), encoder.control(CONTROL.start), 1001]


def test_encode_text_ignores_truncation_padding_and_post_processing():
    """A tokenizer file can configure truncation, padding and extra tokens; text must be encoded byte for byte."""
    from tokenizers import Tokenizer, processors

    configured = Tokenizer.from_str(small_encoder().full.to_str())
    configured.enable_truncation(4)
    configured.enable_padding(length=64)
    start = (CONTROL.start, configured.token_to_id(CONTROL.start))
    configured.post_processor = processors.TemplateProcessing(single=f"{CONTROL.start} $A", special_tokens=[start])
    encoder = Encoder(configured)
    text = "The total price of the laptop and the monitor."
    assert encoder.encode_text(text) == small_encoder().encode_text(text)
    np.testing.assert_array_equal(encoder.encode(EXAMPLE, SIZES).ids, small_encoder().encode(EXAMPLE, SIZES).ids)


def test_decode_leaves_out_control_tokens_that_are_also_in_the_vocabulary():
    """Some tokenizers list them there as well, unreachable by merges; their ids would decode to their names."""
    from tokenizers import Tokenizer, models

    vocabulary = {name: n for n, name in enumerate((*"<|user>", *CONTROL.names()))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.add_special_tokens(list(CONTROL.names()))
    encoder = Encoder(tokenizer)
    ids = [encoder.control(CONTROL.user), *encoder.encode_text("<|user|>")]
    assert len(ids) == 9
    assert encoder.decode(ids).replace(" ", "") == "<|user|>"


def test_split_leaves_out_control_tokens_that_seer_does_not_use():
    encoder = small_encoder()
    video = encoder.full.token_to_id("<|video|>")
    assert video in encoder.added_ids
    ids = [*encoder.encode_text("so "), video, *encoder.encode_text("it is")]
    assert encoder.split(ids) == [("", "so it is")]
    assert encoder.decode(ids) == "so it is"
    assert encoder.control_name(video) == ""
    assert encoder.split([]) == []


def test_split_spelled_tags_stay_text():
    encoder = small_encoder()
    spelled = "<think> </tool_call> it says <|user|>"
    ids = [encoder.control(CONTROL.open_think), *encoder.encode_text(spelled), encoder.control(CONTROL.close_think)]
    assert encoder.split(ids) == [(CONTROL.open_think, ""), ("", spelled), (CONTROL.close_think, "")]
    assert encoder.split(encoder.encode_text(spelled)) == [("", spelled)]
    assert encoder.split([*ids, *encoder.encode_text("so")])[-2:] == [(CONTROL.close_think, ""), ("", "so")]
    assert [encoder.control_name(token) for token in ids[:2]] == [CONTROL.open_think, ""]


def test_encoder_rejects_tokenizer_without_control_tokens():
    from tokenizers import Tokenizer, models

    bare = Tokenizer(models.BPE())
    bare.add_special_tokens(["<|user|>"])
    with pytest.raises(ModelError, match="<tool_call>") as caught:
        Encoder(bare)
    missing = str(caught.value).partition(" as single tokens")[0].removeprefix("the tokenizer lacks ").split(", ")
    assert missing == [name for name in CONTROL.names() if name != "<|user|>"], "all missing tokens at once"


def test_encoder_rejects_tokenizer_that_merges_text_into_a_control_token():
    from tokenizers import Tokenizer, models

    words = Tokenizer(models.WordLevel({"[UNK]": 0, "<|user|>": 1}, unk_token="[UNK]"))
    words.add_special_tokens(list(CONTROL.names()))
    with pytest.raises(ModelError, match="the plain text '<\\|user\\|>' into the control token 1"):
        Encoder(words)


# ── Against transformers ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("pages", [(1,), (1, 2, 3), (4, 3, 2, 1)])
def test_positions_equal_transformers_get_rope_index(small_checkpoint, pages):
    import torch

    encoder = small_checkpoint.encoder
    turns = (PROMPT.model_copy(update={"pages": tuple(sorted(pages))}), *EXAMPLE[1:])
    encoded = encoder.encode(turns, SIZES)
    positions, deltas = small_checkpoint.model.model.get_rope_index(
        torch.from_numpy(encoded.ids.astype(np.int64))[None],
        torch.from_numpy(encoded.mm_token_type_ids())[None],
        image_grid_thw=torch.from_numpy(encoded.grid_thw()),
    )
    np.testing.assert_array_equal(encoded.positions(), positions[:, 0].numpy())
    assert encoded.next_position == len(encoded) + int(deltas[0])


def chat_messages(turns: tuple[Turn, ...]) -> list[dict]:
    """Return the conversation as an OpenAI-style chat."""
    from seer.protocol.turns import render_observation

    content: list[dict] = []
    for page in turns[0].pages:
        content += [{"type": "text", "text": f"[Image {page}]"}, {"type": "image"}]
    content.append({"type": "text", "text": f"\nQuery: {turns[0].text}"})
    messages: list[dict] = [{"role": "user", "content": content}]
    thinking = None
    for turn in turns[1:]:
        if turn.kind == "call":
            function = {"name": "select", "arguments": {"indices": list(turn.pages)}}
            call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
            messages.append(call | ({"reasoning_content": thinking} if thinking else {}))
            thinking = None
        elif turn.kind == "observation":
            messages.append({"role": "tool", "content": render_observation(turn)})
        elif turn.kind == "think":
            thinking = turn.text
        else:
            messages.append({"role": "assistant", "content": turn.text, "reasoning_content": thinking})
    return messages


@pytest.mark.parametrize(("turns", "n"), [(EXAMPLE, 1), (EXAMPLE, 3), (EXAMPLE, 5), (TWO_ROUNDS, 6), (TWO_ROUNDS, 8)])
def test_saved_chat_template_renders_the_encoded_prompt(small_checkpoint, small_checkpoint_dir, turns, n):
    from PIL import Image
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(small_checkpoint_dir, local_files_only=True)
    messages = chat_messages(turns[:n])
    finished = turns[n - 1].kind == "answer"
    text = processor.apply_chat_template(messages, add_generation_prompt=not finished, tokenize=False)
    images = [Image.new("L", SIZES[page]) for page in PROMPT.pages]
    theirs = processor(text=[text], images=images, return_tensors="np")
    ours = small_checkpoint.encoder.encode(turns[:n], SIZES)
    expected = ours.ids[:-1] if finished else ours.ids  # a finished chat has no stop token yet
    np.testing.assert_array_equal(theirs["input_ids"][0], expected)
    np.testing.assert_array_equal(theirs["mm_token_type_ids"][0], ours.mm_token_type_ids()[: len(expected)])


def test_saved_chat_template_accepts_arguments_as_json_string(small_checkpoint_dir):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(small_checkpoint_dir, local_files_only=True)
    messages = chat_messages(EXAMPLE[:3])
    as_object = tokenizer.apply_chat_template(messages, tokenize=False)
    messages[1]["tool_calls"][0]["function"]["arguments"] = '{"indices": [1, 3]}'
    assert tokenizer.apply_chat_template(messages, tokenize=False) == as_object
    assert '<tool_call>{"name": "select", "indices": [1, 3]}</tool_call>' in as_object


def test_encoder_tokenizes_a_text_once_and_bounds_its_cache(monkeypatch):
    encoder = small_encoder()
    tokenized: list[str] = []
    real = encoder._encode_many

    def recording(texts, **options):
        tokenized.extend(texts)
        return real(texts, **options)

    own = Encoder(encoder.full, encoder.geometry)
    monkeypatch.setattr(own, "_encode_many", recording)
    turns = [Turn(kind="prompt", text="What is said, and by whom?", pages=(1, 2))]
    first = own.encode(turns, SIZES)
    before = len(tokenized)
    second = own.encode(turns, SIZES)
    assert before and len(tokenized) == before
    assert first.ids.tolist() == second.ids.tolist() == encoder.encode(turns, SIZES).ids.tolist()
    first.ids[:] = 0  # the caller owns the returned array
    assert own.encode(turns, SIZES).ids.tolist() == second.ids.tolist()

    monkeypatch.setattr(encoding, "MAX_RECENT_CHARS", 800)
    for number in range(50):
        assert own.count_text(f"{number:060d}") == encoder.count_text(f"{number:060d}")
        assert sum(map(len, own._recent._ids)) == own._recent._chars <= 800
    assert own.count_text("x" * 200) and "x" * 200 not in own._recent._ids, "one long text must not push out all others"
    assert "x" * 200 in tokenized and pickle.loads(pickle.dumps(own._recent))._chars == 0


def test_encoder_shared_by_threads_encodes_correctly(monkeypatch):
    encoder = small_encoder()
    monkeypatch.setattr(encoding, "MAX_RECENT_CHARS", 400)
    own = Encoder(encoder.full, encoder.geometry)
    texts = [f"line {n} of the text" for n in range(60)]
    expected = {text: encoder.encode_text(text) for text in texts}

    def many(seed: int) -> list[str]:
        drawn = random.Random(seed).choices(texts, k=600)
        return [text for text in drawn if own.encode_text(text) != expected[text]]

    with ThreadPoolExecutor(4) as pool:
        assert [wrong for wrongs in pool.map(many, range(4)) for wrong in wrongs] == []
    assert sum(map(len, own._recent._ids)) == own._recent._chars <= 400
