"""The lesson sets of the curriculum, as trajectory shards for `seer-train run configs/miniature-*.toml`.

    python -m seer.miniature.curriculum runs/miniature               # the lesson sets and an untrained model
    python -m seer.miniature.curriculum runs/miniature --finish model    # the trained model in bfloat16, with training.json

Every set has a training part and a held-out part from the validation world.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seer.miniature.lessons import Lesson, lessons
from seer.miniature.model import ISO_STAGE_FOLDERS, STAGE_FOLDERS, build_untrained, package_model
from seer.miniature.world import World
from seer.shards.reader import MANIFEST_NAME, ShardWriter

HELD_OUT = 96


@dataclass(frozen=True)
class LessonSet:
    """The content of a lesson set. `options` are arguments of `lessons`, the others of `World`."""

    lesson: Lesson
    count: int
    max_pages: int = 8
    options: dict[str, Any] = field(default_factory=dict)
    crowded: bool = False


EVERY_PAGE: dict[str, Any] = {"kinds": ("single", "many"), "call_share": 1.0}
"""Options to find all pages that a call must name: two or more for most names of a crowded document."""
SETS = {
    "reading": LessonSet("reading", 4000),
    "matching-1": LessonSet("matching", 6000, options={"max_lines": 1, "call_share": 0.0}),
    "matching-3": LessonSet("matching", 6000, options={"max_lines": 3}),
    "quoting-plain": LessonSet("quoting", 8000),
    "quoting": LessonSet("quoting", 12_000, crowded=True),
    "finding-text": LessonSet("finding", 6000, 4, {"text_share": 1.0}),
    "finding-mixed": LessonSet("finding", 6000, 5, {"text_share": 0.5}),
    "finding": LessonSet("finding", 6000, 5),
    "meaning-text": LessonSet(
        "matching", 12_000, options={"max_lines": 2, "kinds": ("paraphrase",), "call_share": 1.0}
    ),
    "meaning": LessonSet("finding", 16_000, 8, {"text_share": 0.25, "kinds": ("paraphrase",), "call_share": 1.0}),
    "crowded-text": LessonSet("finding", 6000, 5, {"text_share": 1.0, **EVERY_PAGE}, crowded=True),
    "crowded-mixed": LessonSet("finding", 6000, 6, {"text_share": 0.5, **EVERY_PAGE}, crowded=True),
    "crowded": LessonSet("finding", 16_000, 8, EVERY_PAGE, crowded=True),
    "asking-plain-text": LessonSet("conversation", 6000, 5, {"text_share": 1.0, "kinds": ("single",)}),
    "asking-plain": LessonSet("conversation", 8000, 5, {"kinds": ("single",)}),
    "asking-text": LessonSet("conversation", 10_000, 5, {"text_share": 1.0}),
    "asking": LessonSet("conversation", 20_000, 5),
    "asking-long": LessonSet("conversation", 30_000, 8),
    "asking-crowded": LessonSet("conversation", 10_000, 8, crowded=True),
}
"""The lesson sets by the names of their folders."""


def write_curriculum(out: Path, seed: int) -> None:
    """Write all lesson sets below `out`, as `<name>/train` and `<name>/validation`. Finished sets are kept."""
    for name, lesson_set in SETS.items():
        for split, count in (("train", lesson_set.count), ("validation", HELD_OUT)):
            folder = out / name / split
            if (folder / MANIFEST_NAME).exists():
                continue
            world = World(seed, split, max_pages=lesson_set.max_pages, crowded=lesson_set.crowded)  # type: ignore[arg-type]
            with ShardWriter(folder, overwrite=True) as writer:
                for trajectory in lessons(lesson_set.lesson, world, count, **lesson_set.options):
                    writer.add(trajectory)
                writer.finish()
            print(f"{folder}: {count} trajectories", flush=True)


def main() -> None:
    """Write the lesson sets and the untrained model, or package a trained model (see the module's examples)."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="the folder of the training runs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the worlds and of the untrained model")
    parser.add_argument(
        "--finish", choices=("model", "iso-model"), help="package the model of the last stage as OUT/<this>"
    )
    arguments = parser.parse_args()
    if arguments.finish:
        stages = ISO_STAGE_FOLDERS if arguments.finish == "iso-model" else STAGE_FOLDERS
        package_model(arguments.out, arguments.out / arguments.finish, stages)
        return
    write_curriculum(arguments.out / "lessons", arguments.seed)
    if not (arguments.out / "untrained").exists():
        build_untrained(arguments.out / "untrained", seed=arguments.seed)


if __name__ == "__main__":
    main()
