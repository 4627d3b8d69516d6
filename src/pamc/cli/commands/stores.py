"""`pamc ingest` and `pamc synthesize`: create stores, for data that do not fit in memory."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pamc.cli.options import (
    CLUSTER,
    LABORATORY,
    command,
    option,
    parse_bytes,
    parse_count,
    parse_relations,
    parse_types,
    shared,
    split_names,
)
from pamc.cli.show import Interrupted, note, print_json, print_text, shown_bytes, typed
from pamc.errors import ConfigError, counted
from pamc.progress import RichProgress, SilentProgress

if TYPE_CHECKING:
    from pamc.data.store import Store

_STORE = option("--out DIR", "Write the store to this folder.", ...)
_STORED_TYPE = option("--dtype TYPE", "Store features as float32 or float16.", "float32")
_REPLACE_STORE = option("--overwrite", "Replace an existing store.", False)


@command(CLUSTER, 6)
def ingest(
    features: str = typer.Argument(
        ..., help="Tables of rows (.csv, .tsv or .parquet): a file, a folder, or a 'pattern*'."
    ),
    edges: str | None = typer.Argument(None, help="Tables of edges, given in the same way: source, target[, weight]."),
    relations: list[str] | None = option("--edges NAME=FILE", "Add tables of edges as one of several relations."),
    members: list[str] | None = option("--members NAME=FILE", "Add a relation that joins rows of a group: row, group."),
    out: Path = _STORE,
    id_column: str | None = shared("--id"),
    columns: list[str] | None = shared("--columns"),
    drop: list[str] | None = shared("--drop"),
    types: list[str] | None = shared("--types"),
    truth: str | None = shared("--truth"),
    dtype: str = _STORED_TYPE,
    memory: str = option("--memory SIZE", "Use at most this much memory; larger intermediate data go to disk.", "2GB"),
    skip_bad_rows: bool = option("--skip-bad-rows", "Skip malformed rows and edges, and list them in a file.", False),
    overwrite: bool = _REPLACE_STORE,
    resume: bool = option("--resume", "Resume a stopped ingest.", False),
    quiet: bool = shared("--quiet"),
    as_json: bool = shared("--json"),
) -> None:
    """Convert tables of any size to a store that pamc fit reads from disk.

    \b
    Examples:
      pamc ingest papers.csv citations.csv --id doi --out papers-store
      pamc ingest rows 'edges/*.parquet' --id user --memory 4GB --out users
      pamc ingest papers.csv --edges cites=citations.csv --members author=authors.csv --id doi --out papers-store
    """  # noqa: D301
    from pamc.data.files import partial_of
    from pamc.data.ingest import ingest as write_store

    if edges is not None and relations:
        raise ConfigError(f"give every relation a name: --edges NAME={edges}, instead of {edges} alone")
    try:
        store = write_store(
            features,
            parse_relations(relations, "--edges") if relations else edges,
            out=out,
            members=parse_relations(members, "--members"),
            id_column=id_column,
            truth_column=truth,
            columns=split_names(columns, "--columns"),
            drop=split_names(drop, "--drop"),
            types=parse_types(types),
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
        command_line = shlex.join(["pamc", *again, "--resume"])
        raise Interrupted(f"the rows read so far are in {partial_of(out)}; resume with: {command_line}") from None
    _show(store, as_json=as_json)


@command(LABORATORY, 3)
def synthesize(
    out: Path = _STORE,
    n_nodes: str = option("--n-nodes N", "Generate N rows, such as 1e6.", ...),
    n_clusters: str = option("--n-clusters -k K", "Plant K clusters.", ...),
    n_features: str = option("--n-features N", "Generate N features.", "128"),
    degree: float = option("--degree X", "Give each row X neighbors on average.", 28.0),
    homophily: float = option("--homophily X", "Keep this share of the edges inside clusters.", 0.8),
    feature_noise: float = option("--feature-noise X", "Spread rows by X around centers at distance 1.", 0.2),
    power_law: float | None = option(
        "--power-law X", "Draw degrees from a power law, exponent above 2.", show_default="equal degrees"
    ),
    size_power_law: float | None = option(
        "--size-power-law X", "Draw cluster sizes from a power law, exponent above 1.", show_default="equal sizes"
    ),
    seed: int = shared("--seed"),
    dtype: str = _STORED_TYPE,
    memory: str = option("--memory SIZE", "Sort in at most this much memory, plus 4 to 8 bytes per row.", "1GB"),
    overwrite: bool = _REPLACE_STORE,
    quiet: bool = shared("--quiet"),
    as_json: bool = shared("--json"),
) -> None:
    """Generate a store of any size: a random attributed graph with planted clusters.

    \b
    Example:
      pamc synthesize --n-nodes 1e6 --n-features 512 -k 50 --out million
    """  # noqa: D301
    from pamc.data.synthetic import BlockModel, write_block_model

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
    from pamc.data.ingest.workspace import BAD_ROWS_FILE

    facts: dict[str, Any] = store.manifest["facts"]
    if as_json:
        sizes = {"n_nodes": store.n_nodes, "n_features": store.n_features, "n_stored": store.n_stored}
        print_json({"store": str(store.folder), **sizes, "ids": store.id_kind, "bytes": store.n_bytes, **facts})
        return
    pairs = f", {counted(store.n_stored // 2, 'pair')} of neighbors" if store.has_edges else ", no graph"
    if store.relations is not None:
        pairs += f" in {counted(len(store.relations), 'relation')} ({', '.join(store.relations)})"
    size = f"{counted(store.n_nodes, 'row')} of {counted(store.n_features, 'feature')}"
    print_text(f"{size}{pairs}, {shown_bytes(store.n_bytes)}")
    kinds = {"n_self_loops": "self-loops", "n_repeated": "repeated edges"}
    removed = [f"{facts[name]} {kind}" for name, kind in kinds.items() if facts.get(name)]
    if removed:
        print_text(f"left out: {', '.join(removed)}")
    if (store.folder / BAD_ROWS_FILE).exists():
        n_rows, n_edges = facts.get("n_bad_rows", 0), facts.get("n_bad_edges", 0)
        bad = f"{counted(n_rows, 'bad row')} and {counted(n_edges, 'bad edge')}"
        print_text(f"skipped: {bad}, listed in {store.folder / BAD_ROWS_FILE}")
    print_text(f"store: {store.folder}")
    note(f"next: pamc fit {typed(store.folder)} --n-clusters K")
