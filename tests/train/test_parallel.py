"""The world of a run: rejected numbers of replicas, devices for exchanged numbers, and precisions of one process."""

from __future__ import annotations

import types

import pytest
import torch
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from train_fakes import config, tiny_checkpoint, trajectories, use_other_devices_code

from seer.errors import ConfigError
from train.checkpoint import PartWriter
from train.config import ModelConfig, ParallelConfig
from train.model.attention import grouped_attention
from train.model.glm4v import prepare
from train.parallel import World, check_batch, spread, start_world
from train.run import build_run

ALONE = World(0, 1, torch.device("cpu"), None)


def test_start_world_rejects_replicas_that_do_not_divide_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match="parallel.replicas = 3 does not divide 4 ranks; use a divisor of 4"):
        start_world(ParallelConfig(replicas=3))


@pytest.mark.parametrize(
    ("precision", "dtype"), [("float32", torch.float32), ("bf16", torch.bfloat16)], ids=["float32", "bf16"]
)
def test_spread_in_one_process_gives_weights_the_configured_precision(precision: str, dtype: torch.dtype) -> None:
    trainee = prepare(tiny_checkpoint(), ModelConfig(path="x"), seed=0)
    spread(trainee, ParallelConfig(precision=precision), ALONE)
    assert {parameter.dtype for parameter in trainee.parameters()} == {dtype}


@pytest.mark.parametrize(
    ("switches", "frozen", "trained"),
    [
        ({"freeze_merger": True}, "visual.merger.", "visual.blocks."),
        ({"freeze_embeddings": True}, "embed_tokens.", "visual.merger."),
    ],
    ids=["merger", "embeddings"],
)
def test_prepare_freezes_only_the_configured_part(switches: dict[str, bool], frozen: str, trained: str) -> None:
    trainee = prepare(tiny_checkpoint(), ModelConfig(path="x", **switches), seed=0)
    fixed = {name for name, parameter in trainee.named_parameters() if not parameter.requires_grad}
    assert fixed and all(frozen in name for name in fixed)
    assert any(trained in name for name, parameter in trainee.named_parameters() if parameter.requires_grad)


@pytest.mark.parametrize(("samples", "ranks", "fits"), [((2,), 2, True), ((30,), 32, False), ((64, 8), 16, False)])
def test_check_batch_rejects_a_step_with_fewer_samples_than_ranks(
    samples: tuple[int, ...], ranks: int, fits: bool
) -> None:
    if fits:
        check_batch(samples, ranks)
        return
    with pytest.raises(
        ConfigError, match=rf"global_batch = {min(samples)}: must be at least the number of ranks, {ranks}"
    ):
        check_batch(samples, ranks)


def test_build_run_rejects_a_batch_smaller_than_the_ranks_before_it_loads_a_model(tmp_path) -> None:
    world = World(0, 32, torch.device("cpu"), None)
    with pytest.raises(ConfigError, match="30 of them would have no sample in any step"):
        build_run(config(tmp_path, batching={"global_batch": 2}), world, [trajectories(4)])


def test_part_writer_on_a_gpu_selects_it_in_the_thread_that_writes(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(torch.cuda, "set_device", calls.append)
    monkeypatch.setattr(HuggingFaceStorageWriter, "write_data", lambda *_: calls.append("written"))
    for device in ("cpu", "cuda:3"):
        writer = PartWriter(str(tmp_path), save_distributed=True)
        writer.device = torch.device(device)
        writer.write_data(None, None)  # type: ignore[arg-type]
    assert calls == ["written", torch.device("cuda:3"), "written"]


@pytest.mark.parametrize(("cuda", "precision"), [(True, "mixed_bf16"), (False, "float32")])
def test_resolved_chooses_the_precision_of_the_device(cuda: bool, precision: str, tmp_path) -> None:
    assert config(tmp_path).resolved(cuda=cuda).parallel.precision == precision
    fixed = config(tmp_path, parallel={"precision": "float32"})
    assert fixed.resolved(cuda=cuda) is fixed


def test_config_rejects_flash_attention_in_float32(tmp_path) -> None:
    with pytest.raises(ConfigError, match='"flash_attention_2" has no kernels for parallel.precision = "float32"'):
        config(tmp_path, model={"attention": "flash_attention_2"}, parallel={"precision": "float32"})


def test_grouped_attention_in_float32_on_a_gpu_expands_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """`enable_gqa` in fp32 makes torch hold all scores: 34 GB for 16,384 tokens of the 9B model."""
    use_other_devices_code(monkeypatch)
    given: list[dict] = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def watched(q, k, v, **options):
        given.append({"heads": (q.shape[1], k.shape[1], v.shape[1]), **options})
        return attend(q, k, v, **options)

    qkv = torch.randn(6, 4 + 2 * 2, 8)
    arguments = (qkv, torch.polar(torch.ones(6, 2), torch.randn(6, 2)), ((1, 4), (1, 2)))
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    expanded = grouped_attention(*arguments, kv_heads=2, causal=True, scale=0.3)
    assert all(call["heads"] == (4, 4, 4) and not call["enable_gqa"] for call in given)
    monkeypatch.undo()
    torch.testing.assert_close(expanded, grouped_attention(*arguments, kv_heads=2, causal=True, scale=0.3))


def test_trainee_names_the_units_that_accelerate_shards() -> None:
    fsdp = pytest.importorskip("accelerate.utils.fsdp_utils")
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    trainee = prepare(tiny_checkpoint(), ModelConfig(path="x"), seed=0)
    plugin = types.SimpleNamespace(auto_wrap_policy=transformer_auto_wrap_policy, transformer_cls_names_to_wrap=None)
    policy = fsdp.fsdp2_prepare_auto_wrap_policy(plugin, trainee)
    units = [module for module in trainee.modules() if policy(module)]
    assert units == [*trainee.visual.blocks, *trainee.text.layers]
