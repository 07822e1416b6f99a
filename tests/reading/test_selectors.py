"""Reading with selectors: forced selections, lexical additions and the bare question."""

from __future__ import annotations

from fakes import small_encoder
from reading_fakes import DOCUMENT, calls, reader

from seer.engines.scripted import ScriptedEngine, oracle_script
from seer.protocol.call import render_call
from seer.reading.conversation import converse
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import read_batch
from seer.selection.base import ModelPlusLexical, OraclePages, build_selector


def test_forced_selection_makes_no_call_request():
    asked = reader(oracle_script(answer="x"), OraclePages(lambda d, q: (2, 99)))
    answer = asked.ask(DOCUMENT, "q")
    assert answer.selected_pages == (2,)
    assert len(asked.engine.requests) == 1
    assert asked.engine.requests[0].prompt.turns[1].pages == (2,)


def test_model_plus_lexical_adds_the_best_page_if_words_agree():
    asked = reader(calls(render_call((2,))), ModelPlusLexical())
    answer = asked.ask(DOCUMENT, "The monitor costs?")
    assert answer.selected_pages == (2, 3)
    assert asked.engine.requests[-1].prompt.turns[1].pages == (2, 3)
    unlike = reader(calls(render_call((2,))), ModelPlusLexical()).ask(
        DOCUMENT, "Whose idea was this arrangement anyway?"
    )
    assert unlike.selected_pages == (2,)


def test_selector_searches_the_bare_question():
    engine = ScriptedEngine(oracle_script(answer="x"), small_encoder())
    wrapped = "Answer from the text, in few words. The desk is what you are asked about. Question: monitor curved?"
    policy = ReadingPolicy(selector_pages=1)
    conversation = converse(DOCUMENT, wrapped, engine, build_selector("bm25"), policy, query="monitor curved?")
    assert read_batch([conversation], engine)[0].selected_pages == (3,)
    assert engine.requests[0].prompt.turns[0].text == wrapped
