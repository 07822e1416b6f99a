"""Seer as a model of lm-evaluation-harness. Importing this needs the harness; `seer.evaluation.harness.run` runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NoReturn

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from seer.errors import InputError
from seer.evaluation.harness.chats import chat_of, cut_at_stops, sampling_of, take_apart
from seer.teaching.ledger import Budget, Ledger
from seer.teaching.settings import TeacherSpec
from seer.teaching.teachers import Teacher, TeacherError, open_teacher


class ServedSeer(LM):  # type: ignore[misc]
    """Answers the harness's generation requests through a `seer serve`. A failed request is an empty text, counted."""

    def __init__(self, spec: TeacherSpec, ledger_path: Path, reasoning_tokens: int, document_field: str) -> None:
        super().__init__()
        self._spec, self._ledger_path = spec, ledger_path
        self._reasoning_tokens, self._document_field = reasoning_tokens, document_field
        self.num_requests = 0
        self.failures: list[str] = []

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """Raises InputError for a task without documents, TeacherError for a server that cannot be used."""
        self.num_requests += len(requests)
        with Ledger(self._ledger_path) as ledger:
            return asyncio.run(self._answer_all(requests, ledger))

    async def _answer_all(self, requests: Sequence[Instance], ledger: Ledger) -> list[str]:
        asked = []
        for request in requests:
            prompt, arguments = request.args
            document, question = take_apart(prompt, request.doc, self._document_field)
            asked.append((chat_of(document, question), arguments))
        async with AsyncExitStack() as stack:
            specs = [self._spec.model_copy(update=sampling_of(one, self._reasoning_tokens)) for _, one in asked]
            servers: dict[str, Teacher] = {}
            for spec in specs:
                if spec.model_dump_json() not in servers:
                    teacher = open_teacher(spec, ledger, Budget(), role="harness")
                    servers[spec.model_dump_json()] = await stack.enter_async_context(teacher)
            calls = [
                self._answer(servers[spec.model_dump_json()], chat, arguments)
                for spec, (chat, arguments) in zip(specs, asked, strict=True)
            ]
            texts = await asyncio.gather(*calls, return_exceptions=True)
        said: list[str] = []
        for request, text in zip(requests, texts, strict=True):
            if isinstance(text, BaseException):
                raise text
            self.cache_hook.add_partial("generate_until", request.args, text)
            said.append(text)
        return said

    async def _answer(self, server: Teacher, chat: list[dict[str, Any]], arguments: dict[str, Any]) -> str:
        try:
            reply = await server.ask(chat)
        except TeacherError as error:
            if error.fatal:
                raise
            self.failures.append(str(error))
            return ""
        if reply.error:
            self.failures.append(reply.error)
            return ""
        return cut_at_stops(reply.text, arguments.get("until"))

    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> NoReturn:
        raise InputError("Seer answers in text and gives no likelihoods; choose tasks that generate, such as longbench")

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> NoReturn:
        self.loglikelihood(requests)
