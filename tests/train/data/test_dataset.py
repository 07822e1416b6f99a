"""Trajectories become samples: golden tokens and weights, alignment, and what is refused."""

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
from train.data.dataset import Head, Rejection, Sample, TrajectoryDataset, make_sample, open_trajectories
from train.data.pixels import BytePatchEmbed, byte_patches, join_patches

PAPER_SOURCE = "Invoice\nLaptop $1,499.99\nMonitor $249.99\n"


def paper_trajectory() -> Trajectory:
    """The conversation of the paper's appendix A.1.3, on a page of its own."""
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
def test_embedded_pages_make_the_same_samples_as_drawn_ones(checkpoint, tmp_path: Path, head: bool) -> None:
    """And it is they that are looked at: a set whose pictures were darkened gives darker patches."""
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
        for field in dataclasses.fields(Sample):
            assert np.array_equal(getattr(same[index], field.name), getattr(drawn[index], field.name)), field.name
        # pages are resampled, and what overshoots is cut off: not to the last level
        assert np.abs(dark[index].patches - drawn[index].patches / 2).mean() < 1


@pytest.mark.parametrize(
    ("pictures", "message"),
    [([b"no picture"], "cannot be read as a picture"), ([b"\x89PNG\r\n\x1a\n"], "picture"), ([b""], "picture")],
)
def test_broken_embedded_pages_are_named(checkpoint, pictures: list[bytes], message: str) -> None:
    item = paper_trajectory()
    with pytest.raises(InputError, match=message):
        make_sample(item, recipe(checkpoint), pictures)
    whole = png_bytes(render_text(PAPER_SOURCE, "seer").page(1).image())
    with pytest.raises(InputError, match="picture"):
        make_sample(item, recipe(checkpoint), [whole[: len(whole) // 2]])
    two = item.model_copy(update={"turns": (item.turns[0].model_copy(update={"pages": (1, 2)}), *item.turns[1:])})
    with pytest.raises(InputError, match=r"shows pages \[2\], but 1 came with it"):
        make_sample(two, recipe(checkpoint), [whole])


def test_golden_tokens_and_weights_of_the_papers_example(checkpoint) -> None:
    """Every token with a weight, in order, and nothing else: tags and stop included, pages and observation not."""
    weights = LossWeights(call=2.0, structure=0.5, think=0.25, answer=1.0, stop=3.0)
    sample = make_sample(paper_trajectory(), recipe(checkpoint, weights=weights))
    assert isinstance(sample, Sample)
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


def test_predictors_stand_one_before_their_targets(checkpoint) -> None:
    """Mask off by one (verl #3287): the place that predicts the stop token holds the answer's last token."""
    items = samples(checkpoint, 3)
    batch = collate(items)
    row = np.concatenate([s.ids for s in items])
    assert (row[batch.predictors_N + 1] == batch.targets_N.numpy()).all()
    starts = np.cumsum([0, *[len(s) for s in items]])[:-1]
    assert not np.isin(batch.predictors_N + 1, starts).any(), "no sample may learn from its neighbour"
    stops = batch.classes_N == CLASS_INDEX[LossClass.STOP]
    user = checkpoint.encoder.control("<|user|>")
    assert batch.targets_N[stops].tolist() == [user] * 3


def test_fields_stay_aligned(checkpoint) -> None:
    """Fields that are sliced apart (TRL #5283) cannot be built."""
    sample = samples(checkpoint, 1)[0]
    with pytest.raises(AssertionError, match="fields of lengths"):
        dataclasses.replace(sample, weights=sample.weights[:-1])
    with pytest.raises(AssertionError, match="patches do not fill"):
        dataclasses.replace(sample, patches=sample.patches[:-1])


def test_over_long_trajectories_are_dropped_with_a_count_or_refused_never_cut(checkpoint) -> None:
    """Truncation that cuts image tokens (TRL #4289, LLaMA-Factory #10241) does not exist."""
    items = trajectories(6)
    lengths = [len(s) for s in samples(checkpoint, 6)]
    limit = sorted(lengths)[3]
    dataset = TrajectoryDataset(items, recipe(checkpoint, max_tokens=limit), cache_bytes=2**20)
    for _ in range(2):
        results = [dataset[i] for i in range(6)]
        assert [isinstance(r, Rejection) for r in results] == [n > limit for n in lengths]
    assert dataset.rejected["over_long"] == 2 * sum(n > limit for n in lengths)
    strict = TrajectoryDataset(items, recipe(checkpoint, max_tokens=limit), over_long="refuse")
    with pytest.raises(InputError, match=rf"at most {limit} are allowed; raise batching.max_tokens"):
        [strict[i] for i in range(6)]


def test_nothing_to_learn_is_a_counted_rejection(checkpoint) -> None:
    item = trajectory(0).model_copy(update={"turns": (Turn(kind="prompt", text="Why?"),)})
    result = make_sample(item, recipe(checkpoint))
    assert isinstance(result, Rejection)
    assert result.reason == "nothing_to_learn"


def test_dropping_turns_makes_the_control_without_select_and_observation(checkpoint) -> None:
    sample = make_sample(trajectory(1), recipe(checkpoint, drop_turns=("call", "observation")))
    assert isinstance(sample, Sample)
    present = {CLASSES[c] for c in np.unique(sample.classes)}
    assert present == {LossClass.PROMPT, LossClass.STRUCTURE, LossClass.THINK, LossClass.ANSWER, LossClass.STOP}


def test_reasoning_that_calls_no_longer_part_is_one(checkpoint) -> None:
    prompt, call, seen, think, answer = trajectory(1).turns
    first = think.model_copy(update={"text": "first"})
    item = trajectory(1).model_copy(update={"turns": (prompt, call, seen, first, call, seen, think, answer)})
    wanted = trajectory(1).model_copy(
        update={"turns": (prompt, think.model_copy(update={"text": f"first\n{think.text}"}), answer)}
    )
    dropped = make_sample(item, recipe(checkpoint, drop_turns=("call", "observation")))
    assert dropped.ids.tolist() == make_sample(wanted, recipe(checkpoint)).ids.tolist()


def test_a_page_that_the_source_does_not_have_is_refused(checkpoint) -> None:
    item = trajectory(2)
    turns = (item.turns[0].model_copy(update={"pages": (1, 99)}), *item.turns[1:])
    with pytest.raises(InputError, match=r"'tiny-2' shows pages \[99\]"):
        make_sample(item.model_copy(update={"turns": turns}), recipe(checkpoint))


def test_cached_samples_are_the_same_and_the_cache_is_bounded(checkpoint) -> None:
    dataset = TrajectoryDataset(trajectories(4), recipe(checkpoint), cache_bytes=2**20)
    assert dataset[1] is dataset[1]
    none = TrajectoryDataset(trajectories(4), recipe(checkpoint), cache_bytes=0)
    first, second = none[1], none[1]
    assert first is not second
    assert (first.patches == second.patches).all()


@pytest.mark.parametrize("colour", [False, True])
def test_byte_patches_embed_as_the_processor_and_the_convolution_do(checkpoint, colour: bool) -> None:
    """The linear patch embedding equals the Conv3d, for grey and for coloured pages, at a size that needs resizing."""
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


def test_grey_and_coloured_pages_join() -> None:
    grey, colour = np.full((2, 4), 7, np.uint8), np.arange(12, dtype=np.uint8)[None]
    joined = join_patches([grey, colour], 4)
    assert joined.shape == (3, 12)
    assert (joined[0] == 7).all()
    assert (joined[2] == colour).all()


def test_json_lines_name_the_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(trajectory(0).model_dump_json() + "\n\n" + '{"id": "x"}\n')
    with pytest.raises(InputError, match="line 3 is not a trajectory"):
        open_trajectories(path)
    path.write_text(trajectory(0).model_dump_json() + "\n")
    assert open_trajectories(path)[0] == trajectory(0)
    with pytest.raises(InputError, match="no trajectories at"):
        open_trajectories(tmp_path / "nowhere")


def test_positions_of_many_images_equal_transformers(checkpoint) -> None:
    """Multi-image M-RoPE (mlx-vlm #1282, vLLM #33039), on a packed row with three pages and more."""
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
