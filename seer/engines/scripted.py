"""An engine that follows a script: for tests, dry runs and token accounting without a model.

ScriptedEngine(lambda request: '<think>2 + 2</think>\n4')
ScriptedEngine(oracle_script(pages=(1, 3), answer="42"))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from seer.engines.base import Chat, Completion, Generation, Request
from seer.engines.prompts import encode_prompt
from seer.engines.text_replies import parts_of_text
from seer.errors import SeerError
from seer.protocol.call import render_call
from seer.protocol.control import CONTROL
from seer.protocol.encoding import Encoder

Script = Callable[[Request], str]
MAX_KEPT = 1000


def oracle_script(pages: Sequence[int] = (1,), answer: str = "", think: str = "") -> Script:
    """A script that selects `pages`, thinks `think` and answers `answer`."""

    def say(request: Request) -> str:
        if (call := request.required_call) is not None:
            chosen = [page for page in pages if page in call.allowed]
            return f"{CONTROL.open_call}{render_call(chosen)}{CONTROL.close_call}"
        return f"{CONTROL.open_think}{think}{CONTROL.close_think}\n{answer}{CONTROL.user}"

    return say


def quote_script(request: Request) -> str:
    """A script that selects the first page and answers with the first line of the text it receives."""
    if request.required_call is not None:
        return oracle_script()(request)
    prompt = request.prompt
    if isinstance(prompt, Chat):
        texts = [message.text for message in prompt.messages if message.role == "user"]
    else:
        texts = [excerpt.text for turn in prompt.turns for excerpt in turn.excerpts]
    line = next((line.strip() for text in texts for line in text.splitlines() if line.strip()), "")
    return oracle_script(answer=line)(request)


class ScriptedEngine:
    """Returns what its script writes. Counts tokens with `encoder`, by default one with a small byte-level tokenizer."""

    name = "scripted"
    constrains = False

    def __init__(
        self, script: Script = quote_script, encoder: Encoder | None = None, max_positions: int = 131072
    ) -> None:
        self.script = script
        self.encoder = encoder or Encoder(_byte_tokenizer())
        self.max_positions = max_positions
        self.requests: list[Request] = []
        """The latest requests, at most `MAX_KEPT`, for tests."""
        self.forgotten: list[str] = []
        """The latest forgotten sessions, at most `MAX_KEPT`."""

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return [self._one(request) for request in requests]

    def forget(self, session: str) -> None:
        self.forgotten.append(session)
        del self.forgotten[:-MAX_KEPT]

    def _one(self, request: Request) -> Generation:
        self.requests.append(request)
        del self.requests[:-MAX_KEPT]
        start = time.perf_counter()
        try:
            prompt = encode_prompt(self.encoder, request.prompt).encoded
            samples = [self._sample(request, seed) for seed in range(request.n)]
        except SeerError as error:
            return Generation.failed(error)
        first, *others = samples
        return Generation(
            first.parts,
            first.ids,
            first.finish,
            others=tuple(others),
            prompt_tokens=len(prompt),
            completion_tokens=sum(len(sample.ids or ()) for sample in samples),
            seconds=time.perf_counter() - start,
        )

    def _sample(self, request: Request, number: int) -> Completion:
        """One reply of the script; the request it sees has the seed of this sample."""
        sampling = replace(request.sampling, seed=request.sampling.seed + number)
        text = self.script(replace(request, sampling=sampling, n=1))
        ids = [
            token
            for name, part in parts_of_text(text)
            for token in ([self.encoder.control(name)] if name else self.encoder.encode_text(part))
        ]
        limit = request.sampling.max_new_tokens
        parts = self.encoder.split(ids[:limit])
        for name, part in parts:
            if name and request.on_control:
                request.on_control(name)
            elif part and request.on_text:
                request.on_text(part)
        return Completion(tuple(parts), tuple(ids[:limit]), "stop" if len(ids) <= limit else "length")


def _byte_tokenizer() -> object:
    from seer.models.small import default_corpus, train_tokenizer

    return train_tokenizer(default_corpus(), 2048)
