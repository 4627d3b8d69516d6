"""`pamc export`."""

from __future__ import annotations

from pathlib import Path

import typer

from pamc.cli.options import CLUSTER, command, option, shared
from pamc.cli.show import print_json, print_text, shown_bytes


@command(CLUSTER, 3)
def export(
    run: Path = typer.Argument(..., help="Run folder with the model."),
    out: Path | None = option(
        "--out PATH", "Write this .onnx file, or a slim run to this folder.", show_default="RUN/model.onnx"
    ),
    overwrite: bool = option("--overwrite", "Replace an existing file or run.", False),
    as_json: bool = shared("--json"),
) -> None:
    """Export a model to one ONNX file, or to a run folder without training rows.

    The ONNX file holds preprocessing, encoder, assignment and confidence, and runs in onnxruntime without pamc.

    \b
    Examples:
      pamc export pamc-run-1 --out model.onnx
      pamc export pamc-run-1 --out slim-run
    """  # noqa: D301
    from pamc.estimator.methods import load_model
    from pamc.results.run_folder import MODEL_FILE

    model, _ = load_model(run, device="cpu")
    target = out or run / "model.onnx"
    if target.suffix == ".onnx":
        model.export(target, overwrite=overwrite)
        n_bytes = target.stat().st_size
    else:
        model.save(target, overwrite=overwrite, slim=True)
        n_bytes = (target / MODEL_FILE).stat().st_size
    if as_json:
        print_json({"out": str(target), "n_bytes": n_bytes})
    else:
        print_text(f"{run} → {target} ({shown_bytes(n_bytes)})")
