"""What an epoch has to move and to compute, and the time that the measured ceilings of a machine allow for it."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from benchmarks.rows import Rows
from pamc.bench.cases.positive import moved_bytes
from pamc.bench.rows import Row

__all__ = ["Ceilings", "Part", "ceilings_of", "parts_of"]

_FLOAT = 4

# Passes over a hidden layer's numbers outside the products: the gradient of ReLU reads twice and writes. ReLU itself
# can be the last step of a product, and the gradient of the bias comes of the same pass.
_HIDDEN_PASSES = 3

# Adam reads weight, gradient and two moments, and writes all but the gradient.
_ADAM_PASSES = 7


class Ceilings(NamedTuple):
    """Measured rates of a machine."""

    bytes_per_s: float
    flop_per_s: float


class Part(NamedTuple):
    """A part of an epoch: bytes outside matrix products, operations inside them, seconds that were measured."""

    name: str
    n_bytes: float
    n_operations: float
    seconds: float | None

    def allowed_s(self, ceilings: Ceilings) -> float:
        """Return the seconds that the ceilings allow."""
        return self.n_bytes / ceilings.bytes_per_s + self.n_operations / ceilings.flop_per_s


def ceilings_of(rows: Rows, precision: str) -> Ceilings | None:
    """Return the ceilings out of the rows of case `ceilings` of one device; None where they were not measured."""
    copies = [row["values"]["bytes_per_s"] for row in rows if row["provider"] == "copy" and "error" not in row]
    products = [
        row["values"]["flop_per_s"]
        for row in rows
        if row["provider"] == "matmul" and row["parameters"]["precision"] == precision and "error" not in row
    ]
    return Ceilings(copies[-1], products[-1]) if copies and products else None


def parts_of(rows: Rows) -> list[Part]:
    """Return the parts of an epoch out of the rows of one data set of case `epoch`; the whole epoch comes last."""
    by_provider = {row["provider"]: row for row in rows if "error" not in row}
    if "triton" not in by_provider:
        return []
    whole = by_provider["triton"]["values"]
    n_nodes, n_dims, n_clusters, sizes = (whole[name] for name in ("n_nodes", "n_dims", "n_clusters", "sizes"))
    products = [2 * n_nodes * a * b for a, b in pairwise(sizes)]
    weights = sum(a * b + b for a, b in pairwise(sizes))
    # Each layer has a product forward and two backward, but nobody asks for the gradient of the features.
    operations = 3 * sum(products) - products[0]
    hidden = _FLOAT * _HIDDEN_PASSES * n_nodes * sum(sizes[1:-1])
    thin = _FLOAT * 3 * n_nodes * (n_dims + n_clusters)
    encoder, matmul = (_epoch_s(by_provider.get(name)) for name in ("encoder", "matmul"))
    rest = None if encoder is None or matmul is None else encoder - matmul
    parts = [
        Part("matrix products of the encoder", 0, operations, matmul),
        Part(
            "its activations, biases and Adam (of the bare encoder)", hidden + _FLOAT * _ADAM_PASSES * weights, 0, rest
        ),
        Part("positive term", moved_bytes(whole["n_pairs"], n_dims), 0, _epoch_s(by_provider.get("positive term"))),
        Part("clustering term", thin, 0, _epoch_s(by_provider.get("clustering term"))),
    ]
    totals = (sum(part.n_bytes for part in parts), sum(part.n_operations for part in parts))
    return [*parts, Part("whole epoch", *totals, _epoch_s(by_provider["triton"]))]


def _epoch_s(row: Row | None) -> float | None:
    return None if row is None else float(row["values"]["seconds"] / row["values"]["n_epochs"])
