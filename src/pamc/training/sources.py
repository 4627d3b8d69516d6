"""Sources of the rows of a fit, in memory or in a store on disk, with the phases that depend on where the rows are.

Up to `LARGE_ROWS` rows, a :class:`GraphSource` initializes the clusters from all rows. Beyond that, a
:class:`StoreSource` initializes them from a sample and reads features in chunks, so that its memory grows only with
N·n_dims and the number of neighbors. The number of rows decides which one is used, not where the rows are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.preprocessing import Preprocessing, fit_preprocessing
from pamc.data.store import Store
from pamc.data.store.store import StoreFeatures, neighborhood_means
from pamc.data.weights import RowWeights
from pamc.errors import ConfigError, DataError, collected_warnings
from pamc.graph.adjacency import Adjacency, build_adjacency, merged_copies
from pamc.graph.influence import positive_pairs
from pamc.graph.positives import PositivePairs
from pamc.initialize.base import (
    INITIALIZERS,
    InitContext,
    align_clusters,
    initial_centers,
    load_sdcn_weights,
    mean_centers,
)
from pamc.initialize.calibration import fit_split_halves
from pamc.initialize.inputs import described_by_edges, graph_and_inputs, kind_of_graph, positives
from pamc.initialize.previous import continued, continued_centers
from pamc.initialize.relations import adjacencies, graph_of_relations, n_combined
from pamc.initialize.sample import (
    Sample,
    WithNeighbors,
    initialize_from_sample,
    leading_columns,
    sampled_rows,
    with_neighbors,
)
from pamc.models.base import Model
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.models.method import BuildInput
from pamc.models.views import Views, check_views, copies_of
from pamc.ops.scores import modularity, stored_modularity
from pamc.runtime import quiet_libraries, seed_for
from pamc.training.fallback import train_epochs
from pamc.training.phases import FitContext, Neighbors, Prepared, Start, check_embedding

# Tables with more rows than this are initialized from a sample.
LARGE_ROWS = 50_000

# Default of max_positives for large tables if n_hops is above 1.
MOST_POSITIVES = 32


def source_of(data: AttributedGraph | Store | Any, fit: FitContext) -> Source:
    """Return the source of a graph or a store; the number of rows decides which class is used.

    Methods other than PamCGC, user-supplied encoders, known labels, sparse features and weighted rows always use a
    :class:`GraphSource`, whatever the number of rows.
    """
    if not isinstance(data, AttributedGraph):
        return StoreSource(data) if data.n_nodes > LARGE_ROWS else GraphSource(data.to_graph(verify=False))
    if data.n_features == 0:
        data = described_by_edges(data, fit.config.n_clusters, seed=fit.seed)
    if fit.sample_weight is not None:
        return WeightedSource(data, fit.sample_weight)
    is_default = fit.encoder is None and fit.pretrained is None and fit.known_labels is None and not fit.has_views
    is_default = is_default and fit.previous is None
    can_sample = fit.method.name == "pamcgc" and is_default and isinstance(data.features, np.ndarray)
    if can_sample and data.n_nodes > LARGE_ROWS:
        return StoreSource(_InMemory(_without_neighbor_list(data, fit)))
    return GraphSource(data)


def _without_neighbor_list(graph: AttributedGraph, fit: FitContext) -> AttributedGraph:
    """Return the graph without a precomputed list of nearest neighbors if pamc searches for neighbors itself."""
    is_ignored = graph.edges_are_neighbors and getattr(fit.config, "metric", None) == "auto"
    return graph.without_edges() if is_ignored else graph


class _InMemory:
    """A graph in memory with the attributes of a store."""

    def __init__(self, graph: AttributedGraph) -> None:
        self.features, self.name, self.encoding = graph.features, graph.name, graph.encoding
        self.n_nodes, self.n_features = graph.n_nodes, graph.n_features
        self.has_edges, self.weight = graph.edges is not None, None
        self.relations = self.relation_weights = None
        if graph.relations is not None:
            self.relations, self.relation_weights = graph.relations.names, graph.relations.weights
            self._matrices = adjacencies(graph)
            self.n_stored = sum(matrix.nnz for matrix in self._matrices.values())
        elif graph.edges is not None:
            directed = graph.edges_are_neighbors
            weight, size = graph.edge_weight, graph.n_nodes
            adjacency = build_adjacency(graph.edges, weight, n_nodes=size, expect_directed=directed)
            self.indptr, self.indices = adjacency.indptr.astype(np.int64), adjacency.indices
            self.n_stored = adjacency.nnz
            self.weight = None if (adjacency.data == 1).all() else adjacency.data.astype(np.float32)

    def relation_matrices(self) -> dict[str, Adjacency]:
        """Return the adjacency matrix (N, N) of each relation, by name."""
        return self._matrices


class GraphSource:
    """Rows in memory, and the phases of a fit that initializes clusters from all of them.

    Parameters
    ----------
    graph
        Rows, with or without edges. Labels are not used.
    """

    is_large, is_on_disk, shares_pairs = False, False, True

    def __init__(self, graph: AttributedGraph) -> None:
        self.graph = graph
        self.n_nodes, self.n_features = graph.n_nodes, graph.n_features

    @property
    def initial_graph(self) -> AttributedGraph:
        """The rows from which the initial clusters are found."""
        return self.graph

    def prepare(self, fit: FitContext) -> Prepared:
        """Return all rows, preprocessed."""
        table = self.graph.encoding
        kind = fit.config.preprocessing
        if fit.has_views:
            check_views(self.graph.features, getattr(fit.config, "image_shape", None))
            # A common scale for all pixels keeps an image an image.
            kind = "scale" if kind == "auto" and fit.config.image_shape is not None else kind
        if fit.previous is not None:
            preprocessing = fit.previous.preprocessing
        else:
            preprocessing = fit_preprocessing(self.graph.features, kind, table=table)
        features = preprocessing.apply(self.graph.features)
        # A user-supplied encoder takes dense rows.
        sparse = False if fit.encoder is not None else None
        loader = FeatureLoader(features, device=fit.device, dtype=fit.row_dtype, sparse=sparse)
        return Prepared(preprocessing, features, loader, views=self._views(fit, preprocessing))

    def _views(self, fit: FitContext, preprocessing: Preprocessing) -> Views | None:
        """Return the random views of the rows, or None without any."""
        if not fit.has_views:
            return None
        copies = None
        if fit.views is not None:
            made = [preprocessing.apply(copy) for copy in copies_of(self.graph.features, fit.views)]
            copies = torch.from_numpy(np.stack(made)).to(device=fit.device, dtype=fit.row_dtype)
        return Views(copies, fit.config.image_shape, seed=seed_for(fit.seed, "views"))

    def find_neighbors(self, fit: FitContext, prepared: Prepared) -> Neighbors:
        """Return the graph of the data, or a kNN graph of the rows, and the inputs of the initial clusters."""
        graph = _without_neighbor_list(self.graph, fit)
        adjacency, inputs, facts = graph_and_inputs(
            fit.method,
            graph,
            prepared.features,
            fit.config,
            seed=fit.seed,
            preprocessing=prepared.preprocessing,
            device=fit.device,
        )
        origin = {"features": "leading directions of the graph"} if graph.described_by_edges else {}
        return Neighbors(adjacency, inputs, {"graph": kind_of_graph(fit.method, graph), **origin, **facts})

    def initialize(self, fit: FitContext, prepared: Prepared, neighbors: Neighbors) -> Start:
        """Return the networks that the method's initializer fits to all rows, and centers in their embedding."""
        start = self._networks(fit, prepared, neighbors)
        calibration = None if fit.previous is None else fit.previous.valid_calibration(fit.config.n_clusters)
        if start.init is not None and calibration is None:
            with fit.clock.phase("confidence"):
                halves = fit_split_halves(
                    neighbors.inputs,
                    fit.config,
                    seed=fit.seed,
                    device=fit.device,
                    family=start.init.family,
                )
            start = replace(start, init=start.init._replace(halves=halves))
        with fit.clock.phase("centers"):
            if fit.previous is not None and neighbors.regrouped is not None:
                z: Any = self._embedding(fit, prepared, start)
                return replace(start, centers=continued_centers(z, fit.previous, neighbors.regrouped))
            return replace(start, centers=self._centers(fit, prepared, start))

    def _networks(self, fit: FitContext, prepared: Prepared, neighbors: Neighbors) -> Start:
        """Return the networks of the initializer, of the user, or of the method's pre-training."""
        config, method = fit.config, fit.method
        name = method.init_of(config)
        if fit.encoder is not None:
            return Start(None, fit.encoder.to(device=fit.device, dtype=fit.dtype))
        if name is None and fit.pretrained is not None:
            raise ConfigError(f"{method.title} has no autoencoder: pretrained must be None")
        if name is not None:
            if fit.pretrained is not None:
                init = load_sdcn_weights(fit.pretrained, prepared.loader, config)
            else:
                inputs = (prepared.features, neighbors.graph, neighbors.inputs)
                progress, views = fit.clock.progress, prepared.views
                context = InitContext(prepared.loader, *inputs, config, fit.seed, progress, views)
                if fit.previous is not None and neighbors.regrouped is not None:
                    init = continued(fit.previous, neighbors.regrouped, context)
                else:
                    init = INITIALIZERS[name](context)
            return Start(init, init.encoder, init.decoder)
        if method.pretrain is None:
            return Start(None)
        model = method.pretrain(build_input(fit, self, neighbors)).to(fit.device)
        with fit.clock.progress.phase("pre-training", config.pretrain_epochs) as phase:
            epochs = {"n_epochs": config.pretrain_epochs, "lr": config.pretrain_lr, "seed": fit.seed}
            for record in train_epochs(model, prepared.loader, config, **epochs):
                phase.advance(loss=record.values["loss"])
        return Start(None, pretrained=model)

    def _centers(self, fit: FitContext, prepared: Prepared, start: Start) -> Tensor | None:
        """Return the initial centers, or None without an initial embedding.

        They are the means of the initializer's clusters, or those of K-means.
        """
        config, init = fit.config, start.init
        z = self._embedding(fit, prepared, start)
        if z is None:
            return None
        check_embedding(z, self.n_nodes, "before the first epoch", "A smaller pretrain_lr, or preprocessing='auto',")
        centers, labels = None, None
        if init is not None and init.labels is not None:
            labels = init.labels
            centers = mean_centers(z, labels, config.n_clusters)
        if centers is None or labels is None or _leaves_empty(z, centers):
            centers, labels = initial_centers(z, config, seed=fit.seed)
        return centers if fit.known_labels is None else align_clusters(centers, labels, fit.known_labels)

    def _embedding(self, fit: FitContext, prepared: Prepared, start: Start) -> Tensor | None:
        """Return the initial embedding (N, n_dims), or None if there is none or nothing is trained."""
        config, network = fit.config, start.pretrained
        if "n_epochs" not in config.names():
            return None
        if isinstance(network, Model):
            network = network.encoder
        elif network is not None:
            with torch.no_grad():
                z: Tensor = network.read(prepared.loader.whole()).z
            return z
        network = start.encoder or network
        chunk_size = getattr(config, "chunk_size", None)
        return None if network is None else encode_rows(network, prepared.loader, chunk_size=chunk_size)

    def positives(self, fit: FitContext, neighbors: Neighbors) -> tuple[PositivePairs | None, float]:
        """Return the positive pairs of the adjacency, for settings with `n_hops`."""
        return positives(neighbors.graph, fit.config, fit.device, fit.dtype)

    def modularity(self, neighbors: Neighbors, labels: NDArray[np.int64]) -> float | None:
        """Return the modularity of labels (N,) on the graph, or None without a graph."""
        return None if neighbors.graph is None else modularity(neighbors.graph, labels)

    def n_edges(self, neighbors: Neighbors) -> int:
        """Return the number of edges of the graph."""
        return 0 if neighbors.graph is None else int(neighbors.graph.nnz // 2)

    def adjacency(self, neighbors: Neighbors) -> Adjacency | None:
        """Return the adjacency matrix."""
        graph: Adjacency | None = neighbors.graph
        return graph

    def relation_matrices(self) -> dict[str, Adjacency]:
        """Return the adjacency matrix (N, N) of each relation, by name; empty without relations."""
        if self.graph.relations is None:
            return {}
        with collected_warnings():
            return adjacencies(self.graph)


class WeightedSource(GraphSource):
    """Weighted rows in memory: initial clusters are found from repeated rows, and each row is trained on once.

    Parameters
    ----------
    graph
        Rows, with or without edges.
    weights
        The weights and the repeats of the rows.
    """

    def __init__(self, graph: AttributedGraph, weights: RowWeights) -> None:
        super().__init__(graph)
        self._weights, self._repeated = weights, GraphSource(graph.repeated(weights.origin))

    @property
    def initial_graph(self) -> AttributedGraph:
        """The repeated rows."""
        return self._repeated.graph

    def prepare(self, fit: FitContext) -> Prepared:
        """Return all rows, with the preprocessing of the repeated rows."""
        repeated = self._repeated.prepare(fit)
        features = repeated.preprocessing.apply(self.graph.features)
        sparse = repeated.loader.sparse
        loader = FeatureLoader(features, device=fit.device, dtype=fit.row_dtype, sparse=sparse)
        return Prepared(repeated.preprocessing, features, loader, repeated=repeated)

    def find_neighbors(self, fit: FitContext, prepared: Prepared) -> Neighbors:
        """Return the graph of the repeated rows, after merging the copies of each row."""
        repeated = self._repeated.find_neighbors(fit, _of_repeated(prepared))
        merged = merged_copies(repeated.graph, self._weights.origin, self.n_nodes)
        own = merged.diagonal()
        graph = (merged - sp.diags_array(own, format="csr")).tocsr()
        graph.eliminate_zeros()
        return Neighbors(graph, repeated.inputs, repeated.facts, repeated=repeated, copy_weight=own)

    def initialize(self, fit: FitContext, prepared: Prepared, neighbors: Neighbors) -> Start:
        """Return the networks and centers that the initializer fits to the repeated rows."""
        origin, known = self._weights.origin, fit.known_labels
        fit = replace(fit, known_labels=None if known is None else known[origin])
        start = self._repeated.initialize(fit, _of_repeated(prepared), neighbors.repeated or neighbors)
        init = start.init
        if init is None:
            return start
        halves = None if init.halves is None else init.halves._replace(rows=origin[init.halves.rows])
        judge = None if init.judge is None else replace(init.judge, rows=origin)
        return replace(start, init=init._replace(labels=None, halves=halves, judge=judge))

    def positives(self, fit: FitContext, neighbors: Neighbors) -> tuple[PositivePairs | None, float]:
        """Return the positive pairs of the weighted rows."""
        graph = sp.csr_matrix(neighbors.graph + sp.diags_array(neighbors.copy_weight))
        return positives(graph, fit.config, fit.device, fit.dtype, sample_weight=self._weights.values)

    def modularity(self, neighbors: Neighbors, labels: NDArray[np.int64]) -> float | None:
        """Return the modularity of labels (N,) on the graph of the rows' copies."""
        weights = sp.diags_array(self._weights.values)
        return modularity(sp.csr_matrix(weights @ neighbors.graph @ weights), labels)


def _of_repeated(prepared: Prepared) -> Prepared:
    """Return the repeated rows, which weighted rows have."""
    return prepared.repeated or prepared


class StoreSource:
    """Rows of a store, read on access, and the phases of a fit that initializes clusters from a sample.

    Parameters
    ----------
    store
        A store, or an object with the same attributes. Labels are not used.

    Attributes
    ----------
    is_on_disk
        Whether every process can read the rows itself.
    shares_pairs
        Whether the first process finds the positive pairs of all rows and scatters them, because it combines the
        relations. Otherwise, if the store is on disk, every process reads the pairs of its own rows.
    holds_rows
        Whether preprocessed rows with missing cells are kept in memory during training.
    """

    is_large = True
    holds_rows = False

    def __init__(self, store: Any) -> None:
        self.store = store
        self.is_on_disk = not isinstance(store, _InMemory)
        self.shares_pairs = not self.is_on_disk or store.relations is not None
        self.n_nodes, self.n_features = store.n_nodes, store.n_features

    def prepare(self, fit: FitContext) -> Prepared:
        """Return rows that are preprocessed on access, with a preprocessing fitted to a sample."""
        sample = sampled_rows(self.n_nodes, self.n_features, seed=fit.seed)
        raw = np.array(self.store.features[sample], dtype=np.float32)
        table = getattr(self.store, "encoding", None)
        preprocessing = fit_preprocessing(raw, fit.config.preprocessing, table=table)
        features = StoreFeatures(self.store.features, preprocessing)
        held = fit.config.chunk_size if self.holds_rows and "hidden_factors" in preprocessing.arrays else None
        rows = features if held is None else replace(features, held_at_a_time=held)
        loader = FeatureLoader(rows, device=fit.device, dtype=fit.row_dtype)
        return Prepared(preprocessing, features, loader, sample)

    def find_neighbors(self, fit: FitContext, prepared: Prepared) -> Neighbors:
        """Return the store with its stored neighbors, its combined relations, or approximate nearest neighbors.

        Combining relations takes O(N + E) time and memory.
        """
        if self.store.relations is not None:
            sampled: Any = (prepared.features, prepared.sample)
            directions = leading_columns(*sampled)
            weights = self.store.relation_weights
            options: dict[str, Any] = {"seed": fit.seed, "device": fit.device}
            combined, facts = graph_of_relations(self.relation_matrices(), weights, directions, fit.config, **options)
            return Neighbors(WithNeighbors(self.store, combined), None, {"graph": "given", **facts})
        if self.store.has_edges:
            return Neighbors(self.store, None, {"graph": "given"})
        n_neighbors = min(fit.config.n_neighbors, self.n_nodes - 1)
        search: Any = (self.store, prepared.features, prepared.sample, n_neighbors)
        graph = with_neighbors(*search, seed=fit.seed, device=fit.device)
        return Neighbors(graph, None, {"graph": "knn", "neighbors_recall": graph.recall})

    def initialize(self, fit: FitContext, prepared: Prepared, neighbors: Neighbors) -> Start:
        """Return the networks and centers that the initializer fits to a sample of the rows."""
        rows: Any = prepared.features
        numbers: Any = prepared.sample
        weight = neighbors.graph.weight if n_combined(neighbors.facts) > 1 else None
        around = partial(neighborhood_means, neighbors.graph, rows, numbers, weight=weight)
        sample = Sample(rows[numbers], around, prepared.preprocessing, is_knn=not self.store.has_edges)
        init, centers = initialize_from_sample(
            sample,
            fit.config,
            numbers=numbers,
            seed=fit.seed,
            device=fit.device,
            dtype=fit.row_dtype,
            progress=fit.clock.progress,
        )
        return Start(init, init.encoder, centers=centers)

    def positives(self, fit: FitContext, neighbors: Neighbors) -> tuple[PositivePairs | None, float]:
        """Return the positive pairs of the stored neighbors."""
        config, graph = fit.config, neighbors.graph
        if config.n_hops == 1 and graph.weight is None:
            indptr = torch.from_numpy(np.array(graph.indptr)).to(fit.device)
            with quiet_libraries:
                # torch warns because the tensor shares the memory of a read-only file; it is never written to.
                indices = torch.from_numpy(graph.indices)
            return PositivePairs.even(indptr, indices.to(fit.device), dtype=fit.dtype), 1.0
        adjacency = self._matrix(graph)
        most = config.max_positives or (MOST_POSITIVES if config.n_hops > 1 else None)
        pairs, report = positive_pairs(adjacency, n_hops=config.n_hops, max_positives=most, dtype=fit.dtype)
        return pairs.to(device=fit.device), report.kept_mass

    def modularity(self, neighbors: Neighbors, labels: NDArray[np.int64]) -> float | None:
        """Return the modularity of labels (N,) on the stored neighbors."""
        graph = neighbors.graph
        return stored_modularity(graph.indptr, graph.indices, graph.weight, labels)

    def n_edges(self, neighbors: Neighbors) -> int:
        """Return the number of edges of the graph."""
        return int(neighbors.graph.n_stored // 2)

    def adjacency(self, neighbors: Neighbors) -> Adjacency | None:
        """Return the adjacency matrix of rows in memory or of combined relations, or None for a store on disk."""
        return None if not self.shares_pairs else self._matrix(neighbors.graph)

    def relation_matrices(self) -> dict[str, Adjacency]:
        """Return the adjacency matrix (N, N) of each relation, by name; empty without relations."""
        return {} if self.store.relations is None else self.store.relation_matrices()

    def _matrix(self, graph: Any) -> Adjacency:
        weight = np.ones(graph.n_stored, dtype=np.float32) if graph.weight is None else np.array(graph.weight)
        parts = (weight, np.array(graph.indices), np.array(graph.indptr))
        return sp.csr_matrix(parts, shape=(self.n_nodes, self.n_nodes))


Source: TypeAlias = GraphSource | StoreSource


def build_input(fit: FitContext, source: Source, neighbors: Neighbors, **parts: Any) -> BuildInput:
    """Return the inputs from which a method builds a model; `parts` are those that an initialization adds."""
    return BuildInput(
        n_nodes=source.n_nodes,
        n_features=source.n_features,
        config=fit.config,
        seed=fit.seed,
        device=fit.device,
        dtype=fit.dtype,
        adjacency=neighbors.graph if isinstance(source, GraphSource) else None,
        **parts,
    )


def check_even(store: Any, config: Any) -> None:
    """Raise an error if the processes of a group cannot read their positive pairs from a store independently."""
    if not store.has_edges:
        raise DataError(
            f"{store.name} has no edges, and several processes do not search for neighbors: use one process, or pass "
            "edges when the store is created (pamc ingest FEATURES EDGES)"
        )
    if store.relations is None and (config.n_hops != 1 or store.weight is not None):
        raise ConfigError(
            "several processes fit a store with n_hops=1 and unweighted edges only, because every process reads just "
            "the neighbors of its rows: use these settings, or one process"
        )


def _leaves_empty(z: Tensor, centers: Tensor) -> bool:
    """Return whether a center is not the nearest center of any row, because the encoder did not learn its cluster."""
    return bool(torch.unique(torch.cdist(z, centers).argmin(dim=1)).numel() < len(centers))
