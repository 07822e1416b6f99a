"""A teacher inside this process: vLLM without a server. Calls that wait together go to the model as one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from seer.engines.vllm.leash import Leash
from seer.errors import ConfigError, ModelError
from seer.teaching.ledger import Reply
from seer.teaching.settings import TeacherSpec
from seer.teaching.teachers import Call

if TYPE_CHECKING:
    from vllm import LLM

_GATHER_S = 0.02
"""How long the first call of a batch waits for company."""

TEMPLATE_KEY = "chat_template_kwargs"

Waiting = tuple[Mapping[str, Any], asyncio.Future[Reply]]


class VllmTransport:
    """Loads `spec.model` at the first call; one thread talks to it."""

    def __init__(self, spec: TeacherSpec) -> None:
        """Raises ConfigError for keys of `spec.extra` that only a server reads."""
        if unread := sorted(spec.extra.keys() - {TEMPLATE_KEY}):
            raise ConfigError(
                f"teacher '{spec.model}': extra {', '.join(unread)} is read by a server alone; in this process only "
                f"{TEMPLATE_KEY} is. Leave it out, or name a server in base_url"
            )
        self._spec = spec
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vllm-teacher")
        self._waiting: list[Waiting] = []
        self._drain: asyncio.Task[None] | None = None
        self._model: LLM | None = None
        self._leash = Leash()

    async def send_once(self, call: Call) -> Reply:
        """Raises ModelError where vLLM or the model cannot be loaded."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((call.body, future))
        if self._drain is None or self._drain.done():
            self._drain = asyncio.ensure_future(self._run_batches())
        return await future

    async def close(self) -> None:
        if self._drain is not None:
            self._drain.cancel()
        self._thread.shutdown(wait=True)
        self._model = None  # which ends its engine
        self._leash.release()

    async def _run_batches(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            await asyncio.sleep(_GATHER_S)
            batch, self._waiting = self._waiting, []
            try:
                replies = await loop.run_in_executor(self._thread, self._generate, [body for body, _ in batch])
            except Exception as error:  # whatever went wrong belongs to those who wait
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), reply in zip(batch, replies, strict=True):
                if not future.done():
                    future.set_result(reply)

    def _generate(self, bodies: Sequence[Mapping[str, Any]]) -> list[Reply]:
        model = self._load()
        try:
            return _chat(model, bodies)
        except ValueError as error:
            if len(bodies) == 1:
                return [Reply(finish="error", error=str(error)[:500])]
            # one request that is too long fails the whole batch: find it
            return [reply for body in bodies for reply in self._generate([body])]

    def _load(self) -> LLM:
        if self._model is None:
            try:
                from vllm import LLM
            except ImportError:
                raise ModelError(
                    "a teacher without base_url runs in this process through vLLM, which is not installed; "
                    "install the extra 'vllm', or name a server in base_url"
                ) from None
            try:
                with self._leash.following():
                    self._model = LLM(self._spec.model, max_num_seqs=self._spec.concurrency)
            except (ValueError, OSError, RuntimeError) as error:
                raise ModelError(f"vLLM cannot load the teacher '{self._spec.model}': {error}") from None
        return self._model


def _chat(model: LLM, bodies: Sequence[Mapping[str, Any]]) -> list[Reply]:
    from vllm import SamplingParams

    sampling = [
        SamplingParams(
            temperature=body["temperature"],
            top_p=body["top_p"],
            top_k=body.get("top_k", 0),
            max_tokens=body["max_tokens"],
            seed=body["seed"],
        )
        for body in bodies
    ]
    outputs = model.chat(
        [list(body["messages"]) for body in bodies],
        sampling,
        use_tqdm=False,
        chat_template_kwargs=bodies[0].get(TEMPLATE_KEY),
    )
    return [
        Reply(
            text=output.outputs[0].text,
            finish=output.outputs[0].finish_reason or "stop",
            prompt_tokens=len(output.prompt_token_ids or ()),
            completion_tokens=len(output.outputs[0].token_ids),
        )
        for output in outputs
    ]
