"""Phase 2: write the reasoning between the retrieved text and the answer.

`TeacherReasoner` asks a model that sees the question, the document and the selected pages, but never the gold answer. A
reply is kept only if its answer equals a gold answer (`data_pipeline.steps.filter`). The model learns the teacher's own
answer, because that is the one its reasoning ends in; `reason.target = "gold"` replaces it by the gold answer.

`TemplateReasoner` needs no model: it quotes, for each relevant page, the sentence with the evidence, and ends with the
gold answer. Its records have the provenance `reason = template`, which distinguishes them from a model's thinking.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from data_pipeline.records import PageSpan, Rejection, Sample
from data_pipeline.settings import ReasonSpec
from data_pipeline.sources.posing import SUMMARY_WORDS, posed_question
from data_pipeline.steps.annotate import answer_spans
from data_pipeline.steps.filter import code_line, is_chinese, matching_answer
from data_pipeline.steps.prompts import hop_chat, parse_hop, parse_reasoning, reason_chat, same_answer_chat
from seer.teaching.relevance import is_too_long
from seer.teaching.template import CHINESE, ENGLISH, quoted_lines, quoted_reasoning
from seer.teaching.verdicts import parse_verdict

if TYPE_CHECKING:
    from seer.teaching.teachers import Teacher

MAX_QUOTE_CHARS = 300


@dataclass(frozen=True)
class Reasoning:
    """The thinking and the answer that the model learns."""

    think: str
    answer: str
    made_by: str
    """`template`, or teacher:MODEL."""
    notes: dict[str, int] = field(default_factory=dict)
    """Counters, such as the replies drawn."""
    quotes: tuple[tuple[int, str], ...] = ()
    """For template reasoning: page number and quote of each line, so that it can be distributed over several calls."""
    rounds: tuple[tuple[int, ...], ...] = ()
    """The rounds that a teacher's reasoning is written for; if empty, assembly decides."""
    hop_thoughts: tuple[str, ...] = ()
    """A teacher's thoughts after each round but the last."""


Rounds = Sequence[tuple[int, ...]]
"""The necessary pages in the order in which a conversation retrieves them, one tuple for each call."""


class Reasoner(Protocol):
    """Reasons over the necessary pages of a sample."""

    name: str

    async def __call__(
        self, sample: Sample, pages: Sequence[PageSpan], relevant: Sequence[int], rounds: Rounds = ()
    ) -> Reasoning | Rejection:
        """Return the reasoning, or a rejection if none leads to a gold answer. `rounds` divides the pages by call."""
        ...


class TeacherReasoner:
    """Draws replies from a model until one has a correct answer."""

    name = "teacher"

    def __init__(self, teacher: Teacher, spec: ReasonSpec) -> None:
        self._teacher, self._spec = teacher, spec

    async def __call__(
        self, sample: Sample, pages: Sequence[PageSpan], relevant: Sequence[int], rounds: Rounds = ()
    ) -> Reasoning | Rejection:
        reasoning = await self._reason(sample, pages, relevant)
        # Thoughts are paid for only once the answer is known to be correct.
        if isinstance(reasoning, Reasoning) and len(rounds) > 1 and self._spec.hop_thoughts:
            return await self._with_hops(sample, pages, rounds, reasoning)
        return reasoning

    async def _with_hops(
        self, sample: Sample, pages: Sequence[PageSpan], rounds: Rounds, whole: Reasoning
    ) -> Reasoning:
        """Return the reasoning with a thought after each round but the last, or with one round if one is unusable."""
        hop_thoughts: list[str] = []
        notes = Counter(whole.notes)
        for count in range(1, len(rounds)):
            seen = [page for numbers in rounds[:count] for page in _texts(sample, pages, numbers)]
            reply = await self._teacher.ask(hop_chat(posed_question(sample), seen))
            notes["hop_replies"] += 1
            thought = "" if reply.error else parse_hop(reply.text, reply.finish)
            if not thought:
                notes["hops_unusable"] += 1
                one_round = tuple(sorted(number for numbers in rounds for number in numbers))
                return replace(whole, rounds=(one_round,), notes=dict(notes))
            hop_thoughts.append(thought)
        return replace(whole, rounds=tuple(rounds), hop_thoughts=tuple(hop_thoughts), notes=dict(notes))

    async def _reason(
        self, sample: Sample, pages: Sequence[PageSpan], relevant: Sequence[int]
    ) -> Reasoning | Rejection:
        selected = _texts(sample, pages, relevant)
        words = SUMMARY_WORDS.get(sample.task, 0)
        chat = reason_chat(posed_question(sample), sample.kind, sample.context, selected, words)
        notes: Counter[str] = Counter()
        problem, detail = "reason_empty", ""
        for draw in range(self._spec.samples):
            reply = await self._teacher.ask(chat, draw=draw)
            notes["reason_replies"] += 1
            if reply.error:
                reason = "reason_too_long" if is_too_long(reply) else "reason_failed"
                return sample.reject(reason, reply.error).with_notes(notes)
            parsed = parse_reasoning(reply.text, reply.think, reply.finish)
            if not parsed.problem:
                gold = await self._gold_answer(sample, parsed.answer, notes)
                if gold is not None:
                    answer = gold if self._spec.target == "gold" else own_answer(sample, parsed.answer)
                    return Reasoning(parsed.think, answer, f"teacher:{self._teacher.spec.model}", dict(notes))
            reply_problem = parsed.problem or "answer_differs"
            notes[reply_problem] += 1
            # Of several bad replies, report a wrong answer first: it tells more about the record than a malformed reply.
            if problem != "answer_differs":
                problem, detail = reply_problem, f"{parsed.answer[:80]!r}, gold {sample.answers[0][:80]!r}"
        return sample.reject(problem, detail).with_notes(notes)

    async def _gold_answer(self, sample: Sample, answer: str, notes: Counter[str]) -> str | None:
        """Return the gold answer, in its own spelling, that this answer equals, or None."""
        match = matching_answer(sample, answer, self._spec)
        if match is not None:
            notes[f"right_by_{match.rule}"] += 1
            return match.answer
        # A judge of meaning suits short answers only: summaries and code have their own measures.
        if not self._spec.use_answer_judge or sample.kind in ("summary", "code"):
            return None
        reply = await self._teacher.ask(same_answer_chat(sample.question, sample.answers, answer))
        if parse_verdict(reply.text, reply.finish) != "yes":
            return None
        notes["right_by_judge"] += 1
        return sample.answers[0]


def own_answer(sample: Sample, given: str) -> str:
    """Return the teacher's answer as the model learns it: without the Markdown around a line of code or a short answer."""
    if sample.kind == "code":
        return code_line(given)
    return given if sample.kind == "summary" else given.strip().strip("*`").strip()


class TemplateReasoner:
    """Quotes the evidence on each relevant page and concludes with the gold answer."""

    name = "template"

    async def __call__(
        self, sample: Sample, pages: Sequence[PageSpan], relevant: Sequence[int], rounds: Rounds = ()
    ) -> Reasoning | Rejection:
        return template_reasoning(sample, pages, relevant)


def template_reasoning(sample: Sample, pages: Sequence[PageSpan], relevant: Sequence[int]) -> Reasoning | Rejection:
    """Return reasoning that quotes the evidence, or a rejection if no sentence supports the answer.

    Summaries and code are always rejected, because they do not follow from single sentences.
    """
    wording = CHINESE if is_chinese(sample.question) else ENGLISH
    answer = sample.answers[0]
    if not sample.answerable:
        return Reasoning(wording.nothing, answer, "template")
    if sample.kind in ("summary", "code"):
        return sample.reject("nothing_to_quote", f"a {sample.kind} does not follow from one sentence")
    spans = [(item.start, item.end) for item in sample.evidence or ()] or answer_spans(sample)
    by_number = {page.number: page for page in pages}
    found = ((number, _quote(sample, spans, by_number[number])) for number in relevant)
    quotes = [(number, quote) for number, quote in found if quote]
    if not quotes:
        return sample.reject("nothing_to_quote")
    return Reasoning(quoted_reasoning(quotes, answer, wording), answer, "template", quotes=tuple(quotes))


def thoughts(sample: Sample, reasoning: Reasoning, rounds: Sequence[tuple[int, ...]]) -> list[str]:
    """Return the thought that follows each round, or "" for a round without one.

    A quote follows the round that retrieved its page, so the next call can build on it. A model's reasoning follows the
    last round; the thoughts that it wrote for earlier rounds follow those.
    """
    if reasoning.hop_thoughts:
        return [*reasoning.hop_thoughts, reasoning.think]
    *earlier, last = [[quote for quote in reasoning.quotes if quote[0] in numbers] for numbers in rounds]
    if not last:
        return [*[""] * len(earlier), reasoning.think]
    wording = CHINESE if is_chinese(sample.question) else ENGLISH
    return [*(quoted_lines(quotes, wording) for quotes in earlier), quoted_reasoning(last, reasoning.answer, wording)]


def _texts(sample: Sample, pages: Sequence[PageSpan], numbers: Sequence[int]) -> list[tuple[int, str]]:
    """Return number and text of these pages."""
    by_number = {page.number: page for page in pages}
    return [(number, sample.context[by_number[number].start : by_number[number].end]) for number in numbers]


def _quote(sample: Sample, spans: Sequence[tuple[int, int]], page: PageSpan) -> str:
    """Return the evidence sentence on this page that shares most words with the question and the answers, or ""."""
    found = [
        sentence
        for start, end in spans
        if start < page.end and end > page.start
        for sentence in _sentences(sample.context, start, end, page)
    ]
    if len(found) < 2:
        return found[0] if found else ""
    # Evidence may be a whole paragraph; the sentence closest to question and answers is the one that supports them.
    wanted = _words(" ".join((sample.question, *sample.answers)))
    return max(found, key=lambda sentence: len(wanted & _words(sentence)))


_SENTENCE_END = re.compile(r"[.!?]\s+|[。！？]|\n+")


def _sentences(text: str, start: int, end: int, page: PageSpan) -> list[str]:
    """Return the sentences of the page that overlap [start, end), cut to MAX_QUOTE_CHARS characters."""
    page_text = text[page.start : page.end]
    start, end = start - page.start, end - page.start
    sentences, sentence_start = [], 0
    for match in _SENTENCE_END.finditer(page_text):
        # A punctuation mark is the last character of its sentence; a newline belongs to no sentence.
        sentence_end = match.start() + (not match[0].isspace())
        if sentence_end > start and sentence_start < end:
            sentences.append(page_text[sentence_start:sentence_end])
        sentence_start = match.end()
        if sentence_start >= end:
            break
    if sentence_start < end:
        sentences.append(page_text[sentence_start:])
    stripped = (sentence.strip()[:MAX_QUOTE_CHARS] for sentence in sentences)
    # The template sets quotes in curly quotation marks, so those inside a quote become straight.
    return [sentence.replace("“", '"').replace("”", '"') for sentence in stripped if sentence]


def _words(text: str) -> set[str]:
    """Return words, and single characters of Chinese and Japanese, which do not separate words."""
    return set(re.findall(r"[\u3040-\u30ff\u4e00-\u9fff]|[^\W\u3040-\u30ff\u4e00-\u9fff]+", text.casefold()))
