"""A run on disk: a folder with one `<task>.jsonl` of predictions per task and `run.json` beside them.

A prediction is one line, written by one call that appends. So a run may be killed at any moment: every whole line
is a finished input, and a torn last line is cut off when the run goes on (`RunFolder.finished`). One process at a
time may write to a run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import ValidationError

from seer.errors import ConfigError, InputError
from seer.schema import Prediction, Status
from seer.storage import append_lines, folder_lock, replace_surrogates, write_manifest, write_text
from seer.storage import read_manifest as read_json_manifest

MANIFEST_NAME = "run.json"
SESSIONS = "sessions"
"""Manifest key: what may differ each time a run is gone on with, such as library versions."""
NUM_INPUTS = "num_inputs"
"""Manifest key: how many inputs each task has."""


class RunFolder:
    """The folder of a run, held for writing: `with RunFolder(path) as run: run.append(prediction)`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._held = ExitStack()

    def __enter__(self) -> RunFolder:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._held.enter_context(folder_lock(self.path))
        except OSError as error:
            raise InputError(f"'{self.path}' can't hold a run: {error.strerror}; give another folder") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def finished(self, task: str, *, drop_failed: bool = False) -> dict[str, Status]:
        """Status by id of the inputs that a task's file holds, after cutting off a torn last line.

        `drop_failed` removes failed predictions from the file, so that they are done again.
        """
        file = self.path / f"{task}.jsonl"
        if not file.exists():
            return {}
        predictions = {prediction.id: prediction for prediction in read_predictions(file, repair=True)}
        if drop_failed:
            kept = [one for one in predictions.values() if one.status is not Status.FAILED]
            write_text(file, "".join(f"{to_line(one)}\n" for one in kept))
            return {one.id: one.status for one in kept}
        return {identifier: prediction.status for identifier, prediction in predictions.items()}

    def append(self, predictions: Iterable[Prediction]) -> None:
        """Append to the tasks' files; on the disk when this returns."""
        by_task: dict[str, list[str]] = {}
        for prediction in predictions:
            by_task.setdefault(prediction.task, []).append(to_line(prediction))
        for task, lines in by_task.items():
            append_lines(self.path / f"{task}.jsonl", lines)

    def open_manifest(self, asked: Mapping[str, Any], session: Mapping[str, Any]) -> None:
        """Write what this run is; `session` is added to the list of sessions. Raises what `check_manifest` raises."""
        before = check_manifest(self.path, asked)
        counts = dict(before.get(NUM_INPUTS, {}))
        for task, number in asked[NUM_INPUTS].items():
            counts[task] = max(number, counts.get(task, 0))  # what was asked for once stays asked for
        manifest = {**asked, NUM_INPUTS: counts, SESSIONS: [*before.get(SESSIONS, ()), dict(session)]}
        write_manifest(self.path / MANIFEST_NAME, manifest)


def check_manifest(folder: str | Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a folder says of the run that it holds; empty where it holds none.

    Raises ConfigError where that is another run: everything in `asked` but the number of inputs must be as it was.
    """
    before = read_manifest(Path(folder))
    asked = json.loads(json.dumps(asked))  # as it will be read back: lists for tuples
    for key in sorted(before.keys() | asked.keys()) if before else ():
        if key not in (SESSIONS, NUM_INPUTS) and before.get(key) != asked.get(key):
            name, then, now = _difference(key, before.get(key), asked.get(key))
            raise ConfigError(
                f"'{folder}' holds a run with {name} {then!r}, not {now!r}; "
                f"give another folder, or the same settings to go on with it"
            )
    return before


def _difference(name: str, before: Any, asked: Any) -> tuple[str, Any, Any]:
    """The first setting that differs, by its full name, with both values: of a policy or a style, one field."""
    if isinstance(before, dict) and isinstance(asked, dict):
        for key in sorted(before.keys() | asked.keys()):
            if before.get(key) != asked.get(key):
                return _difference(f"{name}.{key}", before.get(key), asked.get(key))
    return name, before, asked


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `predict` wrote about the run; empty for runs made elsewhere."""
    path = folder / MANIFEST_NAME
    if not path.is_file():
        return {}
    manifest = read_json_manifest(path, remedy="without it the run counts as one made elsewhere")
    counts = manifest.get(NUM_INPUTS, {})
    if not isinstance(counts, dict) or not all(isinstance(number, int) for number in counts.values()):
        raise InputError(f"'{path}' must hold a JSON object, with a number for each task in '{NUM_INPUTS}'")
    return manifest


def require_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run that the command line made. Raises InputError for any other."""
    manifest = read_manifest(folder)
    missing = [key for key in ("system", "engine", "model", "selector", "style", "policy") if key not in manifest]
    if missing:
        raise InputError(f"'{folder}' does not say its {', '.join(missing)}; give a run that `seer eval predict` made")
    return manifest


def read_predictions(file: Path, *, repair: bool = False) -> list[Prediction]:
    """Seer's own predictions of one task, in the file's order. `repair` cuts off a last line that is not whole."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"'{file}' cannot be read: {error.strerror}") from None
    whole = content.rfind(b"\n") + 1
    if whole < len(content) and repair:
        os.truncate(file, whole)
        content = content[:whole]
    predictions = []
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            predictions.append(Prediction.model_validate_json(line))
        except ValidationError as error:
            fault = error.errors()[0]
            place = ".".join(map(str, fault["loc"]))
            raise InputError(f"'{file}', line {number}: not a prediction of Seer's: {place} {fault['msg']}") from None
    return predictions


def to_line(prediction: Prediction) -> str:
    """One line of JSON, without its end. Lone surrogates, which UTF-8 cannot hold, become question marks."""
    return replace_surrogates(json.dumps(prediction.model_dump(mode="json"), ensure_ascii=False))
