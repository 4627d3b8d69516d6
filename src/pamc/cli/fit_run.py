"""Execution of `pamc fit`: the run folder, its checkpoints, and the final summary."""

from __future__ import annotations

import ctypes
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pamc.cli.commands.report import add_report
from pamc.cli.launch import launched, restarted, resume_command, will_restart
from pamc.cli.options import parse_bytes
from pamc.cli.show import Interrupted, link_to, near, noise_text, note, print_json, print_table, print_text, typed
from pamc.config import FitConfig, MethodConfig
from pamc.data.files import partial_of
from pamc.data.store import Store, has_manifest, open_store
from pamc.distributed.group import ProcessGroupError, TorchProcessGroup
from pamc.errors import ConfigError, DataError, OutputError, counted
from pamc.estimator import estimator_class
from pamc.progress import FitProgress, Progress, RichProgress, SilentProgress, terminal
from pamc.report.runs import REPORT_FILE
from pamc.results.metrics import evaluate
from pamc.results.record import RunRecord
from pamc.results.run_folder import new_run_folder, next_free_folder
from pamc.selection.choose_k import LEAST_ROWS_PER_CLUSTER, ChosenK, choose_k, most_clusters
from pamc.training.checkpoint import DEFAULT_EVERY, FOLDER, CheckpointPlan, has_checkpoints
from pamc.training.pipeline import settled

if TYPE_CHECKING:
    from pamc.cli.commands.fit import FitOptions, Source

# Options of glibc's mallopt: M_MMAP_THRESHOLD, the size from which a block is mapped separately; M_TRIM_THRESHOLD, the
# free bytes to keep at the end of the heap; M_ARENA_MAX, the number of heaps.
_MALLOC_OPTIONS = {-3: 1 << 20, -1: 1 << 20, -8: 2}


def run_fit(options: FitOptions, config: MethodConfig, source: Source, group: TorchProcessGroup | None) -> None:
    """Fit the data, write the run folder and show the result."""
    if isinstance(source, Store):
        keep_heap_small()
    chosen = _chosen(options, config, source, group) if options.chooses_number else None
    if chosen is not None:
        config = config.with_(n_clusters=chosen.n_clusters)
    with _folder(options) as (target, partial, plan):
        model = _fitted(options, config, source, plan, group)
        record = _record(options, model, source, target, chosen)
        ids = source.ids if isinstance(source, Store) else source.row_ids
        model.write_run(partial, ids=ids, labels_format=options.labels_format, record=record)
        columns: dict[str, Any] = {"truth": options.truth, "color": options.color_columns, "map_by": options.map_by}
        has_report = options.with_report and add_report(
            partial, model, source, record, features=options.features, **columns
        )
        page = target / REPORT_FILE if has_report else None
    if not options.as_json:
        _show(record, model, target, page)
        return
    names = ("cluster_sizes", "scores", "metrics", "selection", "seconds", "warnings")
    counts = {"n_nodes": record.data["n_nodes"], "n_clusters": record.config["n_clusters"]}
    counts |= {name: record.facts[name] for name in ("n_between_clusters", "n_unlike_training") if name in record.facts}
    facts = {"run": str(target), **counts, **{name: getattr(record, name) for name in names}}
    print_json({**facts, "report": None if page is None else str(page)})


def _progress(options: FitOptions) -> Progress:
    return SilentProgress() if options.quiet else FitProgress()


def keep_heap_small() -> None:
    """Make the C library return large freed blocks to the system, if it supports this.

    By default, the library keeps freed blocks of up to 32 MB per thread, so that the memory of a chunk or of the
    initialization would stay allocated. This setting affects the whole process, so only the command changes it.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for name, value in _MALLOC_OPTIONS.items():
            library.mallopt(name, value)


def _chosen(options: FitOptions, config: MethodConfig, source: Source, group: TorchProcessGroup | None) -> ChosenK:
    """Return the choice of `--n-clusters auto` or of a range, after showing the scores of the candidates.

    With `--json`, the table goes to standard error, because standard output holds only the JSON object.
    """
    refuse_auto(large=isinstance(source, Store), group=group is not None)
    if options.candidates is not None:
        refuse_range(options.candidates, source.n_nodes)
    chosen = choose_k(
        source,
        candidates=options.candidates,
        config=config if isinstance(config, FitConfig) else None,
        random_state=options.seed,
        device=options.device,
        progress=SilentProgress() if options.quiet else RichProgress(),
    )
    show = note if options.as_json else print_text
    # Notes are prefixed with the name of the command.
    width = terminal(stderr=options.as_json).width - (len("pamc: ") if options.as_json else 0)
    # If no number was chosen, the error below gives the reason.
    for line in chosen.text(width=width, summary=chosen.n_clusters is not None).splitlines():
        show(line)
    if chosen.n_clusters is None:
        raise DataError(f"{chosen.why}. To continue, give the number yourself: --n-clusters K")
    return chosen


def refuse_auto(*, large: bool, group: bool) -> None:
    """Raise ConfigError where `auto` is unsupported: for large stores and on several processes."""
    if group:
        raise ConfigError(
            "--n-clusters auto, or a range, runs in one process: choose the number first, then pass it to torchrun"
        )
    if large:
        raise ConfigError(
            "--n-clusters auto, or a range, reads all rows into memory, and this store is too large: choose the number "
            "on a sample of its rows (pamc.choose_k), then pass it"
        )


def refuse_range(candidates: range, n_rows: int) -> None:
    """Raise ConfigError if there are too few rows for the largest number of clusters."""
    most = most_clusters(n_rows)
    if candidates[-1] > most >= 2:
        raise ConfigError(
            f"--n-clusters {candidates[0]}-{candidates[-1]}: {n_rows} rows are enough to compare up to {most} clusters "
            f"({LEAST_ROWS_PER_CLUSTER} rows per cluster), got {candidates[-1]}"
        )


def _fitted(
    options: FitOptions,
    config: MethodConfig,
    source: Source,
    plan: CheckpointPlan | None,
    group: TorchProcessGroup | None,
) -> Any:
    """Return the fitted model."""
    model = estimator_class(options.method).from_config(config, random_state=options.seed, device=options.device)
    shared: dict[str, Any] = {"progress": _progress(options), "checkpoints": plan, "group": group}
    if not isinstance(source, Store):
        return model.fit_graph(source, **shared)
    memory = None if options.memory is None else parse_bytes(options.memory, "--memory")
    note(f"plan: {model.plan_store(source, memory=memory, n_processes=1 if group is None else group.size)}")
    return model.fit_store(source, memory=memory, verify=options.verify, **shared)


@contextmanager
def _folder(options: FitOptions) -> Iterator[tuple[Path, Path, CheckpointPlan | None]]:
    """Yield the run folder, the temporary folder to write to, and the checkpoint plan.

    A run that is stopped prints how to resume it. Processes that torchrun restarts resume automatically.
    """
    every, minutes, overwrite = options.checkpoint_every, options.checkpoint_minutes, options.overwrite
    writes_checkpoints = options.resume or every is not None or minutes is not None
    if writes_checkpoints and options.out is None and (options.resume or launched()):
        raise ConfigError("--resume, and checkpoints under torchrun, need --out DIR, the folder of the run")
    resume = options.resume or (writes_checkpoints and restarted())
    target = options.out or next_free_folder(Path.cwd())
    if not writes_checkpoints:
        with new_run_folder(target, overwrite=overwrite) as partial:
            yield target, partial, None
        return
    every = DEFAULT_EVERY if every is None and minutes is None else every
    folder = partial_of(target) / FOLDER
    plan = CheckpointPlan(folder, every=every, minutes=minutes, resume=resume)
    if resume and not has_checkpoints(folder):
        note(f"note: {folder} has no checkpoints: the fit starts from the beginning")
    try:
        with new_run_folder(target, overwrite=overwrite, checkpoints=FOLDER, resume=resume) as partial:
            yield target, partial, plan
    except BaseException as error:
        if not has_checkpoints(folder):
            raise
        advice = f"checkpoints are in {folder.parent}; resume with: {resume_command(target)}"
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(advice) from None
        if not isinstance(error, OutputError | ConfigError | DataError | ProcessGroupError) and not will_restart():
            note(f"note: {advice}")
        raise


def _record(options: FitOptions, model: Any, source: Source, target: Path, chosen: ChosenK | None) -> RunRecord:
    data = {
        "name": options.dataset or source.name,
        "features": None if options.features is None else str(options.features),
        "edges": options.edge_files,
        **options.relations,
        "n_nodes": source.n_nodes,
        "n_features": model.n_features_in_,
        "n_edges": source.n_edges,
        "read": _how_read(options),
        "color": options.color_columns,
        "folder": way_back(target),
    }
    metrics = None if source.labels is None else evaluate(source.labels, model.labels_)
    record: RunRecord = model.record(data=data, metrics=metrics, command=shlex.join(["pamc", *sys.argv[1:]]))
    return record if chosen is None else replace(record, facts={**record.facts, "choose_k": chosen.facts()})


def _how_read(options: FitOptions) -> dict[str, Any]:
    """Return how the rows were read, so that `pamc predict` reads new rows in the same way."""
    if options.features is None:
        return {}
    if not has_manifest(options.features):
        return options.reading
    ingested = open_store(options.features).manifest["options"]
    columns = {name: ingested.get(name) for name in ("id_column", "truth_column")}
    return {**options.reading, **columns, "columns": ingested.get("features")}


def way_back(target: Path) -> str:
    """Return the path from the run folder to the current folder, to which input paths are relative."""
    try:
        return os.path.relpath(Path.cwd(), target.resolve())
    except ValueError:
        # The run is on another drive.
        return str(Path.cwd())


def _show(record: RunRecord, model: Any, target: Path, page: Path | None) -> None:
    sizes = record.cluster_sizes
    total = record.data["n_nodes"]
    rows = []
    for cluster, size in enumerate(sizes):
        confidence = f"{model.confidence_[model.labels_ == cluster].mean():.2f}" if size else "–"
        rows.append([str(cluster), f"{size}", f"{100 * size / total:.1f} %", confidence])
    print_table(
        f"{counted(total, 'row')} in {counted(sum(size > 0 for size in sizes), 'cluster')}{noise_text(record.facts)}",
        ["cluster", "rows", "share", "confidence"],
        rows,
    )
    print_text("  ".join(f"{name} {value:.3f}" for name, value in record.scores.items()))
    if record.metrics is not None:
        metrics = "  ".join(f"{name.upper()} {100 * value:.1f}" for name, value in record.metrics.items())
        print_text(f"{metrics}   (compared with the true classes, which training did not use)")
    if "planned_bytes" in record.facts and model.n_iter_:
        epoch_s = record.seconds["training"] / model.n_iter_
        n_epochs = settled(FitConfig(), total).n_epochs
        print_text(f"time per epoch: {epoch_s:.1f} s ({n_epochs} epochs take about {n_epochs * epoch_s / 60:.0f} min)")
    print_text(f"run folder: {near(target)}")
    if page is not None:
        print_text(f"report: {link_to(page)}")
    for step in next_steps(near(target), inductive=hasattr(model, "predict"), measured=record.metrics is not None):
        note(f"next: {step}")


def next_steps(run: Path, *, inductive: bool, measured: bool) -> list[str]:
    """Return suggested commands after a fit, the most likely first.

    Examples
    --------
    >>> next_steps(Path("pamc-run-1"), inductive=True, measured=True)
    ['pamc predict pamc-run-1 NEW_ROWS.csv --out clusters.csv']
    """
    predict = f"pamc predict {typed(run)} NEW_ROWS.csv --out clusters.csv"
    evaluate = f"pamc evaluate TRUTH.csv {typed(run)}/labels.csv   (if the true classes are known)"
    return [predict] * inductive + [evaluate] * (not measured)
