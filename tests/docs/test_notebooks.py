"""The notebooks print again what they were stored with."""

import contextlib
import io
import sys
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
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_again_what_it_shows(path):
    matplotlib = pytest.importorskip("matplotlib", reason="notebooks draw with matplotlib")
    matplotlib.use("agg")
    names = {"__name__": "__main__"}
    n_figures = 0
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(cell.source, path.name, "exec"), names)
        assert same(printed(cell), said.getvalue()), (
            f"{path.name} printed\n{said.getvalue()}\nand shows\n{printed(cell)}"
        )
        drawn = len(matplotlib.pyplot.get_fignums()) - n_figures if "matplotlib.pyplot" in sys.modules else 0
        assert drawn == sum(output.output_type == "display_data" for output in cell.outputs)
        n_figures += drawn
    if n_figures:
        matplotlib.pyplot.close("all")
