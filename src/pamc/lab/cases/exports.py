"""Exported models: rows per second of the ONNX file on one core, and the sizes of what is saved."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.synthetic import blobs
from pamc.estimator.export import import_runtime, onnx_inputs
from pamc.estimator.pamcgc import PamCGC
from pamc.lab.cell import Cell, Scope, register_case
from pamc.lab.measure import call_values
from pamc.lab.settings import load_unlinked, n_classes

# Rows of the fit and of the measurement, columns, clusters, and rows per call of onnxruntime.
_N_FITTED, _N_ROWS, _N_FEATURES, _N_CLUSTERS = 2000, 100_000, 64, 10
_QUICK_ROWS, _BATCH, _N_CALLS = 2000, 4096, 5

_SETS = ("digits",)


def export_cells(scope: Scope) -> list[Cell]:
    """Return one cell for the speed of the ONNX file, and one per data set for the sizes."""
    n_rows = _QUICK_ROWS if scope.quick else _N_ROWS
    shape = {"n_rows": n_rows, "n_features": _N_FEATURES, "n_clusters": _N_CLUSTERS, "n_threads": 1, "batch": _BATCH}
    speed = Cell("export", "export", "onnx", quick=scope.quick, parameters=shape)
    sizes = [Cell("export", "export", "pamc", name, quick=scope.quick) for name in scope.data_sets or _SETS]
    return [speed, *sizes]


def _fitted(graph: AttributedGraph, n_clusters: int, cell: Cell) -> PamCGC:
    """Return a fit by the default settings, or a short one."""
    short: dict[str, Any] = {"n_epochs": 2, "advanced": {"pretrain_epochs": 1}} if cell.quick else {}
    return PamCGC(n_clusters, random_state=cell.seed, device="cpu", **short).fit_graph(graph.without_labels())


@register_case("export", "rows per second of an ONNX file on one core, and sizes of saved models", cells=export_cells)
def export_values(cell: Cell, device: str) -> dict[str, Any]:
    """Return throughput and agreement with `predict` of an ONNX file, or the sizes of a saved model in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        if cell.provider == "onnx":
            return _speed(cell, Path(folder))
        return _sizes(cell, Path(folder))


def _speed(cell: Cell, folder: Path) -> dict[str, Any]:
    parameters = cell.parameters
    n_clusters, n_rows, batch = (int(parameters[name]) for name in ("n_clusters", "n_rows", "batch"))
    model = _fitted(blobs(_N_FITTED, n_clusters, n_features=parameters["n_features"], random_state=0), n_clusters, cell)
    X = blobs(n_rows, n_clusters, n_features=parameters["n_features"], random_state=1).features
    runtime = import_runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = parameters["n_threads"]
    path = str(model.export(folder / "model.onnx"))
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (inputs,) = onnx_inputs(model, X).items()

    parts = [inputs[1][start : start + batch] for start in range(0, n_rows, batch)]

    def labels(outputs: Sequence[str] | None = ("label",)) -> Any:
        return np.concatenate([session.run(outputs, {inputs[0]: part})[0] for part in parts])

    values = call_values(labels, torch.device("cpu"), budget_s=3.0)
    return {
        **values,
        "rows_per_s": n_rows / values["seconds"],
        "rows_per_cpu_s": n_rows / _cpu_s(labels),
        "rows_per_cpu_s_all_outputs": n_rows / _cpu_s(lambda: labels(None)),
        "same_labels": float((labels() == model.predict(X)).mean()),
    }


def _cpu_s(function: Callable[[], object]) -> float:
    """Return the processor time of a call, which, unlike elapsed time, is hardly affected by other processes."""
    seconds = []
    for _ in range(_N_CALLS):
        started = time.process_time()
        function()
        seconds.append(time.process_time() - started)
    return median(seconds)


def _sizes(cell: Cell, folder: Path) -> dict[str, Any]:
    graph = load_unlinked(cell.data_set, cell.quick)
    model = _fitted(graph, n_classes(graph), cell)
    for name, slim in (("whole", False), ("slim", True)):
        model.save(folder / name, slim=slim)
    onnx = model.export(folder / "model.onnx")
    sizes = {f"{name}_bytes": sum(f.stat().st_size for f in (folder / name).iterdir()) for name in ("whole", "slim")}
    return {**sizes, "onnx_bytes": onnx.stat().st_size, "n_nodes": graph.n_nodes, "n_features": graph.n_features}
