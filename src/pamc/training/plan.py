"""The memory plan of a fit, made before anything is allocated, and the number of rows to encode at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch

from pamc.data.files import free_memory, size_text
from pamc.errors import ConfigError

_FLOAT, _INDEX, _LONG = 4, 4, 8

# Rows encoded at a time: half a million saturate a GPU, a few thousand fit the caches of a CPU.
_MOST_ROWS = {"cuda": 1 << 19, "cpu": 1 << 13}
_LEAST_ROWS = 1 << 10

# Arrays of n_dims numbers per row that an epoch needs at once (z, unit rows, gradients and their copies), and vectors.
# In a process group, each process needs those of its rows, plus z, unit rows and masses of all rows.
_MATRICES, _VECTORS = 6, 8
_MATRICES_OF_ALL, _VECTORS_OF_ALL = 2, 3

# Copies of a chunk's hidden layers that the backward pass needs, and blocks of rows: one in use, one in transfer.
_CHUNK_COPIES, _BLOCKS = 2, 2

# Numbers per weight: the weight, its gradient, two moments of Adam, and a copy during the step.
_PER_WEIGHT = 5

# Share of the memory that is reserved for everything else.
_SPARE = 0.1
# Preprocessed rows are kept if they need at most this share of the memory: libraries need a few hundred megabytes.
_HELD_SHARE = 0.5


@dataclass(frozen=True)
class Plan:
    """The memory that training needs, by part, and the number of rows encoded at a time.

    Parameters
    ----------
    parts
        Bytes per process, by content.
    chunk_size
        Number of rows encoded at a time.
    limit
        Number of bytes that may be used.
    """

    parts: Mapping[str, int]
    chunk_size: int
    limit: int

    @property
    def total(self) -> int:
        """Total bytes of all parts."""
        return sum(self.parts.values())

    def with_features(self, n_bytes: int) -> Plan:
        """Return the plan with all preprocessed rows in memory, or the same plan if this needs too much memory."""
        held = replace(self, parts={**self.parts, "features": n_bytes})
        return held if held.total <= _HELD_SHARE * self.limit else self

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size_text(size)}" for name, size in self.parts.items())
        return f"{size_text(self.total)} of {size_text(self.limit)}: {parts}; {self.chunk_size:,} rows at a time"


def plan_fit(
    n_nodes: int,
    n_features: int,
    n_stored: int,
    config: Any,
    *,
    device: torch.device,
    limit: int,
    n_processes: int = 1,
    even: bool = False,
    features_on_device: bool = False,
) -> Plan:
    """Return the memory plan of training; raise a ConfigError with the sizes if it does not fit.

    Parameters
    ----------
    n_nodes, n_features
        N and d.
    n_stored
        Number of positive pairs, each counted in both directions.
    config
        Settings, with a number for `n_dims`.
    limit
        Bytes of memory that the device has or that the user allows.
    n_processes
        Number of processes that share the rows and pairs.
    even
        Whether all pairs of a row have equal weights, so that no weights are stored.
    features_on_device
        Whether all features are in the device's memory, instead of being transferred chunk by chunk.

    Examples
    --------
    >>> from pamc.config import FitConfig
    >>> config = FitConfig(n_clusters=50, n_dims=10, hidden=(500, 500, 2000))
    >>> cpu = torch.device("cpu")
    >>> print(plan_fit(1_000_000, 512, 28_000_000, config, device=cpu, limit=2 * 10**9))
    1.1 GB of 2.0 GB: pairs 568 MB, embedding 272 MB, weights 31 MB, features 0 B, chunk 233 MB; 8,192 rows at a time
    >>> plan_fit(10**9, 512, 28 * 10**9, config, device=cpu, limit=2 * 10**9)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    pamc.errors.ConfigError: training needs ... GB besides the rows encoded at a time, and 2.0 GB may be used (pairs ...
    """
    n_rows, n_pairs = -(-n_nodes // n_processes), -(-n_stored // n_processes)
    on_gpu = device.type == "cuda"
    item = 2 if config.precision == "bfloat16" else _LONG if config.precision == "float64" else _FLOAT
    # Per pair: an index, both weights unless they are equal, and a cosine, except for the fused kernels, which store
    # nothing per pair and run in a single process only.
    unweighted, fused = even and n_processes == 1, on_gpu and n_processes == 1
    per_pair = (_INDEX if unweighted else _LONG) + _FLOAT * (2 * (not unweighted) + (not fused))
    sizes = (n_features, *config.hidden, config.n_dims)
    n_weights = sum(a * b + b for a, b in pairwise(sizes))
    of_all = 0 if n_processes == 1 else n_nodes * (config.n_dims * _MATRICES_OF_ALL + _VECTORS_OF_ALL)
    parts = {
        "pairs": n_pairs * per_pair + n_rows * _LONG,
        "embedding": _FLOAT * (n_rows * (config.n_dims * _MATRICES + _VECTORS) + of_all),
        "weights": n_weights * _FLOAT * _PER_WEIGHT,
        "features": n_rows * n_features * item if features_on_device else 0,
    }
    per_row = item * (_BLOCKS * n_features + _CHUNK_COPIES * sum(config.hidden)) + _FLOAT * 2 * config.n_clusters
    usable = int((1 - _SPARE) * limit)
    room = (usable - sum(parts.values())) // per_row
    if room < min(_LEAST_ROWS, n_rows):
        by_part = ", ".join(f"{name} {size_text(size)}" for name, size in parts.items())
        raise ConfigError(
            f"training needs {size_text(sum(parts.values()))} besides the rows encoded at a time, and "
            f"{size_text(limit)} may be used ({by_part}): allow more memory, or use more processes (torchrun) or a GPU"
        )
    chunk = min(_MOST_ROWS["cuda" if on_gpu else "cpu"], config.chunk_size or n_rows, n_rows, room)
    parts["chunk"] = chunk * per_row
    return Plan(parts, int(chunk), limit)


def memory_of(device: torch.device) -> int:
    """Return the free memory of a GPU, or of the machine for a CPU, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return free_memory()
