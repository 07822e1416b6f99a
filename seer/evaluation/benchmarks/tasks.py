"""Benchmarks as sets of tasks: metric, token limit and prompt of each. Defines the 21 tasks of LongBench.

A task's document is the record's `context`. Its question is built from the record's `input` with the template
`question`. The prompts are our own and differ from those of published runs, so every report names the prompts it was
made with. `load_templates` reads replacements in the benchmark's own dataset2prompt format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from seer.errors import InputError
from seer.evaluation.scoring.scorers import Metric
from seer.schema import NewlineMode


@dataclass(frozen=True)
class BenchmarkTask:
    """One task of a benchmark: how its records are turned into questions and how predictions are scored."""

    name: str
    category: str
    metric: Metric
    max_new_tokens: int
    num_records: int
    """Number of records in the full benchmark."""
    instruction: str
    """Text before the question: describes the document and the form of the answer."""
    question: str
    """Template of the question; {input} is replaced with the record's input."""
    chat: bool = True
    """False if the benchmark lets text models continue the bare prompt, without a chat template."""
    first_line: bool = False
    """True if only the first line of a prediction is scored."""
    input_ends_document: bool = False
    """True if the input is the end of the document itself, such as code to continue."""
    newline: NewlineMode | None = None
    """How pages show newlines in a style that leaves this open, as `paper` does; None: decided for each document."""

    @property
    def retrieve(self) -> Literal["pages", "passages"]:
        """What the reading policy `retrieve="task"` retrieves.

        Questions about facts and paragraphs take passages. Summaries, examples to follow, counts and code take whole
        pages, since nothing shows yet that their passages suffice.
        """
        asks_for_facts = self.category in ("single_doc_qa", "multi_doc_qa") or self.name.startswith("passage_retrieval")
        return "passages" if asks_for_facts else "pages"


@dataclass(frozen=True)
class Benchmark:
    """A named set of tasks. The overall score is the mean of its categories' means."""

    name: str
    tasks: Mapping[str, BenchmarkTask]

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories in the order of their first task."""
        return tuple(dict.fromkeys(task.category for task in self.tasks.values()))

    @property
    def num_records(self) -> int:
        """Number of records over all tasks."""
        return sum(task.num_records for task in self.tasks.values())

    def find(self, name: str) -> BenchmarkTask:
        """Return the task with this name. Raises InputError if the benchmark has no such task."""
        if name not in self.tasks:
            raise InputError(f"{self.name} has no task '{name}'; its tasks are {', '.join(self.tasks)}")
        return self.tasks[name]


_EXAMPLES = "The document is a series of solved examples. Solve the last one below in the same manner. "
_PASSAGES = (
    "The document is made of several passages. Find the facts that the question needs, which may stand in different "
    "passages, and reply with the answer alone: a name, a date, a short phrase, yes or no."
)
_NEXT_LINE = (
    "The document is program code that breaks off. Write the line that comes next, with its indentation, and "
    "nothing else."
)

_ALL = (
    BenchmarkTask(
        "narrativeqa",
        "single_doc_qa",
        Metric.QA_F1,
        128,
        200,
        "The document is a story: a book or the script of a film. Reply to the question in as few words as will do, "
        "with no explanation.",
        "Question about the story: {input}",
    ),
    BenchmarkTask(
        "qasper",
        "single_doc_qa",
        Metric.QA_F1,
        128,
        200,
        "The document is a research paper. Reply to the question from the paper alone, in one phrase or sentence. "
        'Reply "yes" or "no" where that is what is asked, and "unanswerable" where the paper does not tell.',
        "Question about the paper: {input}",
    ),
    BenchmarkTask(
        "multifieldqa_en",
        "single_doc_qa",
        Metric.QA_F1,
        64,
        150,
        "Read the document and reply to the question with a short, exact answer taken from it.",
        "Question: {input}",
    ),
    BenchmarkTask(
        "multifieldqa_zh",
        "single_doc_qa",
        Metric.QA_F1_ZH,
        64,
        200,
        "请通读这份文档，依据其中的内容，用简短准确的话回答问题，不作解释。",
        "问：{input}",
    ),
    BenchmarkTask("hotpotqa", "multi_doc_qa", Metric.QA_F1, 32, 200, _PASSAGES, "Question: {input}"),
    BenchmarkTask("2wikimqa", "multi_doc_qa", Metric.QA_F1, 32, 200, _PASSAGES, "Question: {input}"),
    BenchmarkTask("musique", "multi_doc_qa", Metric.QA_F1, 32, 200, _PASSAGES, "Question: {input}"),
    BenchmarkTask(
        "dureader",
        "multi_doc_qa",
        Metric.ROUGE_L_ZH,
        128,
        200,
        "文档由若干篇网络文章组成。请综合其中与问题有关的内容，直接写出答案。",
        "问：{input}",
    ),
    BenchmarkTask(
        "gov_report",
        "summarization",
        Metric.ROUGE_L,
        512,
        200,
        "The document is a report by a government body.",
        "Summarise the whole report on one page: what was examined, what was found, what is recommended.{input}",
    ),
    BenchmarkTask(
        "qmsum",
        "summarization",
        Metric.ROUGE_L,
        512,
        200,
        "The document is the transcript of a meeting. Reply in a few sentences that say who held what.",
        "What is asked about the meeting: {input}",
    ),
    BenchmarkTask(
        "multi_news",
        "summarization",
        Metric.ROUGE_L,
        512,
        200,
        "The document holds several news articles on one event.",
        "Tell the event in one summary that draws on all of the articles.{input}",
    ),
    BenchmarkTask(
        "vcsum",
        "summarization",
        Metric.ROUGE_L_ZH,
        512,
        200,
        "文档是一次会议的逐字记录。",
        "请概括会议谈了哪些内容、得出了哪些结论。{input}",
    ),
    BenchmarkTask(
        "trec",
        "few_shot",
        Metric.CLASSIFICATION,
        64,
        200,
        _EXAMPLES + "Reply with the type of the question only.",
        "{input}",
        chat=False,
        first_line=True,
    ),
    BenchmarkTask(
        "triviaqa",
        "few_shot",
        Metric.QA_F1,
        32,
        200,
        _EXAMPLES + "Reply with the answer only, in a few words.",
        "{input}",
        chat=False,
        first_line=True,
    ),
    BenchmarkTask(
        "samsum",
        "few_shot",
        Metric.ROUGE_L,
        128,
        200,
        _EXAMPLES + "Reply with the summary of the last dialogue only, on one line.",
        "{input}",
        chat=False,
        first_line=True,
    ),
    BenchmarkTask(
        "lsht",
        "few_shot",
        Metric.CLASSIFICATION,
        64,
        200,
        "文档给出了一些已经标好类别的新闻。请照样判断下面这篇新闻，只写类别。",
        "{input}",
        chat=False,
        first_line=True,
    ),
    BenchmarkTask(
        "passage_count",
        "synthetic",
        Metric.COUNT,
        32,
        200,
        "The document is a list of numbered paragraphs, and some of them stand there more than once.",
        "How many different paragraphs are there? Reply with that number only.{input}",
    ),
    BenchmarkTask(
        "passage_retrieval_en",
        "synthetic",
        Metric.RETRIEVAL_EN,
        32,
        200,
        "The document is a list of numbered paragraphs. One of them is described below. Reply with its label only, in "
        'the form "Paragraph 7".',
        "Description: {input}",
    ),
    BenchmarkTask(
        "passage_retrieval_zh",
        "synthetic",
        Metric.RETRIEVAL_ZH,
        32,
        200,
        "文档是一些编了号的段落，下面的摘要说的是其中一段。只写出那一段的编号，形如“段落7”。",
        "摘要：{input}",
    ),
    BenchmarkTask(
        "lcc",
        "code",
        Metric.CODE_SIM,
        64,
        500,
        _NEXT_LINE,
        "Next line of code:",
        chat=False,
        input_ends_document=True,
    ),
    BenchmarkTask(
        "repobench-p",
        "code",
        Metric.CODE_SIM,
        64,
        500,
        "The document shows files of one project, the last of which breaks off. " + _NEXT_LINE.partition(". ")[2],
        "Next line of code:",
        chat=False,
        input_ends_document=True,
    ),
)

_MARKED = (
    *("narrativeqa", "qasper", "hotpotqa", "dureader", "gov_report", "qmsum"),
    *("multi_news", "vcsum", "trec", "triviaqa", "samsum", "passage_retrieval_en"),
)
"""The tasks whose lines run on with newline marks in Glyph's LongBench evaluation; the paper follows it."""

TASKS: dict[str, BenchmarkTask] = {
    task.name: replace(task, newline="mark" if task.name in _MARKED else "break") for task in _ALL
}

LONGBENCH = Benchmark("longbench", TASKS)


def build_context(task: BenchmarkTask, record_input: str, record_context: str) -> str:
    """Return the document of a record: its context, followed by its input if the input ends the document."""
    return record_context + record_input if task.input_ends_document else record_context


def bare_question(task: BenchmarkTask, record_input: str) -> str:
    """Return a record's question without instructions, or the task's own question if the record has none (summaries)."""
    return record_input.strip() or build_question(task, record_input)


def build_question(task: BenchmarkTask, record_input: str, templates: Mapping[str, str] | None = None) -> str:
    """Return the question for a system that receives the document separately.

    `templates` replaces our prompts by templates with {context} and {input}; {context} is replaced with nothing.
    Raises InputError if there is no template for the task.
    """
    if templates is not None:
        if task.name not in templates:
            raise InputError(
                f"the prompt file has no template for '{task.name}'; it has {', '.join(sorted(templates))}"
            )
        pieces = re.split(r"(\{context\}|\{input\})", templates[task.name])
        values = {"{context}": "", "{input}": "" if task.input_ends_document else record_input}
        return "".join(values.get(piece, piece) for piece in pieces).strip()
    # The input may contain braces, which str.format would interpret.
    question = task.question.replace("{input}", record_input)
    return f"{task.instruction}\n\n{question}" if task.instruction else question


def fill_template(task: BenchmarkTask, record_input: str, record_context: str, templates: Mapping[str, str]) -> str:
    """Return the benchmark's own prompt of a record, with its document and input in their places.

    Raises InputError if there is no template for the task.
    """
    if task.name not in templates:
        raise InputError(f"the prompt file has no template for '{task.name}'; it has {', '.join(sorted(templates))}")
    # One pass over the template: a document that holds "{input}" must not be filled in turn.
    values = {"{context}": record_context, "{input}": record_input}
    return "".join(values.get(piece, piece) for piece in re.split(r"(\{context\}|\{input\})", templates[task.name]))


def load_templates(path: str | Path) -> dict[str, str]:
    """Read a dataset2prompt file: a JSON object from task names to templates with {context} and optionally {input}.

    Raises InputError if the file cannot be read or a template lacks {context}.
    """
    try:
        templates = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"no prompt file at '{path}'; give a JSON file that maps task names to templates") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"'{path}' cannot be read as JSON: {error}; correct its syntax") from None
    if not isinstance(templates, dict) or not all(isinstance(text, str) for text in templates.values()):
        raise InputError(f"'{path}' must hold a JSON object from task name to template text")
    for name, text in templates.items():
        if "{context}" not in text:
            raise InputError(f"'{path}': the template for '{name}' lacks {{context}}, the position of the document")
    return templates
