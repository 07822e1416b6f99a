"""The curriculum's sets, as trajectory shards that `seer-train run configs/miniature-*.toml` reads.

    python -m seer.miniature.curriculum runs/miniature               # the sets, and a model that knows nothing
    python -m seer.miniature.curriculum runs/miniature --finish model    # the trained model in bfloat16, with training.json

Every set comes twice: to train on, and, from the validation world, to look at.
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
    """What a set holds. `options` go to `lessons`."""

    lesson: Lesson
    count: int
    max_pages: int = 8
    options: dict[str, Any] = field(default_factory=dict)
    crowded: bool = False


EVERY_PAGE: dict[str, Any] = {"kinds": ("single", "many"), "call_share": 1.0}
"""Finding all pages that a call must name, two and more for most names of a crowded document."""
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
"""Every set by its folder's name."""


def write_curriculum(out: Path, seed: int) -> None:
    """Write all sets under `out`: `<name>/train` and `<name>/validation`. What is there already stays."""
    for name, wanted in SETS.items():
        for split, count in (("train", wanted.count), ("validation", HELD_OUT)):
            folder = out / name / split
            if (folder / MANIFEST_NAME).exists():
                continue
            world = World(seed, split, max_pages=wanted.max_pages, crowded=wanted.crowded)  # type: ignore[arg-type]
            with ShardWriter(folder, overwrite=True) as writer:
                for trajectory in lessons(wanted.lesson, world, count, **wanted.options):
                    writer.add(trajectory)
                writer.finish()
            print(f"{folder}: {count} trajectories", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of the worlds and of the untrained model")
    parser.add_argument("--finish", choices=("model", "iso-model"), help="make OUT/<this> of the last stage's model")
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
