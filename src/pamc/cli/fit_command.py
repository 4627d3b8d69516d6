"""`pamc fit`: what was asked for and what is to be clustered, checked before torch is imported."""

from __future__ import annotations

import tomllib
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pamc.cli.allocator import keep_heap_small
from pamc.cli.ranks import several
from pamc.cli.sizes import parse_bytes, split_names
from pamc.config import FitConfig, MethodConfig, preset
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.catalog import CATALOG, load_dataset
from pamc.data.readers import is_table, open_table, read_graph
from pamc.data.store import Store, has_manifest, open_store
from pamc.errors import ConfigError, DataError, UnknownNameError
from pamc.report.projection import MAPS
from pamc.results.run_folder import LABEL_FORMATS

if TYPE_CHECKING:
    from pamc.distributed.group import TorchProcessGroup

__all__ = ["AUTO", "FitOptions", "fit"]

# The number of clusters is to be found.
AUTO = "auto"

# The method whose settings and presets are known without torch.
_PAMCGC = "pamcgc"

# Of a column, in a message.
_LONGEST_NAME = 40

Source: TypeAlias = AttributedGraph | Store


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options of `pamc fit`, as :func:`pamc.cli.commands.fit` declares them."""

    features: Path | None
    dataset: str | None
    edges: Path | None
    id_column: str | None
    truth: str | None
    columns: list[str] | None
    drop: list[str] | None
    n_clusters: str | None
    method: str
    preset_name: str
    epochs: int | None
    alpha: float | None
    beta: float | None
    n_hops: int | None
    settings: list[str] | None
    config_file: Path | None
    seed: int
    device: str
    out: Path | None
    labels_format: str
    overwrite: bool
    quiet: bool
    as_json: bool
    checkpoint_every: int | None
    checkpoint_minutes: float | None
    resume: bool
    memory: str | None
    verify: bool
    with_report: bool
    map_by: str
    color: list[str] | None

    @property
    def chooses_k(self) -> bool:
        """Whether the number of clusters is to be found."""
        return self.n_clusters == AUTO

    @property
    def memory_bytes(self) -> int | None:
        """The memory that training may use, None for what there is."""
        return None if self.memory is None else parse_bytes(self.memory, "--memory")

    @property
    def color_columns(self) -> list[str] | None:
        """The columns by which the map of the report is colored."""
        return split_names(self.color, "--color")

    @cached_property
    def reading(self) -> dict[str, Any]:
        """How the columns of a table are used, as :func:`pamc.read_graph` takes it."""
        return {
            "id_column": self.id_column,
            "truth_column": self.truth,
            "columns": split_names(self.columns, "--columns"),
            "drop": split_names(self.drop, "--drop"),
        }

    @cached_property
    def changes(self) -> dict[str, Any]:
        """The settings that were given: by the file of `--config`, then by `--set`, then by options of their own."""
        config_class = _config_class(self.method)
        options = {"n_epochs": self.epochs, "alpha": self.alpha, "beta": self.beta, "n_hops": self.n_hops}
        return {
            **_settings_of_file(self.config_file, config_class),
            **_parsed_settings(self.settings or [], config_class),
            **{name: value for name, value in options.items() if value is not None},
            "n_clusters": 2 if self.chooses_k else _cluster_count(self.n_clusters),
        }

    @cached_property
    def large_store(self) -> Store | None:
        """The store that is fitted from its files; None for all that is read into memory."""
        if self.features is None or self.dataset is not None or self.method != _PAMCGC:
            return None
        if not has_manifest(self.features):
            return None
        from pamc.training import sources

        store = open_store(self.features)
        return store if store.n_nodes > sources.LARGE_ROWS else None

    def check(self) -> None:
        """Refuse what can be refused before any row is read."""
        _config_class(self.method)
        if self.labels_format not in LABEL_FORMATS:
            raise UnknownNameError("labels format", self.labels_format, LABEL_FORMATS)
        if self.map_by not in MAPS:
            raise UnknownNameError("map", self.map_by, MAPS)
        if self.color_columns:
            _check_color(self.color_columns, self.features)

    def config(self) -> MethodConfig:
        """Return the settings of a preset with the changes asked for; methods but PamCGC have one default."""
        if self.method == _PAMCGC:
            return preset(self.preset_name, data_set=self.dataset, **self.changes)
        usual = _config_class(self.method)()
        if self.preset_name == "default":
            return usual.with_(**self.changes)
        if self.preset_name == "paper" and self.dataset is not None:
            from pamc.lab.settings import settings_of

            if self.dataset not in CATALOG:
                raise UnknownNameError("data set", self.dataset, CATALOG)
            return usual.with_(**{**settings_of(self.method, self.dataset), **self.changes})
        raise ConfigError(
            f"method {self.method!r} has the preset 'default', and 'paper' for a --dataset; got {self.preset_name!r}"
        )

    def read(self) -> Source:
        """Return what is to be clustered, checked."""
        if self.features is None and self.dataset is None:
            raise ConfigError("there is nothing to cluster: name a file of rows, or a --dataset (see pamc datasets)")
        if self.features is not None and self.dataset is not None:
            raise ConfigError("name either a file of rows or a --dataset, and not both")
        if self.features is None:
            return self._read_dataset(str(self.dataset))
        if not has_manifest(self.features):
            return read_graph(self.features, edges=self.edges, **self.reading)
        if given := self._options_of_a_file():
            raise ConfigError(f"{', '.join(given)} belongs to a file; a store was told so by pamc ingest")
        return self.large_store or open_store(self.features).to_graph(verify=self.verify)

    def _read_dataset(self, name: str) -> AttributedGraph:
        if given := self._options_of_a_file():
            raise ConfigError(f"{', '.join(given)} belongs to a file, not to --dataset")
        graph = load_dataset(name)
        return graph.without_edges() if graph.edges_are_neighbors and self.preset_name == "default" else graph

    def _options_of_a_file(self) -> list[str]:
        """Return the options that were given of those that belong to a file."""
        values = {"--edges": self.edges, "--id": self.id_column, "--truth": self.truth}
        values |= {"--columns": self.reading["columns"], "--drop": self.reading["drop"]}
        return [name for name, value in values.items() if value]


def fit(**options: Any) -> None:
    """Cluster rows and write labels, embedding, model, record and a report to a folder."""
    given = FitOptions(**options)
    with _process_group(given.device) as group:
        if group is not None and group.rank > 0:
            _follow(given, group)
            return
        given.check()
        config, source = given.config(), given.read()
        from pamc.cli.fit_run import run_fit

        if isinstance(source, Store):
            keep_heap_small()
        run_fit(given, config, source, group)


def _process_group(device: str) -> AbstractContextManager[TorchProcessGroup | None]:
    """Return the processes that torchrun started; None, without importing torch, where this one is alone."""
    if not several():
        return nullcontext()
    from pamc.cli.launch import launched_group

    return launched_group(device)


def _follow(options: FitOptions, group: TorchProcessGroup) -> None:
    """Train this process's share; the first process tells it all that it needs to know."""
    from pamc.training import pipeline

    warnings.simplefilter("ignore")
    if options.large_store is not None:
        keep_heap_small()
    pipeline.run_worker(group, options.large_store)


def _config_class(method: str) -> type[MethodConfig]:
    """Return the settings of a method; those of others than PamCGC are known once torch is imported."""
    if method == _PAMCGC:
        return FitConfig
    from pamc.models.method import METHODS

    return METHODS[method].config


def _check_color(color: list[str], features: Path | None) -> None:
    if features is None or features.is_dir() or not is_table(features):
        raise ConfigError("--color names columns of a table (.csv, .tsv, .parquet), and this is none")
    table = open_table(features)
    unknown = [name for name in color if name not in table]
    known = [name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in table.names[:20]]
    if unknown:
        raise DataError(f"{features}: has no column {unknown[0]!r} for --color; it has {', '.join(known)}")


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


def _settings_of_file(path: Path | None, config_class: type[MethodConfig]) -> dict[str, Any]:
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
