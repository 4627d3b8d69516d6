"""`pamc fit` and `pamc predict`."""

from __future__ import annotations

import os
import shlex
import sys
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pamc.cli.auto_count import AUTO, chosen_count, refuse_auto
from pamc.cli.launch import launched_group, restarted, resume_command, will_restart
from pamc.cli.next_steps import next_steps
from pamc.cli.report_command import add_report, check_report_options, link_to
from pamc.cli.show import Interrupted, download_bar, near, note, print_json, print_table, print_text
from pamc.cli.sizes import parse_bytes, split_names
from pamc.config import FitConfig, MethodConfig, preset
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.catalog import CATALOG, load_dataset
from pamc.data.readers import read_graph
from pamc.data.store import Store, has_manifest, open_store
from pamc.distributed.group import ProcessGroupError, launched
from pamc.errors import ConfigError, DataError, OutputError, UnknownNameError, counted
from pamc.estimator import METHODS, PamCGC, estimator_class
from pamc.lab.settings import settings_of
from pamc.progress import RichProgress, SilentProgress
from pamc.report.writing import REPORT_FILE
from pamc.results.metrics import evaluate
from pamc.results.record import RunRecord
from pamc.results.run_folder import LABEL_FORMATS, new_run_folder, next_free_folder
from pamc.training.checkpoint import DEFAULT_EVERY, FOLDER, has_checkpoints
from pamc.training.fit_checkpoints import CheckpointPlan
from pamc.training.pipeline import run_worker
from pamc.training.store_pipeline import LARGE_ROWS, run_store_worker

__all__ = ["fit"]


def fit(
    *,
    features: Path | None,
    dataset: str | None,
    edges: Path | None,
    n_clusters: str | None,
    out: Path | None,
    method: str,
    preset_name: str,
    seed: int,
    device: str,
    id_column: str | None,
    truth: str | None,
    columns: list[str] | None,
    drop: list[str] | None,
    epochs: int | None,
    alpha: float | None,
    beta: float | None,
    tau: float | None,
    n_hops: int | None,
    settings: list[str] | None,
    config_file: Path | None,
    labels_format: str,
    overwrite: bool,
    checkpoint_every: int | None,
    checkpoint_minutes: float | None,
    resume: bool,
    memory: str | None,
    verify: bool,
    with_report: bool,
    map_by: str,
    color: list[str] | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Cluster rows and write labels, embedding, model, record and a report to a folder."""
    with launched_group(device) as group:
        if group is not None and group.rank > 0:
            # All that this process needs to know the first one tells it.
            warnings.simplefilter("ignore")
            large = _large_store(features, method)
            run_worker(group) if large is None else run_store_worker(group, large)
            return
        method_class = estimator_class(method)
        if labels_format not in LABEL_FORMATS:
            raise UnknownNameError("labels format", labels_format, LABEL_FORMATS)
        check_report_options(map_by, split_names(color, "--color"), features)
        auto = n_clusters == AUTO
        k = 2 if auto else _cluster_count(n_clusters)
        given = {"n_epochs": epochs, "alpha": alpha, "beta": beta, "tau": tau, "n_hops": n_hops}
        changes = {
            **_config_changes(config_file, method_class.config_class()),
            **_parsed_settings(settings or [], method_class.config_class()),
            **{name: value for name, value in given.items() if value is not None},
            "n_clusters": k,
        }
        config = _config(method, preset_name, dataset, changes)
        read_options = {
            "id_column": id_column,
            "truth_column": truth,
            "columns": split_names(columns, "--columns"),
            "drop": split_names(drop, "--drop"),
        }
        large = None if dataset is not None else _large_store(features, method)
        if large is None:
            graph: Any = _load(
                features,
                dataset,
                edges,
                read_options,
                keep_neighbors=preset_name != "default",
                quiet=quiet,
                verify=verify,
            )
        else:
            _refuse_for_store(edges, read_options)
            # γ beyond the neighbors is a matter of many more pairs: it is taken where it is asked for.
            graph, config = large, config if "n_hops" in changes else config.with_(n_hops=1)
        chosen = None
        if auto:
            refuse_auto(large=large is not None, group=group is not None)
            shown = SilentProgress() if quiet else RichProgress()
            chosen = chosen_count(graph, config, seed=seed, device=device, progress=shown, as_json=as_json)
            config = config.with_(n_clusters=chosen.n_clusters)
        allowed = None if memory is None else parse_bytes(memory, "--memory")
        with _folder(out, overwrite, checkpoint_every, checkpoint_minutes, resume) as (target, partial, plan):
            progress = SilentProgress() if quiet else RichProgress()
            model = method_class.from_config(config, random_state=seed, device=device)
            if large is None:
                model.fit_graph(graph, progress=progress, checkpoints=plan, group=group)
            else:
                planned = model.plan_store(large, memory=allowed, n_processes=1 if group is None else group.size)
                note(f"plan: {planned}")
                model.fit_store(large, memory=allowed, progress=progress, checkpoints=plan, group=group, verify=verify)
            record = model.record(
                data={
                    **_describe(graph, features, dataset, edges, read_options),
                    "color": split_names(color, "--color"),
                    "folder": _way_back(target),
                },
                metrics=None if graph.labels is None else evaluate(graph.labels, model.labels_),
                command=shlex.join(["pamc", *sys.argv[1:]]),
            )
            if chosen is not None:
                record = replace(record, facts={**record.facts, "choose_k": chosen.facts()})
            ids = graph.row_ids if large is None else large.ids
            model.write_run(partial, ids=ids, labels_format=labels_format, record=record)
            on_page: dict[str, Any] = {"truth": truth, "color": split_names(color, "--color"), "map_by": map_by}
            reported = with_report and add_report(partial, model, graph, record, features=features, **on_page)
        page = target / REPORT_FILE if reported else None
        if as_json:
            print_json({**_summary(record, target), "report": None if page is None else str(page)})
        else:
            _show(record, model, target, page)


@contextmanager
def _folder(
    out: Path | None, overwrite: bool, every: int | None, minutes: float | None, resume: bool
) -> Iterator[tuple[Path, Path, CheckpointPlan | None]]:
    """Yield the folder of the run, where to write it meanwhile, and when to keep checkpoints there.

    A run that is stopped says how it goes on. Processes that torchrun started again go on by themselves.
    """
    keeps = resume or every is not None or minutes is not None
    if keeps and out is None and (resume or launched()):
        raise ConfigError("--resume, and checkpoints under torchrun, need --out DIR: that is where they are looked for")
    resume = resume or (keeps and restarted())
    target = out or next_free_folder(Path.cwd())
    if not keeps:
        with new_run_folder(target, overwrite=overwrite) as partial:
            yield target, partial, None
        return
    every = DEFAULT_EVERY if every is None and minutes is None else every
    kept = target.with_name(f"{target.name}.partial") / FOLDER
    plan = CheckpointPlan(kept, every=every, minutes=minutes, resume=resume)
    if resume and not has_checkpoints(kept):
        note(f"note: {kept} holds no checkpoints: the fit begins")
    try:
        with new_run_folder(target, overwrite=overwrite, checkpoints=FOLDER, resume=resume) as partial:
            yield target, partial, plan
    except BaseException as error:
        if not has_checkpoints(kept):
            raise
        how = f"checkpoints are kept in {kept.parent}; go on with: {resume_command(target)}"
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(how) from None
        if not isinstance(error, OutputError | ConfigError | DataError | ProcessGroupError) and not will_restart():
            note(f"note: {how}")
        raise


def _config(method: str, preset_name: str, dataset: str | None, changes: dict[str, Any]) -> MethodConfig:
    """Return the settings of a preset with the changes asked for; methods but PamCGC have one default."""
    if method == PamCGC.method_name:
        return preset(preset_name, data_set=dataset, **changes)
    if preset_name == "default":
        return METHODS[method].config().with_(**changes)
    if preset_name == "paper" and dataset is not None:
        if dataset not in CATALOG:
            raise UnknownNameError("data set", dataset, CATALOG)
        return METHODS[method].config().with_(**{**settings_of(method, dataset), **changes})
    raise ConfigError(f"method {method!r} has the preset 'default', and 'paper' for a --dataset; got {preset_name!r}")


def _cluster_count(text: str | None) -> int:
    how = "If you do not know it, --n-clusters auto looks for a number that the data speak for"
    if text is None:
        raise ConfigError(f"--n-clusters is needed: how many groups to look for, 2 or more. {how}")
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(f"--n-clusters must be a whole number of at least 2, or auto, got {text!r}. {how}") from None
    if value < 2:
        raise ConfigError(f"--n-clusters must be at least 2, got {value}")
    return value


def _config_changes(path: Path | None, config_class: type[MethodConfig]) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        given = config_class.from_toml(text).to_dict()
    except OSError as error:
        raise ConfigError(f"cannot read settings from {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return {name: given[name] for name in tomllib.loads(text)}


def _parsed_settings(settings: list[str], config_class: type[MethodConfig]) -> dict[str, Any]:
    """Return the values of NAME=VALUE options, read as TOML; a bare word is a string."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise ConfigError(f"--set takes NAME=VALUE, got {setting!r}")
        if name == "n_clusters":
            raise ConfigError("the number of clusters is set by --n-clusters, not by --set")
        try:
            (values[name],) = tomllib.loads(f"value = {text}").values()
        except ValueError:
            values[name] = text
    config_class().with_(**values)
    return values


def _load(
    features: Path | None,
    dataset: str | None,
    edges: Path | None,
    options: dict[str, Any],
    *,
    keep_neighbors: bool,
    quiet: bool,
    verify: bool,
) -> AttributedGraph:
    if features is None and dataset is None:
        raise ConfigError("there is nothing to cluster: name a file of rows, or a --dataset (see pamc datasets)")
    if features is not None and dataset is not None:
        raise ConfigError("name either a file of rows or a --dataset, and not both")
    given = _given(edges, options)
    if features is not None and has_manifest(features):
        _refuse_for_store(edges, options)
        return open_store(features).to_graph(verify=verify)
    if features is not None:
        return read_graph(features, edges=edges, **options)
    if given:
        raise ConfigError(f"{', '.join(given)} belongs to a file, not to --dataset")
    with download_bar(str(dataset), hidden=quiet) as progress:
        graph = load_dataset(str(dataset), progress=progress)
    return graph.without_edges() if graph.edges_are_neighbors and not keep_neighbors else graph


def _given(edges: Path | None, options: dict[str, Any]) -> list[str]:
    """Return the options that were given of those that belong to a file."""
    return ["--edges"] * (edges is not None) + [
        f"--{'truth' if name == 'truth_column' else name.split('_')[0]}" for name, value in options.items() if value
    ]


def _refuse_for_store(edges: Path | None, options: dict[str, Any]) -> None:
    if given := _given(edges, options):
        raise ConfigError(f"{', '.join(given)} belongs to a file; a store was told so by pamc ingest")


def _large_store(features: Path | None, method: str) -> Store | None:
    """Return the store that is fitted from its files; None for all that is read into memory."""
    if features is None or method != PamCGC.method_name or not has_manifest(features):
        return None
    store = open_store(features)
    return store if store.n_nodes > LARGE_ROWS else None


def _read_options(features: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return how the rows were read, so that `pamc predict` reads new rows alike."""
    if features is None or not has_manifest(features):
        return options if features is not None else {}
    told = open_store(features).manifest["options"]
    return {
        **options,
        **{name: told.get(name) for name in ("id_column", "truth_column")},
        "columns": told.get("features"),
    }


def _describe(
    graph: AttributedGraph | Store,
    features: Path | None,
    dataset: str | None,
    edges: Path | None,
    options: dict[str, Any],
) -> dict[str, Any]:
    return {
        "name": dataset or graph.name,
        "features": None if features is None else str(features),
        "edges": None if edges is None else str(edges),
        "n_nodes": graph.n_nodes,
        "n_features": graph.n_features,
        "n_edges": graph.n_edges,
        "read": _read_options(features, options),
    }


def _way_back(target: Path) -> str:
    """Return the current folder, from which files were named, as seen from the folder of the run."""
    try:
        return os.path.relpath(Path.cwd(), target.resolve())
    except ValueError:
        # On another drive.
        return str(Path.cwd())


def _summary(record: RunRecord, target: Path) -> dict[str, Any]:
    return {
        "run": str(target),
        "n_nodes": record.data["n_nodes"],
        "n_clusters": record.config["n_clusters"],
        "cluster_sizes": record.cluster_sizes,
        "scores": record.scores,
        "metrics": record.metrics,
        "selection": record.selection,
        "seconds": record.seconds,
        "warnings": record.warnings,
    }


def _show(record: RunRecord, model: Any, target: Path, page: Path | None) -> None:
    sizes = record.cluster_sizes
    total = sum(sizes)
    rows = []
    for cluster, size in enumerate(sizes):
        inside = model.confidence_[model.labels_ == cluster]
        rows.append([str(cluster), f"{size}", f"{100 * size / total:.1f} %", f"{inside.mean():.2f}" if size else "–"])
    print_table(
        f"{counted(total, 'row')} in {counted(sum(size > 0 for size in sizes), 'cluster')}",
        ["cluster", "rows", "share", "confidence"],
        rows,
    )
    print_text("  ".join(f"{name} {value:.3f}" for name, value in record.scores.items()))
    if record.metrics is not None:
        shown = "  ".join(f"{name.upper()} {100 * value:.1f}" for name, value in record.metrics.items())
        print_text(f"{shown}   (against the true classes, at the last epoch; training did not see them)")
    if "planned_bytes" in record.facts and model.n_iter_:
        epoch_s = record.seconds["training"] / model.n_iter_
        whole = FitConfig().n_epochs
        print_text(
            f"an epoch took {epoch_s:.1f} s: the {whole} of the default take about {whole * epoch_s / 60:.0f} min"
        )
    print_text(f"run folder: {near(target)}")
    if page is not None:
        print_text(f"report: {link_to(page)}")
    for step in next_steps(near(target), inductive=hasattr(model, "predict"), measured=record.metrics is not None):
        note(f"next: {step}")
