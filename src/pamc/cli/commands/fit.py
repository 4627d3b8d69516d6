"""`pamc fit`: its options and input, validated before torch is imported."""

# Typer reads its declarations from the default values.
# ruff: noqa: RUF009

from __future__ import annotations

import re
import tomllib
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from pamc.cli.completion import datasets_named, maps_named, methods_named, presets_named, settings_named
from pamc.cli.config_file import config_text, settings_of_file, use_as_defaults
from pamc.cli.launch import launched_group
from pamc.cli.options import (
    CLUSTER,
    command,
    import_own_method,
    option,
    parse_relations,
    parse_types,
    parse_weights,
    shared,
    split_names,
    taking,
)
from pamc.cli.show import print_text
from pamc.config import FitConfig, MethodConfig, preset
from pamc.errors import ConfigError, DataError, UnknownNameError

if TYPE_CHECKING:
    from pamc.data.attributed_graph import AttributedGraph
    from pamc.data.store import Store

    Source: TypeAlias = AttributedGraph | Store

# The method whose settings and presets are available without torch.
_PAMCGC = "pamcgc"

# Longest column name shown in a message.
_LONGEST_NAME = 40

# Panels of the help.
_INPUT, _MODEL, _OUTPUT, _LONG_RUNS, _REPORT = "Input", "Model", "Output", "Long runs", "Report"


def _setting_option(name: str, usage: str) -> Any:
    """Return an option for a setting of PamCGC, with the declared help and default."""
    declared = FitConfig.settings()[name]
    default = "automatic" if declared.default is None else f"{declared.default:g}"
    default = "no noise" if name == "min_confidence" else default
    return option(usage, declared.about, panel=_MODEL, show_default=default)


def _read_config(context: typer.Context, value: Path | None) -> Path | None:
    return use_as_defaults(context, value, FitOptions)


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """Options of `pamc fit`, and the settings and input that they select."""

    features: Path | None = typer.Argument(
        None,
        help="Rows to cluster: .csv .tsv .parquet .xlsx .npy .npz .mtx .svm .h5ad, or a store.",
        rich_help_panel=_INPUT,
    )
    dataset: str | None = option(
        "--dataset NAME", "Cluster a built-in data set (see pamc datasets).", panel=_INPUT, complete=datasets_named
    )
    edges: list[str] | None = option(
        "--edges FILE",
        "Read edges from this file: source, target[, weight] (default: a kNN graph). Without a file of rows, cluster "
        "the ends of the edges. Several relations: repeat --edges NAME=FILE.",
        panel=_INPUT,
    )
    members: list[str] | None = option(
        "--members NAME=FILE", "Join rows that share a group, read from this file: row, group.", panel=_INPUT
    )
    directed: list[str] | None = option(
        "--directed NAME=FILE",
        "Read edges whose direction counts, as relations: out, in, co-citation, coupling.",
        panel=_INPUT,
    )
    relation_weights: list[str] | None = option(
        "--relation-weights NAME=X",
        "Weigh relations (comma-separated; default: from the data).",
        panel=_INPUT,
    )
    id_column: str | None = shared("--id", _INPUT)
    truth: str | None = shared("--truth", _INPUT)
    columns: list[str] | None = shared("--columns", _INPUT)
    drop: list[str] | None = shared("--drop", _INPUT)
    types: list[str] | None = shared("--types", _INPUT)
    n_clusters: str | None = option(
        "--n-clusters -k K",
        "Form K clusters (at least 2), or choose the number: auto, or from a range such as 2-60.",
        panel=_MODEL,
    )
    method: str = option(
        "--method NAME",
        "Use this method (see pamc methods), or your own: package.module:Name.",
        "pamcgc",
        panel=_MODEL,
        complete=methods_named,
    )
    preset_name: str = option(
        "--preset NAME",
        "Start from default, paper or released settings.",
        "default",
        panel=_MODEL,
        complete=presets_named,
    )
    epochs: int | None = _setting_option("n_epochs", "--epochs N")
    alpha: float | None = _setting_option("alpha", "--alpha X")
    beta: float | None = _setting_option("beta", "--beta X")
    n_hops: int | None = _setting_option("n_hops", "--n-hops N")
    min_confidence: float | None = _setting_option("min_confidence", "--min-confidence X")
    image_shape: str | None = option(
        "--image-shape SHAPE", "Treat rows as images of this height and width, such as 16x16.", panel=_MODEL
    )
    settings: list[str] | None = option(
        "--set NAME=VALUE",
        "Change any setting (repeatable; docs/parameters.md).",
        panel=_MODEL,
        complete=settings_named,
    )
    config_file: Path | None = option(
        "--config FILE",
        "Read settings and options from a TOML file; options override it.",
        panel=_MODEL,
        callback=_read_config,
        is_eager=True,
    )
    print_config: bool = option(
        "--print-config", "Print settings and options as a file for --config, and stop.", False, panel=_MODEL
    )
    seed: int = shared("--seed", _MODEL)
    device: str = shared("--device", _MODEL)
    out: Path | None = option(
        "--out DIR", "Write the run to this folder.", panel=_OUTPUT, show_default="first free pamc-run-N"
    )
    labels_format: str = option(
        "--labels-format TYPE", "Write labels in this format: csv or parquet.", "csv", panel=_OUTPUT
    )
    overwrite: bool = option("--overwrite", "Replace an existing run.", False, panel=_OUTPUT)
    quiet: bool = shared("--quiet", _OUTPUT)
    as_json: bool = shared("--json", _OUTPUT)
    checkpoint_every: int | None = option("--checkpoint-every N", "Checkpoint every N epochs.", panel=_LONG_RUNS)
    checkpoint_minutes: float | None = option("--checkpoint-minutes X", "Checkpoint every X minutes.", panel=_LONG_RUNS)
    resume: bool = option("--resume", "Resume a stopped run from its last checkpoint.", False, panel=_LONG_RUNS)
    memory: str | None = option(
        "--memory SIZE", "Limit the memory for training on a large store, such as 4GB.", panel=_LONG_RUNS
    )
    verify: bool = option(
        "--verify/--no-verify", "Verify the checksums of a store before its first fit.", True, panel=_LONG_RUNS
    )
    with_report: bool = option("--report/--no-report", "Write an HTML report to report.html.", True, panel=_REPORT)
    map_by: str = option(
        "--map NAME",
        "Draw the map of the report with layout, pca, umap or auto.",
        "auto",
        panel=_REPORT,
        complete=maps_named,
    )
    color: list[str] | None = option(
        "--color NAMES", "Color the map of the report by these columns (comma-separated).", panel=_REPORT
    )

    @property
    def color_columns(self) -> list[str] | None:
        """Columns that color the map of the report."""
        return split_names(self.color, "--color")

    @cached_property
    def edge_files(self) -> str | dict[str, str] | None:
        """The edge file, or several by the names of their relations."""
        if not self.edges:
            return None
        if len(self.edges) == 1 and ("=" not in self.edges[0] or Path(self.edges[0]).exists()):
            return self.edges[0]
        return parse_relations(self.edges, "--edges")

    @cached_property
    def relations(self) -> dict[str, Any]:
        """Files of memberships and directed edges and weights, as arguments of :func:`pamc.read_graph`."""
        values = {
            "members": parse_relations(self.members, "--members"),
            "directed": parse_relations(self.directed, "--directed"),
            "relation_weights": parse_weights(self.relation_weights),
        }
        return {name: value for name, value in values.items() if value}

    @cached_property
    def reading(self) -> dict[str, Any]:
        """Roles of the columns of a table, as arguments of :func:`pamc.read_graph`."""
        return {
            "id_column": self.id_column,
            "truth_column": self.truth,
            "columns": split_names(self.columns, "--columns"),
            "drop": split_names(self.drop, "--drop"),
            "types": parse_types(self.types),
        }

    @cached_property
    def changes(self) -> dict[str, Any]:
        """Settings given by `--config`, overridden by `--set`, overridden by their own options."""
        config_class = _config_class(self.method)
        options: dict[str, Any] = {"n_epochs": self.epochs, "alpha": self.alpha, "beta": self.beta}
        shape = None if self.image_shape is None else _image_shape(self.image_shape)
        options |= {"n_hops": self.n_hops, "image_shape": shape, "min_confidence": self.min_confidence}
        return {
            **settings_of_file(self.config_file, config_class, FitOptions),
            **_parsed_settings(self.settings or [], config_class),
            **{name: value for name, value in options.items() if value is not None},
            "n_clusters": 2 if self.chooses_number else _cluster_count(self.n_clusters),
        }

    @property
    def chooses_number(self) -> bool:
        """Whether the number of clusters is chosen from the data."""
        return self.n_clusters == "auto" or self.candidates is not None

    @cached_property
    def candidates(self) -> range | None:
        """The range of numbers from which one is chosen; None if none is given."""
        return _range_of(self.n_clusters or "")

    @cached_property
    def large_store(self) -> Store | None:
        """The store to fit from its files; None if the input is read into memory."""
        if self.features is None or self.dataset is not None or self.method != _PAMCGC:
            return None
        from pamc.data.store import has_manifest, open_store

        if not has_manifest(self.features):
            return None
        from pamc.training import sources

        store = self._weighed(open_store(self.features))
        return store if store.n_nodes > sources.LARGE_ROWS else None

    def _weighed(self, store: Store) -> Store:
        """Return a store with the weights of relations that the options give."""
        weights = self.relations.get("relation_weights")
        return store if weights is None else store.with_relation_weights(weights)

    def check(self) -> None:
        """Validate the options that need no data."""
        from pamc.report.projection import MAPS
        from pamc.results.run_folder import LABEL_FORMATS

        _config_class(self.method)
        if self.labels_format not in LABEL_FORMATS:
            raise UnknownNameError("labels format", self.labels_format, LABEL_FORMATS)
        if self.map_by not in MAPS:
            raise UnknownNameError("map", self.map_by, MAPS)
        if self.color_columns:
            _check_color(self.color_columns, self.features)

    def config(self) -> MethodConfig:
        """Return the settings of the preset with all changes; methods other than PamCGC have only a default."""
        if self.method == _PAMCGC:
            return preset(self.preset_name, data_set=self.dataset, **self.changes)
        usual = _config_class(self.method)()
        if self.preset_name == "default":
            return usual.with_(**self.changes)
        if self.preset_name == "paper" and self.dataset is not None:
            from pamc.data.catalog import CATALOG
            from pamc.lab.settings import settings_of

            if self.dataset not in CATALOG:
                raise UnknownNameError("data set", self.dataset, CATALOG)
            return usual.with_(**{**settings_of(self.method, self.dataset), **self.changes})
        raise ConfigError(
            f"method {self.method!r} has the preset 'default', and 'paper' for a --dataset; got {self.preset_name!r}"
        )

    def read(self) -> Source:
        """Read and return the validated input."""
        from pamc.data.readers import read_graph
        from pamc.data.store import has_manifest, open_store

        if self.features is None and self.dataset is None and self.edges is None:
            raise ConfigError(
                "there is nothing to cluster: give a file of rows, --edges FILE, or --dataset NAME (see pamc datasets)"
            )
        if self.features is not None and self.dataset is not None:
            raise ConfigError("give either a file of rows or --dataset, not both")
        if self.features is None and self.dataset is None:
            return read_graph(edges=self.edge_files, **self.relations, **self.reading)
        if self.features is None:
            from pamc.data.catalog import load_dataset

            self._refuse_file_options("--dataset")
            graph = load_dataset(str(self.dataset))
            return graph.without_edges() if graph.edges_are_neighbors and self.preset_name == "default" else graph
        if not has_manifest(self.features):
            return read_graph(self.features, edges=self.edge_files, **self.relations, **self.reading)
        self._refuse_file_options("a store: pass it to pamc ingest", "--relation-weights")
        return self.large_store or self._weighed(open_store(self.features)).to_graph(verify=self.verify)

    def _refuse_file_options(self, source: str, *allowed: str) -> None:
        """Raise ConfigError if an option is set that applies only to files."""
        values: dict[str, Any] = {"--edges": self.edges, "--members": self.members, "--directed": self.directed}
        values |= {"--relation-weights": self.relation_weights, "--id": self.id_column, "--truth": self.truth}
        values |= {f"--{name}": self.reading[name] for name in ("columns", "drop", "types")}
        if names := [name for name, value in values.items() if value and name not in allowed]:
            raise ConfigError(f"{', '.join(names)} cannot be used with {source}")


@command(CLUSTER, 1)
@taking(FitOptions)
def fit(options: FitOptions) -> None:
    """Cluster rows and write labels, embedding, model, record and report to a folder.

    \b
    Examples:
      pamc fit customers.csv --id customer --n-clusters 5
      pamc fit customers.csv --id customer --n-clusters auto
      pamc fit customers.csv --id customer --n-clusters 2-60
      pamc fit papers.csv --id doi --edges citations.csv -k 7
      pamc fit --edges friends.csv -k 5
      pamc fit papers.csv --id doi --edges cites=citations.csv --members author=authors.csv -k 7
      pamc fit papers-store --n-clusters 7      (see pamc ingest)
      pamc fit --dataset acm --preset paper --n-clusters 3
      torchrun --nproc-per-node 4 -m pamc fit big.npy -k 20 --out run

    The defaults shown are those of the preset "default". Use --set for any setting without its own option.
    """  # noqa: D301
    with launched_group(options.device) as group:
        if group is not None and group.rank > 0:
            # Train the shard of this process; the first process broadcasts everything else.
            from pamc.cli.fit_run import keep_heap_small
            from pamc.training import pipeline

            warnings.simplefilter("ignore")
            if options.large_store is not None:
                keep_heap_small()
            pipeline.run_worker(group, options.large_store)
            return
        options.check()
        config = options.config()
        if options.print_config:
            print_text(config_text(config, options).rstrip())
            return
        source = options.read()
        from pamc.cli.fit_run import run_fit

        run_fit(options, config, source, group)


def _config_class(method: str) -> type[MethodConfig]:
    """Return the settings class of a method; for methods other than PamCGC this imports torch."""
    if method == _PAMCGC:
        return FitConfig
    from pamc.models.method import METHODS

    import_own_method(method)
    return METHODS[method].config


def _check_color(color: list[str], features: Path | None) -> None:
    from pamc.data.readers import is_table, open_table

    if features is None or features.is_dir() or not is_table(features):
        raise ConfigError("--color takes columns of a table (.csv, .tsv, .parquet), but the input is not a table")
    table = open_table(features)
    unknown = [name for name in color if name not in table]
    known = [name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in table.names[:20]]
    if unknown:
        raise DataError(f"{features}: has no column {unknown[0]!r} for --color; it has {', '.join(known)}")


def _range_of(text: str) -> range | None:
    """Return the numbers of a range such as 2-60, both ends included; None if the text is not a range."""
    ends = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", text)
    if ends is None:
        return None
    low, high = map(int, ends.groups())
    if not 2 <= low <= high:
        raise ConfigError(f"--n-clusters LOW-HIGH must be a range from at least 2, such as 2-60, got {text!r}")
    return range(low, high + 1)


def _image_shape(text: str) -> tuple[int, ...]:
    """Return the height and width, and optionally channels, of a shape such as 16x16 or 32x32x3."""
    if re.fullmatch(r"\d+(x\d+){1,2}", text.strip()) is None:
        raise ConfigError(f"--image-shape must be HEIGHTxWIDTH, such as 16x16, or HEIGHTxWIDTHxCHANNELS, got {text!r}")
    return tuple(map(int, text.strip().split("x")))


def _cluster_count(text: str | None) -> int:
    hint = "Use --n-clusters auto, or a range such as 2-60, to choose the number from the data"
    if text is None:
        raise ConfigError(f"--n-clusters is required: the number of clusters, at least 2. {hint}")
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(
            f"--n-clusters must be an integer of at least 2, a range or auto, got {text!r}. {hint}"
        ) from None
    if value < 2:
        raise ConfigError(f"--n-clusters must be at least 2, got {value}")
    return value


def _parsed_settings(settings: list[str], config_class: type[MethodConfig]) -> dict[str, Any]:
    """Parse NAME=VALUE options as TOML; a bare word is a string."""
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
