"""Held-out trajectories, teacher-forced: loss and accuracy by class, and how many calls and answers are right entirely.

`generate` goes further: held-out questions are read by the exported model, as `seer ask` would.

`exact/call` is the share of calls whose every token is the likeliest one, given the true words before it: the selection
accuracy that greedy decoding would reach from the true prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from seer.protocol.encoding import CLASSES, Encoder
from seer.reading.policy import ReadingPolicy
from seer.schema import Trajectory, Turn
from train.data.collate import Batch
from train.data.dataset import Sample, without_turns
from train.data.loader import make_batches
from train.metrics import ClassTotals, class_figures
from train.model.glm4v import Figures
from train.parallel import reshard
from train.step import fill_up

if TYPE_CHECKING:
    from train.run import Run


def evaluate(run: Run, step: int) -> dict[str, Any]:
    """Figures over at most `evaluation.max_samples` of every held-out set, shared out over the ranks."""
    record: dict[str, Any] = {"step": step, "kind": "eval"}
    run.trainee.eval()
    for number, dataset in enumerate(run.held_out):
        prefix = "eval/" if len(run.held_out) == 1 else f"eval-{number}/"
        count = min(len(dataset), run.config.evaluation.max_samples)
        results = [dataset[i] for i in range(run.world.rank, count, run.world.ranks)]
        samples = [result for result in results if isinstance(result, Sample)]
        record |= measure(run, samples, prefix)
    run.trainee.train()
    reshard(run.trainee)
    return record


@torch.no_grad()
def measure(run: Run, samples: list[Sample], prefix: str) -> dict[str, float]:
    pixels = run.base.encoder.geometry.patch_px**2
    batches = fill_up(run, make_batches(samples, run.config.batching, pixels))
    totals = ClassTotals(run.world.device)
    whole = torch.zeros(len(CLASSES), 2, dtype=torch.float64)
    weight = 0.0
    for batch in batches:
        on_device = batch.to(run.world.device)
        figures = run.trainee(on_device)
        totals.add(on_device, figures)
        whole += exactness(batch, figures)
        weight += batch.weight_sum
    values = totals.values()
    sums = run.world.sum([*values, *whole.flatten().tolist(), weight])
    record = class_figures(sums[: len(values)], sums[-1], prefix)
    rows = sums[len(values) : -1]
    for index, loss_class in enumerate(CLASSES):
        right, all_of_them = rows[2 * index : 2 * index + 2]
        if all_of_them:
            record[f"{prefix}exact/{loss_class.value}"] = right / all_of_them
    return record


def exactness(batch: Batch, figures: Figures) -> torch.Tensor:
    """(C, 2): of the samples that hold a class, how many have all its tokens right, and how many there are."""
    counted = (batch.weights_N > 0).cpu()
    samples, classes = batch.samples_N.cpu()[counted], batch.classes_N.cpu()[counted]
    wrong = (~figures.correct_N.cpu()[counted]).double()
    shape = (len(batch.sample_ids), len(CLASSES))
    faults, tokens = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    faults.index_put_((samples, classes), wrong, accumulate=True)
    tokens.index_put_((samples, classes), torch.ones_like(wrong), accumulate=True)
    present = tokens > 0
    return torch.stack([(present & (faults == 0)).sum(0), present.sum(0)], 1).double()


def generate(run: Run, folder: Path, step: int) -> dict[str, Any]:
    """Read held-out questions with an exported model: how often the pages and the answer are those of the trajectory.

    For one process; the others wait at the next collective.
    """
    from seer.reading.reader import Reader
    from seer.rendering import render_text

    limit = run.config.evaluation.generate_samples
    items = [item for dataset in run.held_out for item in dataset.trajectories[: min(limit, len(dataset))]][:limit]
    asked: dict[ReadingPolicy, list[Trajectory]] = {}
    for item in items:
        turns = without_turns(item.turns, run.config.data.drop_turns)
        asked.setdefault(policy_of(turns, run.base.encoder), []).append(item)
    engine = Reader.from_checkpoint(folder).engine
    right_pages = right_answers = selecting = 0
    for policy, mine in asked.items():
        documents = [render_text(item.source, item.style, name=item.id) for item in mine]
        answers = Reader(engine, policy=policy).ask_many(
            [(d, item.question) for d, item in zip(documents, mine, strict=True)]
        )
        for item, answer in zip(mine, answers, strict=True):
            if policy.mode == "select":
                selecting += 1
                right_pages += tuple(answer.selected_pages) == tuple(item.relevant_pages)
            wanted = item.answers or tuple(turn.text for turn in item.turns if turn.kind == "answer")
            right_answers += answer.text.strip() in {text.strip() for text in wanted}
    figures = {"generated/answers": right_answers / max(1, len(items))}
    if selecting:
        figures["generated/pages"] = right_pages / selecting
    return {"step": step, "kind": "generation", "generated/samples": len(items), **figures}


def policy_of(turns: Sequence[Turn], encoder: Encoder) -> ReadingPolicy:
    """Reads a question as this conversation went: as many calls, thinking or not, with room for twice its words."""
    calls = [turn for turn in turns if turn.kind == "call"]
    defaults = ReadingPolicy()
    words = sum(encoder.count_text(turn.text) for turn in turns if turn.kind in ("think", "answer"))
    return ReadingPolicy(
        mode="select" if calls else "visual",
        rounds=max(1, len(calls)),
        max_pages=max([defaults.max_pages or 0, *(len(call.pages) for call in calls)]),
        # text in the place of pages that were selected: they are acknowledged and not given
        retrieve=not any(turn.kind == "observation" and turn.text for turn in turns) or not any(c.pages for c in calls),
        think=any(turn.kind == "think" for turn in turns),
        max_new_tokens=max(256, 1 << (2 * words).bit_length()),
    )
