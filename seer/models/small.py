"""Small GLM-4V checkpoints built from a seed, with every part of a large model in a few million parameters.

build_small("runs/small", seed=0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seer.models.checkpoint import PixelScaling, save
from seer.protocol.control import CONTROL
from seer.protocol.encoding import Encoder
from seer.protocol.geometry import VisionGeometry

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

SAMPLE_PATH = Path(__file__).parents[1] / "data" / "sample.txt"
_COMMON_TOKENS = (
    *("<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    *("<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>"),
)
SPECIAL_TOKENS = {
    # Image and video follow their markers (ids 151343 and 151344 in the large model); Seer's tags come last.
    "glm-4.1v": (*_COMMON_TOKENS, "<|image|>", "<|video|>", "<think>", "</think>", "<tool_call>", "</tool_call>"),
    # Audio, code and tool tags come in between; <|image|> is 151363 and </tool_call> 151353, as in the paper.
    "glm-4.5v": (
        *_COMMON_TOKENS,
        *("<|begin_of_audio|>", "<|end_of_audio|>", "<|begin_of_transcription|>", "<|end_of_transcription|>"),
        *(
            "<|code_prefix|>",
            "<|code_middle|>",
            "<|code_suffix|>",
            "<think>",
            "</think>",
            "<tool_call>",
            "</tool_call>",
        ),
        *("<tool_response>", "</tool_response>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "/nothink"),
        *("<|begin_of_box|>", "<|end_of_box|>", "<|image|>", "<|video|>"),
    ),
}
"""GLM's special tokens in the order of their ids, by family. The names agree, the ids do not, so code must not rely on ids."""

INK_SCALING = PixelScaling(mean=(0.92, 0.92, 0.92), std=(0.22, 0.22, 0.22))
"""Scaling for text pages, which are mostly white. A small model does not learn to read with CLIP's scaling."""

PRE_TOKENIZER_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""GLM-4's pattern, except that each digit is a token, so that a model copies codes digit by digit."""


@dataclass(frozen=True)
class SmallShape:
    """The size of a small model. Head sizes are multiples of 32, which the CPU attention of vLLM requires."""

    hidden: int = 128
    text_layers: int = 4
    text_heads: int = 4
    text_kv_heads: int = 4
    text_ffn: int = 256
    vision_depth: int = 3
    vision_heads: int = 4
    vision_ffn: int = 256
    image_px: int = 336
    max_positions: int = 131072
    vocabulary: int = 2048


def build_small(
    path: str | Path,
    *,
    seed: int = 0,
    shape: SmallShape | None = None,
    corpus: Sequence[str] | None = None,
    family: str = "glm-4.1v",
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Write an untrained Glm4vForConditionalGeneration with its own tokenizer, and return its folder.

    seed: of the weights.
    shape: sizes of the model; the defaults give about two million parameters.
    corpus: texts from which the tokenizer's merges are learned.
    family: "glm-4.1v" or "glm-4.5v", whose order of special tokens is used.
    tokenizer: a finished tokenizer, used instead of `corpus` and `family`.

    The same arguments give the same bytes.
    """
    import torch
    from transformers import Glm4vForConditionalGeneration

    shape = shape or SmallShape()
    wrapped = wrap_tokenizer(tokenizer or train_tokenizer(corpus or default_corpus(), shape.vocabulary, family))
    # fork_rng leaves the random state of the caller unchanged.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Glm4vForConditionalGeneration(small_config(wrapped, shape))
        initialise(model)
    save(path, model, wrapped, INK_SCALING, VisionGeometry())
    return Path(path)


def small_config(tokenizer: Any, shape: SmallShape) -> Any:
    """Return the Glm4vConfig of a small model. `head_dim` stays unset: transformers ignores it, vLLM does not."""
    from transformers import Glm4vConfig

    encoder = Encoder(tokenizer)
    ids = tokenizer.convert_tokens_to_ids
    head = shape.hidden // shape.text_heads
    # Temporal, height and width positions share the rotary pairs; temporal takes the remainder of the division.
    sides = head // 2 * 3 // 8
    rope = dict(
        rope_type="default",
        rope_theta=10000.0,
        mrope_section=[head // 2 - 2 * sides, sides, sides],
        partial_rotary_factor=1.0,
    )
    return Glm4vConfig(
        image_token_id=encoder.control(CONTROL.image),
        image_start_token_id=encoder.control(CONTROL.begin_image),
        image_end_token_id=encoder.control(CONTROL.end_image),
        video_token_id=ids("<|video|>"),
        video_start_token_id=ids("<|begin_of_video|>"),
        video_end_token_id=ids("<|end_of_video|>"),
        text_config=dict(
            vocab_size=len(tokenizer),
            hidden_size=shape.hidden,
            intermediate_size=shape.text_ffn,
            num_hidden_layers=shape.text_layers,
            num_attention_heads=shape.text_heads,
            num_key_value_heads=shape.text_kv_heads,
            max_position_embeddings=shape.max_positions,
            rope_parameters=rope,
            pad_token_id=encoder.control(CONTROL.end_of_text),
        ),
        vision_config=dict(
            depth=shape.vision_depth,
            hidden_size=shape.hidden,
            num_heads=shape.vision_heads,
            intermediate_size=shape.vision_ffn,
            out_hidden_size=shape.hidden,
            image_size=shape.image_px,
        ),
    )


def initialise(model: torch.nn.Module) -> None:
    """Draw every matrix from a normal distribution with std = fan_in^-0.5 (embeddings 0.5, position embeddings 0.3).

    With transformers' default of 0.02, the image features of a narrow model are nearly equal for all pages, and the
    model never learns to read.
    """
    import torch

    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            continue
        if "position_embedding" in name:
            std = 0.3
        elif "embed_tokens" in name:
            std = 0.5
        else:
            std = parameter[0].numel() ** -0.5
        torch.nn.init.normal_(parameter, std=std)


DEFAULT_CORPUS = (
    '{"name": "select", "indices": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}',
    "\nText from image 1: the page says what the question asks for.\nText from image 2: and this page says the rest.\n",
    "[Image 1][Image 2][Image 3]\nQuery: What is the total price of the laptop and the monitor?",
    "From the retrieved text, I can see that the answer is on this page. The total is $1,749.98.",
    "You identified images [1, 3] as relevant. Please answer based on the visual content of these images.",
    "You selected no images. Please answer based on the visual content. It is not answerable from the document.",
    "who what when where which why how many is are was were the of and to in for on with from by at as an that this it",
    "问题是什么？根据第一页的内容，答案在这里。我们可以看到总数、名字和日期。",
)


def default_corpus() -> list[str]:
    """Return the default corpus of a small tokenizer: phrases of the protocol and the sample text."""
    return [*DEFAULT_CORPUS, SAMPLE_PATH.read_text(encoding="utf-8")]


def train_tokenizer(corpus: Sequence[str], vocabulary: int, family: str = "glm-4.1v") -> Tokenizer:
    """Train a byte-level BPE tokenizer with GLM's special tokens on `corpus`. The result is deterministic.

    vocabulary: number of entries, special tokens included.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(ignore_merges=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZER_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL_TOKENS[family]),
        # The full byte alphabet makes every text encodable, whatever the corpus contains.
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in SPECIAL_TOKENS[family]])
    return tokenizer


def wrap_tokenizer(tokenizer: Tokenizer) -> Any:
    """Wrap a tokenizer for transformers and vLLM."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=131072,
        extra_special_tokens={"image_token": "<|image|>", "video_token": "<|video|>"},
    )
