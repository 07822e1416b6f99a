"""Tests of the miniature world: gold pages match the rendered pages, splits are disjoint, lessons are correct."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from seer.errors import InputError
from seer.miniature.lessons import lessons
from seer.miniature.lexicon import CHINESE_NAMES, ENGLISH_NAMES, PARAPHRASES
from seer.miniature.world import LINES_PER_PAGE, STYLE, UNANSWERABLE, MiniatureDocument, Split, World, main
from seer.rendering import render_text

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
DOCUMENTS = 60


def documents(split: Split = "test", count: int = DOCUMENTS) -> list[MiniatureDocument]:
    return list(World(3, split).documents(count))


def test_lexicon_paraphrases_share_no_word_with_their_names() -> None:
    for printed, paraphrase in ENGLISH_NAMES.items():
        assert printed not in paraphrase and paraphrase not in printed
    for printed, paraphrase in CHINESE_NAMES.items():
        assert not {*printed} & {*paraphrase}
    paraphrases = [*ENGLISH_NAMES.values(), *CHINESE_NAMES.values()]
    assert len({*paraphrases}) == len(paraphrases) and not {*paraphrases} & {*ENGLISH_NAMES, *CHINESE_NAMES}


def test_gold_pages_match_rendered_pages_of_the_evidence() -> None:
    for document in documents():
        rendered = render_text(document.text, STYLE, name=document.id)
        assert len(rendered.pages) == document.num_pages
        assert not rendered.missing_glyphs
        for page in rendered.pages:
            assert page.text.count("\n") == LINES_PER_PAGE
        for question in document.questions:
            assert question.pages == tuple(sorted({rendered.page_at(start).number for start, _ in question.evidence}))
            for start, end in question.evidence:
                assert "\n" not in document.text[start:end] and document.text[end] == "\n"


def test_answers_follow_from_the_document_text() -> None:
    for document in documents():
        for question in document.questions:
            quoted = [document.text[start:end] for start, end in question.evidence]
            if question.kind == "unanswerable":
                assert question.answer == UNANSWERABLE and not quoted and question.name not in document.text
            elif question.kind == "hop":
                pointer, fact = quoted
                assert fact == f"{pointer.split(' → ')[1]} {question.answer}" and pointer.startswith(question.name)
                assert len(question.pages) == 2
            else:
                assert ", ".join(quote.split()[1] for quote in quoted) == question.answer
                every = re.findall(rf"^{question.name} \d+$", document.text, re.M)
                assert every == quoted, "no other line can be the answer"
                assert (len(question.pages) > 3) == (question.kind == "many")


def test_paraphrases_never_occur_in_the_document() -> None:
    pairs = [(d, q) for d in documents() for q in d.questions if q.kind == "paraphrase"]
    assert pairs
    words = {**ENGLISH_NAMES, **CHINESE_NAMES}
    for document, question in pairs:
        assert words[question.name] in question.text
        assert words[question.name] not in document.text and question.name not in question.text


def test_world_splits_share_neither_documents_nor_facts() -> None:
    facts = {
        split: {line for d in documents(split, 300) for line in d.text.splitlines() if "→" not in line}
        for split in SPLITS
    }
    texts = {split: {d.text for d in documents(split, 300)} for split in SPLITS}
    for one in SPLITS:
        for other in SPLITS:
            if one != other:
                assert not facts[one] & facts[other] and not texts[one] & texts[other]


def test_document_depends_only_on_world_and_number() -> None:
    world = World(5, "train")
    assert world.document(7) == list(World(5, "train").documents(3, start=6))[1]
    assert world.document(7) != World(6, "train").document(7)


def test_world_contains_every_kind_and_both_languages() -> None:
    questions = [q for d in documents() for q in d.questions]
    assert {q.kind for q in questions} == {"single", "paraphrase", "hop", "many", "unanswerable"}
    assert {q.language for q in questions} == {"en", "zh"}
    assert len({q.id for q in questions}) == len(questions)


def test_tokenizer_encodes_known_words_as_one_token_and_any_text_losslessly() -> None:
    pytest.importorskip("tokenizers")
    from seer.miniature.tokenizer import build_tokenizer, phrases
    from seer.protocol.encoding import Encoder

    encoder = Encoder(build_tokenizer())
    for text in [*phrases(), *ENGLISH_NAMES, *ENGLISH_NAMES.values(), *CHINESE_NAMES, *CHINESE_NAMES.values()]:
        assert len(encoder.encode_text(text)) == 1, text
    for text in ["catalog 9", "naïve 🙂 <|user|> </tool_call>", "医生们 12\t\n\n", ""]:
        assert encoder.decode(encoder.encode_text(text)) == text


@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("lesson", ["reading", "matching", "quoting", "finding", "conversation"])
def test_lessons_agree_with_their_documents(lesson: str, crowded: bool) -> None:
    trajectories = list(lessons(lesson, World(1, "train", crowded=crowded), 30, text_share=0.5))  # type: ignore[arg-type]
    assert len(trajectories) == 30 and len({t.id for t in trajectories}) == 30
    for trajectory in trajectories:
        prompt, answer = trajectory.turns[0], trajectory.turns[-1]
        if lesson == "matching":
            page_of = {line.split()[0]: e.page for e in prompt.excerpts for line in e.text.splitlines()}
        else:
            pages = render_text(trajectory.source, STYLE, name="x").pages
            page_of = {
                word: p.number for p in pages for line in p.text.splitlines() for word in re.split(" → | ", line)
            }
            for excerpt in prompt.excerpts:
                assert pages[excerpt.page - 1].text == excerpt.text and pages[excerpt.page - 1].start == excerpt.start
        if lesson in ("matching", "finding"):
            found = re.findall(r"([^\W\d]+)(?:\?\{[^\[]*\[)?(\d)", answer.text)
            assert found and all(page_of[name] == int(number) for name, number in found)
        elif lesson == "quoting":
            shown = [line for excerpt in prompt.excerpts for line in excerpt.text.splitlines()]
            answer_lines = answer.text.splitlines()
            quotes = [re.search("“(.+)”", line)[1] for line in answer_lines]  # type: ignore[index]
            wanted = {*prompt.text.split()}
            assert sorted(quotes) == sorted(line for line in shown if line.split()[0] in wanted)
            numbers = {line: excerpt.page for excerpt in prompt.excerpts for line in excerpt.text.splitlines()}
            assert [int(re.search(r"\d+", line)[0]) for line in answer_lines] == [numbers[quote] for quote in quotes]  # type: ignore[index]
        elif lesson == "conversation":
            *steps, think = trajectory.turns[1:-1]
            calls, observations = ([t for t in steps if t.kind == kind] for kind in ("call", "observation"))
            for call, seen in zip(calls, observations, strict=True):
                assert call.pages == tuple(e.page for e in seen.excerpts)
            assert sorted(page for call in calls for page in call.pages) == list(trajectory.relevant_pages)
            if trajectory.id.split("-")[-2] == "hop":
                kinds = [turn.kind for turn in steps]
                assert kinds == ["call", "observation", "think", "call", "observation"], (
                    "a pointer is followed after it was read"
                )
                pointer, target = (re.search("“(.+)”", turn.text)[1] for turn in (steps[2], think))  # type: ignore[index]
                assert pointer.split(" → ")[1] == target.split()[0]
            else:
                assert len(steps) == 2
            assert answer.text in trajectory.answers
            assert answer.text == UNANSWERABLE or answer.text in think.text


def test_lessons_finding_names_every_page_of_a_name() -> None:
    """On crowded pages most names need two or more pages: those of all their lines, or of a pointer and its target."""
    several = 0
    for trajectory in lessons("finding", World(2, "train", crowded=True), 30, kinds=("hop", "many"), call_share=1.0):
        lines = trajectory.source.splitlines()
        for name, pages in re.findall(r"([^\W\d]+)\?\{[^\[]*\[([^\]]+)\]", trajectory.turns[-1].text):
            places = {i for i, line in enumerate(lines) if line.split()[0] == name}
            targets = {lines[i].split(" → ")[1] for i in places if "→" in lines[i]}
            places |= {i for i, line in enumerate(lines) if line.split()[0] in targets}
            assert sorted({i // LINES_PER_PAGE + 1 for i in places}) == [int(page) for page in pages.split(", ")]
            several += 1
    assert several > 30


def test_lessons_finding_by_paraphrase_gives_the_page_of_the_name() -> None:
    names = {meant: name for name, meant in PARAPHRASES.items()}
    assert len(names) == len(PARAPHRASES)
    for trajectory in lessons("finding", World(2, "train"), 30, kinds=("paraphrase",), call_share=1.0):
        lines = trajectory.source.splitlines()
        found = re.findall(r"([^\W\d]+)\?\{[^\[]*\[(\d)\]", trajectory.turns[-1].text)
        assert len(found) == len(trajectory.turns[0].text.split())
        for meant, page in found:
            here = lines[(int(page) - 1) * LINES_PER_PAGE :][:LINES_PER_PAGE]
            assert names[meant] in {line.split()[0] for line in here}
            assert meant not in trajectory.source.split()


def test_lessons_matching_by_paraphrase_gives_the_page_of_the_name() -> None:
    names = {meant: name for name, meant in PARAPHRASES.items()}
    for trajectory in lessons("matching", World(2, "train"), 30, kinds=("paraphrase",), call_share=1.0):
        pages = {excerpt.page: excerpt.text for excerpt in trajectory.turns[0].excerpts}
        found = re.findall(r"([^\W\d]+)\?\{[^\[]*\[(\d)\]", trajectory.turns[-1].text)
        assert found and all(names[meant] in pages[int(page)].split() for meant, page in found)


def test_main_writes_train_split_as_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "new" / "train.jsonl"
    monkeypatch.setattr("sys.argv", ["world", str(out), "--documents", "3", "--seed", "5"])
    main()
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert records == [record for document in World(5, "train").documents(3) for record in document.records()]


def test_world_num_names_uses_the_first_names() -> None:
    for document in World(1, "train", num_names=12, max_pages=3).documents(20):
        known = {*list(CHINESE_NAMES if document.language == "zh" else ENGLISH_NAMES)[:12]}
        assert {line.name for line in document.lines} <= known and {q.name for q in document.questions} <= known


def test_lessons_reject_kinds_for_lessons_without_questions() -> None:
    for lesson in ("reading", "quoting", "matching"):
        with pytest.raises(InputError, match="asks no questions"):
            next(lessons(lesson, World(0, "train"), 1, kinds=("single",)))  # type: ignore[arg-type]


def test_data_pipeline_builds_the_same_conversations_as_the_lessons(tmp_path: Path) -> None:
    """Gold pages, reasoning and refusals of a build from the world's records equal those of the lessons."""
    pytest.importorskip("pyarrow")
    from data_pipeline.build import build
    from data_pipeline.settings import BuildConfig
    from seer.config import load_config
    from seer.miniature.lessons import conversation
    from seer.shards.reader import ShardSet

    world = documents("train", 12)
    table = tmp_path / "world.jsonl"
    table.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for d in world for r in d.records()), "utf-8")
    configuration = Path(__file__).parents[2] / "configs" / "data-miniature.toml"
    source = f'[{{kind = "table", path = "{table}", split = "train", name = "miniature"}}]'
    config = load_config(
        BuildConfig, configuration, [f"out={tmp_path / 'out'}", f"sources={source}", "validation_share=0"]
    )
    build(config)
    built = {t.id.partition("/")[2] or t.id: t for t in ShardSet(tmp_path / "out" / "train")}
    for document in world:
        for question in document.questions:
            mine, theirs = conversation(document, question), built[question.id]
            assert theirs.turns == mine.turns
            assert theirs.relevant_pages == mine.relevant_pages and theirs.source == mine.source
            assert theirs.style.digest == STYLE.digest
