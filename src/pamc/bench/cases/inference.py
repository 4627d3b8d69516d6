"""Rows per second of `predict`: encoder and assignment, streamed in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pamc.bench.case import Cell, Scope, register_case
from pamc.bench.measure import call_values
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader
from pamc.runtime import generator
from pamc.training.pipeline import assign_rows

__all__ = ["RowsOnDevice", "cells", "inference_values"]

_SIZES = (256, 500, 500, 2000, 10)
_N_CLUSTERS = 10
_N_ROWS = {"cuda": 2_000_000, "cpu": 50_000}
_QUICK_ROWS = 5_000

# As `predict` takes them.
_CHUNK = 16384


class RowsOnDevice(FeatureLoader):
    """Rows that are on the device already: blocks are views."""

    def block(self, start: int, stop: int) -> Tensor:
        """Return rows start … stop−1."""
        rows: Any = self._features
        block: Tensor = rows[start:stop]
        return block


@register_case("inference", "rows per second of predict, from the device's memory and from the host's")
def cells(scope: Scope) -> list[Cell]:
    """Return a cell per place of the rows and precision."""
    on_gpu = scope.device.type == "cuda"
    places = ("device", "host") if on_gpu else ("host",)
    n_rows = _QUICK_ROWS if scope.quick else _N_ROWS[scope.device.type]
    found = []
    for place in places:
        for precision in ("tf32", "float32") if on_gpu else ("float32",):
            parameters = {"rows_in": place, "n_rows": n_rows, "sizes": list(_SIZES), "precision": precision}
            found.append(_cell(parameters, scope))
    return found


def _cell(parameters: dict[str, Any], scope: Scope) -> Cell:
    return Cell("pamc", parameters, lambda: inference_values(parameters, scope.device))


def inference_values(parameters: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return time, rows per second and the memory that the labels of all rows take beside the rows themselves."""
    n_rows, n_features = parameters["n_rows"], parameters["sizes"][0]
    some = np.random.default_rng(0).standard_normal((min(n_rows, 1 << 15), n_features), dtype=np.float32)
    host = np.resize(some, (n_rows, n_features))
    tensor_cores = parameters["precision"] == "tf32"
    encoder = MLP(parameters["sizes"], generator=generator(0, "weights"), tensor_cores=tensor_cores).to(device)
    centers = torch.randn(_N_CLUSTERS, parameters["sizes"][-1], generator=generator(0, "centers")).to(device)
    rows: FeatureLoader
    if parameters["rows_in"] == "device":
        on_device: Any = torch.from_numpy(host).to(device)
        rows = RowsOnDevice(on_device, device=device, dtype=torch.float32, sparse=False)
    else:
        rows = FeatureLoader(host, device=device, dtype=torch.float32)

    def labels() -> object:
        return assign_rows(encoder, centers, rows, eta=1.0, chunk_size=_CHUNK)[1].argmax(dim=1).cpu()

    values = call_values(labels, device, budget_s=1.0)
    return {**values, "rows_per_s": n_rows / values["seconds"]}
