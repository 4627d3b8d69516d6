"""The experiment with relations, graphs alone and images, and the cost of relations."""

import numpy as np
import pytest

from pamc.lab.cases.relations import (
    ALL,
    RANDOM,
    TWICE,
    _random_edges,
    cells,
    cost_cells,
    relation_cost,
    render,
)
from pamc.lab.cell import CASES, TASKS, Scope
from pamc.lab.rows import make_row, stamp
from pamc.lab.settings import GRAPHS_ALONE, RELATION_SETS, why_missing


def test_every_relation_is_fitted_alone_and_together_with_ten_seeds():
    listed = cells(Scope())
    for name, relations in RELATION_SETS.items():
        n_seeds = {}
        for cell in (cell for cell in listed if cell.data_set == name):
            n_seeds[cell.parameters["graph"]] = n_seeds.get(cell.parameters["graph"], 0) + 1
        assert n_seeds == {ALL: 10, **dict.fromkeys(relations, 10), RANDOM: 3, TWICE: 3}
    assert {cell.data_set for cell in listed if cell.task == "graph alone"} == set(GRAPHS_ALONE)
    assert {tuple(cell.settings["image_shape"]) for cell in listed if cell.task == "images"} == {(8, 8), (16, 16)}
    assert all(cell.settings == {} for cell in listed if cell.task == "relations")


def test_random_edges_are_distinct_and_as_many_as_asked_for():
    edges = _random_edges(3000, 200, 0)
    assert abs(len(edges) - 3000) < 150
    assert len(np.unique(edges, axis=0)) == len(edges)
    assert (edges[:, 0] < edges[:, 1]).all()
    assert abs(edges.mean() - 99.5) < 3


def test_missing_files_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PAMC_DATA", str(tmp_path))
    assert "relations/dblp.npz" in why_missing("relations/dblp")
    assert why_missing("karate") is None


@pytest.mark.slow
def test_quick_rows_become_tables(tmp_path):
    pytest.importorskip("leidenalg")
    rows = [make_row(cell, stamp("cpu"), values=TASKS[cell.task](cell, "cpu")) for cell in cells(Scope(quick=True))]
    names = {path.name for path in render(rows, tmp_path)}
    assert {"relations.md", "graphs-alone.md", "images.md"} <= names
    text = (tmp_path / "relations.md").read_text(encoding="utf-8")
    assert "random 0.00" in text
    of_graph = {row["parameters"].get("graph"): row["values"] for row in rows if row["task"] == "relations"}
    assert of_graph[TWICE]["last"] == of_graph[RANDOM]["last"] == of_graph[ALL]["last"]


@pytest.mark.slow
def test_the_cost_is_measured_over_the_edges_of_all_relations():
    rows = [make_row(cell, stamp("cpu"), values=relation_cost(cell, "cpu")) for cell in cost_cells(Scope(quick=True))]
    for row in rows:
        assert row["values"]["n_stored"] == pytest.approx(2 * row["parameters"]["n_edges"], rel=0.1)
    (fitted,) = CASES["relation-cost"].sum_up(rows)
    assert fitted["parameters"]["n_edges"] == [6000, 12000]
    assert np.isfinite(fitted["values"]["time_exponent"])
