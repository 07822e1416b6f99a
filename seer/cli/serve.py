"""The command `seer serve`: an engine, a policy and limits become a server on a port."""

from __future__ import annotations

import logging
import socket
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seer.errors import DocumentWarning, InputError

if TYPE_CHECKING:
    from seer.serving.reading import ServedEngine


def serve(
    model: Annotated[str | None, typer.Option(help="Checkpoint folder, or the model's name at --base-url.")] = None,
    engine: Annotated[str, typer.Option(help="vllm, hf, openai (a server elsewhere), or scripted.")] = "vllm",
    base_url: Annotated[str | None, typer.Option(help="Address for the openai engine.")] = None,
    replicas: Annotated[str | None, typer.Option(help="Several such addresses, comma-separated.")] = None,
    engine_args: Annotated[
        list[str] | None, typer.Option("--engine-arg", help="Any argument of the engine, e.g. max_model_len=32768.")
    ] = None,
    host: Annotated[str, typer.Option(help="0.0.0.0 to be reached from elsewhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8080,
    keys_file: Annotated[
        Path | None, typer.Option(help="API keys, one a line; else the environment's SEER_SERVER_KEYS.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any limit of the server, e.g. --set max_pages=200.")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="Any field of the reading policy, e.g. --policy mode=auto.")
    ] = None,
    self_check: Annotated[
        bool, typer.Option("--self-check", help="First compare the engine with transformers, and its cache with ours.")
    ] = False,
) -> None:
    """Serve chat completions that read documents, to any OpenAI client.

    Example: seer serve --model path/to/checkpoint --port 8080

    vLLM on a CPU takes nearly all memory unless the environment's VLLM_CPU_KVCACHE_SPACE says how many GiB its cache has;
    --engine hf does without vLLM.

    Stops gracefully: what runs is finished, up to --set drain_s=60.
    """
    from seer.config import load_config
    from seer.reading.policy import ReadingPolicy
    from seer.serving.server import create_app
    from seer.serving.settings import ServeSettings, read_keys

    try:
        import uvicorn
    except ImportError:
        raise InputError("serving needs fastapi and uvicorn: pip install 'seer-vlm[serve]'") from None
    limits = load_config(ServeSettings, None, settings or [])
    rules = load_config(ReadingPolicy, None, policy or [])
    keys = read_keys(keys_file)
    if not keys and host not in ("127.0.0.1", "::1", "localhost"):
        typer.echo(f"warning: no API keys are set and {host} may be reached from elsewhere; anyone may ask", err=True)
    warnings.simplefilter("ignore", DocumentWarning)  # names of files are no business of the log
    address = bind(host, port)  # before the engine, whose start may take minutes
    served = open_engine(engine, model, base_url, replicas, engine_args or [])
    if self_check:
        from seer.serving.selfcheck import print_checks

        print_checks(served, model)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("seer.serve").setLevel(logging.INFO)
    config = uvicorn.Config(
        create_app(served, rules, limits, keys),
        log_level="warning",
        access_log=False,  # the server writes its own line a request, without addresses and texts
        timeout_graceful_shutdown=limits.drain_s,
        server_header=False,
    )
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{address.getsockname()[1]}/v1"
    typer.echo(f"serving '{limits.model_name}' through {served.name} at {url}", err=True)
    uvicorn.Server(config).run([address])


def bind(host: str, port: int) -> socket.socket:
    """A socket that nobody else can have any more; it takes no connection yet. Raises InputError where it is taken."""
    address = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    address.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        address.bind((host, port))
    except OSError as error:
        address.close()
        raise InputError(
            f"cannot serve at {host}, port {port}: {error.strerror}; give another --port or --host"
        ) from None
    return address


def open_engine(
    name: str, model: str | None, base_url: str | None, replicas: str | None, arguments: list[str]
) -> ServedEngine:
    """The engine in the form a server needs. Raises InputError for what does not go together."""
    from seer.engines.base import ConcurrentEngine
    from seer.engines.batched import BatchedEngine
    from seer.engines.replicas import ReplicatedEngine
    from seer.systems.base import build_engine, parse_engine_arguments

    options: dict[str, Any] = parse_engine_arguments(arguments)
    if replicas is not None:
        if base_url is not None or name not in ("vllm", "openai"):
            raise InputError("--replicas names the servers itself: give no --base-url, and no --engine but openai")
        addresses = [address.strip() for address in replicas.split(",") if address.strip()]
        if not addresses:
            raise InputError("--replicas holds no address; write URL,URL")
        built = [build_engine("openai", model=model, base_url=address, **options) for address in addresses]
        return ReplicatedEngine(built)
    if base_url is not None:
        if name not in ("vllm", "openai"):
            raise InputError(f"--base-url goes with --engine openai, not with {name}")
        return build_engine("openai", model=model, base_url=base_url, **options)
    engine = build_engine(name, model=model, **options)
    served: ServedEngine = engine
    return served if isinstance(engine, ConcurrentEngine) else BatchedEngine(engine)
