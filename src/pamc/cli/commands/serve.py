"""`pamc serve`."""

from __future__ import annotations

from pathlib import Path

import typer

from pamc.cli.options import CLUSTER, command, option, parse_bytes
from pamc.cli.show import note
from pamc.errors import ConfigError


@command(CLUSTER, 4)
def serve(
    model: Path = typer.Argument(..., help="Run folder, or an .onnx file of `pamc export`, or a link to either."),
    host: str = option("--host HOST", "Listen on this address; 0.0.0.0 also serves other machines.", "127.0.0.1"),
    port: int = option("--port PORT", "Listen on this port; 0 chooses a free one.", 8000, min=0, max=65535),
    max_body: str = option("--max-body SIZE", "Refuse larger requests.", "64MB"),
    max_rows: int = option("--max-rows N", "Refuse requests with more rows.", 200_000, min=1),
    threads: int | None = option(
        "--threads N", "Process each request with N threads.", show_default="number of cores", min=1
    ),
) -> None:
    """Serve a model over HTTP: POST rows to /predict as JSON or Parquet, and get their clusters.

    GET /schema describes the columns of the model, /health the state of the server, and /metrics its load. If the model
    is replaced by another one, the server switches to it without losing a request. An .onnx file needs no torch.

    \b
    Examples:
      pamc serve pamc-run-1
      pamc serve current --port 9000 --max-rows 10000     (current is a link to a run)
      curl -d '[[5.1, 3.5, 1.4, 0.2]]' -H 'Content-Type: application/json' http://127.0.0.1:8000/predict
    """  # noqa: D301
    from pamc.serving.app import Limits
    from pamc.serving.server import serve as run_server

    if not model.exists():
        raise ConfigError(f"{model}: no such run folder or .onnx file")
    limits = Limits(parse_bytes(max_body, "--max-body"), max_rows)
    run_server(
        model,
        host=host,
        port=port,
        limits=limits,
        threads=threads,
        on_change=note,
        on_start=lambda url: note(f"serving {model} at {url}"),
    )
