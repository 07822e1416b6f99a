"""Seer as a model of lm-evaluation-harness. Importing this needs the harness; `seer.evaluation.harness.run` runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NoReturn

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from seer.engines.base import Chat
from seer.errors import EngineError, InputError
from seer.evaluation.harness.chats import chat_of, cut_at_stops, render_chat, sampling_of, take_apart
from seer.protocol.literals import CHAT_LITERALS
from seer.teaching.ledger import Budget, Ledger
from seer.teaching.settings import TeacherSpec
from seer.teaching.teachers import Teacher, ends_run, open_teacher


class ServedSeer(LM):  # type: ignore[misc]
    """Answers generation requests through a `seer serve`. A failed request becomes an empty text and is counted."""

    def __init__(self, spec: TeacherSpec, ledger_path: Path, reasoning_tokens: int, document_field: str) -> None:
        super().__init__()
        self._spec, self._ledger_path = spec, ledger_path
        self._reasoning_tokens, self._document_field = reasoning_tokens, document_field
        self.num_requests = 0
        self.failures: list[str] = []

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """Answer the requests. Raises InputError for a task without documents, EngineError for an unusable server."""
        self.num_requests += len(requests)
        with Ledger(self._ledger_path) as ledger:
            return asyncio.run(self._answer_all(requests, ledger))

    async def _answer_all(self, requests: Sequence[Instance], ledger: Ledger) -> list[str]:
        chats = []
        for request in requests:
            prompt, arguments = request.args
            document, question = take_apart(prompt, request.doc, self._document_field)
            chats.append((chat_of(document, question), arguments))
        async with AsyncExitStack() as stack:
            specs = [self._spec.model_copy(update=sampling_of(one, self._reasoning_tokens)) for _, one in chats]
            servers: dict[str, Teacher] = {}
            for spec in specs:
                if spec.model_dump_json() not in servers:
                    teacher = open_teacher(spec, ledger, Budget(), role="harness", render_chat=render_chat)
                    servers[spec.model_dump_json()] = await stack.enter_async_context(teacher)
            calls = [
                self._answer(servers[spec.model_dump_json()], chat, arguments)
                for spec, (chat, arguments) in zip(specs, chats, strict=True)
            ]
            texts = await asyncio.gather(*calls, return_exceptions=True)
        answers: list[str] = []
        for request, text in zip(requests, texts, strict=True):
            if isinstance(text, BaseException):
                raise text
            self.cache_hook.add_partial("generate_until", request.args, text)
            answers.append(text)
        return answers

    async def _answer(self, server: Teacher, chat: Chat, arguments: dict[str, Any]) -> str:
        try:
            reply = await server.ask(chat)
        except EngineError as error:
            if ends_run(error):
                raise
            self.failures.append(str(error))
            return ""
        if reply.error:
            self.failures.append(reply.error)
            return ""
        return cut_at_stops(CHAT_LITERALS.restore(reply.text), arguments.get("until"))

    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> NoReturn:
        """Raises InputError: Seer has no likelihoods."""
        raise InputError("Seer answers in text and gives no likelihoods; choose tasks that generate, such as longbench")

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> NoReturn:
        """Raises InputError, like `loglikelihood`."""
        self.loglikelihood(requests)
