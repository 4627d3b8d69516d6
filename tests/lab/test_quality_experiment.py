"""The experiment `quality`: its cells spell everything out, and its artefacts are made of rows."""

import pytest

from pamc.config import FitConfig
from pamc.lab.cases.quality import (
    ABLATIONS,
    CONSTANTS,
    DATA_SETS,
    DEFAULT,
    INITIALIZERS,
    SEVEN,
    figures_of,
    render,
    table_mean,
)
from pamc.lab.cell import CASES, Scope
from pamc.lab.fits import replaced_constants
from pamc.lab.rivals import RIVALS
from pamc.lab.rows import make_row
from pamc.lab.settings import CHECK_TABLES, CHOICE_TABLES, TABLES
from pamc.training.constants import fit_constants

pytestmark = pytest.mark.claims

ORIGIN = {
    "date": "2024-05-01T10:00:00Z",
    "device": "cpu",
    "environment": {"commit": "abc", "pamc": "0", "packages": {}, "cpu": "a cpu", "gpu": None},
}


def fake_rows():
    rows = []
    for number, cell in enumerate(CASES["quality"].cells(Scope(device="cpu"))):
        acc = 0.5 + (number % 40) / 100
        facts = {"preprocessing": "scale", "graph": "knn", "inputs": "features and graph", "clusters_by": "k-means"}
        loses_cluster = cell.parameters["variant"] == INITIALIZERS[1] and cell.seed == 0
        values = {
            "last": {"acc": acc, "nmi": acc / 2},
            "scores": {"modularity": acc, "silhouette": 0.1, "objective": -acc},
            "facts": {**facts, "support": 0.9, "fallback": None},
            "seconds": {"training": 2.0, "evaluation": 1.0},
            "cluster_sizes": [3, 0] if loses_cluster else [3, 3],
        }
        rows.append(make_row(cell, ORIGIN, values=values))
    return rows


def test_every_start_runs_on_every_set_and_all_settings_are_spelled_out():
    cells = CASES["quality"].cells(Scope(device="cpu"))
    names = set(FitConfig.names()) - {"n_clusters", "min_confidence", "image_shape"}
    for start in INITIALIZERS:
        own = [cell for cell in cells if cell.parameters["variant"] == start and cell.data_set in DATA_SETS]
        assert {cell.data_set for cell in own} == set(DATA_SETS)
        assert all(cell.settings.keys() == names and cell.settings["init"] == start for cell in own)
        assert len(own) == (10 if start == DEFAULT else 2) * len(DATA_SETS)
    default = next(cell for cell in cells if cell.parameters["variant"] == DEFAULT)
    assert FitConfig(**default.settings) == FitConfig(n_hops=2)
    for name, changes in ABLATIONS.items():
        one = next(cell for cell in cells if cell.parameters["variant"] == name)
        assert FitConfig(**one.settings) == FitConfig(**{"n_hops": 2, **changes}) != FitConfig(n_hops=2)


def test_the_tables_are_split_into_those_to_choose_on_and_those_to_check():
    assert (len(CHOICE_TABLES), len(CHECK_TABLES)) == (15, 10)
    assert len(set(TABLES)) == 25


def test_every_rival_runs_on_every_table():
    cells = CASES["quality"].cells(Scope(device="cpu"))
    for name, rival in RIVALS.items():
        own = [cell for cell in cells if cell.provider == name and cell.task == "rival"]
        assert {cell.data_set for cell in own} == set(TABLES)
        assert len(own) == (5 if rival.is_random else 1) * len(TABLES)


def test_every_varied_constant_exists_and_is_put_back():
    before = fit_constants()
    for name, values in CONSTANTS.items():
        assert name in before
        with replaced_constants({name: values[0]}):
            assert fit_constants()[name] == values[0]
    assert fit_constants() == before


def test_the_artefacts_have_what_the_rows_say(tmp_path):
    rows = fake_rows()
    paths = render(rows, tmp_path)
    assert {
        "quality.md",
        "quality-starts.md",
        "quality-decisions.md",
        "quality-ablations.md",
        "quality-scores.png",
        "quality-tables.md",
        "quality-parts.md",
        "quality-constants.md",
    } <= {path.name for path in paths}
    summary = (tmp_path / "quality.md").read_text()
    mean = 100 * sum(figures_of(rows, DEFAULT, "acm")) / 10
    assert f"**{mean:.1f} ±" in summary
    assert "93.6 (MS2CAG)" in summary
    assert "92.5" in summary
    means = [sum(figures_of(rows, DEFAULT, name)) / 10 for name in SEVEN]
    assert f"Mean over the first seven: ACC {100 * sum(means) / 7:.1f}" in summary
    assert "features and graph" in (tmp_path / "quality-decisions.md").read_text()
    assert "(1)" in (tmp_path / "quality-starts.md").read_text()
    assert "+1.00" in (tmp_path / "quality-scores.md").read_text()
    assert f"{table_mean(rows, DEFAULT):.1f} / " in (tmp_path / "quality-tables.md").read_text()
