"""The fits of the net. Each case writes a run folder and returns it."""

import subprocess
from contextlib import nullcontext, suppress
from functools import cache, partial
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.datasets import load_digits
from torch import nn

from pamc import PamCGC, clusterer
from pamc.cli.app import run as pamc
from pamc.data.ingest import ingest
from pamc.data.synthetic import blobs, block_model
from pamc.models.method import METHODS
from pamc.progress import SilentPhase, SilentProgress
from pamc.training import sources
from pamc.training.checkpoint import CheckpointPlan
from tests.distributed.torchrun import ROOT, command, environment
from tests.methods.tiny import tiny

SMALL = {"hidden": (16,), "n_dims": 4, "n_epochs": 6, "pretrain_epochs": 3, "n_init": 2}
OPTIONS = [
    "--set",
    "hidden=[16]",
    "--set",
    "n_dims=4",
    "--epochs",
    "6",
    "--set",
    "pretrain_epochs=3",
    "--set",
    "n_init=2",
]
QUIET = ["--device", "cpu", "--quiet", "--json", "--no-report"]


def make(n_clusters, **settings):
    """Return a PamCGC with small settings."""
    return clusterer("pamcgc", n_clusters, random_state=0, device="cpu", **{**SMALL, **settings})


@cache
def graph(n_nodes=160, homophily=0.9):
    return block_model(n_nodes, 3, n_features=8, degree=8, homophily=homophily, feature_noise=0.6, random_state=3)


@cache
def sparse_rows():
    return sp.csr_matrix(
        np.random.default_rng(0).poisson(0.08 + 0.5 * np.repeat(np.eye(3), 20, axis=1)[np.arange(150) % 3])
    )


def method(name, folder):
    model = clusterer(name, 3, random_state=0, device="cpu", **tiny(name)).fit_graph(graph())
    return saved(model, folder)


def saved(model, folder):
    model.save(folder / "run")
    return folder / "run"


def on_graph(folder, **settings):
    return saved(make(3, **settings).fit_graph(graph()), folder)


def on_rows(folder, **settings):
    return saved(make(3, **settings).fit(graph().features), folder)


def on_noise(folder):
    """Fit a graph that has nothing to do with the features, which have clusters."""
    other = block_model(160, 3, n_features=8, degree=8, homophily=0.34, feature_noise=0.1, random_state=7)
    return saved(make(3).fit_graph(other), folder)


def on_noisy_features(folder):
    """Fit features that have nothing to do with the graph, which has clusters."""
    noise = np.random.default_rng(0).normal(size=(160, 8))
    edges = graph().edges
    adjacency = sp.csr_matrix((np.ones(edges.shape[1]), edges), shape=(160, 160))
    return saved(make(3).fit(noise, adjacency=adjacency), folder)


def on_weighted_edges(folder):
    edges = graph().edges
    weight = np.random.default_rng(0).uniform(0.5, 2.0, edges.shape[1])
    adjacency = sp.csr_matrix((weight, edges), shape=(160, 160))
    return saved(make(3).fit(graph().features, adjacency=adjacency), folder)


def on_sparse_rows(folder):
    return saved(make(3).fit(sparse_rows()), folder)


def on_digits(folder):
    return saved(
        PamCGC(10, random_state=0, device="cpu", advanced={"hidden": (64,)}, n_epochs=5).fit(load_digits().data[:600]),
        folder,
    )


def on_one_column(folder):
    return saved(make(3).fit(np.sort(graph().features[:, :1], axis=0)), folder)


def with_known_labels(folder):
    known = np.where(np.arange(160) < 30, graph().labels, -1)
    return saved(make(3).fit_graph(graph(), known_labels=known), folder)


def with_own_encoder(folder):
    torch.manual_seed(0)
    return saved(
        make(3, encoder=nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))).fit_graph(graph()), folder
    )


def with_pretrained_weights(folder):
    shapes = {"enc_1": (8, 16), "enc_2": (16, 12), "enc_3": (12, 10), "z_layer": (10, 4)}
    shapes |= {"dec_1": (4, 10), "dec_2": (10, 12), "dec_3": (12, 16), "x_bar_layer": (16, 8)}
    weights = torch.Generator().manual_seed(0)
    state = {}
    for name, (n_in, n_out) in shapes.items():
        state |= {
            f"{name}.weight": torch.randn(n_out, n_in, generator=weights) / n_in**0.5,
            f"{name}.bias": torch.zeros(n_out),
        }
    torch.save(state, folder / "weights.pkl")
    settings = {**SMALL, "hidden": (16, 12, 10)}
    model = clusterer("pamcgc", 3, random_state=0, device="cpu", pretrained=str(folder / "weights.pkl"), **settings)
    return saved(model.fit_graph(graph()), folder)


class _Stops(SilentProgress):
    def phase(self, name, total=None):
        return nullcontext(_StopsInTime() if name == "training" else SilentPhase())


class _StopsInTime(SilentPhase):
    n_epochs = 0

    def advance(self, **values):
        self.n_epochs += 1
        if self.n_epochs == 4:
            raise KeyboardInterrupt


def resumed(folder):
    with suppress(KeyboardInterrupt):
        make(3).fit_graph(graph(), checkpoints=CheckpointPlan(folder / "kept", every=2), progress=_Stops())
    return saved(make(3).fit_graph(graph(), checkpoints=CheckpointPlan(folder / "kept", every=2, resume=True)), folder)


def write_files(folder):
    rows = graph()
    names = [f"n{i}" for i in range(rows.n_nodes)]
    lines = ["name," + ",".join(f"f{i}" for i in range(8)) + ",kind"]
    lines += [
        ",".join([name, *map(str, row), str(kind)])
        for name, row, kind in zip(names, rows.features.tolist(), rows.labels.tolist(), strict=True)
    ]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    edges = ["source,target", *(f"n{a},n{b}" for a, b in rows.edges.T)]
    (folder / "edges.csv").write_text("\n".join(edges) + "\n")
    np.save(folder / "rows.npy", rows.features)


def by_command(folder, *arguments):
    """Fit files by the command, as they are named in its folder."""
    write_files(folder)
    named = [str(folder / word) if word.endswith((".csv", ".npy")) else word for word in arguments]
    code = pamc(["fit", *named, "-k", "3", "--out", str(folder / "run"), *OPTIONS, *QUIET])
    assert code == 0, arguments
    return folder / "run"


def made_store(folder, *, edges=True, n_nodes=None):
    write_files(folder)
    return ingest(
        folder / "rows.csv",
        folder / "edges.csv" if edges else None,
        out=folder / "store",
        id_column="name",
        truth_column="kind",
    )


def store_by_command(folder, *, edges=True):
    made_store(folder, edges=edges)
    code = pamc(["fit", str(folder / "store"), "-k", "3", "--out", str(folder / "run"), *OPTIONS, *QUIET])
    assert code == 0
    return folder / "run"


def store_from_files(folder, *, edges=True, **settings):
    with patch.object(sources, "LARGE_ROWS", 0):
        return saved(make(3, n_hops=1, **settings).fit_store(made_store(folder, edges=edges)), folder)


def large_store_by_command(folder):
    code = pamc(
        [
            "synthesize",
            "--n-nodes",
            "52000",
            "--n-features",
            "6",
            "--n-clusters",
            "3",
            "--out",
            str(folder / "store"),
            "--quiet",
        ]
    )
    assert code == 0
    settings = [*OPTIONS, "--epochs", "2"]
    code = pamc(["fit", str(folder / "store"), "-k", "3", "--out", str(folder / "run"), *settings, *QUIET])
    assert code == 0
    return folder / "run"


def by_processes(folder, *, store=False, n_processes=2):
    if store:
        made_store(folder)
        rows = [str(folder / "store")]
    else:
        write_files(folder)
        rows = [str(folder / "rows.csv"), "--edges", str(folder / "edges.csv"), "--id", "name", "--truth", "kind"]
    arguments = ["fit", *rows, "-k", "3", "--out", str(folder / "run"), *OPTIONS, "--set", "n_hops=1", *QUIET]
    done = subprocess.run(
        command("tests.distributed.store_command" if store else "pamc", *arguments, n_processes=n_processes),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "run"


CASES = {f"method {name}": partial(method, name) for name in METHODS}
CASES |= {
    f"initializer {name}, {kind}": partial(fit, init=name)
    for name in ("consensus", "propagated_svd", "autoencoder")
    for kind, fit in (("given graph", on_graph), ("kNN graph", on_rows))
}
CASES |= {
    "kNN graph, euclidean": partial(on_rows, metric="euclidean"),
    "kNN graph, cosine": partial(on_rows, metric="cosine"),
    "graph trusted always": partial(on_graph, graph_trust="always"),
    "graph is noise": on_noise,
    "features are noise": on_noisy_features,
    "weighted edges": on_weighted_edges,
    "sparse rows": on_sparse_rows,
    "digits": on_digits,
    "one column": on_one_column,
    "many clusters": lambda folder: saved(make(20).fit(blobs(300, 20, random_state=0).features), folder),
    "one cluster": lambda folder: saved(make(1).fit(graph().features), folder),
    "chunks": partial(on_graph, chunk_size=50),
    "float64": partial(on_graph, precision="float64"),
    "three hops, pruned": partial(on_graph, n_hops=3, max_positives=5),
    "soft meta-nodes": partial(on_graph, meta_assignment="soft"),
    "soft, detached": partial(on_graph, meta_assignment="soft_detached"),
    "proxy of Eq 6": partial(on_graph, proxy="eq6"),
    "self-edges": partial(on_graph, self_edges="keep"),
    "sum of KL": partial(on_graph, kl_reduction="sum", beta=0.1),
    "tolerance": partial(on_graph, tol=0.05),
    "no epochs": partial(on_graph, n_epochs=0),
    "no dropout": partial(on_graph, pretrain_dropout=0.0),
    "standardized": partial(on_rows, preprocessing="standardize"),
    "known labels": with_known_labels,
    "own encoder": with_own_encoder,
    "pre-trained weights": with_pretrained_weights,
    "checkpoint and resume": resumed,
    "command, table": partial(by_command, folder=None)
    if False
    else lambda folder: by_command(folder, "rows.csv", "--id", "name", "--truth", "kind"),
    "command, table and edges": lambda folder: by_command(
        folder, "rows.csv", "--id", "name", "--drop", "kind", "--edges", "edges.csv"
    ),
    "command, array": lambda folder: by_command(folder, "rows.npy"),
    "command, preset paper": lambda folder: by_command(
        folder, "rows.npy", "--preset", "paper", "--alpha", "1", "--beta", "2", "--set", "tau=0.5", "--n-hops", "2"
    ),
    "command, preset released": lambda folder: by_command(
        folder, "rows.npy", "--preset", "released", "--alpha", "1", "--beta", "2", "--set", "tau=0.5", "--n-hops", "2"
    ),
    "command, store": store_by_command,
    "command, store without edges": partial(store_by_command, edges=False),
    "command, large store": large_store_by_command,
    "store from its files": store_from_files,
    "store from its files, no edges": partial(store_from_files, edges=False),
    "store from its files, chunks": partial(store_from_files, chunk_size=50),
    "two processes, rows": by_processes,
    "three processes, rows": partial(by_processes, n_processes=3),
    "two processes, store": partial(by_processes, store=True),
}
