"""Text baselines as the benchmark prompts them: the whole prompt in one message, with the document in its place.

Any chat model can be such a baseline, since nothing of Seer's protocol is sent. A task whose prompt the benchmark lets
models continue (`Task.chat` False) is sent as plain text, without a chat template.

    system = PromptedSystem(build_engine(base_url="http://127.0.0.1:8000/v1", extra_body={...}))
    answers = system.answer_batch([Task(id="1", context="", question="", prompt="Text: …\\nQuestion: …")])
"""

from __future__ import annotations

from collections.abc import Sequence

from seer.engines.base import Chat, Conversation, Engine, Generation, Request, Sampling
from seer.errors import InputError
from seer.schema import Answer, Failure, Status, Step, StepUsage, Turn, Usage
from seer.systems.base import Task

DEFAULT_TOKENS = 1024
"""Completion tokens of a task that names no limit."""


class PromptedSystem:
    """Sends each task's `prompt` as it stands and returns the text after the thinking."""

    name = "prompted"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def request(self, task: Task, max_new_tokens: int | None = None) -> Request:
        """Return the request of one task. Raises InputError if the task has no prompt."""
        if not task.prompt:
            raise InputError(f"task '{task.id}' has no prompt; plan the run with `in_place`")
        prompt: Chat | Conversation = Chat.of(task.prompt)
        if not task.chat:
            prompt = Conversation((Turn(kind="prompt", text=task.prompt, chat=False),))
        limit = max_new_tokens or task.max_new_tokens or DEFAULT_TOKENS
        return Request(prompt, f"prompted:{task.id}", sampling=Sampling(limit))

    def answer_batch(self, tasks: Sequence[Task]) -> list[Answer]:
        requests = [self.request(task) for task in tasks]
        try:
            generations = self.engine.generate(requests)
        finally:
            for request in requests:
                self.engine.forget(request.session)
        return [to_answer(generation) for generation in generations]


def to_answer(generation: Generation) -> Answer:
    """Return the answer in a generation; without text after the thinking it is a failed one."""
    if generation.error is not None:
        error = generation.error
        return Answer(
            text="", status=Status.FAILED, cause=str(error), failure=Failure.of(error), seconds=generation.seconds
        )
    used = StepUsage(
        prompt=generation.prompt_tokens, completion=generation.completion_tokens, cached=generation.cached_tokens
    )
    # Only the last step carries the generation's usage and ending, as in Seer's own traces.
    made = {"usage": used, "seconds": generation.seconds, "finish": generation.finish}
    steps = [Step(name="look")]
    if generation.reasoning:
        rest = {} if generation.text.strip() else made
        raw = {} if generation.text.strip() else {"raw": generation.raw}
        steps.append(Step(name="reason", outputs={"text": generation.reasoning, **raw}, **rest))
    if generation.text.strip() or not generation.reasoning:
        steps.append(Step(name="answer", outputs={"text": generation.text, "raw": generation.raw}, **made))
    cause = ""
    if not generation.text.strip():
        cause = "no answer within the token limit" if generation.finish == "length" else "the model gave no answer"
    return Answer(
        text=generation.text,
        status=Status.FAILED if cause else Status.ANSWERED,
        cause=cause,
        usage=Usage(
            prompt=generation.prompt_tokens,
            completion=generation.completion_tokens,
            cached=generation.cached_tokens,
            full_text=generation.prompt_tokens,
        ),
        seconds=generation.seconds,
        trace=tuple(steps),
    )
