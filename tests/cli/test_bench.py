from pathlib import Path

import pytest

from pamc.lab import cell
from pamc.lab.cell import Case, Cell, cases_of
from pamc.lab.rows import read_rows
from pamc.registry import Registry


def test_the_cases_are_listed_with_a_line_each(pamc):
    result = pamc("bench", "--list")
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()] == list(cases_of("case"))
    assert [case["name"] for case in pamc("bench", "--list", "--json").json] == list(cases_of("case"))


@pytest.mark.slow
def test_a_quick_run_prints_a_table_and_keeps_its_rows(pamc):
    result = pamc("bench", "loss", "--quick", "--device", "cpu")
    assert result.code == 0, result.err
    for word in ("released", "torch", "MiB", "× time", "time exponent", "not a result"):
        assert word in result.out
    assert "skipped: triton" in result.err
    assert "cells" in result.err
    assert read_rows(Path("pamc-bench/loss.jsonl"))


def test_json_has_the_rows_that_were_written(pamc):
    result = pamc("bench", "ceilings", "--quick", "--device", "cpu", "--json", "--quiet", "--out", "here")
    assert result.code == 0
    assert result.err == ""
    assert result.json["rows"] == read_rows(Path("here/ceilings.jsonl"))
    assert result.json["out"] == "here"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["los"], 2, "did you mean 'loss'"),
        ([], 2, "name one or more cases, or all: ceilings, choose_k"),
        (["loss", "--precision", "half"], 2, "unknown precision 'half'"),
        (["fit", "--dataset", "usp"], 2, "did you mean 'usps'"),
        (["loss", "--device", "gpu"], 2, "unknown device"),
        (["loss", "--out", "taken"], 3, "is a file"),
    ],
)
def test_what_cannot_be_run_is_one_line(pamc, arguments, code, said):
    Path("taken").write_text("")
    result = pamc("bench", *arguments)
    assert result.code == code
    assert said in result.err
    assert result.err.count("\n") == 1


@pytest.fixture
def broken(monkeypatch):
    # All cases are found first: they are not to be filed in this registry.
    assert len(cell.CASES)
    found = Registry("case")

    def fail(cell, device):
        raise ValueError("no")

    def stop(cell, device):
        raise KeyboardInterrupt

    for name, task in (("broken", fail), ("stopped", stop)):
        found.register(name)(Case(name, "", lambda scope, name=name: [Cell(name, f"test-{name}", "someone")]))
        monkeypatch.setitem(cell.TASKS._entries, f"test-{name}", task)
    monkeypatch.setattr(cell, "CASES", found)


@pytest.mark.usefixtures("broken")
def test_a_failed_cell_is_said_and_ends_with_1(pamc):
    result = pamc("bench", "all", "broken", "--device", "cpu")
    assert result.code == 130
    assert "finished measurements are in pamc-bench" in result.err
    result = pamc("bench", "broken", "--device", "cpu")
    assert result.code == 1
    assert "failed: broken, someone" in result.err
