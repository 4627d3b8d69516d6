"""`pamc ingest` and `pamc synthesize`: data that need not fit in memory, as a store."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from pamc.cli.show import Interrupted, note, print_json, print_text
from pamc.cli.sizes import parse_bytes, parse_count, shown_bytes, split_names
from pamc.data import ingest as ingesting
from pamc.data.files import partial_of
from pamc.data.ingest.workspace import BAD_ROWS_FILE
from pamc.data.store import Store
from pamc.data.synthetic import BlockModel, write_block_model
from pamc.errors import counted
from pamc.progress import RichProgress, SilentProgress

__all__ = ["ingest", "synthesize"]


def ingest(
    *,
    features: str,
    edges: str | None,
    out: Path,
    id_column: str | None,
    columns: list[str] | None,
    drop: list[str] | None,
    truth: str | None,
    dtype: str,
    memory: str,
    skip_bad_rows: bool,
    overwrite: bool,
    resume: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Turn tables of any size into a store that pamc fit reads from the disk."""
    try:
        store = ingesting.ingest(
            features,
            edges,
            out=out,
            id_column=id_column,
            truth_column=truth,
            columns=split_names(columns, "--columns"),
            drop=split_names(drop, "--drop"),
            dtype=dtype,
            memory_bytes=parse_bytes(memory, "--memory"),
            skip_bad_rows=skip_bad_rows,
            overwrite=overwrite,
            resume=resume,
            progress=SilentProgress() if quiet else RichProgress(),
        )
    except KeyboardInterrupt:
        if not partial_of(out).exists():
            raise
        again = [argument for argument in sys.argv[1:] if argument != "--resume"]
        raise Interrupted(
            f"{partial_of(out)} keeps what was read; go on with: {shlex.join(['pamc', *again, '--resume'])}"
        ) from None
    _show(store, as_json=as_json)


def synthesize(
    *,
    out: Path,
    n_nodes: str,
    n_clusters: str,
    n_features: str,
    degree: float,
    homophily: float,
    feature_noise: float,
    power_law: float | None,
    size_power_law: float | None,
    seed: int,
    dtype: str,
    memory: str,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make a store of a random attributed graph with planted clusters, of any size."""
    model = BlockModel(
        n_nodes=parse_count(n_nodes, "--n-nodes"),
        n_clusters=parse_count(n_clusters, "--n-clusters"),
        n_features=parse_count(n_features, "--n-features"),
        degree=degree,
        homophily=homophily,
        feature_noise=feature_noise,
        power_law=power_law,
        size_power_law=size_power_law,
        seed=seed,
        dtype=dtype,
    )
    store = write_block_model(
        out,
        model,
        overwrite=overwrite,
        memory_bytes=parse_bytes(memory, "--memory"),
        progress=SilentProgress() if quiet else RichProgress(),
    )
    _show(store, as_json=as_json)


def _show(store: Store, *, as_json: bool) -> None:
    facts: dict[str, Any] = store.manifest["facts"]
    if as_json:
        sizes = {"n_nodes": store.n_nodes, "n_features": store.n_features, "n_stored": store.n_stored}
        print_json({"store": str(store.folder), **sizes, "ids": store.id_kind, "bytes": store.n_bytes, **facts})
        return
    pairs = f", {counted(store.n_stored // 2, 'pair')} of neighbors" if store.has_edges else ", no graph"
    size = f"{counted(store.n_nodes, 'row')} of {counted(store.n_features, 'feature')}"
    print_text(f"{size}{pairs}, {shown_bytes(store.n_bytes)}")
    told = {"n_self_loops": "self-loops", "n_repeated": "edges that repeat a pair"}
    left_out = [f"{facts[name]} {words}" for name, words in told.items() if facts.get(name)]
    if left_out:
        print_text(f"left out: {', '.join(left_out)}")
    if (store.folder / BAD_ROWS_FILE).exists():
        n_rows, n_edges = facts.get("n_bad_rows", 0), facts.get("n_bad_edges", 0)
        bad = f"{counted(n_rows, 'bad row')} and {counted(n_edges, 'bad edge')}"
        print_text(f"skipped: {bad}, listed in {store.folder / BAD_ROWS_FILE}")
    print_text(f"store: {store.folder}")
    shown = f"./{store.folder}" if str(store.folder).startswith("-") else str(store.folder)
    note(f"next: pamc fit {shlex.quote(shown)} --n-clusters K")
