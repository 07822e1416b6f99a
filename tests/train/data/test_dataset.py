"""Trajectories as samples: golden tokens and weights, aligned fields, and rejected input."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from train_fakes import recipe, samples, tiny_checkpoint, trajectories, trajectory

from seer.errors import InputError
from seer.models.checkpoint import patchify
from seer.protocol.encoding import CLASS_INDEX, CLASSES
from seer.rendering import png_bytes, render_text
from seer.schema import LossClass, Trajectory, Turn
from seer.shards.reader import write_shards
from train.config import LossWeights
from train.data.collate import collate
from train.data.dataset import RejectedTrajectory, TrainingSample, TrajectoryDataset, make_sample
from train.data.pixels import BytePatchEmbed, byte_patches, join_patches
from train.data.sets import Head, open_trajectories

PAPER_SOURCE = "Invoice\nLaptop $1,499.99\nMonitor $249.99\n"


def paper_trajectory() -> Trajectory:
    """The conversation of the paper's appendix A.1.3, whose document is a single page."""
    document = render_text(PAPER_SOURCE, "seer")
    observation = {"page": 1, "start": 0, "text": document.page(1).text}
    return Trajectory.model_validate(
        {
            "id": "paper",
            "source": PAPER_SOURCE,
            "style": document.style,
            "turns": [
                {"kind": "prompt", "text": "What is the total price?", "pages": [1]},
                {"kind": "call", "pages": [1]},
                {"kind": "observation", "excerpts": [observation]},
                {"kind": "think", "text": "Laptop and monitor."},
                {"kind": "answer", "text": "The total price is $1,749.98."},
            ],
        }
    )


@pytest.fixture(scope="module")
def checkpoint():
    return tiny_checkpoint()


@pytest.mark.parametrize("head", [False, True])
def test_dataset_with_stored_pages_equals_rendered_pages(checkpoint, tmp_path: Path, head: bool) -> None:
    """Stored pictures are used, not rendered ones: a set with darkened pictures gives darker patches."""
    items = trajectories(3)

    def stored(folder: str, change) -> TrajectoryDataset:
        def embed(item: Trajectory) -> list[bytes]:
            return [png_bytes(change(page.image())) for page in render_text(item.source, item.style).pages]

        write_shards(tmp_path / folder, items, embed=embed)
        opened = open_trajectories(tmp_path / folder)
        return TrajectoryDataset(Head(opened, 2) if head else opened, recipe(checkpoint))

    drawn = TrajectoryDataset(items, recipe(checkpoint))
    same, dark = stored("same", lambda image: image), stored("dark", lambda image: image // 2)
    for index in range(len(same)):
        for field in dataclasses.fields(TrainingSample):
            assert np.array_equal(getattr(same[index], field.name), getattr(drawn[index], field.name)), field.name
        # Resampling clips values that overshoot, so patches are not exactly half as bright.
        assert np.abs(dark[index].patches - drawn[index].patches / 2).mean() < 1


@pytest.mark.parametrize(
    ("pictures", "message"),
    [([b"no picture"], "cannot be read as a picture"), ([b"\x89PNG\r\n\x1a\n"], "picture"), ([b""], "picture")],
)
def test_make_sample_rejects_damaged_or_missing_stored_pages(checkpoint, pictures: list[bytes], message: str) -> None:
    item = paper_trajectory()
    with pytest.raises(InputError, match=message):
        make_sample(item, recipe(checkpoint), pictures)
    whole = png_bytes(render_text(PAPER_SOURCE, "seer").page(1).image())
    with pytest.raises(InputError, match="picture"):
        make_sample(item, recipe(checkpoint), [whole[: len(whole) // 2]])
    two = item.model_copy(update={"turns": (item.turns[0].model_copy(update={"pages": (1, 2)}), *item.turns[1:])})
    with pytest.raises(InputError, match=r"shows pages \[2\], but the set stores 1 of its pages"):
        make_sample(two, recipe(checkpoint), [whole])


def test_make_sample_paper_example_has_golden_tokens_and_weights(checkpoint) -> None:
    """The learned tokens in order: tags and stop token are included, pages and observation are not."""
    weights = LossWeights(call=2.0, structure=0.5, think=0.25, answer=1.0, stop=3.0)
    sample = make_sample(paper_trajectory(), recipe(checkpoint, weights=weights))
    assert isinstance(sample, TrainingSample)
    full = checkpoint.encoder.full
    learned = [(full.id_to_token(int(i)), float(w)) for i, w in zip(sample.ids, sample.weights, strict=True) if w]
    runs: list[tuple[float, str]] = []
    for token, weight in learned:
        if runs and runs[-1][0] == weight and not token.startswith("<"):
            runs[-1] = (weight, runs[-1][1] + token)
        else:
            runs.append((weight, token))
    shown = [(weight, text.replace("Ġ", " ").replace("Ċ", "\n")) for weight, text in runs]
    assert shown == [
        (0.5, "<tool_call>"),
        (2.0, '{"name": "select", "indices": [1]}'),
        (0.5, "</tool_call>"),
        (0.5, "<think>"),
        (0.25, "Laptop and monitor."),
        (0.5, "</think>"),
        (1.0, "\nThe total price is $1,749.98."),
        (3.0, "<|user|>"),
    ]


def test_collate_predictors_are_one_place_before_their_targets(checkpoint) -> None:
    """The mask is not off by one (verl #3287): the place that predicts the stop token has the last token of the answer."""
    items = samples(checkpoint, 3)
    batch = collate(items)
    row = np.concatenate([s.ids for s in items])
    assert (row[batch.predictors_N + 1] == batch.targets_N.numpy()).all()
    starts = np.cumsum([0, *[len(s) for s in items]])[:-1]
    assert not np.isin(batch.predictors_N + 1, starts).any(), "a sample must not learn from its neighbour"
    stops = batch.classes_N == CLASS_INDEX[LossClass.STOP]
    user = checkpoint.encoder.control("<|user|>")
    assert batch.targets_N[stops].tolist() == [user] * 3


def test_training_sample_rejects_misaligned_fields(checkpoint) -> None:
    """Fields of different lengths (TRL #5283) are an error at construction."""
    sample = samples(checkpoint, 1)[0]
    with pytest.raises(AssertionError, match="fields of lengths"):
        dataclasses.replace(sample, weights=sample.weights[:-1])
    with pytest.raises(AssertionError, match="patches do not fill"):
        dataclasses.replace(sample, patches=sample.patches[:-1])


def test_dataset_over_long_trajectory_is_counted_or_refused_but_never_truncated(checkpoint) -> None:
    """There is no truncation, which could cut image tokens (TRL #4289, LLaMA-Factory #10241)."""
    items = trajectories(6)
    lengths = [len(s) for s in samples(checkpoint, 6)]
    limit = sorted(lengths)[3]
    dataset = TrajectoryDataset(items, recipe(checkpoint, max_tokens=limit), cache_bytes=2**20)
    for _ in range(2):
        results = [dataset[i] for i in range(6)]
        assert [isinstance(r, RejectedTrajectory) for r in results] == [n > limit for n in lengths]
    assert dataset.rejected["over_long"] == 2 * sum(n > limit for n in lengths)
    strict = TrajectoryDataset(items, recipe(checkpoint, max_tokens=limit), over_long="refuse")
    with pytest.raises(InputError, match=rf"at most {limit} are allowed; raise batching.max_tokens"):
        [strict[i] for i in range(6)]


def test_make_sample_without_learned_tokens_returns_rejection(checkpoint) -> None:
    item = trajectory(0).model_copy(update={"turns": (Turn(kind="prompt", text="Why?"),)})
    result = make_sample(item, recipe(checkpoint))
    assert isinstance(result, RejectedTrajectory)
    assert result.reason == "nothing_to_learn"


def test_make_sample_with_dropped_turns_has_no_call_or_observation(checkpoint) -> None:
    sample = make_sample(trajectory(1), recipe(checkpoint, drop_turns=("call", "observation")))
    assert isinstance(sample, TrainingSample)
    present = {CLASSES[c] for c in np.unique(sample.classes)}
    assert present == {LossClass.PROMPT, LossClass.STRUCTURE, LossClass.THINK, LossClass.ANSWER, LossClass.STOP}


def test_make_sample_with_dropped_calls_joins_think_turns(checkpoint) -> None:
    prompt, call, seen, think, answer = trajectory(1).turns
    first = think.model_copy(update={"text": "first"})
    item = trajectory(1).model_copy(update={"turns": (prompt, call, seen, first, call, seen, think, answer)})
    wanted = trajectory(1).model_copy(
        update={"turns": (prompt, think.model_copy(update={"text": f"first\n{think.text}"}), answer)}
    )
    dropped = make_sample(item, recipe(checkpoint, drop_turns=("call", "observation")))
    assert dropped.ids.tolist() == make_sample(wanted, recipe(checkpoint)).ids.tolist()


def test_make_sample_rejects_page_beyond_the_source(checkpoint) -> None:
    item = trajectory(2)
    turns = (item.turns[0].model_copy(update={"pages": (1, 99)}), *item.turns[1:])
    with pytest.raises(InputError, match=r"'tiny-2' shows pages \[99\]"):
        make_sample(item.model_copy(update={"turns": turns}), recipe(checkpoint))


def test_dataset_cache_returns_same_sample_within_its_limit(checkpoint) -> None:
    dataset = TrajectoryDataset(trajectories(4), recipe(checkpoint), cache_bytes=2**20)
    assert dataset[1] is dataset[1]
    none = TrajectoryDataset(trajectories(4), recipe(checkpoint), cache_bytes=0)
    first, second = none[1], none[1]
    assert first is not second
    assert (first.patches == second.patches).all()


@pytest.mark.parametrize("colour", [False, True])
def test_byte_patch_embed_equals_processor_and_convolution(checkpoint, colour: bool) -> None:
    """The linear patch embedding equals the Conv3d for grey and coloured pages, at a size that requires resizing."""
    generator = np.random.default_rng(0)
    image = generator.integers(0, 256, (61, 90, 3) if colour else (61, 90), np.uint8)
    encoded = checkpoint.encoder.encode([Turn(kind="prompt", text="?", pages=(1,))], {1: (90, 61)})
    slot, geometry = encoded.slots[0], checkpoint.encoder.geometry
    for scaling in (
        checkpoint.scaling,
        dataclasses.replace(checkpoint.scaling, mean=(0.48, 0.46, 0.41), std=(0.27, 0.26, 0.28)),
    ):
        floats = torch.from_numpy(patchify(image, slot, geometry, scaling))
        expected = checkpoint.model.model.visual.patch_embed(floats)
        ours = BytePatchEmbed(checkpoint.model.model.visual.patch_embed.proj, scaling)(
            torch.from_numpy(byte_patches(image, slot, geometry, scaling.resample))
        )
        torch.testing.assert_close(ours, expected, atol=2e-5, rtol=2e-5)


def test_join_patches_copies_grey_to_three_channels() -> None:
    grey, colour = np.full((2, 4), 7, np.uint8), np.arange(12, dtype=np.uint8)[None]
    joined = join_patches([grey, colour], 4)
    assert joined.shape == (3, 12)
    assert (joined[0] == 7).all()
    assert (joined[2] == colour).all()


def test_open_trajectories_names_the_invalid_line(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(trajectory(0).model_dump_json() + "\n\n" + '{"id": "x"}\n')
    with pytest.raises(InputError, match="line 3 is not a trajectory: source: Field required; build the set again$"):
        open_trajectories(path)
    path.write_text(trajectory(0).model_dump_json() + "\n")
    assert open_trajectories(path)[0] == trajectory(0)
    with pytest.raises(InputError, match="no trajectories at"):
        open_trajectories(tmp_path / "nowhere")


def test_collate_positions_of_several_images_equal_transformers(checkpoint) -> None:
    """M-RoPE of several images (mlx-vlm #1282, vLLM #33039), on a packed row of samples with three or more pages."""
    items = [s for s in samples(checkpoint, 24) if len(s.grid) >= 3][:2]
    assert len(items) == 2
    for sample in items:
        expected, _ = checkpoint.model.model.get_rope_index(
            torch.from_numpy(sample.ids.astype(np.int64))[None],
            mm_token_type_ids=torch.from_numpy(sample.types.astype(np.int32))[None],
            image_grid_thw=torch.from_numpy(sample.grid),
        )
        assert (expected[:, 0].numpy() == sample.positions).all()
    batch = collate(items)
    assert (batch.positions_4L[1:].numpy() == np.concatenate([s.positions for s in items], 1)).all()
    assert (batch.positions_4L[0].numpy() == np.concatenate([np.arange(len(s)) for s in items])).all()
