"""Tables into a store: the same graph as through memory, every bad row found, resumed after any kill."""

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from itertools import pairwise

import duckdb
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pamc.data.ingest import ingest
from pamc.data.ingest import run as ingest_run
from pamc.data.ingest.workspace import Workspace
from pamc.data.readers import read_graph
from pamc.data.store import open_store
from pamc.errors import ConfigError, DataError, DataWarning, OutputError
from pamc.graph.adjacency import build_adjacency

PEOPLE = "name,age,city\nann,1,7\nbob,2,8\ncyd,3,9\ndan,4,6\n"
FRIENDS = "source,target\nbob,ann\nann,bob\ncyd,bob\n"
ODD_NAMES = [
    'say "hi"',
    "a,b",
    "naïve",
    "日本",
    "🦉🌲",
    "O'Neil",
    "two\nlines",
    "tab\there",
    "-",
    "007",
    "NULL",
    "%",
    "#x",
]


@pytest.fixture
def people(write):
    return write("people.csv", PEOPLE)


@pytest.fixture
def take(tmp_path):
    """Ingest into tmp_path/s."""

    def call(features, edges=None, **options):
        return ingest(features, edges, out=tmp_path / "s", **options)

    return call


def adjacency_of(store):
    data = np.ones(store.n_stored) if store.weight is None else np.array(store.weight)
    shape = (store.n_nodes, store.n_nodes)
    return sp.csr_matrix((data, np.array(store.indices), np.array(store.indptr)), shape=shape)


def assert_same(store, features, edges, **options):
    """Compare a store with what the readers and the adjacency in memory make of the same files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        graph = read_graph(features, edges=edges, **options)
        assert (store.features == graph.features).all()
        assert store.ids().tolist() == graph.row_ids.tolist()
        assert store.feature_names == graph.feature_names
        assert (store.labels is None) == (graph.labels is None)
        if graph.labels is not None:
            assert (store.labels == graph.labels).all()
        if edges is None:
            assert not store.has_edges
            return
        expected = build_adjacency(graph.edges, graph.edge_weight, n_nodes=graph.n_nodes)
    assert (store.weight is None) == (graph.edge_weight is None)
    assert store.indptr.tolist() == expected.indptr.tolist()
    assert store.indices.tolist() == expected.indices.tolist()
    assert adjacency_of(store).data == pytest.approx(expected.data, rel=1e-6)
    again = store.to_graph()
    assert (build_adjacency(again.edges, again.edge_weight, n_nodes=graph.n_nodes) != adjacency_of(store)).nnz == 0


def random_files(folder, seed, *, ids, weighted, n_nodes=60, n_edges=300, n_features=3):
    rng = np.random.default_rng(seed)
    names = {
        "rows": [str(i) for i in range(n_nodes)],
        "integers": [str(i) for i in rng.permutation(10 * n_nodes)[:n_nodes] - 5 * n_nodes],
        "strings": [f"node {i}" for i in rng.permutation(n_nodes)],
    }[ids]
    rows, edges = folder / "rows.csv", folder / "edges.csv"
    with rows.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(["key"] if ids != "rows" else []), *(f"f{i}" for i in range(n_features)), "kind"])
        for name in names:
            values = rng.normal(size=n_features).tolist()
            writer.writerow([*([name] if ids != "rows" else []), *values, f"class {rng.integers(4)}"])
    with edges.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target", "weight"][: 2 + weighted])
        for a, b in rng.integers(n_nodes, size=(n_edges, 2)):
            writer.writerow([names[a], names[b], *([f"{rng.random() + 0.01:.3f}"] if weighted else [])])
    return rows, edges, {"id_column": None if ids == "rows" else "key", "truth_column": "kind"}


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("ids", ["rows", "integers", "strings"])
def test_random_tables_give_what_the_memory_path_gives(tmp_path, take, ids, weighted):
    rows, edges, options = random_files(tmp_path, 0, ids=ids, weighted=weighted)
    store = take(rows, edges, **options)
    assert store.id_kind == ids
    assert_same(store, rows, edges, **options)
    store.verify()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["edges.csv", "rows.csv", "s"]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), n_nodes=st.integers(1, 7), weighted=st.booleans())
def test_any_edges_give_the_adjacency_of_the_memory_path(tmp_path_factory, data, n_nodes, weighted):
    folder = tmp_path_factory.mktemp("any")
    row = st.integers(0, n_nodes - 1)
    pairs = data.draw(st.lists(st.tuples(row, row, st.integers(1, 5)), min_size=1, max_size=25))
    (folder / "r.csv").write_text("x\n" + "".join(f"{i}.5\n" for i in range(n_nodes)))
    lines = (f"{a},{b},{w}\n" if weighted else f"{a},{b}\n" for a, b, w in pairs)
    (folder / "e.csv").write_text(("source,target,weight\n" if weighted else "source,target\n") + "".join(lines))
    assert_same(ingest(folder / "r.csv", folder / "e.csv", out=folder / "s"), folder / "r.csv", folder / "e.csv")


def test_ids_of_every_kind_of_text_survive(tmp_path, take):
    with (tmp_path / "r.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["name", "x"], *([name, i] for i, name in enumerate(ODD_NAMES))])
    with (tmp_path / "e.csv").open("w", newline="", encoding="utf-8") as file:
        pairs = pairwise(ODD_NAMES)
        csv.writer(file).writerows([["source", "target"], *pairs])
    store = take(tmp_path / "r.csv", tmp_path / "e.csv", id_column="name")
    assert store.id_kind == "strings"
    assert store.ids().tolist() == ODD_NAMES
    assert store.ids(4, 6).tolist() == ODD_NAMES[4:6]
    assert_same(store, tmp_path / "r.csv", tmp_path / "e.csv", id_column="name")


@pytest.mark.parametrize("dress", ["tsv", "txt", "csv.gz", "semicolons", "bare", "parquet"])
def test_files_of_every_kind_read_alike(tmp_path, write, take, people, dress):
    edges = "bob\tann\t1.5\nann\tcyd\t2\n"
    if dress == "parquet":
        rows, file = tmp_path / "r.parquet", tmp_path / "e.parquet"
        duckdb.sql(f"COPY (SELECT * FROM read_csv('{people}')) TO '{rows}' (FORMAT parquet)")
        listed = write("e.tsv", "source\ttarget\tweight\n" + edges)
        duckdb.sql(f"COPY (SELECT * FROM read_csv('{listed}')) TO '{file}' (FORMAT parquet)")
    else:
        rows = people
        text = {"semicolons": edges.replace("\t", ";"), "csv.gz": edges.replace("\t", ",")}.get(dress, edges)
        header = "" if dress == "bare" else "source\ttarget\tweight\n".replace("\t", text[3])
        name = {"semicolons": "e.csv", "bare": "e.tsv"}.get(dress, f"e.{dress}")
        content = (header + text).encode()
        file = write(name, gzip.compress(content) if dress == "csv.gz" else content)
    store = take(rows, file, id_column="name")
    assert_same(store, rows, file, id_column="name")
    assert adjacency_of(store).toarray().tolist() == [[0, 1.5, 2, 0], [1.5, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("ids", ["rows", "integers"])
def test_parquet_numbers_are_ends_of_edges(tmp_path, take, ids):
    duckdb.sql(f"COPY (SELECT i * 10 AS key, i::FLOAT AS x FROM range(5) t(i)) TO '{tmp_path}/r.parquet'")
    factor = 1 if ids == "rows" else 10
    duckdb.sql(
        f"COPY (SELECT i * {factor} AS a, ((i + 1) % 5 * {factor})::DOUBLE AS b FROM range(5) t(i)) "
        f"TO '{tmp_path}/e.parquet'"
    )
    options = {"id_column": "key"} if ids == "integers" else {"drop": ["key"]}
    store = take(tmp_path / "r.parquet", tmp_path / "e.parquet", **options)
    assert store.id_kind == ids
    assert np.diff(store.indptr).tolist() == [2] * 5
    assert_same(store, tmp_path / "r.parquet", tmp_path / "e.parquet", **options)


def test_folders_and_patterns_of_parts_are_read_in_the_order_of_their_names(tmp_path, take):
    rows, edges = tmp_path / "rows", tmp_path / "edges"
    (rows / "b").mkdir(parents=True)
    edges.mkdir()
    (rows / "a.csv").write_text("name,x,y2\nann,1,5\nbob,2,6\n")
    (rows / "b" / "part.csv").write_text("y2,name,x\n7,cyd,3\n")
    (rows / "_SUCCESS").write_text("")
    (rows / ".a.csv.crc").write_text("x")
    (rows / "empty.csv").write_text("")
    (edges / "1.csv").write_text("ann,bob\n")
    (edges / "2.csv").write_text("source,target\nbob,cyd\n")
    store = take(rows, str(edges / "*.csv"), id_column="name")
    assert store.ids().tolist() == ["ann", "bob", "cyd"]
    assert store.features.tolist() == [[1, 5], [2, 6], [3, 7]]
    assert store.indices.tolist() == [1, 0, 2, 1]
    assert store.name == "rows"
    assert store.manifest["sources"] == [str(rows), str(edges / "*.csv")]


def test_rows_alone_isolated_rows_and_one_row(tmp_path, write, take, people):
    assert_same(take(people, id_column="name"), people, None, id_column="name")
    friends = write("f.csv", FRIENDS)
    store = take(people, friends, id_column="name", overwrite=True)
    assert np.diff(store.indptr).tolist() == [1, 2, 1, 0]
    assert store.manifest["facts"] == {
        "n_bad_rows": 0,
        "n_bad_edges": 0,
        "n_edge_lines": 3,
        "n_self_loops": 0,
        "n_repeated": 1,
    }
    one = take(write("one.csv", "x\n5\n"), write("loop.csv", "source,target\n0,0\n"), overwrite=True)
    assert one.n_nodes == 1
    assert one.n_stored == 0
    assert one.has_edges
    assert one.manifest["facts"]["n_self_loops"] == 1


def test_chosen_columns_and_half_precision(take, people):
    store = take(people, columns=["city"], dtype="float16")
    assert store.features.dtype == np.float16
    assert store.features.tolist() == [[7], [8], [9], [6]]
    assert store.feature_names == ("city",)
    assert store.to_graph().features.dtype == np.float32


def test_integer_truth_is_coded_in_the_order_of_the_numbers(write, take):
    store = take(write("r.csv", "x,kind\n1,10\n2,9\n3,10\n"), truth_column="kind")
    assert store.labels.tolist() == [1, 0, 1]


def test_a_graph_larger_than_the_memory_is_sorted_in_many_buckets(tmp_path, monkeypatch):
    rows, edges, options = random_files(tmp_path, 3, ids="strings", weighted=True, n_nodes=500, n_edges=30_000)
    import pamc.data.ingest.pairs as pairs

    monkeypatch.setattr(pairs, "SORTING_SHARE", 0.003)
    monkeypatch.setattr(pairs, "_BYTES_PER_PAIR", 1)
    store = ingest(rows, edges, out=tmp_path / "s", memory_bytes=256_000_000, **options)
    assert_same(store, rows, edges, **options)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_ids_that_fill_the_memory_are_joined_one_end_at_a_time(tmp_path, monkeypatch, weighted, refusal):
    rows, edges, options = random_files(tmp_path, 4, ids="strings", weighted=weighted)
    import pamc.data.ingest.pairs as pairs

    monkeypatch.setattr(pairs, "_NAMES_SHARE", 0)
    assert_same(ingest(rows, edges, out=tmp_path / "s", **options), rows, edges, **options)
    edges.write_text(edges.read_text() + ("node 1,eve,1\n" if weighted else "node 1,eve\n"))
    assert "no row has the id 'eve'" in refusal(ingest, rows, edges, out=tmp_path / "t", **options)
    if weighted:
        edges.write_text(edges.read_text().replace("node 1,eve,1", "node 1,node 2,0"))
        assert "the weight is '0'" in refusal(ingest, rows, edges, out=tmp_path / "t", **options)


BAD_ROWS = [
    ("name,x\nann,1\nbob,oops\ncyd,3\n", {}, "row 1 (line 3), column 'x': 'oops' is not a number"),
    ("name,x\nann,1\nbob,inf\ncyd,3\n", {}, "'inf', not finite"),
    ("name,x\nann,1\nbob,1e39\ncyd,3\n", {}, "1e39 is too large for float32"),
    ("name,x\nann,1\nann,2\ncyd,3\n", {}, "row 1 (line 3), column 'name': the id 'ann' is also that of an earlier row"),
    ("name,x\nann,1\n ,2\ncyd,3\n", {}, "row 1 (line 3), column 'name': the cell is empty; every row needs an id"),
    ("name,x\nann,1\nbob\ncyd,3\n", {}, "line 3: malformed: expected 2 cells of UTF-8 text, got 'bob'"),
    ("name,x\nann,1\nbob,2,3\ncyd,3\n", {}, "line 3: malformed: expected 2 cells"),
    ('name,x\nann,1\n"bob"b,2\ncyd,3\n', {}, "line 3: malformed"),
    (b"name,x\nann,1\n1\xff2,2\ncyd,3\n", {}, "line 3: malformed"),
    (
        "name,x,kind\nann,1,a\nbob,2,\ncyd,3,b\n",
        {"truth_column": "kind"},
        "column 'kind': the cell is empty; every row needs a true class",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "options", "part"), BAD_ROWS, ids=[row[2][:40] for row in BAD_ROWS])
def test_a_bad_row_is_refused_with_its_place_and_skipped_on_request(
    tmp_path, write, take, refusal, text, options, part, monkeypatch
):
    monkeypatch.setattr(ingest_run, "_MOST_STRAY", 0.5)
    rows = write("r.csv", text)
    edges = write("e.csv", "source,target\nann,cyd\n")
    message = refusal(take, rows, edges, id_column="name", **options)
    assert part in message
    assert "r.csv" in message
    assert "--skip-bad-rows" in message
    assert not list(tmp_path.glob("s*"))
    store = take(rows, edges, id_column="name", skip_bad_rows=True, **options)
    assert store.ids().tolist() == ["ann", "cyd"]
    assert store.features.tolist() == [[1], [3]]
    assert store.indices.tolist() == [1, 0]
    assert store.manifest["facts"]["n_bad_rows"] == 1
    with (store.folder / "bad-rows.csv").open(newline="", encoding="utf-8") as file:
        (listed,) = csv.DictReader(file)
    assert listed["part"] == "rows"
    assert listed["line"] == "3"
    assert listed["file"].endswith("r.csv")
    assert listed["reason"]
    assert "bad-rows.csv" in store.manifest["files"]


BAD_EDGES = [
    ("ann,eve", "row 1 (line 3), column 'target': no row has the id 'eve'", "strings"),
    ("eve,ann", "row 1 (line 3), column 'source': no row has the id 'eve'", "strings"),
    ("ann,", "row 1 (line 3), column 'target': the cell is empty; every edge needs two ends", "strings"),
    ("ann", "line 3: malformed", "strings"),
    ("9,10", "row 1 (line 3), column 'source': no row has the id '9'", "integers"),
    ("10,x", "row 1 (line 3), column 'target': no row has the id 'x'", "integers"),
    ("0,9", "row 1 (line 3), column 'target': '9' is not a row number", "rows"),
    ("-1,0", "'-1' is not a row number", "rows"),
    ("0.5,0", "'0.5' is not a row number", "rows"),
]


@pytest.mark.parametrize(("line", "part", "kind"), BAD_EDGES)
def test_a_bad_edge_is_refused_with_its_place_and_skipped_on_request(write, take, refusal, line, part, kind):
    names = {"strings": ["ann", "bob"], "integers": ["10", "20"], "rows": ["0", "1"]}[kind]
    rows = write("r.csv", f"key,x\n{names[0]},1\n{names[1]},2\n")
    edges = write("e.csv", f"source,target\n{names[0]},{names[1]}\n{line}\n")
    options = {"id_column": "key"} if kind != "rows" else {"drop": ["key"]}
    message = refusal(take, rows, edges, **options)
    assert part in message
    assert "e.csv" in message
    store = take(rows, edges, skip_bad_rows=True, **options)
    assert store.indices.tolist() == [1, 0]
    assert store.manifest["facts"]["n_bad_edges"] == 1
    assert "edges," in (store.folder / "bad-rows.csv").read_text()


@pytest.mark.parametrize("weight", ["0", "-2", "nan", "inf", "x", ""])
def test_a_weight_that_is_not_positive_is_refused(write, take, refusal, people, weight):
    edges = write("e.csv", f"source,target,weight\nann,bob,2\nbob,cyd,{weight}\n")
    message = refusal(take, people, edges, id_column="name")
    assert "row 1 (line 3), column 'weight'" in message
    assert "positive and at most 1e+30" in message
    assert take(people, edges, id_column="name", skip_bad_rows=True).n_stored == 2


def test_all_bad_rows_are_counted_and_listed(tmp_path, write, take, refusal, monkeypatch):
    monkeypatch.setattr(ingest_run, "_MOST_STRAY", 0.5)
    rows = write("r.csv", "name,x,z\nann,1,1\nbob,a,2\nann,b,3\nann,4,4\ncyd\n,5,5\ndan,6,6\n")
    edges = write("e.csv", "source,target\nann,dan\nann,bob\nzoe,dan\n,ann\n")
    message = refusal(take, rows, edges, id_column="name")
    assert "(4 more rows are invalid.)" in message
    store = take(rows, edges, id_column="name", skip_bad_rows=True)
    assert store.ids().tolist() == ["ann", "dan"]
    with (store.folder / "bad-rows.csv").open(newline="") as file:
        listed = [(row["part"], row["line"], row["column"], row["cell"]) for row in csv.DictReader(file)]
    assert listed == [
        ("rows", "6", "", "cyd"),
        ("rows", "3", "x", "a"),
        ("rows", "4", "x", "b"),
        ("rows", "5", "name", "ann"),
        ("rows", "7", "name", ""),
        ("edges", "3", "target", "bob"),
        ("edges", "4", "source", "zoe"),
        ("edges", "5", "source", ""),
    ]
    assert store.manifest["facts"]["n_bad_rows"] == 5
    assert store.manifest["facts"]["n_bad_edges"] == 3


def test_rows_after_a_badly_quoted_line_are_found_without_their_line(write, take):
    rows = write("r.csv", 'name,x\nann,1\n"bo"b,2\ncyd,oops\ndan,4\n')
    store = take(rows, id_column="name", skip_bad_rows=True)
    assert store.ids().tolist() == ["ann", "dan"]
    with (store.folder / "bad-rows.csv").open(newline="") as file:
        listed = [(row["line"], row["row"], row["cell"]) for row in csv.DictReader(file)]
    assert listed == [("3", "", '"bo"b,2'), ("", "1", "")]


def test_damaged_ids_are_named(take, people, refusal):
    store = take(people, id_column="name")
    path = store.folder / "ids.parquet"
    path.write_bytes(b"x" * path.stat().st_size)
    assert "ids.parquet: cannot be read; damaged?" in refusal(open_store(store.folder).ids)
    assert "ids.parquet changed" in refusal(store.verify)


def test_rows_by_number_keep_their_numbers_when_one_is_skipped(write, take, refusal):
    rows = write("r.csv", "x\n1\nbad\n3\n4\n")
    edges = write("e.csv", "source,target\n0,2\n1,3\n2,3\n")
    store = take(rows, edges, skip_bad_rows=True)
    assert store.ids().tolist() == [0, 2, 3]
    assert store.features.tolist() == [[1], [3], [4]]
    assert adjacency_of(store).toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert store.manifest["facts"]["n_bad_edges"] == 1
    malformed = write("m.csv", "x,z\n1,1\n2\n3,3\n")
    assert "cannot be skipped if edges refer to row numbers" in refusal(
        take, malformed, edges, skip_bad_rows=True, overwrite=True
    )


def test_bad_parquet_rows_are_named_by_their_number(tmp_path, take, refusal):
    duckdb.sql(f"COPY (SELECT 'n' || i AS name, CASE WHEN i = 2 THEN 'inf'::DOUBLE ELSE i END AS x FROM range(4) t(i)) "
               f"TO '{tmp_path}/r.parquet'")  # fmt: skip
    message = refusal(take, tmp_path / "r.parquet", id_column="name")
    assert "r.parquet: row 2, column 'x': the cell is 'inf', not finite" in message
    assert take(tmp_path / "r.parquet", id_column="name", skip_bad_rows=True).ids().tolist() == ["n0", "n1", "n3"]


def test_blank_divided_lines_of_another_length_are_bad(write, take, refusal, people):
    edges = write("e.txt", "ann bob\nbob\ncyd dan\n")
    assert "e.txt: row 1 (line 2)" in refusal(take, people, edges, id_column="name")
    assert take(people, edges, id_column="name", skip_bad_rows=True).n_stored == 4


def test_what_cannot_be_ingested_is_refused(tmp_path, write, take, refusal, people):
    assert "there is no such file" in refusal(take, tmp_path / "none.csv")
    assert "no file has such a name" in refusal(take, tmp_path / "none*.csv")
    (tmp_path / "empty").mkdir()
    assert "holds no table" in refusal(take, tmp_path / "empty")
    assert "holds no table" in refusal(take, write("x.npy", b""))
    assert "known endings" in refusal(take, people, write("e.mtx", ""))
    (tmp_path / "mixed").mkdir()
    write("mixed/a.csv", "x\n1\n")
    write("mixed/b.tsv", "x\n1\n")
    assert "several formats (.csv, .tsv)" in refusal(take, tmp_path / "mixed")
    assert "no rows" in refusal(take, write("head.csv", "x,z\n"))
    assert "no valid row is left of 1" in refusal(take, write("all.csv", "x\ninf\n"), skip_bad_rows=True)
    assert "2 or 3 columns" in refusal(take, people, write("four.csv", "0,1,2,3\n"), drop=["name"])
    assert "has no edges" in refusal(take, people, write("none.csv", "source,target\n"), id_column="name")
    assert "--id names 'nam'" in refusal(take, people, id_column="nam")
    assert "dtype must be" in refusal(take, people, dtype="int8", error=ConfigError)
    assert "at least 256 MB, got 1 MB" in refusal(take, people, memory_bytes=10**6, error=ConfigError)
    assert "m.csv: cannot be read; damaged, or mixed line endings?" in refusal(take, write("m.csv", "x\r\n1\r\n2\n"))
    write("empty/p.parquet", "PAR1 no")
    assert "p.parquet: cannot be read" in refusal(take, tmp_path / "empty")
    assert not list(tmp_path.glob("s.*"))


def test_parts_with_other_columns_are_refused(tmp_path, write, take, refusal, people):
    for folder in ("rows", "more", "edges"):
        (tmp_path / folder).mkdir()
    write("rows/a.csv", "x,z\n1,2\n")
    write("rows/b.csv", "x,w\n1,2\n")
    assert "b.csv: has no column 'z', unlike" in refusal(take, tmp_path / "rows")
    write("more/a.csv", "x\n1\n")
    write("more/b.csv", "x,w\n1,2\n")
    assert "b.csv: has a column 'w', unlike" in refusal(take, tmp_path / "more")
    write("edges/a.csv", "ann,bob\n")
    write("edges/b.csv", "ann,cyd,2\n")
    assert "b.csv: has 3 columns and" in refusal(take, people, tmp_path / "edges", id_column="name")


def test_an_unusual_header_before_names_is_said_aloud(write, take, people):
    with pytest.warns(DataWarning, match=r"first line \(paper, cites\) matches no row"):
        store = take(people, write("e.csv", "paper,cites\nann,bob\n"), id_column="name")
    assert store.n_stored == 2


def test_a_store_is_replaced_only_when_told_to_and_is_no_table(take, people, refusal):
    store = take(people, id_column="name")
    assert "already holds a store" in refusal(take, people, id_column="name", error=OutputError)
    assert "is a store already" in refusal(ingest, store.folder, out="other")
    assert take(people, columns=["age"], overwrite=True).n_features == 1


class Stops:
    """A progress that lets something happen at the k-th event."""

    def __init__(self, at, action):
        self.left, self.action = at, action

    def event(self):
        if self.left == 0:
            self.action()
        self.left -= 1

    def phase(self, name, total=None):
        return self

    def __enter__(self):
        self.event()
        return self

    def __exit__(self, *_):
        self.event()

    def advance(self, **_):
        self.event()


def interrupt():
    raise KeyboardInterrupt


def test_an_interrupt_leaves_no_store_but_what_is_needed_to_go_on(tmp_path, refusal):
    rows, edges, options = random_files(tmp_path, 1, ids="strings", weighted=True)
    whole = ingest(rows, edges, out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        ingest(rows, edges, out=tmp_path / "s", progress=Stops(9, interrupt), **options)
    assert not (tmp_path / "s").exists()
    assert "--resume" in refusal(ingest, rows, edges, out=tmp_path / "s", error=OutputError, **options)
    other = refusal(ingest, rows, out=tmp_path / "s", resume=True, error=OutputError, **options)
    assert "other files or options" in other
    store = ingest(rows, edges, out=tmp_path / "s", resume=True, **options)
    assert store.manifest["files"] == whole.manifest["files"]
    assert not (tmp_path / "s.partial").exists()


def test_files_that_changed_are_not_gone_on_with(tmp_path, refusal):
    rows, edges, options = random_files(tmp_path, 1, ids="rows", weighted=False)
    with pytest.raises(KeyboardInterrupt):
        ingest(rows, edges, out=tmp_path / "s", progress=Stops(6, interrupt), **options)
    edges.write_text(edges.read_text() + "0,1\n")
    message = refusal(ingest, rows, edges, out=tmp_path / "s", resume=True, error=OutputError, **options)
    assert "or the files have changed" in message
    assert (tmp_path / "s.partial").exists()


def test_two_ingests_do_not_write_to_one_place(tmp_path, people):
    script = f"""
from pathlib import Path
from pamc.data.ingest.workspace import Workspace
Workspace(Path({str(tmp_path)!r}), memory_bytes=10**9, n_threads=1)
"""
    with Workspace(tmp_path, memory_bytes=10**9, n_threads=1):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "another ingest is using this folder" in done.stderr


def test_steps_happen_with_their_record_or_not_at_all(tmp_path, refusal):
    with Workspace(tmp_path, memory_bytes=10**9, n_threads=1) as workspace:
        workspace.run("CREATE TABLE t (x INTEGER)")

        def interrupted():
            workspace.run("INSERT INTO t VALUES (1)")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            workspace.once("one", interrupted)
        assert workspace.value("SELECT count(*) FROM t") == 0
        assert workspace.info("one") is None
        assert workspace.once("one", lambda: {"n": 3}) == {"n": 3}
        assert workspace.once("one", interrupted) == {"n": 3}
        assert "cannot be read" in refusal(workspace.run, "SELECT * FROM no_table")
    with Workspace(tmp_path, memory_bytes=10**9, n_threads=1) as workspace:
        assert workspace.info("one") == {"n": 3}


def test_too_little_memory_is_said_in_one_line(tmp_path, refusal):
    with Workspace(tmp_path, memory_bytes=10**7, n_threads=1) as workspace:
        query = "SELECT list(i) FROM range(50000000) t(i)"
        message = refusal(workspace.run, query, error=OutputError)
    assert "larger --memory" in message


KILLED = """
    import json, os, signal, sys
    from tests.data.test_ingest import Stops
    from pamc.data.ingest import ingest
    rows, edges, out, at, options = json.loads(sys.argv[1])
    ingest(rows, edges, out=out, progress=Stops(at, lambda: os.kill(os.getpid(), signal.SIGKILL)), **options)
"""


def count_events(rows, edges, out, options):
    counter = Stops(10**9, interrupt)
    store = ingest(rows, edges, out=out, progress=counter, **options)
    return 10**9 - counter.left, store.manifest["files"]


@pytest.mark.slow
@pytest.mark.parametrize("bad", [False, True], ids=["good", "bad-rows"])
@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_an_ingest_that_was_killed_at_any_step_ends_as_if_it_had_not_been(tmp_path, bad, stride):
    rows, edges, options = random_files(tmp_path, 2, ids="integers" if bad else "strings", weighted=True)
    if bad:
        rows.write_text(rows.read_text() + "777777,oops,1,2,class 1\n")
        edges.write_text(edges.read_text() + "777777,777777,1\n")
        options["skip_bad_rows"] = True
    n_events, expected = count_events(rows, edges, tmp_path / "whole", options)
    assert n_events > 12
    # The last event comes when all is done.
    for at in range(bad, n_events - 1, stride):
        out = tmp_path / f"s{at}"
        argument = json.dumps([str(rows), str(edges), str(out), at, options])
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(KILLED), argument],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.returncode == -signal.SIGKILL
        assert not out.exists()
        store = ingest(rows, edges, out=out, resume=True, **options)
        assert store.manifest["files"] == expected
        store.verify()


def test_a_kill_before_the_rename_is_resumed(tmp_path, people):
    store = ingest(people, out=tmp_path / "s", id_column="name")
    store.folder.rename(tmp_path / "s.partial")
    assert ingest(people, out=tmp_path / "s", id_column="name", resume=True).n_nodes == 4
    assert not (tmp_path / "s.partial").exists()


MEASURED = """
    import json, sys, threading
    from pamc.data.ingest import ingest
    rows, edges, out = sys.argv[1:]
    peak, over = 0, threading.Event()

    def anonymous():
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) * 1024

    def watch():
        global peak
        while not over.wait(0.005):
            peak = max(peak, anonymous())

    threading.Thread(target=watch, daemon=True).start()
    ingest(rows, edges, out=out, id_column="id", memory_bytes=256_000_000, n_threads=2)
    over.set()
    print(peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="anonymous memory is read from /proc")
def test_files_several_times_larger_than_the_memory_stay_inside_it(tmp_path):
    rows, edges = tmp_path / "r.csv", tmp_path / "e.csv"
    name = "'a rather long name of the user ' || lpad({}::VARCHAR, 9, '0')"
    duckdb.sql(f"COPY (SELECT {name.format('i')} AS id, {', '.join(f'random() AS f{j}' for j in range(16))} "
               f"FROM range(1000000) t(i)) TO '{rows}'")  # fmt: skip
    end = name.format("floor(random() * 1000000)::BIGINT")
    duckdb.sql(f"COPY (SELECT {end} AS source, {end} AS target FROM range(12000000)) TO '{edges}'")
    assert rows.stat().st_size + edges.stat().st_size > 4 * 256e6
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURED), rows, edges, tmp_path / "s"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 256e6
    assert open_store(tmp_path / "s").n_stored > 20_000_000


def test_a_data_error_removes_the_partial(tmp_path, write):
    with pytest.raises(DataError):
        ingest(write("r.csv", "x\nbad\n"), out=tmp_path / "deep" / "s")
    assert not (tmp_path / "deep").exists()
