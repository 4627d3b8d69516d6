"""Stores with several relations: from files to a fit, chunk by chunk, on one process or on several."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pamc import PamCGC, evaluate
from pamc.config import FitConfig
from pamc.data.ingest import ingest
from pamc.data.ingest.members import MemberIngest
from pamc.data.readers import read_graph
from pamc.errors import ConfigError, DataError, UnknownNameError
from pamc.initialize import sample
from pamc.initialize.relations import adjacencies
from pamc.training import sources
from pamc.training.checkpoint import fingerprint
from pamc.training.pipeline import fit_method, run_worker
from tests.distributed.torchrun import ROOT, environment, torchrun
from tests.relations.planted import planted
from tests.training.own_rows import OwnRows
from tests.training.threads import run_team

CPU = torch.device("cpu")
SMALL = {"n_clusters": 3, "hidden": (32, 16), "n_dims": 4, "n_epochs": 8, "pretrain_epochs": 20}
N_ROWS = 900


def write(path, head, rows):
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the paths of rows, of the edges of three relations, one of them noise, and of memberships."""
    folder = tmp_path_factory.mktemp("relations")
    X, labels, edges = planted(N_ROWS, 3, feature_noise=1.0, good=(8, 0.8), weak=(6, 0.5), noise=(8, 0.0))
    columns = [f"x{i}" for i in range(X.shape[1])]
    rows = ([f"r{i}", *map(float, row), int(label)] for i, (row, label) in enumerate(zip(X, labels, strict=True)))
    write(folder / "rows.csv", ["id", *columns, "kind"], rows)
    for name, ends in edges.items():
        write(folder / f"{name}.csv", ["source", "target"], [(f"r{a}", f"r{b}") for a, b in ends])
    rng = np.random.default_rng(0)
    groups = [(f"r{i}", f"{labels[i]}-{rng.integers(40)}") for i in range(N_ROWS) for _ in range(2)]
    large = [(f"r{i}", "large") for i in range(200)]
    write(folder / "clubs.csv", ["row", "club"], [*groups, *large])
    return folder


READING = {"id_column": "id", "truth_column": "kind"}


@pytest.fixture(scope="module")
def store(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("stores") / "three"
    edges = {name: files / f"{name}.csv" for name in ("good", "noise", "weak")}
    return ingest(files / "rows.csv", edges, out=out, **READING)


@pytest.fixture
def large(monkeypatch):
    """Fit every table as one with many rows."""
    monkeypatch.setattr(sample, "CORE_ROWS", 200)
    monkeypatch.setattr(sample, "SAMPLE_ROWS", 500)
    monkeypatch.setattr(sources, "LARGE_ROWS", 0)


def test_the_relations_of_a_store_are_those_of_the_files(files, tmp_path):
    edges = {name: files / f"{name}.csv" for name in ("good", "noise")}
    members = {"club": files / "clubs.csv"}
    with pytest.warns(UserWarning, match="1 of 121 groups have more than 65 rows"):
        stored = ingest(files / "rows.csv", edges, members=members, out=tmp_path / "store", **READING)
    with pytest.warns(UserWarning, match="1 of 121 groups have more than 65 rows"):
        read = read_graph(files / "rows.csv", edges=edges, members=members, **READING)
    assert stored.relations == ("good", "noise", "club")
    assert stored.manifest["facts"]["n_membership_lines"] == 2000
    assert stored.n_stored == sum(matrix.nnz for matrix in stored.relation_matrices().values())
    for name, matrix in adjacencies(read).items():
        of_store, of_graph = stored.relation_matrices()[name], adjacencies(stored.to_graph())[name]
        assert (of_store.indices == matrix.indices).all()
        np.testing.assert_allclose(of_store.data, matrix.data, rtol=1e-6)
        assert (of_graph != of_store).nnz == 0


def test_rows_without_names_and_skipped_rows_keep_their_relations(tmp_path):
    write(tmp_path / "rows.csv", ["x", "z"], [(i + 0.5, i % 3) for i in range(6)])
    write(tmp_path / "edges.csv", ["source", "target"], [(0, 1), (4, 5)])
    write(tmp_path / "clubs.csv", ["row", "club"], [(0, "a"), (2, "a"), (3, ""), (9, "b"), (5, "b"), (1, "b")])
    options = {"out": tmp_path / "store", "members": {"club": tmp_path / "clubs.csv"}}
    with pytest.raises(DataError, match=r"clubs.csv: .*every membership needs a row and a group. \(1 more memberships"):
        ingest(tmp_path / "rows.csv", {"e": tmp_path / "edges.csv"}, **options)
    store = ingest(tmp_path / "rows.csv", {"e": tmp_path / "edges.csv"}, skip_bad_rows=True, **options)
    dense = {name: matrix.toarray() for name, matrix in store.relation_matrices().items()}
    assert np.argwhere(dense["e"]).tolist() == [[0, 1], [1, 0], [4, 5], [5, 4]]
    assert np.argwhere(dense["club"]).tolist() == [[0, 2], [1, 5], [2, 0], [5, 1]]
    listed = (store.folder / "bad-rows.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in listed[1:]] == ["memberships of club"] * 2
    assert listed[-1].endswith("9,no row has this id")


@pytest.mark.filterwarnings("ignore:1 of 121 groups")
def test_an_interrupted_ingest_goes_on_with_the_buckets_of_each_relation(files, tmp_path, monkeypatch):
    edges = {name: files / f"{name}.csv" for name in ("good", "noise")}
    options = {"members": {"club": files / "clubs.csv"}, **READING}
    whole = ingest(files / "rows.csv", edges, out=tmp_path / "whole", **options)

    def interrupted(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MemberIngest, "sort", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ingest(files / "rows.csv", edges, out=tmp_path / "store", **options)
    resumed = ingest(files / "rows.csv", edges, out=tmp_path / "store", resume=True, **options)
    assert resumed.manifest["files"] == whole.manifest["files"]


@pytest.mark.slow
def test_a_small_store_is_fitted_as_its_files(files, store):
    edges = {name: files / f"{name}.csv" for name in ("good", "noise", "weak")}
    settings = {"n_epochs": 3, "random_state": 0, "device": "cpu"}
    weights = {"good": 2.0, "noise": 0.0, "weak": 1.0}
    of_store = PamCGC(3, **settings).fit_store(store, relation_weights=weights)
    graph = read_graph(files / "rows.csv", edges=edges, relation_weights=weights, **READING)
    of_files = PamCGC(3, **settings).fit_graph(graph)
    assert (of_store.embedding_ == of_files.embedding_).all()
    assert of_store.record().facts["relation_weights"] == {"good": 2 / 3, "noise": 0.0, "weak": 1 / 3}
    assert fingerprint(store) != fingerprint(store.with_relation_weights(weights))


def test_weights_of_a_store_are_checked(store):
    with pytest.raises(UnknownNameError, match="'venue'"):
        store.with_relation_weights({"venue": 1.0})
    with pytest.raises(ConfigError, match="no weight for 'noise', 'weak'"):
        PamCGC(3).fit_store(store, relation_weights={"good": 1.0})


def fit_large(data, *, group=None, **settings):
    return fit_method("pamcgc", data, FitConfig(**{**SMALL, **settings}), seed=0, device=CPU, group=group)


@pytest.mark.usefixtures("large")
def test_a_large_store_is_clustered_along_its_relations(store):
    fit = fit_large(store)
    assert fit.facts["relation_weights"]["noise"] == 0.0
    assert fit.facts["relation_weights"]["good"] > fit.facts["relation_weights"]["weak"] > 0
    assert set(fit.facts["relation_edges"]) == {"good", "noise", "weak"}
    assert fit.facts["sampled_rows"] == 500
    assert fit.config.n_hops == 1
    assert 0 <= fit.facts["share_assigned_by_edges"] < 0.5
    assert evaluate(store.labels, fit.labels)["acc"] > 0.95


@pytest.mark.usefixtures("large")
def test_rows_in_memory_are_fitted_as_those_of_a_store(files, store):
    edges = {name: files / f"{name}.csv" for name in ("good", "noise", "weak")}
    graph = read_graph(files / "rows.csv", edges=edges, **READING).without_labels()
    in_memory, of_store = fit_large(graph), fit_large(store)
    assert torch.equal(in_memory.z, of_store.z)
    assert np.array_equal(in_memory.labels, of_store.labels)


@pytest.mark.usefixtures("large")
def test_one_relation_of_a_store_gives_the_bits_of_that_relation_alone(files, tmp_path):
    named = ingest(files / "rows.csv", {"good": files / "good.csv"}, out=tmp_path / "named", **READING)
    alone = ingest(files / "rows.csv", files / "good.csv", out=tmp_path / "alone", **READING)
    one, other = fit_large(named), fit_large(alone)
    assert torch.equal(one.z, other.z)
    assert np.array_equal(one.labels, other.labels)


@pytest.mark.slow
@pytest.mark.usefixtures("large")
def test_chunks_and_processes_give_the_result_of_one_for_three_relations(store):
    weights = {"good": 0.5, "noise": 0.2, "weak": 0.3}
    chosen = store.with_relation_weights(weights)
    settings = {"precision": "float64", "n_epochs": 4}
    alone = fit_large(chosen, **settings)
    assert min(alone.facts["relation_weights"].values()) > 0

    def work(group):
        if group.rank > 0:
            run_worker(group, OwnRows(store, group))
            return None
        return fit_large(chosen, group=group, **settings)

    others = [fit_large(chosen, chunk_size=170, **settings), *(run_team(size, work)[0] for size in (2, 3))]
    for fit in others:
        np.testing.assert_allclose(fit.history["loss"], alone.history["loss"], rtol=1e-10)
        torch.testing.assert_close(fit.z, alone.z, rtol=0, atol=1e-10)
        assert np.array_equal(fit.labels, alone.labels)


@pytest.mark.slow
@pytest.mark.distributed
def test_processes_of_torchrun_give_the_embedding_of_one(store, tmp_path):
    settings = ["hidden=[32, 16]", "n_dims=4", "precision=float64", "tol=0"]
    options = [
        *(word for setting in settings for word in ("--set", setting)),
        "--relation-weights",
        "good=2,noise=1,weak=1",
    ]
    shared = [
        "fit",
        store.folder,
        "-k",
        "3",
        "--epochs",
        "4",
        "--device",
        "cpu",
        "--quiet",
        "--json",
        *options,
        "--out",
    ]
    command = [sys.executable, "-m", "tests.distributed.store_command", *map(str, shared), str(tmp_path / "1")]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for size in (2, 3):
        done = torchrun("tests.distributed.store_command", *shared, tmp_path / str(size), n_processes=size)
        assert done.returncode == 0, done.stderr
    runs = {size: np.load(tmp_path / str(size) / "embedding.npy") for size in (1, 2, 3)}
    for size in (2, 3):
        np.testing.assert_allclose(runs[size], runs[1], rtol=0, atol=1e-10)
    facts = json.loads((tmp_path / "3" / "run.json").read_text(encoding="utf-8"))["facts"]
    assert facts["n_processes"] == 3
    assert facts["relation_weights"] == {"good": 0.5, "noise": 0.25, "weak": 0.25}
    assert "The graph consists of 3 relations" in (tmp_path / "3" / "report.html").read_text(encoding="utf-8")
