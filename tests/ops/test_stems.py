"""One stem for each op: what the table of pamc.ops names exists, and it names everything."""

import ast
import re
from pathlib import Path

import pytest

from pamc import ops
from pamc.ops import reference

FOLDER = Path(ops.__file__).parent
LETTERS = {"T": "torch", "L": "triton", "K": "kernels"}


def stems(package):
    return {path.stem for path in (FOLDER / package).glob("*.py") if path.stem != "__init__"}


def rows():
    """Return stem, reference functions, functions and letters of each row of the table."""
    _, _, body, _ = re.split(r"^=[= ]+$", ops.__doc__, flags=re.MULTILINE)
    found = []
    for line in body.strip("\n").splitlines():
        cells = [line[start:stop].strip() for start, stop in ((0, 11), (11, 42), (42, 72), (72, 111), (111, None))]
        if cells[0]:
            found.append([cells[0], "", "", ""])
        found[-1][1:] = [f"{before} {cell}".strip() for before, cell in zip(found[-1][1:], cells[2:], strict=True)]
    return found


def names(cell):
    return [] if cell == "—" else re.findall(r"\w+", cell)


def public_names(path):
    """Return the functions and classes that a module offers, without importing it: triton need not be installed."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {name for name in defined if not name.startswith("_")}


def test_the_table_names_every_stem():
    for letter, package in LETTERS.items():
        assert {stem for stem, _, _, where in rows() if letter in where} == stems(package)


def test_what_is_launched_has_a_kernel_file_of_its_stem():
    assert stems("triton") == stems("kernels")
    assert stems("torch") <= stems("triton")


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]}: {row[2]}")
def test_a_row_of_the_table_is_true(row):
    stem, equations, functions, where = row
    assert set(names(equations)) <= public_names(Path(reference.__file__))
    for letter in ("T", "L"):
        offered = public_names(FOLDER / LETTERS[letter] / f"{stem}.py") if letter in where else set()
        assert set(names(functions)) <= offered or letter not in where


def test_a_launcher_launches_kernels_of_its_stem_alone():
    for stem in stems("triton"):
        source = (FOLDER / "triton" / f"{stem}.py").read_text(encoding="utf-8")
        assert re.findall(r"from pamc\.ops\.kernels import (\w+) as kernels", source) == [stem]
        assert len(re.findall(r"pamc\.ops\.kernels import", source)) == 1
