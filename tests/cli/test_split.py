import json

import pytest

from tests.cli.conftest import FAST

pytestmark = pytest.mark.usefixtures("few_repeats")


def test_a_cluster_of_a_run_is_divided_with_its_edges(pamc, table, tmp_path):
    rows, edges = table
    options = ["--id", "name", "--truth", "kind", "--edges", edges, "-k", 3, "--out", "run"]
    assert pamc("fit", rows, *options, *FAST).code == 0
    done = pamc("split", "run", 1, "--json")
    assert done.code == 0, done.err
    lines = [line.split(",") for line in (tmp_path / "run" / "labels.csv").read_text().splitlines()[1:]]
    inside = [name for name, cluster, _ in lines if cluster == "1"]
    divided = [line.split(",")[0] for line in (tmp_path / "run-1" / "labels.csv").read_text().splitlines()[1:]]
    assert divided == inside
    assert sum(done.json["cluster_sizes"]) == len(inside)
    record = json.loads((tmp_path / "run-1" / "run.json").read_text())
    assert record["data"]["split_of"] == "run"
    assert record["facts"]["graph"] == "given"
    assert pamc("report", "run-1").code == 0


def test_a_wrong_cluster_and_lost_rows_are_refused(pamc, table):
    rows, _ = table
    assert pamc("fit", rows, "--id", "name", "--truth", "kind", "-k", 3, "--out", "run", *FAST).code == 0
    wrong = pamc("split", "run", 7)
    assert (wrong.code, "cluster must be an integer from 0 to 2, got 7" in wrong.err) == (2, True)
    rows.unlink()
    gone = pamc("split", "run", 1)
    assert (gone.code, "cannot be read again" in gone.err) == (3, True)
