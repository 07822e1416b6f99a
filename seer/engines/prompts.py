"""From a request's prompt to token ids and the images behind them, for engines with an encoder."""

from __future__ import annotations

from dataclasses import dataclass

from seer.engines.base import Chat, ChatImage, Conversation
from seer.protocol.encoding import Encoded, Encoder


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt as the model sees it. `images[i]` fills the i-th image slot of `encoded`."""

    encoded: Encoded
    images: tuple[ChatImage, ...]


def encode_prompt(encoder: Encoder, prompt: Conversation | Chat) -> EncodedPrompt:
    """Encode a conversation or a chat. Text of either can never become a control token.

    Raises InputError for turns in an order that no conversation has, and for images that the model cannot read.
    """
    if isinstance(prompt, Chat):
        messages = [
            (
                message.role,
                [part if isinstance(part, str) else (part.width_px, part.height_px) for part in message.content],
            )
            for message in prompt.messages
        ]
        return EncodedPrompt(encoder.encode_chat(messages), prompt.images)
    encoded = encoder.encode(prompt.turns, prompt.page_sizes, prompt.written)
    return EncodedPrompt(encoded, tuple(ChatImage.of_page(prompt.pages[number]) for number in encoded.pages))
