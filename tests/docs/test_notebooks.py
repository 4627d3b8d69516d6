"""The notebooks print again what they were stored with."""

from pathlib import Path

import pytest

from tests.docs.pages import same

nbformat = pytest.importorskip("nbformat", reason="notebooks are read with nbformat")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def printed(cell):
    """Return what a cell wrote to standard output."""
    return "".join(output.text for output in cell.outputs if output.get("name") == "stdout")


def test_there_are_two_and_both_were_run():
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS:
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        assert all(cell.outputs for cell in cells)
        assert not any(output.get("name") == "stderr" for cell in cells for output in cell.outputs)
        assert path.stat().st_size < 200_000


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_again_what_it_shows(path):
    nbclient = pytest.importorskip("nbclient", reason="notebooks are run by nbclient")
    stored = nbformat.read(path, as_version=4)
    again = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(again, timeout=600, kernel_name="python3").execute()
    for old, new in zip(stored.cells, again.cells, strict=True):
        if old.cell_type == "code":
            assert same(printed(old), printed(new)), f"{path.name} printed\n{printed(new)}\nand shows\n{printed(old)}"
            kinds = [[output.output_type for output in cell.outputs] for cell in (old, new)]
            assert set(kinds[0]) == set(kinds[1])
