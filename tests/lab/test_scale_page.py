"""The rows of the page of large data hold what is promised."""

import pytest

from pamc.lab.rows import stored

pytestmark = pytest.mark.claims


@pytest.mark.parametrize(("n_nodes", "seconds", "gibibytes"), [(10_000_000, 0.5, 125), (111_000_000, 6.0, 125)])
def test_exact_epochs_are_as_fast_and_as_small_as_promised(n_nodes, seconds, gibibytes):
    (row,) = [row for row in stored("scale", device="cuda") if row["parameters"]["n_nodes"] == n_nodes]
    values = row["values"]
    assert values["seconds"] <= seconds
    assert values["peak_bytes"] <= gibibytes * 2**30
    assert values["n_assigned"] == n_nodes
    assert values["n_stored"] == 28 * n_nodes


def test_time_and_memory_are_linear():
    (row,) = [row for row in stored("scale", device="cuda") if "time_exponent" in row["values"]]
    assert row["values"]["time_exponent"] <= 1.03
    assert row["values"]["memory_exponent"] <= 1.03


def test_ingest_keeps_to_its_memory_and_no_killed_run_is_lost():
    (ingest,) = [row for row in stored("ingest") if row["provider"] == "pamc ingest"]
    assert ingest["parameters"]["n_edges"] >= 50_000_000
    assert ingest["values"]["peak_anonymous_bytes"] <= 2 * 10**9
    crashes = stored("crashes")[-1]["values"]
    assert crashes["n_kills"] >= 20
    assert crashes["resumes_failed"] == crashes["runs_with_other_labels"] == 0
    assert stored("processes")[-1]["values"]["throughput"] >= 0.85


def test_a_store_larger_than_its_memory_is_fitted():
    (row,) = [row for row in stored("large-fit") if row["parameters"]["n_nodes"] == 1_000_000]
    assert row["parameters"]["n_features"] == 512
    assert row["values"]["peak_anonymous_bytes"] <= 1.5e9
    assert row["values"]["seconds"] <= 30 * 60
    assert row["values"]["nmi"] > 0.5
