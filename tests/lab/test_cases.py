import dataclasses
import functools
import json
import subprocess

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc.lab import sweep
from pamc.lab.cases import epoch, whole_fits
from pamc.lab.cases.epoch import part_values, sparse_values
from pamc.lab.cases.loss import exponents, moved_bytes
from pamc.lab.cell import CASES, TASKS, Case, Cell, Scope, cases_of
from pamc.lab.measure import call_values, is_out_of_memory, peak_memory
from pamc.lab.pages.style import bytes_text, ratio_to_pamc, tables
from pamc.lab.providers import PROVIDERS
from pamc.lab.rows import fitted_exponent, latest, make_row, read_rows
from pamc.lab.sweep import OUT_OF_MEMORY, run_case
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader
from pamc.runtime import generator
from pamc.training.assign import assign_rows

CPU = torch.device("cpu")
QUICK = Scope(device="cpu", quick=True)
ORIGIN = {"date": "2024-05-01T10:00:00Z", "device": "cpu", "environment": {}}
START = epoch.beginning("blocks", True)


@pytest.fixture
def notes():
    return []


@pytest.fixture(scope="module")
def quick_rows(tmp_path_factory):
    """Return the rows of a case, its notes and the folder; a case runs once."""
    folder = tmp_path_factory.mktemp("rows")

    @functools.cache
    def rows_of(name):
        said = []
        return run_case(CASES[name], QUICK, folder, note=said.append), said, folder

    return rows_of


# The others take long, need other programs, or are tested where runs are killed.
CHEAP = [name for name, case in cases_of("case").items() if case.in_all]
SLOW = ["choose_k", "confidence", "ingest", "neighbors", "processes"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CHEAP, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_every_case_gives_rows_that_can_be_read_again(name, quick_rows):
    rows, notes, tmp_path = quick_rows(name)
    assert rows
    assert not [row for row in rows if row["error"] is not None]
    assert rows == read_rows(tmp_path / f"{name}.jsonl")
    for row in rows:
        assert row["case"] == name
        assert row["device"] == "cpu"
        assert row["quick"] is True
        assert row["environment"]["packages"]["torch"]
        assert all(np.isfinite(value) for value in row["values"].values() if isinstance(value, float))
    shown = tables(name, rows)
    assert shown
    assert all(len(line) == len(table.columns) for _, table in shown for line in table.rows)
    assert all("triton" in note for note in notes)


@pytest.mark.slow
def test_loss_has_all_providers_and_an_exponent_for_each_sweep(quick_rows):
    rows = quick_rows("loss")[0]
    assert {row["provider"] for row in rows} == {"dense", "released", "torch"}
    fitted = [row for row in rows if "time_exponent" in row["values"]]
    assert {(row["provider"], row["parameters"]["sweep"]) for row in fitted} >= {
        ("dense", "n_nodes"),
        ("released", "degree"),
        ("torch", "n_clusters"),
    }
    at = {row["provider"]: row for row in rows if row["parameters"]["n_nodes"] == 4000}
    assert len(tables("loss", rows)) == 5
    assert ratio_to_pamc(rows, at["dense"], "peak_bytes") > 20
    assert ratio_to_pamc(rows, at["torch"], "seconds") == 1


def test_exponents_are_those_of_the_larger_sizes():
    def row(size, seconds):
        values = {"fastest_s": seconds, "peak_bytes": 10 * size**2, "ns_per_pair": seconds / size}
        cell = Cell("loss", "loss", "torch", parameters={"sweep": "n_nodes", "n_nodes": size})
        return make_row(cell, ORIGIN, values=values)

    (fitted,) = exponents([row(2, 5.0), row(10, 10.0), row(20, 20.0), row(40, 40.0)])
    assert fitted["parameters"]["n_nodes"] == [10, 40]
    assert fitted["values"]["time_exponent"] == pytest.approx(1.0)
    assert fitted["values"]["memory_exponent"] == pytest.approx(2.0)
    assert fitted["values"]["ns_per_pair_ratio"] == pytest.approx(1.0)
    assert exponents([row(1, 5.0)]) == []
    assert fitted_exponent([1, 2], [1, 8]) == pytest.approx(3.0)


@pytest.mark.slow
@pytest.mark.parametrize("provider", [name for name in epoch.TRAINERS if name != "triton"])
def test_every_trainer_runs_and_says_what_it_took(provider):
    values = epoch.training_values(provider, START, CPU, "float32", n_epochs=2)
    assert values["seconds"] > 0
    assert values["n_nodes"] == 300
    assert values["input_bytes"] == START.dense_features.nbytes
    json.dumps(values, allow_nan=False)


@pytest.mark.parametrize("part", ["positive term", "clustering term"])
def test_a_term_is_measured_by_itself(part):
    assert part_values(part, START, CPU)["seconds"] > 0


def test_a_beginning_does_not_change_when_it_is_trained_from():
    before = [tensor.clone() for tensor in (START.centers, *START.encoder.parameters())]
    for provider in ("dense", "released", "torch", "encoder"):
        epoch.TRAINERS[provider](START, CPU, "float32")(2)
    part_values("clustering term", START, CPU)
    after = (START.centers, *START.encoder.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert not START.centers.requires_grad


def test_sparse_input_is_compared_with_dense():
    values = START.features * (START.features > 1.5)
    start = dataclasses.replace(START, features=sp.csr_matrix(values.astype(np.float32)))
    found = sparse_values(start, CPU, "float32", quick=True)
    assert found["times_faster"] == pytest.approx(found["dense_s"] / found["seconds"])
    assert found["first_layer_s"] > 0


@pytest.fixture
def task(monkeypatch):
    """Return cells whose task is a function of the cell."""

    def cells(function, numbers=(0,)):
        monkeypatch.setitem(TASKS._entries, "test-task", lambda cell, device: function(cell.parameters["number"]))
        return [Cell("broken", "test-task", "someone", parameters={"number": n}, quick=True) for n in numbers]

    return cells


@pytest.mark.slow
def test_what_runs_out_of_memory_or_fails_is_a_row_and_the_rest_goes_on(tmp_path, notes, task):
    errors = [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate"),
        ValueError("something\nelse"),
    ]

    def measure(number):
        if number < len(errors):
            raise errors[number]
        return {"seconds": 1.0}

    cells = task(measure, range(5))
    case = Case("broken", "fails", lambda scope: cells)
    rows = run_case(case, QUICK, tmp_path, note=notes.append)
    assert [row["error"] for row in rows] == [OUT_OF_MEMORY] * 3 + ["ValueError: something else", None]
    assert rows == read_rows(tmp_path / "broken.jsonl")
    assert len(notes) == 1
    assert "ValueError" in notes[0]
    ((_, table),) = tables("broken", rows)
    assert [line[2] for line in table.rows] == [OUT_OF_MEMORY] * 3 + ["ValueError: something else", "1.00 s"]
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.slow
def test_on_a_cpu_the_fastest_round_counts(tmp_path, task):
    times = iter([3.0, 1.0, 2.0])
    cells = task(lambda number: {"seconds": next(times)})
    (row,) = run_case(Case("rounds", "", lambda scope: cells, n_rounds=3), Scope(device="cpu"), tmp_path)
    assert row["values"]["seconds"] == 1.0
    assert read_rows(tmp_path / "rounds.jsonl") == [row]


def test_a_refused_provider_and_missing_data_are_said_and_not_measured(tmp_path, notes, monkeypatch):
    monkeypatch.setattr(sweep, "why_refused", lambda provider, device: "its gradient is off")
    monkeypatch.setenv("PAMC_DATA", str(tmp_path))
    monkeypatch.setenv("PAMC_CACHE", str(tmp_path))
    cells = [Cell("none", "loss", "torch"), Cell("none", "whole-fit", "pamc", "reut")]
    assert run_case(Case("none", "", lambda scope: cells), QUICK, tmp_path, note=notes.append) == []
    assert any(note.startswith("skipped: torch") for note in notes)
    assert any("skipped" in note and "reut" in note for note in notes)
    assert set(PROVIDERS) == {"dense", "released", "torch", "triton"}


def test_the_newest_row_of_each_device_counts():
    old = make_row(Cell("loss", "loss", "torch", parameters={"a": 1}), ORIGIN, values={"seconds": 2.0})
    rows = [old, {**old, "device": "cuda"}, {**old, "values": {"seconds": 1.0}}]
    assert [(row["device"], row["values"]["seconds"]) for row in latest(rows)] == [("cpu", 1.0), ("cuda", 2.0)]


def test_memory_of_a_call_is_what_it_adds():
    kept = torch.ones(1 << 22)
    with peak_memory(CPU) as peak:
        (kept + 1).sum()
    assert 15 << 20 < peak.n_bytes < 24 << 20
    values = call_values(lambda: kept.add(1), CPU, budget_s=0.0)
    assert values["n_calls"] == 3
    assert 15 << 20 < values["peak_bytes"] < 24 << 20
    assert bytes_text(values["peak_bytes"]).endswith("MiB")


def test_bytes_of_the_positive_term():
    assert moved_bytes(2, 10) == 2 * (4 + 4 + 40 + 4 + 8 + 40)


def test_rows_on_the_device_have_the_labels_of_rows_from_the_host():
    features = np.random.default_rng(0).standard_normal((700, 8), dtype=np.float32)
    encoder, centers = MLP((8, 20, 4), generator=generator(0, "weights")), torch.eye(4)
    host = FeatureLoader(features, device=CPU, dtype=torch.float32)
    here = FeatureLoader(torch.from_numpy(features), device=CPU, dtype=torch.float32)
    labels = [assign_rows(encoder, centers, rows, eta=1.0, chunk_size=100)[1].argmax(1) for rows in (host, here)]
    assert torch.equal(*labels)


def test_fits_on_a_cpu_cover_sizes_many_clusters_and_a_busy_machine():
    cells = whole_fits.fit_cells(Scope(device="cpu"))
    parameters = [cell.parameters for cell in cells if cell.provider == "pamc" and cell.parameters]
    assert {cell["n_rows"] for cell in parameters if list(cell) == ["n_rows"]} == set(whole_fits.TIMED_ROWS)
    assert [cell["n_clusters"] for cell in parameters if "n_busy" not in cell and "n_clusters" in cell] == [
        20,
        100,
        500,
    ]
    assert [cell["n_threads"] for cell in parameters if "n_busy" in cell] == [1, 2]
    assert [cell.data_set for cell in cells if cell.provider == "choose_k"] == ["digits"]


def test_a_fit_is_timed_beside_busy_processes_that_end_with_it(monkeypatch):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command: started.append(popen(command)) or started[-1])
    n_threads = torch.get_num_threads()
    parameters = {"n_rows": 60, "n_features": 2, "n_clusters": 3, "n_busy": 2, "n_threads": 1}
    values = whole_fits.whole_fit(Cell("fit", "whole-fit", "pamc", parameters=parameters, quick=True), "cpu")
    assert values["seconds"] > 0
    assert len(started) == 2
    assert all(process.returncode is not None for process in started)
    assert torch.get_num_threads() == n_threads
