"""`seer serve`: an engine and a way to read, behind an OpenAI-compatible address."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

from seer.cli.options import (
    BaseUrl,
    Device,
    EngineArgs,
    Model,
    Policy,
    System,
    load_policy,
    set_became_server_option,
)
from seer.errors import InputError


@set_became_server_option
def serve(
    model: Model = None,
    system: System = "seer",
    selector: Annotated[
        str, typer.Option(help="How pages are selected, unless a chat sets it: model, bm25, first, all.")
    ] = "model",
    policy: Policy = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="vllm, hf, openai (a server elsewhere), or scripted. Default: openai with --base-url or --replicas, "
            "else vllm."
        ),
    ] = None,
    base_url: BaseUrl = None,
    replicas: Annotated[
        str | None, typer.Option(help="Base URLs of several such servers, separated by commas.")
    ] = None,
    engine_args: EngineArgs = None,
    device: Device = "auto",
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 accepts other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 8080,
    keys_file: Annotated[
        Path | None, typer.Option(help="File with one API key per line. Default: the variable SEER_SERVER_KEYS.")
    ] = None,
    server_options: Annotated[
        list[str] | None,
        typer.Option(
            "--server-option",
            help="Set a limit of the server, e.g. --server-option max_pages=200. Repeat for several.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    allow_origins: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin",
            help="Origin of web pages that may call the server, e.g. http://localhost:3000, or * for all. Repeat for several.",
        ),
    ] = None,
    self_check: Annotated[
        bool,
        typer.Option(
            "--self-check", help="Before serving, compare the engine with transformers and check its prefix cache."
        ),
    ] = False,
) -> None:
    """Serve an OpenAI-compatible API whose chat completions read documents.

    Example: seer serve --model path/to/checkpoint --port 8080
    Example: seer serve --model path/to/checkpoint --system auto --server-option max_pages=200

    On a CPU, vLLM takes nearly all memory unless the environment variable VLLM_CPU_KVCACHE_SPACE limits its cache (in
    GiB). --engine hf needs no vLLM.

    On shutdown, running requests finish first, for up to --server-option drain_s=60 seconds.
    """
    from seer.config import load_config
    from seer.engines.build import build_engine, choose_engine, make_concurrent, parse_engine_arguments
    from seer.serving.server import create_app
    from seer.serving.settings import ServeSettings, check_served, read_keys

    uvicorn = _import_uvicorn()
    limits = load_config(ServeSettings, None, server_options or [])
    if allow_origins:
        limits = limits.model_copy(update={"allow_origins": (*limits.allow_origins, *allow_origins)})
    rules = load_policy(policy)
    check_served(system, selector)
    choose_engine(engine, base_url=base_url, replicas=replicas)
    arguments = parse_engine_arguments(engine_args)
    keys = read_keys(keys_file)
    if not keys and host not in ("127.0.0.1", "::1", "localhost"):
        typer.echo(f"warning: no API keys are set and {host} accepts other machines; anyone may ask", err=True)
    # The port is taken before the engine starts, which may take minutes.
    address = bind(host, port)
    served = make_concurrent(
        build_engine(
            engine, model=model, base_url=base_url, replicas=replicas, device=device, default="vllm", **arguments
        )
    )
    if self_check:
        from seer.serving.selfcheck import print_checks

        print_checks(served, model)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{address.getsockname()[1]}/v1"
    typer.echo(f"serving '{limits.model_name}' through {served.name} at {url}", err=True)
    app = create_app(served, rules, limits, keys, system=system, selector=selector)
    _run_server(uvicorn, app, address, limits.drain_s)


def _run_server(uvicorn: Any, app: Any, address: socket.socket, drain_s: int) -> None:
    """Serve until a signal ends it; running requests may finish for `drain_s` seconds."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("seer.serve").setLevel(logging.INFO)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # The server writes its own line a request, without addresses and texts.
        timeout_graceful_shutdown=drain_s,
        server_header=False,
    )
    uvicorn.Server(config).run([address])


def _import_uvicorn() -> Any:
    try:
        import uvicorn
    except ImportError:
        raise InputError("serving needs fastapi and uvicorn: pip install 'seer-vlm[serve]'") from None
    return uvicorn


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that holds the address but accepts no connection yet.

    Raises InputError if the address is unknown or in use.
    """
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
