"""Models pass between Python and the shell for every kind of input: fitted in one, used in the other."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_digits, make_blobs

from pamc import Memberships, PamCGC, read_graph
from tests.cli.conftest import FAST

pytestmark = [pytest.mark.usefixtures("few_repeats"), pytest.mark.slow]

N_ROWS = 120
FAST_SETTINGS = {"n_epochs": 5, "advanced": {"hidden": (16,), "pretrain_epochs": 3, "n_init": 2}}


def blobs():
    X = make_blobs(N_ROWS, n_features=5, centers=3, random_state=0)[0].astype(np.float32)
    X[np.abs(X) < 0.5] = 0
    return X


def mixed():
    rng = np.random.default_rng(0)
    group = np.arange(N_ROWS) % 3
    frame = pd.DataFrame(
        {
            "who": [f"customer {i}" for i in range(N_ROWS)],
            "age": np.where(rng.random(N_ROWS) < 0.1, np.nan, 20.0 + 15 * group + rng.normal(size=N_ROWS)),
            "city": np.array(["Rome", "Oslo", "Lima"])[group],
            "member": np.array(["yes", "no", "yes"])[group],
            "since": pd.to_datetime("2020-01-01") + pd.to_timedelta(100 * group + rng.integers(20, size=N_ROWS), "D"),
        }
    )
    frame["since"] = frame["since"].dt.strftime("%Y-%m-%d")
    return frame


def ring():
    """Return edges between rows of the same third."""
    third = np.arange(N_ROWS) * 3 // N_ROWS
    pairs = [(i, j) for i in range(N_ROWS) for j in range(i + 1, min(i + 5, N_ROWS)) if third[i] == third[j]]
    return np.array(pairs)


def write(kind, path):
    """Write the rows of a kind of input, and return its file, what Python passes to `fit`, and options of the shell."""
    X, k = blobs(), ["-k", 3]
    match kind:
        case "csv" | "parquet" | "feather" | "xlsx" | "tsv":
            frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(5)])
            file = path / f"rows.{kind}"
            text = {"index": False} | ({"sep": "\t"} if kind == "tsv" else {})
            getattr(frame, {"xlsx": "to_excel", "tsv": "to_csv"}.get(kind, f"to_{kind}"))(
                file, **({} if kind in ("parquet", "feather") else text)
            )
            return file, frame, k
        case "mixed":
            mixed().to_csv(path / "rows.csv", index=False)
            return path / "rows.csv", mixed().drop(columns="who"), [*k, "--id", "who"]
        case "npy":
            np.save(path / "rows.npy", X)
            return path / "rows.npy", X, k
        case "npz":
            np.savez(path / "rows.npz", x=X)
            return path / "rows.npz", X, k
        case "mtx":
            scipy.io.mmwrite(path / "rows.mtx", sp.csr_matrix(X))
            return path / "rows.mtx", sp.csr_matrix(X), k
        case "svm":
            dump_svmlight_file(X, np.zeros(N_ROWS), str(path / "rows.svm"), zero_based=False)
            return path / "rows.svm", sp.csr_matrix(X), k
        case "images":
            digits = load_digits().data[:N_ROWS].astype(np.float32)
            np.save(path / "rows.npy", digits)
            return path / "rows.npy", digits, [*k, "--image-shape", "8x8"]
        case _:
            raise AssertionError(kind)


KINDS = ["csv", "tsv", "parquet", "feather", "xlsx", "mixed", "npy", "npz", "mtx", "svm", "images"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_the_shell_predicts_in_python_and_back(pamc, kind, tmp_path):
    file, X, options = write(kind, tmp_path)
    fitted = pamc("fit", file, *options, *FAST, "--no-report", "--out", "run")
    assert fitted.code == 0, fitted.err
    model = PamCGC.load(tmp_path / "run")
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    labels = pd.read_csv(tmp_path / "run" / "labels.csv")["cluster"].to_numpy()
    np.testing.assert_array_equal(labels, model.labels_)
    model.save(tmp_path / "again", slim=True)
    assert pamc("predict", "again", file, "--out", "again.csv").code == 0
    np.testing.assert_array_equal(pd.read_csv(tmp_path / "again.csv")["cluster"], labels)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_python_predicts_in_the_shell(pamc, kind, tmp_path):
    file, X, _ = write(kind, tmp_path)
    shape = {"image_shape": (8, 8)} if kind == "images" else {}
    model = PamCGC(3, random_state=0, **FAST_SETTINGS, **shape).fit(X)
    model.save(tmp_path / "run")
    result = pamc("predict", "run", file, "--out", "clusters.csv")
    assert result.code == 0, result.err
    written = pd.read_csv(tmp_path / "clusters.csv")
    np.testing.assert_array_equal(written["cluster"], model.labels_)
    np.testing.assert_allclose(written["confidence"], model.confidence_, atol=1e-4)
    if kind != "images":
        split = pamc("split", "run", 0, "--out", "finer")
        assert split.code in (0, 2, 3), split.err


GRAPHS = ["edges", "relations", "memberships", "graph alone"]


def graph_files(kind, path):
    """Write rows and edges, and return options of the shell and arguments of `fit`."""
    X, edges = blobs(), ring()
    np.save(path / "rows.npy", X)
    np.savetxt(path / "edges.csv", edges, fmt="%d", delimiter=",", header="a,b", comments="")
    groups = np.arange(N_ROWS) // 6
    members = np.stack([np.arange(N_ROWS), groups], axis=1)
    np.savetxt(path / "members.csv", members, fmt="%d", delimiter=",", header="row,group", comments="")
    rows = [path / "rows.npy"]
    if kind == "edges":
        return [*rows, "--edges", path / "edges.csv"], {"X": X, "adjacency": edges}
    if kind == "relations":
        files = [f"--edges=one={path / 'edges.csv'}", f"--edges=two={path / 'edges.csv'}"]
        return [*rows, *files], {"X": X, "adjacency": {"one": edges, "two": edges}}
    if kind == "memberships":
        relation = {"group": Memberships(np.arange(N_ROWS), groups)}
        return [*rows, f"--members=group={path / 'members.csv'}"], {"X": X, "adjacency": relation}
    return ["--edges", path / "edges.csv"], {"adjacency": edges}


@pytest.mark.filterwarnings("ignore::pamc.errors.PamcWarning")
@pytest.mark.parametrize("kind", GRAPHS)
def test_models_of_graphs_pass_both_ways(pamc, kind, tmp_path):
    options, arguments = graph_files(kind, tmp_path)
    fitted = pamc("fit", *options, "-k", 3, *FAST, "--no-report", "--out", "shell")
    assert fitted.code == 0, fitted.err
    PamCGC(3, random_state=0, **FAST_SETTINGS).fit(**arguments).save(tmp_path / "python")
    new = tmp_path / "new.csv"
    new.write_text("source,target\nx,0\nx,1\ny,119\n")
    answers = []
    for run in ("shell", "python"):
        model = PamCGC.load(tmp_path / run)
        edges = np.zeros((2, N_ROWS))
        edges[0, :2] = edges[1, 119] = 1
        if kind == "graph alone":
            result = pamc("predict", run, "--edges", new, "--out", f"{run}.csv")
            expected = model.predict(adjacency=edges)
        else:
            result = pamc("predict", run, tmp_path / "rows.npy", "--out", f"{run}.csv")
            expected = model.predict(arguments["X"])
        assert result.code == 0, result.err
        written = pd.read_csv(tmp_path / f"{run}.csv")["cluster"].to_numpy()
        np.testing.assert_array_equal(written, expected)
        answers.append(model.labels_)
    records = [json.loads((tmp_path / run / "run.json").read_text()) for run in ("shell", "python")]
    assert records[0]["facts"]["graph"] == records[1]["facts"]["graph"]
    assert (answers[0] == answers[1]).mean() > 0.9


def test_a_model_of_a_store_predicts_in_python(pamc, tmp_path):
    file, X, _ = write("csv", tmp_path)
    assert pamc("ingest", file, "--out", "store").code == 0
    fitted = pamc("fit", "store", "-k", 3, *FAST, "--no-report", "--out", "run")
    assert fitted.code == 0, fitted.err
    model = PamCGC.load(tmp_path / "run")
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert read_graph(file).n_nodes == len(model.labels_)
