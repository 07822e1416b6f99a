"""Decide once which trajectories of a set are usable, and store the list beside the set.

    admission = admit(trajectories, recipe, "runs/data/paper/train", world)
    admission.indices()                      # int64: places of the usable trajectories

A trajectory is usable if its turns and pages can be encoded, if it has a token that the model writes, and if all its turns
fit into the token limit. `drop_turns` and the loss weights play no part, so the main run, the iso-training control and
every ablation train on the same trajectories, although a control without observations would have room for more.

The list is a JSON file in the folder `<set>.admitted`. Its name is a hash of everything that the list depends on: the
digest of the set, the tokenizer and image geometry, the token limit, and the code that lays out and encodes pages. A change
of any of these leads to another file, so a list is never outdated. A list that is read must have the checksum that was
written, and some of its trajectories are measured again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import seer
import train
from seer.errors import InputError
from seer.protocol.encoding import CLASS_INDEX, Encoder
from seer.schema import LossClass, Trajectory
from seer.storage import read_manifest, write_json
from train.data.dataset import Recipe, encode_turns, without_turns
from train.data.pages import EmbeddedPage, embedded_pages, pictures_of, shown_pages

if TYPE_CHECKING:
    from train.parallel import World

LIST_KIND = "seer-admitted"
MEASURED_AGAIN = 4
"""Trajectories that are measured again when a stored list is read. This detects other fonts or library versions, which
move line breaks and are not part of the key."""
_READING = tuple(CLASS_INDEX[c] for c in (LossClass.PROMPT, LossClass.OBSERVATION))


@dataclass(frozen=True)
class AdmissionKey:
    """Everything that a list of usable trajectories depends on."""

    set_digest: str
    rows: int
    """Number of trajectories; smaller than the set if a run uses only its first ones."""
    encoder: str
    """Hash of the tokenizer and the image geometry."""
    max_tokens: int
    code: str
    """Hash of the source code that lays out and encodes pages."""

    @property
    def file_name(self) -> str:
        """Name of the stored list."""
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


@dataclass(frozen=True)
class Admission:
    """The length of every trajectory of a set, and the faults of those that cannot be encoded."""

    name: str
    """The set, for messages."""
    key: AdmissionKey
    tokens: np.ndarray
    """int64 (rows,): tokens with all turns; 0 if the trajectory cannot be used at any length."""
    faults: Mapping[int, str] = field(default_factory=dict)
    """Why a trajectory has 0 tokens, by index. Only rank 0 has the texts."""

    @property
    def usable(self) -> np.ndarray:
        """int64: indices of the usable trajectories, ascending; empty if there are none."""
        return np.flatnonzero((self.tokens > 0) & (self.tokens <= self.key.max_tokens))

    def indices(self, over_long: Literal["drop", "refuse"] = "drop") -> np.ndarray:
        """The indices of the usable trajectories, under the policy for those above the token limit.

        Raises InputError if there are none, or if `over_long` is "refuse" and a trajectory is above the token limit.
        """
        long = np.flatnonzero(self.tokens > self.key.max_tokens)
        if over_long == "refuse" and len(long):
            raise InputError(
                f"{len(long)} trajectories of '{self.name}' have more than {self.key.max_tokens} tokens, such as number "
                f"{long[0]} with {self.tokens[long[0]]}; raise batching.max_tokens, build shorter trajectories, or set "
                'data.over_long = "drop"'
            )
        if not len(self.usable):
            raise InputError(
                f"none of the {self.key.rows} trajectories of '{self.name}' can be used: {self.summary()}; raise "
                "batching.max_tokens, or build the set again"
            )
        return self.usable

    def counts(self) -> dict[str, int]:
        """The numbers of trajectories: all, admitted, above the token limit, and not encodable."""
        long, faulty = int((self.tokens > self.key.max_tokens).sum()), int((self.tokens == 0).sum())
        return {
            "rows": self.key.rows,
            "admitted": self.key.rows - long - faulty,
            "over_long": long,
            "not_encodable": faulty,
        }

    def summary(self) -> str:
        """One line of counts, with the first fault."""
        counts = self.counts()
        first = f" (the first: {self.faults[min(self.faults)]})" if self.faults else ""
        return (
            f"{counts['admitted']} of {counts['rows']} trajectories admitted, {counts['over_long']} above "
            f"{self.key.max_tokens} tokens, {counts['not_encodable']} that cannot be encoded{first}"
        )


def admit(trajectories: Sequence[Trajectory], recipe: Recipe, path: str | Path, world: World) -> Admission:
    """The list of usable trajectories of the set at `path`: the stored one, or a new one, which is stored. A collective.

    Every rank measures its part of the trajectories. Rank 0 alone reads and writes the file, so ranks need no shared disk.

    Raises InputError if the stored list is damaged or its lengths are not those of this machine.
    """
    key = admission_key(trajectories, recipe)
    file = admission_path(path, key)
    stored = read_admission(file, key, str(path)) if world.is_main else None
    if stored is not None:
        _measure_again(stored, trajectories, recipe, file)
    (is_stored,) = world.largest([stored is not None])
    mine = stored.tokens if stored else np.zeros(len(trajectories), np.int64)
    if not is_stored:
        for index in range(world.rank, len(trajectories), world.ranks):
            mine[index], _ = measure(trajectories, index, recipe)
    # Each trajectory was measured by one rank, and the others have 0 for it.
    tokens = np.array(world.sum(mine.tolist()), np.float64).astype(np.int64)
    if stored is not None or not world.is_main:
        return stored or Admission(str(path), key, tokens)
    faults = {int(i): measure(trajectories, int(i), recipe)[1] for i in np.flatnonzero(tokens == 0)}
    made = Admission(str(path), key, tokens, faults)
    write_admission(made, file)
    if (tokens == 0).any() or (tokens > key.max_tokens).any():
        print(f"'{path}': {made.summary()}; see '{file}'", file=sys.stderr, flush=True)
    return made


def measure(trajectories: Sequence[Trajectory], index: int, recipe: Recipe) -> tuple[int, str]:
    """The tokens of a trajectory with all its turns, and ""; or 0 and the reason why it cannot be used.

    Raises InputError if the trajectory cannot be read from the set at all.
    """
    trajectory, pictures = trajectories[index], pictures_of(trajectories, index)
    turns = without_turns(trajectory.turns, ())
    try:
        pages = embedded_pages(trajectory, turns, pictures) if pictures else shown_pages(trajectory, turns)
        encoded = encode_turns(turns, pages, recipe.encoder, trajectory.id)
        for page in pages.values():
            if isinstance(page, EmbeddedPage):
                page.image()  # a stored picture can be cut off behind a sound header
    except InputError as error:
        return 0, str(error)
    if np.isin(encoded.classes, _READING).all():
        return 0, f"trajectory '{trajectory.id}' has no turn of the model; build it again"
    return len(encoded), ""


# ── The stored list ──────────────────────────────────────────────────────────────────────────────


def admission_key(trajectories: Sequence[Trajectory], recipe: Recipe) -> AdmissionKey:
    """The key of the list for these trajectories and this recipe."""
    digest = str(getattr(trajectories, "digest", ""))
    return AdmissionKey(digest, len(trajectories), encoder_digest(recipe.encoder), recipe.max_tokens, code_digest())


def admission_path(path: str | Path, key: AdmissionKey) -> Path:
    """Where the list of the set at `path` is stored: beside the set, which stays unchanged."""
    where = Path(path).absolute()
    return where.parent / f"{where.name}.admitted" / key.file_name


def encoder_digest(encoder: Encoder) -> str:
    """Sixteen hex digits that identify the tokenizer and the image geometry."""
    return hashlib.sha256(f"{encoder.full.to_str()}{encoder.geometry}".encode()).hexdigest()[:16]


@functools.cache
def code_digest() -> str:
    """Sixteen hex digits that identify the code on which a trajectory's length depends."""
    package, trainer = Path(seer.__file__).parent, Path(train.__file__).parent / "data"
    files = [file for room in ("schema", "protocol", "rendering") for file in (package / room).rglob("*.py")]
    files += [trainer / name for name in ("admission.py", "dataset.py", "pages.py")]
    digest = hashlib.sha256()
    # The order and the hashed names do not depend on where the packages are installed.
    for name, file in sorted(("/".join(file.parts[-3:]), file) for file in files):
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def write_admission(admission: Admission, file: Path) -> None:
    """Store a list. On a disk that cannot be written, say so on stderr: every run then makes the same list again."""
    values = _values(admission)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {**values, "sha256": _checksum(values)}, indent=None)
    except OSError as error:
        print(
            f"warning: '{file}' cannot be written ({error}), so every run makes this list", file=sys.stderr, flush=True
        )


def read_admission(file: Path, key: AdmissionKey, name: str) -> Admission | None:
    """The stored list, or None if there is none. Raises InputError if the file is damaged or belongs to another key."""
    if not file.exists():
        return None
    remedy = "delete the file; the next run makes it again"
    values = read_manifest(file, remedy=remedy)
    if values.pop("sha256", None) != _checksum(values) or values.get("key") != asdict(key):
        raise InputError(f"'{file}' is not the list that was written there; {remedy}")
    faults = {int(index): text for index, text in values["faults"].items()}
    return Admission(name, key, np.array(values["tokens"], np.int64), faults)


def _values(admission: Admission) -> dict[str, Any]:
    faults = {str(index): text for index, text in admission.faults.items()}
    return {"kind": LIST_KIND, "key": asdict(admission.key), "tokens": admission.tokens.tolist(), "faults": faults}


def _checksum(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _measure_again(stored: Admission, trajectories: Sequence[Trajectory], recipe: Recipe, file: Path) -> None:
    """Raise InputError if a trajectory's length differs from the stored one."""
    last = len(trajectories) - 1
    for index in sorted({last * part // (MEASURED_AGAIN - 1) for part in range(MEASURED_AGAIN)}):
        tokens, _ = measure(trajectories, index, recipe)
        if tokens != stored.tokens[index]:
            raise InputError(
                f"'{file}' says that trajectory {index} has {stored.tokens[index]} tokens, but here it has {tokens}: the list "
                "was made with other fonts or libraries. Install those, or delete the file for a new list, which other runs "
                "on this set should then use as well"
            )
