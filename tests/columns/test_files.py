"""Excel and Feather files give the rows of the same table as CSV."""

import sys

import numpy as np
import pandas as pd
import pytest

from pamc.data.customers import make_customers
from pamc.data.readers import describe_table, read_features
from pamc.errors import BackendError, DataError

pytestmark = pytest.mark.filterwarnings("ignore:.*identifies the rows:pamc.errors.DataWarning")


def typed_frame():
    frame = pd.DataFrame(make_customers(60).columns)
    frame["revenue"] = pd.to_numeric(frame["revenue"].str.replace(",", ""))
    frame["first_order"] = pd.to_datetime(frame["first_order"])
    return frame


@pytest.mark.parametrize(
    ("name", "package"), [("x.xlsx", "openpyxl"), ("x.feather", "pyarrow"), ("x.parquet", "pyarrow")]
)
def test_typed_files_give_the_rows_of_the_csv_file(tmp_path, name, package):
    pytest.importorskip(package)
    frame = typed_frame()
    frame.to_csv(tmp_path / "x.csv", index=False)
    write = {"x.xlsx": "to_excel", "x.feather": "to_feather", "x.parquet": "to_parquet"}[name]
    getattr(frame, write)(tmp_path / name, **({"index": False} if name == "x.xlsx" else {}))
    expected, graph = read_features(tmp_path / "x.csv"), read_features(tmp_path / name)
    assert graph.ids.tolist() == expected.ids.tolist()
    order = [graph.feature_names.index(column) for column in expected.feature_names]
    assert np.allclose(graph.features[:, order], expected.features, equal_nan=True)
    kinds = [{row["name"]: row["type"] for row in describe_table(tmp_path / file)} for file in ("x.csv", name)]
    assert kinds[0] == kinds[1]


def test_a_missing_package_and_a_damaged_file_are_said(tmp_path, monkeypatch):
    path = tmp_path / "x.xlsx"
    path.write_bytes(b"nothing")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(BackendError, match="Excel files are read with openpyxl: pip install"):
        read_features(path)
    monkeypatch.undo()
    pytest.importorskip("openpyxl")
    with pytest.raises(DataError, match=r"x\.xlsx"):
        read_features(path)
