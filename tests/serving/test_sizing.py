"""The memory that serving needs, computed by hand for GLM-4.1V-9B."""

from __future__ import annotations

import pytest

from seer.errors import InputError, ModelError
from seer.protocol.geometry import GLM_41V
from seer.serving.sizing import ModelShape, ServingLoad, shape_of, shape_of_config, size_serving, sizing_lines

TEXT = {"num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2, "hidden_size": 4096}


def test_size_serving_of_a_9b_model_matches_hand_computed_sizes():
    shape = shape_of_config({"text_config": TEXT}, 20_600_000_000)
    assert (shape.kv_heads, shape.head_size) == (2, 128)
    sizing = size_serving(shape, ServingLoad(gpu_memory_gib=80, pages=30))
    assert sizing.kv_bytes_per_token == 2 * 40 * 2 * 128 * 2
    assert sizing.page_tokens == GLM_41V.tokens(595, 842) + 8
    assert sizing.cache_bytes == pytest.approx((80 * 0.9 - 4) * 2**30 - 20.6e9)
    used = sizing.conversations * sizing.conversation_tokens * sizing.kv_bytes_per_token
    assert used <= sizing.cache_bytes < used + sizing.conversation_tokens * sizing.kv_bytes_per_token
    assert "conversations at once" in sizing_lines(sizing)[-1]


def test_size_serving_with_more_gpus_than_heads_counts_copies():
    shape = ModelShape(layers=40, kv_heads=2, head_size=128, weight_bytes=20_600_000_000)
    two, four = (size_serving(shape, ServingLoad(gpus=n)) for n in (2, 4))
    assert four.kv_bytes_per_token == 2 * two.kv_bytes_per_token


def test_sizing_lines_report_weights_that_do_not_fit():
    shape = ModelShape(layers=40, kv_heads=2, head_size=128, weight_bytes=200_000_000_000)
    sizing = size_serving(shape, ServingLoad())
    assert (sizing.pages_cached, sizing.conversations) == (0, 0)
    assert "do not fit" in sizing_lines(sizing)[-1]


def test_shape_of_reads_a_checkpoint_and_rejects_missing_sizes(small_checkpoint_dir):
    assert shape_of(small_checkpoint_dir).layers == 4
    with pytest.raises(ModelError, match="lacks a size"):
        shape_of_config({"text_config": {}}, 1)
    with pytest.raises(InputError, match="at least 1"):
        ServingLoad(gpus=0)


def test_plan_reports_how_many_conversations_a_model_serves(small_checkpoint_dir, tmp_path):
    import json

    from typer.testing import CliRunner

    from seer.cli.main import app

    (text := tmp_path / "a.txt").write_text("word " * 3000, encoding="utf-8")
    command = ["plan", str(text), "--styles", "seer,dense", "--serve", "--model", str(small_checkpoint_dir)]
    plan = json.loads(CliRunner().invoke(app, [*command, "--gpu-gib", "8", "--json"]).output)
    pages = {row["style"]: row["pages"] for row in plan["styles"]}
    for row, load in zip(plan["serving"], [(595, 842), (588, 420)], strict=True):
        wanted = ServingLoad(gpu_memory_gib=8, pages=pages[row["style"]], page_width_px=load[0], page_height_px=load[1])
        sizing = size_serving(shape_of(small_checkpoint_dir), wanted)
        assert (row["conversations"], row["conversation_tokens"]) == (sizing.conversations, sizing.conversation_tokens)
    shown = CliRunner().invoke(app, command).output
    assert "at once on 1 x 80 GiB" in shown


def test_plan_for_serving_without_a_model_fails(tmp_path):
    from typer.testing import CliRunner

    from seer.cli.main import app

    (text := tmp_path / "a.txt").write_text("word", encoding="utf-8")
    result = CliRunner().invoke(app, ["plan", str(text), "--serve"])
    assert result.exit_code != 0 and "--model" in str(result.exception)


@pytest.mark.parametrize("field", ["layers", "kv_heads", "head_size", "weight_bytes"])
def test_model_shape_rejects_sizes_below_one(field):
    sizes = {"layers": 1, "kv_heads": 1, "head_size": 1, "weight_bytes": 1}
    with pytest.raises(InputError, match=f"{field}=0.* has a size below 1; use the sizes in a model's config.json"):
        ModelShape(**(sizes | {field: 0}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": 0}, "gpus, pages and page sizes must be at least 1"),
        ({"text_tokens": -1}, "text_tokens at least 0"),
        ({"gpu_memory_gib": 0}, "memory must be above 0"),
        ({"memory_share": 1.1}, "memory_share above 0 and at most 1"),
        ({"memory_share": 0}, "memory_share above 0 and at most 1"),
    ],
)
def test_serving_load_rejects_values_out_of_range(changes, message):
    with pytest.raises(InputError, match=message):
        ServingLoad(**changes)
