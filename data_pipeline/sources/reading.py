"""Adapters for reading comprehension: TriviaQA (evidence files), DuReader (web pages) and NarrativeQA (stories).

Every adapter raises `Rejected` if the row lacks a required field, a field has the wrong type, or a text file is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from data_pipeline.records import Evidence, Rejected, Sample
from data_pipeline.settings import SourceSpec
from data_pipeline.sources.adapting import (
    TextBuilder,
    list_field,
    optional_text,
    record_list,
    required_field,
    short_hash,
    text_field,
    text_list,
)
from data_pipeline.sources.published import read_inside, story_text
from data_pipeline.sources.rawfiles import Row

# ── TriviaQA ─────────────────────────────────────────────────────────────────────────────────────


def triviaqa(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """Yield one sample for each evidence document that contains an answer, which is TriviaQA's distant supervision.

    Official rows name their documents by file, in the folders wikipedia/ and web/ of `spec.texts`; hub rows hold the
    text. Raises Rejected if no document contains an answer, the texts are missing, or a field is mistyped.
    """
    question = optional_text(row, "Question", "question") or text_field(row, "question")
    answer = row.get("Answer") or required_field(row, "answer")
    if not isinstance(answer, Mapping):
        raise Rejected(
            "wrong_type", f"'answer' is {type(answer).__name__}; a record with value and aliases is required"
        )
    named = [optional_text(answer, "Value", "value"), *text_list(answer.get("Aliases") or answer.get("aliases") or [])]
    answers = tuple(dict.fromkeys(name for name in named if name.strip()))
    question_id = optional_text(row, "QuestionId", "question_id")
    found = False
    for name, text in _trivia_documents(row, spec):
        if not any(answer.casefold() in text.casefold() for answer in answers):
            continue
        found = True
        yield Sample(
            id=f"{question_id}--{name}",
            source=spec.label,
            question=question,
            context=text,
            answers=answers,
            document=name,
        )
    if not found:
        raise Rejected("answer_not_in_context", f"{question_id}: no evidence document contains an answer")


def _trivia_documents(row: Row, spec: SourceSpec) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each evidence document; a missing text is skipped unless all are missing."""
    groups = (
        ("wikipedia", row.get("EntityPages", row.get("entity_pages")), "wiki_context"),
        ("web", row.get("SearchResults", row.get("search_results")), "search_context"),
    )
    missing = given = 0
    for folder, pages, column in groups:
        for page in record_list(pages or []):
            given += 1
            name = optional_text(page, "Filename", "filename")
            text = (
                optional_text(page, column)
                or read_inside(spec.texts, f"{folder}/{name}")
                or read_inside(spec.texts, name)
            )
            if text:
                yield f"{folder}/{name}", text
            else:
                missing += 1
    if given == 0 or missing == given:
        hint = f"none of {given} texts is in '{spec.texts}'" if spec.texts else "set `texts` to the evidence folder"
        raise Rejected("missing_text", hint)


# ── DuReader ─────────────────────────────────────────────────────────────────────────────────────


def dureader(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """Adapt a query with the web pages that a search returned, and answers based on the pages annotators selected.

    Raises Rejected if a field is missing or mistyped.
    """
    builder = TextBuilder()
    evidence: list[Evidence] = []
    for document in record_list(list_field(row, "documents")):
        builder.add(f"{optional_text(document, 'title')}\n")
        chosen = document.get("most_related_para") if document.get("is_selected") else None
        for number, paragraph in enumerate(list_field(document, "paragraphs")):
            if not isinstance(paragraph, str):
                raise Rejected("wrong_type", f"a paragraph is {type(paragraph).__name__}; text is required")
            span = builder.add(paragraph)
            builder.add("\n")
            if number == chosen and paragraph.strip():
                evidence.append(Evidence(*span, hop=len(evidence)))
        builder.add("\n")
        builder.end_segment()
    yield Sample(
        id=optional_text(row, "question_id"),
        source=spec.label,
        question=text_field(row, "question"),
        context=builder.text,
        answers=tuple(text_list(row.get("answers") or [])),
        kind="free",
        evidence=tuple(evidence) or None,
        segments=builder.segments,
        provenance={"type": optional_text(row, "question_type")},
    )


# ── NarrativeQA ──────────────────────────────────────────────────────────────────────────────────


def narrativeqa(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """Adapt a question about a whole story, with two answers written by annotators.

    Hub rows hold the story; rows of the official qaps.csv name it, and `spec.texts` is the folder of stories or the table
    of summaries. Raises Rejected if the row belongs to another split, the story is missing, or a field is missing or mistyped.
    """
    document = row.get("document")
    if isinstance(document, Mapping):
        document_id, text = optional_text(document, "id"), text_field(document, "text")
        question = required_field(row, "question")
        texts = (text_field(question, "text") if isinstance(question, Mapping) else text_field(row, "question"),)
        answers = [optional_text(answer, "text") for answer in record_list(required_field(row, "answers"))]
    else:
        document_id, texts = text_field(row, "document_id"), (text_field(row, "question"),)
        if optional_text(row, "set") not in ("", "train") and not spec.allow_other_splits:
            raise Rejected("not_train", f"'set' is '{row['set']}'; train is required")
        answers = [optional_text(row, name) for name in ("answer1", "answer2")]
        text = story_text(spec.texts, document_id)
        if not text:
            hint = "set `texts` to the folder of stories or to summaries.csv"
            raise Rejected("missing_text", f"no text of {document_id} in '{spec.texts}'; {hint}")
    yield Sample(
        id=f"{document_id}-{short_hash(texts[0])}",
        source=spec.label,
        question=texts[0],
        context=text,
        answers=tuple(dict.fromkeys(answer for answer in answers if answer.strip())),
        kind="free",
        document=document_id,
    )
