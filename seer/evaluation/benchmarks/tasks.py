"""Benchmarks as sets of tasks: what each asks, how it is scored, and how we word it. LongBench's 21 stand here.

A task's document is the record's `context`; its question is made from the record's `input` by `question`. The
wordings are ours. Published runs use others, so a report names the prompts it was made with, and
`load_templates` reads a file in the benchmark's own dataset2prompt format to replace them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seer.errors import InputError
from seer.evaluation.scoring.scorers import Metric


@dataclass(frozen=True)
class Task:
    name: str
    category: str
    metric: Metric
    max_new_tokens: int
    num_records: int
    """How many records the full benchmark holds."""
    instruction: str
    """What stands before the question: what the document is and what form the answer takes."""
    question: str
    """How the record's input is put, with {input} in its place."""
    chat: bool = True
    """False where the benchmark has text models go on with the bare prompt, without a chat template."""
    first_line: bool = False
    """True where only the first line of a prediction counts."""
    input_ends_document: bool = False
    """True where the input is the end of the document itself: code to go on with."""


@dataclass(frozen=True)
class Benchmark:
    """A named set of tasks. The overall score is the mean of its categories' means."""

    name: str
    tasks: Mapping[str, Task]

    @property
    def categories(self) -> tuple[str, ...]:
        """In the order in which they first stand."""
        return tuple(dict.fromkeys(task.category for task in self.tasks.values()))

    @property
    def num_records(self) -> int:
        return sum(task.num_records for task in self.tasks.values())

    def find(self, name: str) -> Task:
        """The task of this name."""
        if name not in self.tasks:
            raise InputError(f"'{name}' is no task of {self.name}; its tasks are {', '.join(self.tasks)}")
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
    Task(
        "narrativeqa",
        "single_doc_qa",
        Metric.QA_F1,
        128,
        200,
        "The document is a story: a book or the script of a film. Reply to the question in as few words as will do, "
        "with no explanation.",
        "Question about the story: {input}",
    ),
    Task(
        "qasper",
        "single_doc_qa",
        Metric.QA_F1,
        128,
        200,
        "The document is a research paper. Reply to the question from the paper alone, in one phrase or sentence. "
        'Reply "yes" or "no" where that is what is asked, and "unanswerable" where the paper does not tell.',
        "Question about the paper: {input}",
    ),
    Task(
        "multifieldqa_en",
        "single_doc_qa",
        Metric.QA_F1,
        64,
        150,
        "Read the document and reply to the question with a short, exact answer taken from it.",
        "Question: {input}",
    ),
    Task(
        "multifieldqa_zh",
        "single_doc_qa",
        Metric.QA_F1_ZH,
        64,
        200,
        "请通读这份文档，依据其中的内容，用简短准确的话回答问题，不作解释。",
        "问：{input}",
    ),
    Task("hotpotqa", "multi_doc_qa", Metric.QA_F1, 32, 200, _PASSAGES, "Question: {input}"),
    Task("2wikimqa", "multi_doc_qa", Metric.QA_F1, 32, 200, _PASSAGES, "Question: {input}"),
    Task("musique", "multi_doc_qa", Metric.QA_F1, 32, 200, _PASSAGES, "Question: {input}"),
    Task(
        "dureader",
        "multi_doc_qa",
        Metric.ROUGE_L_ZH,
        128,
        200,
        "文档由若干篇网络文章组成。请综合其中与问题有关的内容，直接写出答案。",
        "问：{input}",
    ),
    Task(
        "gov_report",
        "summarization",
        Metric.ROUGE_L,
        512,
        200,
        "The document is a report by a government body.",
        "Summarise the whole report on one page: what was examined, what was found, what is recommended.{input}",
    ),
    Task(
        "qmsum",
        "summarization",
        Metric.ROUGE_L,
        512,
        200,
        "The document is the transcript of a meeting. Reply in a few sentences that say who held what.",
        "What is asked about the meeting: {input}",
    ),
    Task(
        "multi_news",
        "summarization",
        Metric.ROUGE_L,
        512,
        200,
        "The document holds several news articles on one event.",
        "Tell the event in one summary that draws on all of the articles.{input}",
    ),
    Task(
        "vcsum",
        "summarization",
        Metric.ROUGE_L_ZH,
        512,
        200,
        "文档是一次会议的逐字记录。",
        "请概括会议谈了哪些内容、得出了哪些结论。{input}",
    ),
    Task(
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
    Task(
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
    Task(
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
    Task(
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
    Task(
        "passage_count",
        "synthetic",
        Metric.COUNT,
        32,
        200,
        "The document is a list of numbered paragraphs, and some of them stand there more than once.",
        "How many different paragraphs are there? Reply with that number only.{input}",
    ),
    Task(
        "passage_retrieval_en",
        "synthetic",
        Metric.RETRIEVAL_EN,
        32,
        200,
        "The document is a list of numbered paragraphs. One of them is described below. Reply with its label only, in "
        'the form "Paragraph 7".',
        "Description: {input}",
    ),
    Task(
        "passage_retrieval_zh",
        "synthetic",
        Metric.RETRIEVAL_ZH,
        32,
        200,
        "文档是一些编了号的段落，下面的摘要说的是其中一段。只写出那一段的编号，形如“段落7”。",
        "摘要：{input}",
    ),
    Task(
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
    Task(
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

TASKS: dict[str, Task] = {task.name: task for task in _ALL}

LONGBENCH = Benchmark("longbench", TASKS)


def build_context(task: Task, record_input: str, record_context: str) -> str:
    """The document: the record's context, with its input at the end where the input goes on with it."""
    return record_context + record_input if task.input_ends_document else record_context


def bare_question(task: Task, record_input: str) -> str:
    """What a record asks, without instructions; our wording of the task where its records ask nothing, as summaries."""
    return record_input.strip() or build_question(task, record_input)


def build_question(task: Task, record_input: str, templates: Mapping[str, str] | None = None) -> str:
    """The question put to a system that is given the document apart.

    A template in the benchmark's format has {context} and {input}; nothing stands in for the former.
    """
    if templates is not None:
        if task.name not in templates:
            raise InputError(
                f"the prompt file has no template for '{task.name}'; it has {', '.join(sorted(templates))}"
            )
        pieces = re.split(r"(\{context\}|\{input\})", templates[task.name])
        values = {"{context}": "", "{input}": "" if task.input_ends_document else record_input}
        return "".join(values.get(piece, piece) for piece in pieces).strip()
    # Not str.format: the input may hold braces.
    question = task.question.replace("{input}", record_input)
    return f"{task.instruction}\n\n{question}" if task.instruction else question


def load_templates(path: str | Path) -> dict[str, str]:
    """Read a dataset2prompt file: a JSON object from task name to a template with {context} and maybe {input}."""
    try:
        templates = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"no prompt file at '{path}'; give a JSON file that maps task names to templates") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"'{path}' cannot be read as JSON: {error}") from None
    if not isinstance(templates, dict) or not all(isinstance(text, str) for text in templates.values()):
        raise InputError(f"'{path}' must hold a JSON object from task name to template text")
    for name, text in templates.items():
        if "{context}" not in text:
            raise InputError(f"'{path}': the template for '{name}' lacks {{context}}, where the document goes")
    return templates
