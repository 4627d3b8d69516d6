"""pamc.sc.tl writes to an AnnData as scanpy's tools do; .h5ad files are read by the command."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

import pamc
from pamc import PamCGC, explain, read_graph
from pamc.cli.app import run
from pamc.errors import DataError

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")

SMALL = {"n_epochs": 3, "hidden": (32,), "pretrain_epochs": 30}


@pytest.fixture
def cells():
    """Return 90 cells of 3 kinds with 12 genes, two representations and two graphs."""
    rng = np.random.default_rng(0)
    kind = np.arange(90) % 3
    rate = 1.0 + 12.0 * (np.arange(12)[None] // 4 == kind[:, None])
    X = np.log1p(rng.poisson(rate)).astype(np.float32)
    near = sp.csr_matrix((kind[:, None] == kind) * (rng.random((90, 90)) < 0.2) * 0.5)
    near = near.maximum(near.T).tolil()
    near.setdiag(0)
    data = anndata.AnnData(
        sp.csr_matrix(X),
        obs=pd.DataFrame(
            {"kind": pd.Categorical(np.array(["B", "NK", "T"])[kind])}, index=[f"c{i}" for i in range(90)]
        ),
        var=pd.DataFrame(index=[f"gene{g}" for g in range(12)]),
        obsm={"X_pca": X[:, ::2]},
        obsp={"connectivities": near.tocsr(), "spatial_connectivities": near.tocsr()},
        uns={"spatial_neighbors": {"connectivities_key": "spatial_connectivities"}},
    )
    data.layers["raw"] = X * 2
    return data


def agrees(data, key="pamc"):
    return pd.crosstab(data.obs["kind"], data.obs[key]).to_numpy().max(axis=1).sum() / data.n_obs > 0.95


def test_results_are_written_as_scanpy_does(cells):
    assert pamc.sc.tl.pamc(cells, 3, **SMALL) is None
    assert agrees(cells)
    assert cells.obs["pamc"].cat.categories.tolist() == ["0", "1", "2"]
    assert cells.obsm["X_pamc"].shape == (90, 6)
    assert cells.uns["pamc"]["params"]["n_clusters"] == 3
    copied = pamc.sc.tl.pamc(cells, 3, key_added="again", copy=True, **SMALL)
    assert "again" not in cells.obs
    assert (copied.obs["again"] == cells.obs["pamc"]).all()
    direct = PamCGC(3, n_epochs=3, advanced={"hidden": (32,), "pretrain_epochs": 30}, random_state=0)
    direct.fit_graph(cells)
    assert (direct.labels_.astype(str) == cells.obs["pamc"]).all()


def test_new_cells_are_matched_by_gene_also_after_a_file(cells, tmp_path):
    pamc.sc.tl.pamc(cells, 3, min_confidence=0.2, **SMALL)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    new = cells[:, ::-1].copy()
    del new.obs["pamc"], new.obsm["X_pamc"]
    pamc.sc.tl.predict(new, anndata.read_h5ad(tmp_path / "cells.h5ad"))
    assert (new.obs["pamc"].astype(str) == cells.obs["pamc"].astype(str)).all()
    np.testing.assert_allclose(new.obsm["X_pamc"], cells.obsm["X_pamc"], atol=1e-4)
    with pytest.raises(DataError, match="lacks 2 of the 12 genes that the model was fitted on, such as 'gene0'"):
        pamc.sc.tl.predict(cells[:, 2:].copy(), cells)
    with pytest.raises(DataError, match="has no key 'other'"):
        pamc.sc.tl.predict(new, cells, key_added="other")


@pytest.mark.parametrize(
    "options",
    [
        {"use_rep": "X_pca"},
        {"use_rep": "X"},
        {"layer": "raw"},
        {"neighbors_key": "spatial_neighbors"},
        {"neighbors_key": "spatial_connectivities"},
        {"neighbors_key": ["connectivities", "spatial_neighbors"]},
    ],
)
def test_representations_layers_and_graphs_are_chosen_by_key(cells, options):
    pamc.sc.tl.pamc(cells, 3, **options, **SMALL)
    assert agrees(cells)
    before = cells.obs["pamc"].astype(str)
    pamc.sc.tl.predict(cells, cells)
    assert (cells.obs["pamc"].astype(str) == before).mean() > 0.95


def test_a_wrong_key_lists_those_that_exist(cells):
    with pytest.raises(DataError, match=r"no representation 'X_pc' in obsm: allowed are X_pca; did you mean 'X_pca'"):
        pamc.sc.tl.pamc(cells, 3, use_rep="X_pc")
    with pytest.raises(DataError, match="no neighbors 'spatial' in uns or obsp: allowed are connectivities"):
        pamc.sc.tl.pamc(cells, 3, neighbors_key="spatial")
    with pytest.raises(DataError, match="no layer 'counts'"):
        pamc.sc.tl.pamc(cells, 3, layer="counts")


def test_a_model_predicts_cells_and_explains_them_by_gene(cells):
    model = PamCGC(3, n_epochs=3, advanced={"hidden": (16,)}, random_state=0).fit_graph(cells)
    np.testing.assert_array_equal(model.predict(cells[:, ::-1].copy()), model.labels_)
    assert set(explain(model, cells).features["name"]) <= set(cells.var_names)


def test_the_command_reads_h5ad(cells, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells.write_h5ad("cells.h5ad")
    graph = read_graph("cells.h5ad", truth_column=None)
    assert graph.feature_names == tuple(cells.var_names)
    assert graph.ids.tolist() == cells.obs_names.tolist()
    options = [
        "-k",
        "3",
        "--truth",
        "kind",
        "--epochs",
        "3",
        "--set",
        "hidden=[16]",
        "--no-report",
        "--quiet",
        "--json",
    ]
    assert run(["fit", "cells.h5ad", *options, "--out", "run"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metrics"]["acc"] > 0.95
    cells[:, ::-1].copy().write_h5ad("new.h5ad")
    assert run(["predict", "run", "new.h5ad", "--out", "clusters.csv"]) == 0
    written = pd.read_csv("clusters.csv")
    assert written["id"].tolist() == cells.obs_names.tolist()
    labels = pd.read_csv("run/labels.csv")["cluster"]
    assert (written["cluster"] == labels).all()
    assert run(["fit", "cells.h5ad", "-k", "3", "--truth", "kinds"]) == 3
    assert "has no column 'kinds' in obs for the truth" in capsys.readouterr().err
