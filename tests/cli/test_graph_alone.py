"""`pamc fit --edges FILE` without rows, and `pamc predict --edges FILE`."""

import csv
from pathlib import Path

import networkx as nx
import pytest
from sklearn.metrics import adjusted_rand_score

from tests.cli.conftest import FAST


@pytest.fixture
def friends(pamc):
    """Write the edges of two groups of 20 named rows."""
    graph = nx.planted_partition_graph(2, 20, 0.5, 0.03, seed=2)
    lines = ["source,target", *(f"p{a:02},p{b:02}" for a, b in graph.edges)]
    Path("friends.csv").write_text("\n".join(lines), encoding="utf-8")
    return Path("friends.csv")


def rows_of(path):
    with Path(path).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_edges_alone_are_fitted_reported_and_extended(pamc, friends):
    result = pamc("fit", "--edges", friends, "-k", 2, "--out", "run", *FAST)
    assert result.code == 0, result.err
    assert Path("run/report.html").is_file()
    assert "report could not be written" not in result.err
    rows = rows_of("run/labels.csv")
    assert [row["id"] for row in rows[:2]] == ["p00", "p01"]
    clusters = [int(row["cluster"]) for row in rows]
    assert adjusted_rand_score([0] * 20 + [1] * 20, clusters) == 1
    Path("new.csv").write_text("source,target\nzoe,p00\np01,zoe\nyan,p39\nyan,zoe\n", encoding="utf-8")
    result = pamc("predict", "run", "--edges", "new.csv", "--out", "new-clusters.csv")
    assert result.code == 0, result.err
    assert "1 of 4 edges join no new row with a fitted row: they are ignored" in result.err
    assert [(row["id"], int(row["cluster"])) for row in rows_of("new-clusters.csv")] == [
        ("yan", clusters[39]),
        ("zoe", clusters[0]),
    ]


def test_edges_of_new_rows_are_used_together_with_their_features(pamc, table):
    rows, edges = table
    files = (rows, "--id", "name", "--truth", "kind", "--edges", edges)
    assert pamc("fit", *files, "-k", 3, "--out", "run", *FAST).code == 0
    lines = rows.read_text(encoding="utf-8").splitlines()
    Path("new.csv").write_text("\n".join([lines[0], lines[1].replace("node 0", "new 0")]), encoding="utf-8")
    fitted = rows_of("run/labels.csv")
    other = next(i for i in range(150) if fitted[i]["cluster"] != fitted[0]["cluster"])
    Path("new-edges.csv").write_text(f"from,to\nnew 0,node {other}\n", encoding="utf-8")
    options = ("--id", "name", "--drop", "kind")
    assert pamc("predict", "run", "new.csv", *options, "--out", "alone.csv").code == 0
    result = pamc("predict", "run", "new.csv", "--edges", "new-edges.csv", *options, "--out", "both.csv")
    assert result.code == 0, result.err
    assert Path("both.csv").read_text(encoding="utf-8").splitlines()[1].startswith("new 0,")
    assert Path("both.csv").read_text(encoding="utf-8") != Path("alone.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("1 2\n2 3\n3 1\n", [1, 2, 3]),
        ("citing,cited\n1,2\n2,3\n", [1, 2, 3]),
        ("a,b\nb,c\n", ["a", "b", "c"]),
        ("from,to\na,b\nb,c\n", ["a", "b", "c"]),
        ("a,b,0.5\nb,c,2\n", ["a", "b", "c"]),
    ],
)
def test_row_names_come_from_the_edge_file(pamc, text, ids):
    from pamc.data.readers import read_graph

    Path("e.csv" if "," in text else "e.txt").write_text(text, encoding="utf-8")
    graph = read_graph(edges="e.csv" if "," in text else "e.txt")
    assert graph.ids.tolist() == ids
    assert graph.n_features == 0


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["fit", "rows.csv", "-k", "2", "--image-shape", "2"], 2, "--image-shape must be HEIGHTxWIDTH"),
        (["fit", "rows.csv", "-k", "2", "--image-shape", "2x2"], 2, "has 4 pixels, but the rows have 2 columns"),
        (["fit", "-k", "2"], 2, "give a file of rows, --edges FILE, or --dataset NAME"),
        (["fit", "--edges", "friends.csv", "--id", "name", "-k", "2"], 2, "--id applies to columns of rows"),
        (["fit", "--edges", "empty.csv", "-k", "2"], 3, "has no edges: there is nothing to cluster"),
        (["predict", "run", "--out", "c.csv"], 2, "there is nothing to assign"),
        (
            ["predict", "run", "--edges", "other.csv", "--out", "c.csv"],
            3,
            "no edge joins a new row with a row",
        ),
        (["predict", "run", "--edges", "friends.csv", "--out", "c.csv"], 3, "there are no new rows"),
        (["predict", "run", "rows.csv", "--out", "c.csv"], 3, "leave out X, and pass adjacency"),
    ],
)
def test_wrong_use_raises_one_line(pamc, friends, arguments, code, problem):
    Path("empty.csv").write_text("source,target\n", encoding="utf-8")
    Path("other.csv").write_text("source,target\nx,y\n", encoding="utf-8")
    Path("rows.csv").write_text("a,b\n1,2\n3,4\n", encoding="utf-8")
    if arguments[0] == "predict":
        assert pamc("fit", "--edges", friends, "-k", 2, "--out", "run", "--no-report", *FAST).code == 0
    result = pamc(*arguments)
    assert result.code == code, result.err
    assert problem in result.err
