"""Evaluation on held-out trajectories.

`evaluate` is teacher-forced: loss and accuracy by class, and the fraction of calls and answers in which every token is right.
`exact/call` is the fraction of calls whose every token is the likeliest one, given the true tokens before it. It is the
selection accuracy of greedy decoding from the true prefix.

`generate` answers held-out questions with the exported model, as `seer ask` does.

Shapes: N supervised tokens, C loss classes.
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
from train.data.dataset import TrainingSample, without_turns
from train.data.loader import make_batches
from train.metrics import ClassTotals, class_figures
from train.model.glm4v import Figures
from train.parallel import reshard
from train.step import fill_up

if TYPE_CHECKING:
    from train.run import Run


def evaluate(run: Run, step: int) -> dict[str, Any]:
    """Figures over at most `evaluation.max_samples` samples of each held-out set, divided over the ranks. A collective."""
    record: dict[str, Any] = {"step": step, "kind": "eval"}
    run.trainee.eval()
    for number, dataset in enumerate(run.held_out):
        prefix = "eval/" if len(run.held_out) == 1 else f"eval-{number}/"
        count = min(len(dataset), run.config.evaluation.max_samples)
        results = [dataset[i] for i in range(run.world.rank, count, run.world.ranks)]
        samples = [result for result in results if isinstance(result, TrainingSample)]
        record |= measure(run, samples, prefix)
    run.trainee.train()
    # Forward passes without a backward pass leave weights gathered, which a save or the next step does not expect.
    reshard(run.trainee)
    return record


@torch.no_grad()
def measure(run: Run, samples: list[TrainingSample], prefix: str) -> dict[str, float]:
    """Loss, accuracy and exactness by class over the samples of all ranks, with `prefix` before each name. A collective."""
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
    """float64 (C, 2), for each class: samples whose tokens of the class are all right, and samples that have the class."""
    # Count wrong tokens and tokens for every (sample, class); an idle batch has weight 0 and is left out.
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
    """Answer held-out questions with an exported model, and compare pages and answers with the trajectories.

    Runs on one process; the other ranks wait at the next collective. Answers are compared exactly, apart from surrounding
    whitespace.
    """
    from seer.reading.reader import Reader
    from seer.rendering import render_text

    limit = run.config.evaluation.generate_samples
    items = [one.trajectory(i) for one in run.held_out for i in range(min(limit, len(one)))][:limit]
    by_policy: dict[ReadingPolicy, list[Trajectory]] = {}
    for item in items:
        turns = without_turns(item.turns, run.config.data.drop_turns)
        by_policy.setdefault(policy_of(turns, run.base.encoder), []).append(item)
    engine = Reader.from_checkpoint(folder).engine
    right_pages = right_answers = selecting = 0
    for policy, group in by_policy.items():
        documents = [render_text(item.source, item.style, name=item.id) for item in group]
        answers = Reader(engine, policy=policy).ask_many(
            [(d, item.question) for d, item in zip(documents, group, strict=True)]
        )
        for item, answer in zip(group, answers, strict=True):
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
    """The reading policy that matches a conversation: its number of calls, with or without thinking, and a token limit of
    at least twice its text."""
    calls = [turn for turn in turns if turn.kind == "call"]
    defaults = ReadingPolicy()
    words = sum(encoder.count_text(turn.text) for turn in turns if turn.kind in ("think", "answer"))
    return ReadingPolicy(
        mode="select" if calls else "visual",
        rounds=max(1, len(calls)),
        max_pages=max([defaults.max_pages or 0, *(len(call.pages) for call in calls)]),
        # An observation with text in place of excerpts acknowledges the pages without giving them: no retrieval.
        retrieve=not any(turn.kind == "observation" and turn.text for turn in turns) or not any(c.pages for c in calls),
        think=any(turn.kind == "think" for turn in turns),
        max_new_tokens=max(256, 1 << (2 * words).bit_length()),
    )
