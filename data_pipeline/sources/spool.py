"""Read a source in a random order that depends only on a seed, in memory that does not grow with the size of its rows."""

from __future__ import annotations

import pickle
import tempfile
import zlib
from array import array
from collections.abc import Iterable, Iterator
from typing import TypeVar

from data_pipeline.steps.chance import draw_bits

T = TypeVar("T")


def shuffled(items: Iterable[T], seed: int, name: str) -> Iterator[T]:
    """Yield all items in an order that depends on the seed, the name and their number, but not on the items themselves.

    The items are first written, compressed, to a temporary file that the operating system deletes with the process. Only
    a key and a position of each, 24 bytes, stay in memory.
    """
    import numpy as np

    keys, starts, sizes = array("Q"), array("Q"), array("Q")
    with tempfile.TemporaryFile(prefix="seer-data-") as file:
        end = 0
        for number, item in enumerate(items):
            body = zlib.compress(pickle.dumps(item, pickle.HIGHEST_PROTOCOL), 1)
            file.write(body)
            keys.append(draw_bits(seed, "order", name, str(number)))
            starts.append(end)
            sizes.append(len(body))
            end += len(body)
        # A stable sort: equal keys, however unlikely, keep the order of the file.
        for index in np.argsort(np.frombuffer(keys, np.uint64), kind="stable").tolist() if keys else ():
            file.seek(starts[index])
            yield pickle.loads(zlib.decompress(file.read(sizes[index])))
