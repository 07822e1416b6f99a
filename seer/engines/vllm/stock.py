"""Any chat model that vLLM loads, for chats alone: teachers, judges and systems that need no select call.

The model's own chat template renders the messages. Text from outside is neutralised first, so that the model's tokenizer
reads no control token in it; what the model quotes of it is restored.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seer.engines.base import Chat, Completion, Finish, Generation, JsonSchema, Message, Request
from seer.engines.text_replies import read_parts
from seer.engines.vllm.runtime import VLLMRuntime, json_structure
from seer.engines.vllm.start import check_version
from seer.errors import EngineError, InputError, ModelError, PromptTooLong
from seer.protocol.encoding import Encoder
from seer.protocol.literals import CHAT_LITERALS

if TYPE_CHECKING:
    from vllm.sampling_params import SamplingParams


class VLLMChatEngine(VLLMRuntime):
    """Answers `Chat` prompts with any chat model that vLLM loads in this process."""

    encoder: Encoder | None = None
    constrains = False

    def __init__(
        self,
        model: str,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        timeout_s: float = 600.0,
        max_concurrent: int = 256,
        max_waiting: int = 65536,
        **arguments: Any,
    ) -> None:
        """`chat_template_kwargs`: passed to the template, e.g. {"enable_thinking": False}.

        Raises ModelError if vLLM is absent, too old or cannot load the model, or if the model has no chat template, and
        ConfigError for an argument that vLLM does not know.
        """
        self.version = check_version()
        self._template_kwargs = dict(chat_template_kwargs or {})
        super().__init__(model, arguments, timeout_s=timeout_s, max_concurrent=max_concurrent, max_waiting=max_waiting)
        self._tokenizer = self.run(self._load_tokenizer())
        if not getattr(self._tokenizer, "chat_template", None):
            self.close()
            raise ModelError(
                f"'{model}' has no chat template, so it cannot answer chats; use an instruction-tuned model"
            )

    async def _load_tokenizer(self) -> Any:
        tokenizer = self._llm.get_tokenizer()
        return await tokenizer if inspect.isawaitable(tokenizer) else tokenizer  # older versions await it

    async def _answer(self, request: Request) -> Generation:
        if not isinstance(request.prompt, Chat):
            raise InputError("this engine answers chats; reading in Seer's protocol needs a GLM-4V-family checkpoint")
        ids = self._encode(request.prompt)
        if self.max_positions - len(ids) < 1:
            raise PromptTooLong(
                f"the chat takes {len(ids)} tokens and vLLM was started with max_model_len={self.max_positions}; "
                "shorten it or start vLLM with a larger max_model_len"
            )
        prompt = await self._prompt(request.session, ids, request.prompt.images)
        return await self._collect(request, prompt, self._chat_sampling(request))

    def _encode(self, chat: Chat) -> list[int]:
        """Token ids of the rendered chat, with the template's placeholder for each image."""
        rendered = self._tokenizer.apply_chat_template(
            as_template_messages(chat.messages), tokenize=False, add_generation_prompt=True, **self._template_kwargs
        )
        ids: list[int] = self._tokenizer.encode(rendered, add_special_tokens=False)
        return ids

    def _chat_sampling(self, request: Request) -> SamplingParams:
        constraint = request.constraint
        structure = json_structure(constraint) if isinstance(constraint, JsonSchema) else None
        return self._sampling(request, structured_outputs=structure)

    async def _collect(self, request: Request, prompt: dict[str, Any], sampling: SamplingParams) -> Generation:
        """Collect every sample's text. Streamed text is handed out as vLLM decodes it."""
        texts: dict[int, str] = {}
        counts: dict[int, int] = {}
        finishes: dict[int, str] = {}
        prompt_tokens = cached = 0
        async for output in self._outputs(prompt, sampling):
            prompt_tokens = len(output.prompt_token_ids or ())
            cached = output.num_cached_tokens or cached
            for completion in output.outputs:
                if request.on_text is not None and completion.text:
                    request.on_text(CHAT_LITERALS.restore(completion.text))
                texts[completion.index] = texts.get(completion.index, "") + completion.text
                counts[completion.index] = counts.get(completion.index, 0) + len(completion.token_ids)
                finishes[completion.index] = completion.finish_reason or finishes.get(completion.index, "")
        if not texts:
            raise EngineError("vLLM ended the request without an output", retryable=True)
        first, *others = [read_sample(texts[index], finishes[index]) for index in sorted(texts)]
        return Generation(
            first.parts,
            None,
            first.finish,
            others=tuple(others),
            prompt_tokens=prompt_tokens,
            cached_tokens=cached,
            completion_tokens=sum(counts.values()),
        )


def as_template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages in the form that chat templates read: a string, or a list of parts if there are images."""
    rendered: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":  # our own words, which may name a tag such as <think>
            content: Any = message.text
        elif all(isinstance(part, str) for part in message.content):
            content = CHAT_LITERALS.neutralise(message.text)
        else:
            content = [
                {"type": "text", "text": CHAT_LITERALS.neutralise(part)} if isinstance(part, str) else {"type": "image"}
                for part in message.content
            ]
        rendered.append({"role": message.role, "content": content})
    return rendered


def read_sample(text: str, finish: str) -> Completion:
    """A sample from a reply's text: thinking tags become control parts, quoted text is restored.

    Raises EngineError if vLLM ended the request in any other way than by a stop or the token limit.
    """
    if finish not in ("stop", "length"):
        raise EngineError(f"vLLM ended the request with '{finish}'", retryable=True)
    ended: Finish = "stop" if finish == "stop" else "length"
    return Completion(read_parts(text, CHAT_LITERALS), None, ended)
