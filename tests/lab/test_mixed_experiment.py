import numpy as np
import pytest

from pamc.data.columns.types import find_types
from pamc.data.customers import make_customers
from pamc.lab.cases.mixed import EMPTIED_TABLES, cells, cluster_mixed, render
from pamc.lab.cell import Cell, Scope
from pamc.lab.mixed_rivals import MIXED_RIVALS, MixedTable
from pamc.lab.rows import make_row, stamp
from tests.columns.conftest import table


@pytest.fixture(scope="module")
def customers():
    return MixedTable.of(find_types(table(**make_customers(60).columns)))


@pytest.mark.filterwarnings("ignore::UserWarning:umap")
@pytest.mark.parametrize("name", MIXED_RIVALS)
def test_a_rival_clusters_a_mixed_table(customers, name):
    for package in {"k-prototypes": ["kmodes"], "umap": ["umap"]}.get(name, []):
        pytest.importorskip(package)
    labels = MIXED_RIVALS[name].cluster(customers, 4, 0)
    assert labels.shape == (60,)
    assert len(np.unique(labels)) == 4


def test_gowers_distance_is_the_mean_over_the_cells_that_both_rows_have():
    few = MixedTable(np.array([[0.0], [1.0], [np.nan]]), np.array([[0], [1], [1]]))
    assert np.allclose(few.gower(), [[0, 1, 1], [1, 0, 0], [1, 0, 0]])


def test_every_table_has_its_cells_and_emptied_tables_have_them_twice():
    whole = cells(Scope())
    assert {cell.provider for cell in whole} == {"pamcgc", *MIXED_RIVALS}
    for name in EMPTIED_TABLES:
        shares = {cell.parameters["emptied"] for cell in whole if (cell.data_set, cell.provider) == (name, "pamcgc")}
        assert shares == {0.0, 0.3}


def test_quick_rows_become_a_table(tmp_path):
    rows = [make_row(cell, stamp("cpu"), values=cluster_mixed(cell, "cpu")) for cell in cells(Scope(quick=True))]
    assert "mixed.md" in {path.name for path in render(rows, tmp_path)}
    emptied = Cell("mixed", "mixed", "one-hot k-means", "customers", 0, {}, {"emptied": 0.3}, True)
    assert 0 <= cluster_mixed(emptied, "cpu")["last"]["nmi"] <= 1
