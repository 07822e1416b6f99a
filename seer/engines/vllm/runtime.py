"""Base class of both vLLM engines: start, requests, failures and shutdown of one vLLM in this process."""

from __future__ import annotations

import asyncio
import itertools
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from seer.engines.admission import Admission
from seer.engines.background import BackgroundEngine
from seer.engines.base import ChatImage, Generation, JsonSchema, Request
from seer.engines.vllm.leash import Leash
from seer.engines.vllm.start import reason_of, start_vllm
from seer.errors import EngineError, EngineTimeout, EngineUnavailable, SeerError

if TYPE_CHECKING:
    from PIL.Image import Image
    from vllm.sampling_params import SamplingParams

LOOK_EVERY_S = 1.0


class VLLMRuntime(BackgroundEngine["Image"]):
    """A vLLM in this process. Subclasses turn requests into vLLM's prompts and its outputs into generations.

    On a CPU the seed of a request is not passed on: vLLM's engine ends if it has computed only part of a seeded request's
    prompt in one step, because a CPU generator cannot be reset. Sampling there cannot be repeated.
    """

    name = "vllm"

    def __init__(
        self,
        model: str,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float,
        max_concurrent: int,
        max_waiting: int,
    ) -> None:
        self.timeout_s, self.max_concurrent = timeout_s, max_concurrent
        self.admission = Admission(max_concurrent, max_waiting)
        self._numbers = itertools.count()
        super().__init__(_image_bytes)  # starts a thread, which any failure below must end
        self._leash = Leash()
        try:
            with self._leash.following():
                self._llm = self.run(start_vllm(model, dict(arguments)))
        except BaseException:
            self._loop.close()
            self._leash.release()
            raise
        from vllm.platforms import current_platform

        self._takes_seeds: bool = not current_platform.is_cpu()
        self.max_positions: int = self._llm.model_config.max_model_len
        self.block_tokens: int = self._llm.vllm_config.cache_config.block_size
        """Tokens in one block of the prefix cache; only whole blocks are reused."""

    @abstractmethod
    async def _answer(self, request: Request) -> Generation:
        """Answer one request. An exception becomes the request's error."""

    def trouble(self) -> str:
        """The reason why no request can be served; "" if all is well."""
        return "the vLLM engine process has ended; start it again" if self._llm.errored else ""

    def drop_caches(self) -> None:
        self.run(self._drop_caches())

    async def _drop_caches(self) -> None:
        if not await self._llm.reset_prefix_cache():
            raise EngineError("vLLM keeps its prefix cache while requests run; wait for them")
        await self._llm.reset_mm_cache()
        if hasattr(self._llm, "reset_encoder_cache"):  # older versions lack it
            await self._llm.reset_encoder_cache()

    async def _end(self) -> None:
        handler = self._llm.output_handler
        if handler is not None:  # otherwise vLLM reports the shutdown that we request as a failure
            handler.cancel()
            await asyncio.gather(handler, return_exceptions=True)
        self._llm.shutdown()
        self._leash.release()

    # ── One request ──────────────────────────────────────────────────────────────────────────────

    async def _generate_one(self, request: Request) -> Generation:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self.timeout_s), self.admission.enter():
                generation = await self._while_alive(self._answer(request))
        except TimeoutError:
            error: SeerError = EngineTimeout(
                f"vLLM took longer than the {self.timeout_s:g} s that a request may take; raise timeout_s"
            )
        except SeerError as raised:
            error = raised
        except Exception as raised:  # the boundary to vLLM: an exception fails this request and no other
            trouble = self.trouble()
            error = EngineUnavailable(trouble) if trouble else EngineError(f"vLLM: {reason_of(raised)}")
        else:
            return replace(generation, seconds=time.perf_counter() - started)
        return Generation.failed(error, time.perf_counter() - started)

    async def _while_alive(self, answering: Coroutine[Any, Any, Generation]) -> Generation:
        """Await a request and detect that the engine ends, which vLLM does not report to a request that arrives just then."""
        work = asyncio.ensure_future(answering)
        try:
            while not (await asyncio.wait({work}, timeout=LOOK_EVERY_S))[0]:
                if trouble := self.trouble():
                    raise EngineUnavailable(trouble)
            return work.result()
        finally:
            work.cancel()

    async def _prompt(self, session: str, ids: Sequence[int], images: Sequence[ChatImage]) -> dict[str, Any]:
        """A prompt in vLLM's form: token ids with one placeholder per image, and the images under their content hash."""
        prompt: dict[str, Any] = {"prompt_token_ids": list(ids)}
        if images:
            # in a thread: drawing many pages takes a second, during which vLLM's replies would wait in this loop
            drawn = await asyncio.to_thread(lambda: [self._image(session, image) for image in images])
            prompt["multi_modal_data"] = {"image": drawn}
            prompt["multi_modal_uuids"] = {"image": [image.content_hash for image in images]}
        return prompt

    def _outputs(self, prompt: dict[str, Any], sampling: SamplingParams) -> AsyncIterator[Any]:
        """vLLM's outputs for one prompt. Every call has a unique id, also within one session."""
        outputs: AsyncIterator[Any] = self._llm.generate(prompt, sampling, f"seer-{next(self._numbers)}")
        return outputs

    def _image(self, session: str, image: ChatImage) -> Image:
        """Return an image, drawn once per session: vLLM needs the pixels again even if it knows the hash."""
        from PIL import Image as Pillow

        return self._drawn.get(session, image.content_hash, lambda: Pillow.fromarray(image.draw()))

    def _sampling(self, request: Request, max_new_tokens: int | None = None, **more: Any) -> SamplingParams:
        """vLLM's sampling parameters for a request; `more` are further ones."""
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        wanted = request.sampling
        streamed = request.on_text is not None
        return SamplingParams(
            n=request.n,
            temperature=wanted.temperature,
            top_p=wanted.top_p,
            top_k=wanted.top_k,
            seed=wanted.seed if self._takes_seeds else None,
            max_tokens=max_new_tokens or wanted.max_new_tokens,
            output_kind=RequestOutputKind.DELTA if streamed else RequestOutputKind.FINAL_ONLY,
            **more,
        )


def json_structure(constraint: JsonSchema) -> Any:
    """vLLM's structured outputs for a JSON schema."""
    from vllm.sampling_params import StructuredOutputsParams

    # free white space would let a model fill its limit with blanks
    return StructuredOutputsParams(json=constraint.schema, disable_any_whitespace=True)


def _image_bytes(image: Image) -> int:
    return image.width * image.height * len(image.getbands())
