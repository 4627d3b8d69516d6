"""Comparison of several runs: matched clusters, agreement, rows that changed cluster, settings that differ."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from pamc import __version__
from pamc.errors import ConfigError, DataError
from pamc.report.page_file import pack, pack_ids, plain, smallest, unpack, unpack_ids
from pamc.results.metrics import ari, nmi

COMPARISON = "pamc-comparison"

# Maximum number of listed rows that changed cluster.
_MOST_CHANGED = 500


def comparison_data(runs: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return the data of a page that compares runs on their common rows.

    The clusters of each run are matched one to one with those of the first run, maximizing the overlap. A row has
    changed if its cluster does not match its cluster in the first run. `runs` are the data of two or more pages, and
    `names` their display names.
    """
    if len(runs) < 2:
        raise ConfigError("a comparison needs two runs or more")
    ids, positions = _common(runs, names)
    labels = [
        unpack(run["points"]["cluster"])[rows].astype(np.int64) for run, rows in zip(runs, positions, strict=True)
    ]
    sizes = [_n_groups(run) for run in runs]
    matches = [_matched(labels[0], other, sizes[0], size) for other, size in zip(labels, sizes, strict=True)]
    in_first = [match["to_first"][clusters] for match, clusters in zip(matches, labels, strict=True)]
    changed = np.flatnonzero(np.any([clusters != labels[0] for clusters in in_first[1:]], axis=0))
    data = {
        "format": COMPARISON,
        "version": 1,
        "title": " · ".join(dict.fromkeys(str(run["title"]) for run in runs)),
        "pamc": __version__,
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "n_rows": len(ids),
        "ids": pack_ids(np.array(ids, dtype=object)),
        "runs": [_run_data(*parts) for parts in zip(runs, names, positions, matches, strict=True)],
        "agreement": [
            {"first": i, "second": j, "ari": ari(labels[i], labels[j]), "nmi": nmi(labels[i], labels[j])}
            for i, j in combinations(range(len(runs)), 2)
        ],
        "n_changed": len(changed),
        "changed": pack(changed, "u4"),
        "listed": changed[:_MOST_CHANGED],
        "settings": _differing([run["record"] for run in runs]),
        "notes": _notes(runs, names, len(ids)),
    }
    return dict(plain(data))


def _n_groups(run: dict[str, Any]) -> int:
    """Return the number of clusters of a run, and one more for noise."""
    return int(run["n_clusters"]) + (run.get("noise") is not None)


def _common(runs: Sequence[dict[str, Any]], names: Sequence[str]) -> tuple[list[str], list[NDArray[np.int64]]]:
    """Return the ids common to all runs, in the order of the first, and their positions in each run."""
    lists = [unpack_ids(run["points"]["ids"]) for run in runs]
    position_of = [{name: position for position, name in enumerate(ids)} for ids in lists]
    common = [name for name in lists[0] if all(name in positions for positions in position_of[1:])]
    if not common:
        raise DataError(
            f"{' and '.join(names)} have no id in common: runs are compared by the ids of their rows; fit the same "
            "rows, or name the same --id column"
        )
    return common, [np.array([positions[name] for name in common], dtype=np.int64) for positions in position_of]


def _matched(
    first: NDArray[np.int64], other: NDArray[np.int64], n_first: int, n_other: int
) -> dict[str, NDArray[np.int64]]:
    """Return the matching cluster of the first run for each cluster, −1 for none, and the number of shared rows."""
    table = np.bincount(other * n_first + first, minlength=n_other * n_first).reshape(n_other, n_first)
    to_first = np.full(n_other, -1)
    clusters, matched = linear_sum_assignment(table, maximize=True)
    to_first[clusters] = matched
    overlap = np.where(to_first >= 0, table[np.arange(n_other), to_first], 0)
    # Clusters without a common row do not match.
    to_first[overlap == 0] = -1
    union = table.sum(axis=1) + table.sum(axis=0)[to_first] - overlap
    return {"to_first": to_first, "overlap": overlap, "union": np.where(to_first >= 0, union, 0)}


def _run_data(
    run: dict[str, Any], name: str, rows: NDArray[np.int64], match: dict[str, NDArray[np.int64]]
) -> dict[str, Any]:
    """Return the data of one run for the page, with its rows in the common order."""
    points, record = run["points"], run["record"]
    confidence = unpack(points["confidence"]["values"])[rows]
    return {
        "name": name,
        "title": run["title"],
        "n_rows": run["n_rows"],
        "n_clusters": run["n_clusters"],
        "clusters": run["clusters"],
        "features": run["features"],
        "feature_silhouette": run.get("feature_silhouette"),
        "map": run["map"],
        "xy": pack(unpack(points["xy"])[rows], "u2"),
        "cluster": pack(unpack(points["cluster"])[rows], smallest(_n_groups(run) - 1)),
        "confidence": {**points["confidence"], "values": pack(confidence, "u1")},
        "match": match,
        "record": {key: record.get(key) for key in ("method", "seed", "scores", "metrics", "seconds", "command")},
    }


def _differing(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the settings and facts that differ between runs."""
    flat = [
        {
            **{f"setting {key}": value for key, value in (record.get("config") or {}).items()},
            **{f"fact {key}": value for key, value in (record.get("facts") or {}).items()},
            **{f"data {key}": value for key, value in (record.get("data") or {}).items() if key != "folder"},
            **{f"version of {key}": v for key, v in (record.get("environment", {}).get("packages") or {}).items()},
            "method": record.get("method"),
            "seed": record.get("seed"),
            "device": record.get("device"),
            "commit": (record.get("environment") or {}).get("commit"),
        }
        for record in records
    ]
    names = dict.fromkeys(name for values in flat for name in values)
    lines = [{"name": name, "values": [values.get(name) for values in flat]} for name in names]
    return [line for line in lines if any(value != line["values"][0] for value in line["values"])]


def _notes(runs: Sequence[dict[str, Any]], names: Sequence[str], n_common: int) -> list[str]:
    notes = [
        f"The page of {name} lists {run['points']['n']:,} rows; {n_common:,} of them are in every run and are compared."
        for run, name in zip(runs, names, strict=True)
        if run["points"]["n"] != n_common
    ]
    if any(run["density"] is not None for run in runs):
        notes.append("The compared rows are a sample, so agreement and overlap are estimates.")
    return notes
