"""The folder of a run: one `<task>.jsonl` of predictions per task, and the manifest `run.json`.

A prediction is one line, appended by one call. A run can therefore be killed at any moment: every complete line is a
finished input, and an incomplete last line is removed when the run is resumed (`RunFolder.finished`). Only one process
at a time can write to a run.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import ValidationError

from seer.errors import ConfigError, InputError
from seer.schema import Prediction, Status
from seer.storage import append_lines, folder_lock, read_manifest, replace_surrogates, write_manifest, write_text

MANIFEST_NAME = "run.json"
SESSIONS = "sessions"
"""Manifest key: one entry per session of the run, with settings that may change on resuming, such as library versions."""
NUM_INPUTS = "num_inputs"
"""Manifest key: the number of inputs of each task."""


class RunFolder:
    """The folder of a run, locked for writing: `with RunFolder(path) as run: run.append(predictions)`.

    Entering the context raises InputError if the folder cannot be created or locked.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._locks = ExitStack()

    def __enter__(self) -> RunFolder:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._locks.enter_context(folder_lock(self.path))
        except OSError as error:
            raise InputError(f"'{self.path}' cannot hold a run: {error.strerror}; give another folder") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._locks.close()

    def finished(self, task: str, *, drop_failed: bool = False) -> dict[str, Status]:
        """Return the status of each finished input of a task by id, after removing an incomplete last line.

        `drop_failed` removes failed predictions from the file, so that those inputs are predicted again.
        """
        file = self.path / f"{task}.jsonl"
        if not file.exists():
            return {}
        # A later line of an input replaces an earlier one.
        predictions = {prediction.id: prediction for prediction in read_predictions(file, repair=True)}
        if drop_failed:
            kept = [one for one in predictions.values() if one.status is not Status.FAILED]
            write_text(file, "".join(f"{to_line(one)}\n" for one in kept))
            return {one.id: one.status for one in kept}
        return {identifier: prediction.status for identifier, prediction in predictions.items()}

    def append(self, predictions: Iterable[Prediction]) -> None:
        """Append predictions to the files of their tasks. The lines are on disk when this returns."""
        # One append per file: a single call keeps the lines of a batch together if the process is killed.
        by_task: dict[str, list[str]] = {}
        for prediction in predictions:
            by_task.setdefault(prediction.task, []).append(to_line(prediction))
        for task, lines in by_task.items():
            append_lines(self.path / f"{task}.jsonl", lines)

    def open_manifest(self, settings: Mapping[str, Any], session: Mapping[str, Any]) -> None:
        """Write the manifest with these settings and append `session` to its list of sessions.

        Raises the errors of `check_manifest`.
        """
        before = check_manifest(self.path, settings)
        counts = dict(before.get(NUM_INPUTS, {}))
        for task, number in settings[NUM_INPUTS].items():
            # A session over fewer inputs must not shrink the number of inputs that make the run complete.
            counts[task] = max(number, counts.get(task, 0))
        manifest = {**settings, NUM_INPUTS: counts, SESSIONS: [*before.get(SESSIONS, ()), dict(session)]}
        write_manifest(self.path / MANIFEST_NAME, manifest)


def check_manifest(folder: str | Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Check that a run with these settings can be resumed in `folder`; return the manifest there, or an empty dict.

    Raises ConfigError if the folder holds a run with other settings. Only the number of inputs may differ.
    """
    before = read_run_manifest(Path(folder))
    settings = json.loads(json.dumps(settings))  # Compare what will be read back from JSON: lists instead of tuples.
    for key in sorted(before.keys() | settings.keys()) if before else ():
        if key not in (SESSIONS, NUM_INPUTS) and before.get(key) != settings.get(key):
            name, then, now = _difference(key, before.get(key), settings.get(key))
            raise ConfigError(
                f"'{folder}' holds a run with {name} {then!r}, not {now!r}; "
                f"give another folder, or the same settings to resume it"
            )
    return before


def _difference(name: str, before: Any, now: Any) -> tuple[str, Any, Any]:
    """Return the dotted name of the first setting that differs, such as `policy.max_pages`, with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            if before.get(key) != now.get(key):
                return _difference(f"{name}.{key}", before.get(key), now.get(key))
    return name, before, now


def read_run_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest that `predict` wrote; an empty dict for runs made by other programs.

    Raises InputError if the file is damaged or does not hold a number of inputs for each task.
    """
    path = folder / MANIFEST_NAME
    if not path.is_file():
        return {}
    manifest = read_manifest(path, remedy="without it the run counts as one made elsewhere")
    counts = manifest.get(NUM_INPUTS, {})
    if not isinstance(counts, dict) or not all(isinstance(number, int) for number in counts.values()):
        raise InputError(f"'{path}' must hold a JSON object, with a number for each task in '{NUM_INPUTS}'")
    return manifest


def require_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a run made by `seer eval predict`. Raises InputError for any other folder."""
    if not folder.is_dir():
        raise InputError(f"no folder at '{folder}'; give a run that `seer eval predict` made")
    manifest = read_run_manifest(folder)
    missing = [key for key in ("system", "engine", "model", "selector", "style", "policy") if key not in manifest]
    if missing:
        raise InputError(
            f"the manifest of '{folder}' lacks {', '.join(missing)}; give a run that `seer eval predict` made"
        )
    return manifest


def library_versions(names: tuple[str, ...]) -> dict[str, str]:
    """Return the version of Python and those of the named packages that are installed."""
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def read_predictions(file: Path, *, repair: bool = False, skip_incomplete: bool = False) -> list[Prediction]:
    """Read Seer's own predictions of one task, in the file's order.

    `repair` removes an incomplete last line from the file, `skip_incomplete` only ignores it.

    Raises InputError if the file cannot be read or a line is not a prediction.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"'{file}' cannot be read: {error.strerror}; check its permissions") from None
    # Lines end with a newline, so bytes after the last newline are a prediction whose write was interrupted.
    whole = content.rfind(b"\n") + 1
    if whole < len(content) and repair:
        os.truncate(file, whole)
    if repair or skip_incomplete:
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
            raise InputError(
                f"'{file}', line {number}: not a prediction of Seer: {place} {fault['msg']}; remove the line and predict again"
            ) from None
    return predictions


def to_line(prediction: Prediction) -> str:
    """Return one line of JSON without a newline. Lone surrogates, which UTF-8 cannot encode, become question marks."""
    return replace_surrogates(json.dumps(prediction.model_dump(mode="json"), ensure_ascii=False))
