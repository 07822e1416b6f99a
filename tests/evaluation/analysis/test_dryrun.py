"""Token tables without a model."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from seer.cli.eval.main import app
from seer.evaluation.analysis.dryrun import dry_token_tables
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.models.counting import tekken_encoder

SENTENCE = "Digger 7 found the ruin behind the third hill, and nobody has been there since. "


def records(number: int, repeats: int = 200) -> list[LongBenchRecord]:
    return [
        LongBenchRecord(
            f"hotpotqa-{n}", "hotpotqa", f"Who found ruin {n}?", SENTENCE * repeats, ("Digger 7",), 9, "en", None
        )
        for n in range(number)
    ]


def test_dry_token_tables_count_prompts_of_every_rule():
    encoder = tekken_encoder()
    tables = dry_token_tables(records(2), encoder)
    assert list(tables) == ["visual", "select-1", "select-2", "text"]
    rows = {name: table.tasks["hotpotqa"] for name, table in tables.items()}
    full = encoder.count_text(SENTENCE * 200)
    assert full < rows["text"].prompt < full + 150, "the document, the question and the instruction"
    assert rows["visual"].retrieved == 0
    assert rows["visual"].visual == rows["select-2"].visual > 0
    assert 0 < rows["select-1"].retrieved < rows["select-2"].retrieved
    for row in rows.values():
        assert row.textual + row.visual == row.prompt
        assert row.full_text == rows["text"].prompt
        assert row.compression == pytest.approx(row.full_text / row.prompt)
    assert tables["text"].overall.compression == 1


def test_dry_token_tables_count_failed_record():
    empty = replace(records(1)[0], id="hotpotqa-9", context="")
    row = dry_token_tables([*records(1), empty], tekken_encoder())["visual"].tasks["hotpotqa"]
    assert (row.num_samples, row.num_left_out) == (1, 1)


def test_tokens_command_counts_with_tekken_by_default(tmp_path):
    fields = {"input": "Who?", "context": SENTENCE, "answers": ["Digger 7"]}
    (tmp_path / "hotpotqa.jsonl").write_text(json.dumps(fields) + "\n", encoding="utf-8")
    tokens = CliRunner().invoke(app, ["tokens", "--data", str(tmp_path), "--json"])
    assert tokens.exit_code == 0, tokens.output
    counted = json.loads(tokens.stdout.splitlines()[-1])
    assert counted["counter"] == "tekken"
    assert counted["text"]["overall"]["visual"] == 0
