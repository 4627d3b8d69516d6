"""Which rows of an experiment are drawn, and in which order."""

import copy

import pytest

from pamc.lab.cell import CASES, Scope
from pamc.lab.rows import current, make_row

pytestmark = pytest.mark.claims

ORIGIN = {"date": "2024-05-01T10:00:00Z", "device": "cuda:0", "environment": {}}


def rows_of(name, **scope):
    return [make_row(cell, ORIGIN) for cell in CASES[name].cells(Scope(device="cuda", **scope))]


def test_rows_of_the_cells_as_they_are_stay():
    for name in ("table2", "time-memory", "ablation", "edge-drop"):
        rows = rows_of(name, seeds=2, data_sets=("acm",))
        assert current(rows, CASES[name].cells) == rows
        assert {row["seed"] for row in rows} == {0, 1}


def test_a_row_with_other_settings_goes():
    rows = rows_of("table2", seeds=1, data_sets=("acm",), methods=("pamcgc",))
    other = copy.deepcopy(rows[0])
    other["settings"]["tau"] = 9.0
    assert current([other, *rows], CASES["table2"].cells) == rows
    assert current([], CASES["table2"].cells) == []


def test_rows_come_in_the_order_of_the_experiment_whatever_finished_first():
    for name in ("edge-noise", "embeddings", "time-memory"):
        rows = rows_of(name, seeds=2)
        assert current(rows[::-1], CASES[name].cells) == rows
