"""The control tokens of the protocol, and every literal that a GLM-family tokenizer treats as a control token."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class ControlTokens:
    """The names of the control tokens that Seer uses. Each must be a single token of the model's tokenizer."""

    mask: str = "[gMASK]"
    start: str = "<sop>"
    end_of_text: str = "<|endoftext|>"
    user: str = "<|user|>"
    assistant: str = "<|assistant|>"
    observation: str = "<|observation|>"
    begin_image: str = "<|begin_of_image|>"
    end_image: str = "<|end_of_image|>"
    image: str = "<|image|>"
    open_call: str = "<tool_call>"
    close_call: str = "</tool_call>"
    open_think: str = "<think>"
    close_think: str = "</think>"

    def names(self) -> tuple[str, ...]:
        """All control tokens, in the order of the fields above."""
        return tuple(getattr(self, field.name) for field in fields(self))


CONTROL = ControlTokens()
SYSTEM_TOKEN = "<|system|>"
"""Optional: tokenizers without it get the system text in the first user message."""

KNOWN_CONTROL_LITERALS = (
    *CONTROL.names(),
    *("[MASK]", "[sMASK]", "<eop>", "<|system|>", "<|begin_of_video|>", "<|end_of_video|>", "<|video|>"),
    *("<|begin_of_audio|>", "<|end_of_audio|>", "<|begin_of_transcription|>", "<|end_of_transcription|>"),
    *("<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>", "<|begin_of_box|>", "<|end_of_box|>"),
    *("<tool_response>", "</tool_response>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *("<answer>", "</answer>", "/nothink"),
)
"""Spellings that at least one tokenizer of the GLM family reads as a control token."""
