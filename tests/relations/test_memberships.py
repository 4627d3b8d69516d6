"""Memberships of rows in groups as a relation."""

import numpy as np
import pytest

from pamc import Memberships, PamCGC, evaluate
from pamc.data.adapters import as_edges
from pamc.data.readers import read_graph
from pamc.errors import DataError, DataWarning


def dense(pairs, n_nodes):
    edges, weight = Memberships(*pairs).edges(n_nodes)
    matrix = np.zeros((n_nodes, n_nodes))
    matrix[tuple(edges)] += weight
    assert (edges[0] < edges[1]).all()
    return matrix + matrix.T


def loops(pairs, n_nodes):
    """Return the same weights in plain loops over the groups."""
    matrix = np.zeros((n_nodes, n_nodes))
    for group in set(pairs[1]):
        members = sorted({row for row, of in zip(*pairs, strict=True) if of == group})
        for i in members:
            for j in members:
                if i != j:
                    matrix[i, j] += 1 / (len(members) - 1)
    return matrix


def test_co_members_equal_plain_loops():
    rng = np.random.default_rng(0)
    pairs = rng.integers(30, size=200).tolist(), rng.integers(25, size=200).tolist()
    assert np.abs(dense(pairs, 30) - loops(pairs, 30)).max() < 1e-14


@pytest.mark.parametrize("size", [2, 3, 4, 64, 65])
def test_groups_of_up_to_65_rows_are_joined_completely(size):
    pairs = list(range(size)), [0] * size
    assert np.abs(dense(pairs, size + 1) - loops(pairs, size + 1)).max() < 1e-14


@pytest.mark.parametrize("size", [66, 67, 500])
def test_each_row_of_a_larger_group_is_joined_to_64_others_with_total_weight_1(size):
    with pytest.warns(DataWarning, match="1 of 1 groups have more than 65 rows"):
        matrix = dense((np.arange(size), np.zeros(size, dtype=int)), size + 1)
    assert ((matrix[:size] > 0).sum(axis=1) == 64).all()
    assert matrix[:size].sum(axis=1) == pytest.approx(np.ones(size))


def test_the_number_of_edges_is_linear_in_the_number_of_memberships():
    n_rows = 20_000
    with pytest.warns(DataWarning, match="more than 65 rows"):
        edges, _ = Memberships(np.arange(n_rows), np.arange(n_rows) % 2).edges(n_rows)
    assert edges.shape[1] == 32 * n_rows


def test_a_group_of_all_rows_is_left_out():
    with pytest.warns(DataWarning, match="1 of 2 groups contain all rows and are left out"):
        matrix = dense(([0, 1, 2, 3, 0, 1], ["all"] * 4 + ["two"] * 2), 4)
    assert matrix.sum() == 2.0


def test_rows_may_be_named():
    edges, _ = as_edges(Memberships(["b", "c"], ["x", "x"]), 3, row_names=["a", "b", "c"])
    assert edges.tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("rows", "groups", "message"),
    [
        ([0, 1], ["a"], "memberships have 2 rows for 1 groups"),
        ([0, 9], ["a", "a"], "1 of 2 memberships refer to rows that do not exist; the first: 9"),
        (["p", "q"], ["a", "a"], "2 of 2 memberships refer to rows that do not exist; the first: 'p', 'q'"),
        ([0, 1], ["a", "b"], "the memberships join no rows"),
    ],
)
def test_wrong_memberships_are_named(rows, groups, message):
    with pytest.raises(DataError, match=message):
        Memberships(rows, groups).edges(4)


def test_citing_the_same_rows_is_a_relation_of_memberships():
    cites = np.array([[0, 2], [1, 2], [3, 4]])
    edges, _ = Memberships(cites[:, 0], cites[:, 1]).edges(5)
    assert edges.tolist() == [[0], [1]]


def test_baskets_are_one_of_several_relations_of_a_fit():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 40)
    X = rng.normal(size=(120, 5)) + 1.5 * np.eye(3, 5)[labels]
    baskets = [rng.choice(np.flatnonzero(labels == basket % 3), 5, replace=False) for basket in range(60)]
    groups = Memberships(np.concatenate(baskets), np.repeat(np.arange(60), 5))
    chain = np.stack([np.arange(119), np.arange(1, 120)])
    model = PamCGC(3, n_epochs=5, random_state=0, device="cpu").fit(X, adjacency={"basket": groups, "next": chain})
    assert evaluate(labels, model.labels_)["acc"] > 0.9


# Files

ROWS = "name,a,b\nann,1,2\nbob,3,4\ncid,5,6\n"


def read(tmp_path, members, **options):
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "members.csv").write_text(members)
    return read_graph(tmp_path / "rows.csv", id_column="name", members={"club": tmp_path / "members.csv"}, **options)


@pytest.mark.parametrize("header", ["", "person,club\n"])
def test_a_file_of_memberships_becomes_a_relation(tmp_path, header):
    graph = read(tmp_path, f"{header}ann,chess\ncid,chess\nbob,golf\n")
    assert graph.edges.tolist() == [[0], [2]]
    assert graph.relations.names == ("club",)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ("ann,chess\ndan,chess\n", "members.csv: 1 of 2 memberships refer to rows that do not exist; the first: 'dan'"),
        ("ann,chess,1\n", "memberships need 2 columns"),
        ("ann,chess\nbob,\n", "the cell is empty; every membership needs a row and a group"),
        ("ann,chess\nbob,golf\n", "the memberships join no rows"),
    ],
)
def test_a_wrong_file_of_memberships_is_named(tmp_path, members, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, members)


def test_two_relations_of_one_name_are_refused(tmp_path):
    (tmp_path / "edges.csv").write_text("ann,bob\n")
    with pytest.raises(DataError, match="two relations have the name 'club'"):
        read(tmp_path, "ann,x\nbob,x\n", edges={"club": tmp_path / "edges.csv"})
