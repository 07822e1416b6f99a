"""vLLM, on a CPU, loads our checkpoint like any other and speaks the same tokens as transformers."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
from fakes import make_document

from seer.engines.base import Request, Sampling
from seer.engines.hf import HFEngine
from seer.schema import Turn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed (scripts/install_vllm_cpu.sh)"),
]


def test_greedy_tokens_equal_those_of_transformers(small_checkpoint, small_checkpoint_dir):
    from PIL import Image

    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_USE_V1", "1")
    from vllm import LLM, SamplingParams

    document = make_document([f"Page {i}: item {i}.\n" for i in range(1, 4)], width_px=280, height_px=196)
    pages = {page.number: page for page in document}
    turns = (Turn(kind="prompt", text="What does item 2 cost?", pages=tuple(pages)),)
    hf = HFEngine(small_checkpoint)
    (expected,) = hf.generate([Request("c", turns, pages, sampling=Sampling(max_new_tokens=32))])
    encoded = hf.encoder.encode(turns, {n: (p.width_px, p.height_px) for n, p in pages.items()})
    # the prompt as ids, with one placeholder an image: vLLM spreads it to the image's size
    ids, done = [], 0
    for slot in encoded.slots:
        ids += encoded.ids[done : slot.start + 1].tolist()
        done = slot.start + slot.tokens
    ids += encoded.ids[done:].tolist()
    llm = LLM(
        model=str(small_checkpoint_dir),
        dtype="float32",
        enforce_eager=True,
        max_model_len=4096,
        limit_mm_per_prompt={"image": 8, "video": 0},
        enable_prefix_caching=True,
    )
    suppressed = hf._grammars.gate(None)._suppressed
    params = SamplingParams(
        temperature=0,
        max_tokens=32,
        logit_bias=dict.fromkeys(suppressed, -100.0),
        stop_token_ids=list(hf.encoder.stop_ids),
        skip_special_tokens=False,
    )
    images = [Image.fromarray(pages[n].image()).convert("RGB") for n in encoded.pages]
    prompt = {
        "prompt_token_ids": ids,
        "multi_modal_data": {"image": images},
        "multi_modal_uuids": {"image": [pages[n].content_hash for n in encoded.pages]},
    }
    (first,) = llm.generate([prompt], params, use_tqdm=False)
    assert first.prompt_token_ids == encoded.ids.tolist()
    assert list(first.outputs[0].token_ids) == list(expected.ids)
    (second,) = llm.generate([prompt], params, use_tqdm=False)
    assert second.num_cached_tokens >= len(encoded) - 128
    assert list(second.outputs[0].token_ids) == list(expected.ids)
