"""`pamc fit` with several relations."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import FAST


@pytest.fixture
def files(table):
    """Return the rows, the edges, and a file of random edges and one of memberships."""
    rows, edges = table
    rng = np.random.default_rng(0)
    noise = "".join(f"node {a},node {b}\n" for a, b in rng.integers(150, size=(300, 2)) if a != b)
    Path("noise.csv").write_text(noise, encoding="utf-8")
    clubs = "".join(f"node {i},club {i % 3}-{i % 20}\n" for i in range(150))
    Path("clubs.csv").write_text(clubs, encoding="utf-8")
    return rows, edges


def test_relations_of_edge_files_and_memberships_go_through_fit_and_report(pamc, files):
    rows, edges = files
    named = ["--edges", f"cites={edges}", "--edges", "noise=noise.csv", "--members", "club=clubs.csv"]
    fitted = pamc("fit", rows, "--id", "name", "--truth", "kind", *named, "-k", 3, "--out", "run", *FAST)
    assert fitted.code == 0, fitted.err
    record = json.loads(Path("run/run.json").read_text(encoding="utf-8"))
    assert set(record["facts"]["relation_weights"]) == {"cites", "noise", "club"}
    assert record["facts"]["relation_weights"]["noise"] == 0.0
    assert record["data"]["edges"] == {"cites": str(edges), "noise": "noise.csv"}
    assert record["data"]["members"] == {"club": "clubs.csv"}
    assert "The graph consists of 3 relations" in Path("run/report.html").read_text(encoding="utf-8")
    Path("run/report.html").unlink()
    again = pamc("report", "run")
    assert again.code == 0, again.err


def test_weights_of_relations_are_options(pamc, files):
    rows, edges = files
    options = ["--edges", f"a={edges}", "--edges", "b=noise.csv", "--relation-weights", "a=3, b=1"]
    fitted = pamc("fit", rows, "--id", "name", "--truth", "kind", *options, "-k", 3, "--out", "run", *FAST)
    assert fitted.code == 0, fitted.err
    record = json.loads(Path("run/run.json").read_text(encoding="utf-8"))
    assert record["facts"]["relation_weights"] == {"a": 0.75, "b": 0.25}


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            ["--edges", "a=noise.csv", "--edges", "noise.csv"],
            2,
            "--edges takes NAME=FILE for each of several",
        ),
        (["--edges", "a=noise.csv", "--edges", "a=noise.csv"], 2, "--edges names the relation 'a' twice"),
        (["--members", "clubs.csv"], 2, "--members takes NAME=FILE"),
        (["--edges", "a=noise.csv", "--relation-weights", "a"], 2, "--relation-weights takes NAME=NUMBER"),
        (["--edges", "a=noise.csv", "--relation-weights", "b=1"], 2, "'b'"),
        (["--edges", "a=noise.csv", "--relation-weights", "a=-1"], 2, "must be a number of at least 0, got -1.0"),
        (["--edges", "noise.csv", "--relation-weights", "a=1"], 3, "relation_weights needs relations"),
        (["--edges", "a=nowhere.csv"], 3, "nowhere.csv"),
        (["--edges", "a=noise.csv", "--members", "a=clubs.csv"], 3, "two relations have the name 'a'"),
    ],
)
def test_wrong_relations_end_with_one_line(pamc, files, options, code, message):
    rows, _ = files
    result = pamc("fit", rows, "--id", "name", "--truth", "kind", *options, "-k", 3, *FAST)
    assert result.code == code
    assert message in " ".join(result.err.split())


def test_relations_are_ingested_and_fitted_from_the_store(pamc, files):
    rows, edges = files
    named = ["--edges", f"cites={edges}", "--edges", "noise=noise.csv", "--members", "club=clubs.csv"]
    stored = pamc("ingest", rows, *named, "--id", "name", "--truth", "kind", "--out", "store", "--quiet")
    assert stored.code == 0, stored.err
    assert "in 3 relations (cites, noise, club)" in " ".join(stored.out.split())
    fitted = pamc("fit", "store", "--relation-weights", "cites=3,noise=0,club=1", "-k", 3, "--out", "run", *FAST)
    assert fitted.code == 0, fitted.err
    record = json.loads(Path("run/run.json").read_text(encoding="utf-8"))
    assert record["facts"]["relation_weights"] == {"cites": 0.75, "noise": 0.0, "club": 0.25}
    assert "The graph consists of 3 relations" in Path("run/report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["noise.csv", "--edges", "a=noise.csv"], 2, "give every relation a name: --edges NAME=noise.csv"),
        (["--edges", "noise.csv"], 2, "--edges takes NAME=FILE"),
        (["--edges", "a=noise.csv", "--members", "a=clubs.csv"], 3, "two relations have the name 'a'"),
        (
            ["--edges", "a=noise.csv", "--edges", "b=wrong.csv"],
            3,
            "wrong.csv: row 0 (line 2), column 'source': no row has the id 'x'",
        ),
        (
            ["--edges", "a=noise.csv", "--edges", "b=loops.csv"],
            3,
            "loops.csv: has no edges between different rows: leave it out",
        ),
        (["--members", "a=wrong.csv"], 3, "wrong.csv: row 0 (line 2), column 'source': no row has the id 'x'"),
        (["--members", "a=all.csv"], 3, "the memberships join no rows"),
        (["--edges", "a=negative.csv"], 3, "the weight is '-1'; weights must be positive"),
    ],
)
def test_wrong_relations_of_a_store_end_with_one_line(pamc, files, options, code, message):
    rows, _ = files
    Path("wrong.csv").write_text("source,target\nx,node 1\n", encoding="utf-8")
    Path("loops.csv").write_text("source,target\nnode 1,node 1\n", encoding="utf-8")
    Path("all.csv").write_text("".join(f"node {i},all\n" for i in range(150)), encoding="utf-8")
    Path("negative.csv").write_text("source,target,weight\nnode 0,node 1,-1\n", encoding="utf-8")
    result = pamc("ingest", rows, *options, "--id", "name", "--truth", "kind", "--out", "store", "--quiet")
    assert result.code == code
    assert message in " ".join(result.err.split())
    assert not Path("store").exists()


def test_an_unknown_id_names_the_file_of_its_relation(pamc, files):
    rows, edges = files
    Path("wrong.csv").write_text("node 1,node 999\n", encoding="utf-8")
    named = ["--edges", f"cites={edges}", "--edges", "wrong=wrong.csv"]
    result = pamc("fit", rows, "--id", "name", "--truth", "kind", *named, "-k", 3, *FAST)
    assert result.code == 3
    assert "wrong.csv: 1 of 1 edges refer to ids that no row has; the first: 'node 999'" in result.err
