"""One registry of file formats: each is found by its ending, and a new one is a new file."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from pamc.data.readers import FORMATS, endings, formats, is_table, open_table, read_edges, read_features
from pamc.data.readers.format import format_of

MODULES = {module.name for module in pkgutil.iter_modules(formats.__path__)}

TOY = """
import numpy as np

from pamc.data.readers.format import FORMATS, Format, Matrix

FORMATS.register("toy")(
    Format(endings=(".toy",), read_features=lambda path, truth: Matrix(np.array([[float(path.read_text())]])))
)
"""

USE = """
import sys
from pathlib import Path

from pamc.data.readers import endings, formats, read_graph

folder = sys.argv[1]
formats.__path__.append(folder)
Path(folder, "x.toy").write_text("7")
print(read_graph(Path(folder, "x.toy")).features.tolist(), ".toy" in endings("features"), ".toy" in endings("edges"))
"""


def test_every_module_of_the_package_registers_a_format_of_its_name():
    assert set(FORMATS) == MODULES


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_format_is_found_by_each_of_its_endings_compressed_or_not(name):
    for ending in FORMATS[name].endings:
        assert format_of(Path(f"x{ending}")) is FORMATS[name]
        assert format_of(Path(f"x{ending.upper()}.gz")) is FORMATS[name]


def test_no_ending_belongs_to_two_formats():
    known = [ending for name in FORMATS for ending in FORMATS[name].endings]
    assert len(set(known)) == len(known)


def test_what_the_formats_give_is_what_they_declare():
    assert set(endings("table")) == {".csv", ".tsv", ".tab", ".txt", ".edges", ".edgelist", ".parquet", ".pq"} | {
        ".xlsx",
        ".feather",
        ".arrow",
    }
    matrices = {".npy", ".npz", ".mtx", ".svm", ".svmlight", ".libsvm", ".h5ad"}
    assert set(endings("features")) - set(endings("table")) == matrices
    assert set(endings("edges")) - set(endings("table")) == {".npy", ".npz", ".mtx"}
    assert set(endings("labels")) - set(endings("table")) == {".npy", ".npz"}
    assert is_table(Path("x.CSV.gz"))
    assert not is_table(Path("x.npy"))


def test_messages_list_the_endings_of_the_registry(tmp_path, refusal):
    path = tmp_path / "x.odd"
    path.touch()
    assert refusal(read_features, path).endswith(f"known endings are {', '.join(endings('features'))}")
    assert refusal(read_edges, path, None, 3).endswith(f"known endings are {', '.join(endings('edges'))}")
    assert refusal(open_table, path).endswith(f"known endings are {', '.join(endings('table'))}")


def test_a_new_format_is_one_new_file(tmp_path):
    (tmp_path / "toy.py").write_text(TOY)
    done = subprocess.run([sys.executable, "-c", USE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout == "[[7.0]] True False\n", done.stderr
