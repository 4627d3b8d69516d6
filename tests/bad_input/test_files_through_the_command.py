"""Bad files through `pamc fit`: one line that says what, where and what to do, and nothing written."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tests.bad_input.conftest import IDS, PATH, X, edge_table, table, write
from tests.cli.conftest import FAST

ROWS = {
    "empty file": ("", "rows.csv: is empty; a table needs a line of column names"),
    "blank lines": ("\n\n", "rows.csv: is empty"),
    "header only": ("a,b\n", "no rows; add a line per row"),
    "one text column": ("city\nRome\nRome\n", ["no feature column is left", "every value is 'Rome'"]),
    "empty column": ("a,b\n1,\n3,\n4,\n", "column 'b' has no values: leave it out"),
    "two readings": (
        "a;b\n1.5;x\n2,5;y\n3,5;x\n",
        ["column 'a'", "'1.5' (line 2) has a decimal point, but '2,5' (line 3) has a decimal comma"],
    ),
    "too few cells": ("a,b\n1,2\n3\n4,5\n", ["line 3: expected 2 cells, found 1", "as many cells as the first"]),
    "too many cells": ("a,b\n1,2\n3,4,5\n", "line 3: expected 2 cells, found 3"),
    "several ragged lines": ("a,b\n1,2\n3,4,5\n6\n7,8\n", "line 3: expected 2 cells, found 3 (line 4: 1). Every"),
    "too large": (table(X * 1e300), ["is too large for float32", "rescale the column"]),
    "too small": (table(abs(X) * 1e-40), ["cannot be scaled in float32", "Rescale the features"]),
    "constant rows": ("a,b\n" + "1,2\n" * 9, ["number of distinct rows, 1", "ask for fewer clusters"]),
    "two distinct rows": ("a,b\n" + "1,2\n3,4\n" * 9, "number of distinct rows, 2"),
    "one row": ("a,b\n1,2\n", ["n_samples=1", "ask for fewer clusters"]),
    "not UTF-8": (b"a,b\n1,2\n\xff,3\n", ["line 3", "save the file as UTF-8"]),
}


@pytest.mark.parametrize("case", ROWS)
def test_a_bad_table_is_refused_in_one_line(refused, case):
    text, says = ROWS[case]
    write(rows_csv=text)
    refused("fit", "rows.csv", "-k", 3, "--out", "run", *FAST, code=2 if case == "one row" else 3, says=says)


def test_a_long_cell_is_cut_so_that_the_way_out_stays_in_sight(refused):
    numbers = "".join(f"{i}.5\n" for i in range(20))
    write(rows_csv=f"a\n{numbers}{'q' * 9000}\n")
    message = refused("fit", "rows.csv", "-k", 2, code=3, says=["qqq…", "correct or empty such cells"])
    assert len(message) < 500


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no.csv", "there is no such file"),
        (".", "is a folder"),
        ("x" * 300 + ".csv", "cannot be a file (File name too long)"),
    ],
    ids=["missing", "folder", "long"],
)
def test_a_file_that_cannot_be_there_is_refused(refused, name, says):
    write(rows_csv=table())
    refused("fit", name, "-k", 3, code=3, says=says)
    refused("fit", "rows.csv", "--edges", name, "-k", 3, code=3, says=says)


def test_there_is_no_option_to_impute(refused):
    write(rows_csv=table())
    refused("fit", "rows.csv", "-k", 3, "--impute", "mean", code=2, says="--impute")


def test_ids_that_name_two_rows_are_refused(refused):
    write(rows_csv=table(ids=["x", "x", "y", "y", *IDS[4:]]))
    says = ["2 ids occur more than once; the first: 'x', 'y'", "Ids must be unique"]
    refused("fit", "rows.csv", "--id", "id", "-k", 3, code=3, says=says)


def weighted(weight):
    return f"source,target,weight\nn0,n1,1\nn1,n2,{weight}\n"


EDGES = {
    "unknown ids": (
        edge_table(PATH, "zz,n1", "yy,xx", "n1,ww"),
        [
            "3 of 38 edges refer to ids that no row has; the first: 'zz', 'yy', 'xx'",
            "like 'n0'",
            "leave those edges out",
        ],
    ),
    "negative weight": (
        weighted(-2),
        ["must be positive", "1 of 2 are not", "-2 on edge n1→n2", "Leave such edges out"],
    ),
    "zero weight": (weighted(0), ["must be positive", "0 on edge n1→n2"]),
    "weight NaN": (weighted("nan"), ["row 1 (line 3), column 'weight'", "the weight of the edge"]),
    "empty file": ("", "edges.csv: is empty"),
    "no edges": ("source,target\n", ["has no edges", "leave the file out"]),
    "self-loops only": ("source,target\nn1,n1\n", ["no edges between different rows", "leave it out"]),
    "one end": ("source,target\nn1,n2\nn3,\n", ["row 1 (line 3)", "every edge needs two ends"]),
    "ragged": ("source,target\nn1,n2\nn3\n", "line 3: expected 2 cells, found 1"),
    "four columns": ("source,target,weight,year\nn1,n2,1,1999\n", "2 or 3 columns (source, target, weight)"),
}


@pytest.mark.parametrize("case", EDGES)
def test_a_bad_edge_list_is_refused_in_one_line(refused, case):
    text, says = EDGES[case]
    write(rows_csv=table(ids=IDS), edges_csv=text)
    refused("fit", "rows.csv", "--id", "id", "--edges", "edges.csv", "-k", 3, *FAST, code=3, says=says)


def test_edges_to_row_numbers_beyond_the_last_are_counted(refused):
    write(rows_csv=table(), edges_csv="0,1\n5,36\n-1,3\n")
    says = ["2 of 3 edges join rows that do not exist (rows are 0 to 35); the first: 5→36, -1→3"]
    refused("fit", "rows.csv", "--edges", "edges.csv", "-k", 3, code=3, says=says)


@pytest.mark.parametrize("name", ["edges.npy", "edges.npz", "edges.mtx"])
def test_an_adjacency_of_another_size_is_refused(refused, name):
    write(rows_csv=table())
    if name == "edges.npy":
        np.save(name, np.ones((35, 35), int))
    elif name == "edges.npz":
        sp.save_npz(name, sp.eye(35, format="csr"))
    else:
        __import__("scipy.io").io.mmwrite(name, sp.eye(35))
    says = [name, "35 × 35, but the features have 36 rows", "one row and one column for each"]
    refused("fit", "rows.csv", "--edges", name, "-k", 3, code=3, says=says)


def labels_after(pamc, *options):
    result = pamc("fit", "rows.csv", "--id", "id", *options, "-k", 3, "--out", "run", "--overwrite", *FAST)
    assert result.code == 0, result.err
    return Path("run/labels.csv").read_text(), result.err


def test_self_loops_and_repeated_edges_are_counted_once_and_change_nothing(pamc):
    write(rows_csv=table(ids=IDS), edges_csv=edge_table())
    plain, quiet = labels_after(pamc, "--edges", "edges.csv")
    write(edges_csv=edge_table(PATH, "n3,n3", "n5,n5", "n0,n1", "n0,n1", "n4,n5"))
    messy, notes = labels_after(pamc, "--edges", "edges.csv")
    assert messy == plain
    assert "note:" not in quiet
    assert notes.count("2 of 40 edges join a row with itself; these self-loops are left out") == 1
    assert notes.count("3 of 38 edges repeat an earlier one of the same direction; repeated edges count once") == 1


def test_a_directed_list_is_made_undirected_and_this_is_said_once(pamc):
    write(rows_csv=table(ids=IDS), edges_csv=edge_table(PATH, "n1,n0"))
    some, notes = labels_after(pamc, "--edges", "edges.csv")
    assert notes.count("the edges are directed: 34 pairs have one direction only") == 1
    write(edges_csv=edge_table(np.vstack([PATH, PATH[:, ::-1]])))
    both, quiet = labels_after(pamc, "--edges", "edges.csv")
    assert some == both
    assert "note:" not in quiet


@pytest.mark.parametrize(
    ("n_clusters", "says"),
    [
        ("0", "must be at least 2, got 0"),
        ("1", "must be at least 2, got 1"),
        ("-3", "must be at least 2, got -3"),
        ("2.5", "integer of at least 2, a range or auto, got '2.5'"),
        ("", "integer of at least 2, a range or auto, got ''"),
        ("37", ["n_clusters=37", "n_samples=36", "ask for fewer clusters"]),
    ],
)
def test_a_number_of_clusters_that_cannot_be_is_a_usage_error(refused, n_clusters, says):
    write(rows_csv=table())
    refused("fit", "rows.csv", "--n-clusters", n_clusters, "--out", "run", *FAST, code=2, says=says)


@pytest.mark.fast_variants(2)
@pytest.mark.parametrize("dtype", ["float64", "float16", "int64", "uint8", "bool"])
def test_arrays_of_any_number_type_are_fitted(pamc, dtype):
    np.save("rows.npy", np.round(X).clip(0, 200).astype(dtype))
    assert pamc("fit", "rows.npy", "-k", 2, *FAST, "--json").json["n_nodes"] == 36


def test_a_graph_of_many_components_with_zero_rows_and_a_constant_column_is_fitted(pamc):
    values = np.column_stack([np.where(np.arange(36)[:, None] < 3, 0, X), np.full(36, 7.0)])
    write(rows_csv=table(values, ids=IDS), edges_csv=edge_table(PATH[::2]))
    _, notes = labels_after(pamc, "--edges", "edges.csv")
    assert "note:" not in notes


@pytest.mark.parametrize("n_rows", [2, 3])
def test_two_or_three_rows_make_two_clusters(pamc, n_rows):
    write(rows_csv="".join(["a,b\n", "0,1\n", "5,9\n", "0,2\n"][: n_rows + 1]))
    result = pamc("fit", "rows.csv", "-k", 2, *FAST, "--json")
    assert sum(result.json["cluster_sizes"]) == n_rows
    assert result.err.count("all are used") == 1


NAMED = {
    "unicode": [f"né☃ {i}" for i in range(36)],
    "long": ["x" * 3000 + str(i) for i in range(36)],
    "padded numbers": [f"{i:03}" for i in range(36)],
    "numbers": [str(7 * i) for i in range(36)],
    "mixed": [str(i) if i % 2 else f"n{i}" for i in range(36)],
}


@pytest.mark.fast_variants(2)
@pytest.mark.parametrize("kind", NAMED)
def test_ids_of_every_kind_join_edges_and_come_back_as_they_were(pamc, kind):
    names = NAMED[kind]
    edges = "".join(f"{names[a]},{names[b]}\n" for a, b in PATH)
    write(rows_csv=table(ids=names), edges_csv="source,target\n" + edges)
    labels, _ = labels_after(pamc, "--edges", "edges.csv")
    assert [line.split(",")[0] for line in labels.splitlines()[1:]] == names
    write(edges_csv=edges)
    assert labels_after(pamc, "--edges", "edges.csv")[0] == labels


def test_padded_ids_are_not_the_numbers_they_look_like(refused):
    write(rows_csv=table(ids=NAMED["padded numbers"]), edges_csv="source,target\n1,2\n")
    says = ["the first: '1', '2'", "Ids of rows look like '000'"]
    refused("fit", "rows.csv", "--id", "id", "--edges", "edges.csv", "-k", 3, code=3, says=says)
