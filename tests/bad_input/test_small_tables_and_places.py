"""Tables of few rows or one column, and places that are no new folder, through the command and Python."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors import SafetensorError

from pamc import PamCGC
from tests.bad_input.conftest import X, table, write
from tests.bad_input.test_arrays_through_python import assert_refused, model
from tests.cli.conftest import FAST

pytestmark = [
    pytest.mark.filterwarnings("ignore:n_neighbors:pamc.errors.DataWarning"),
]


@pytest.mark.parametrize("as_form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("n_rows", [2, 3, 5])
def test_fewer_rows_than_columns_and_dimensions_are_fitted(as_form, n_rows):
    rows = as_form(X[:: 36 // n_rows][:n_rows])
    found = model(2, n_dims=10).fit(rows)
    assert found.embedding_.shape == (n_rows, 10)
    assert np.array_equal(found.predict(rows), found.labels_)


@pytest.mark.parametrize("as_form", [np.asarray, sp.csr_matrix])
def test_one_column_is_fitted(as_form):
    column = as_form(np.repeat([[1.0], [5.0], [9.0]], 12, axis=0))
    assert np.bincount(model(preprocessing="scale").fit(column).labels_).tolist() == [12, 12, 12]


def test_three_wide_rows_and_one_column_go_through_the_command(pamc):
    write(wide_csv=table(X[::12]), column_csv=table(X[:, :1]))
    for name in ("wide.csv", "column.csv"):
        result = pamc("fit", name, "-k", 2, *FAST)
        assert result.code == 0, result.err


@pytest.mark.parametrize("hidden", [16, 2.5, "16"])
def test_hidden_sizes_that_are_no_list_are_refused(hidden):
    assert_refused(
        lambda: model(hidden=hidden).fit(X),
        f"hidden must list the sizes of the layers, such as [500, 500, 2000], got {hidden!r}",
    )


def test_hidden_sizes_that_are_no_list_are_a_usage_error(refused):
    write(rows_csv=table())
    refused("fit", "rows.csv", "-k", 3, "--set", "hidden=16", code=2, says="such as [500, 500, 2000], got 16")


def test_a_device_that_is_no_name_is_refused():
    assert_refused(lambda: model(device=None).fit(X), "unknown device None: allowed are auto, cpu")


@pytest.mark.parametrize("out", [".", ".."])
def test_the_working_folder_itself_is_never_replaced(refused, out, monkeypatch):
    write(rows_csv=table())
    Path("empty/below").mkdir(parents=True)
    monkeypatch.chdir("empty/below")
    refused(
        "fit",
        "../../rows.csv",
        "-k",
        3,
        "--out",
        out,
        *FAST,
        code=3,
        says=["cannot be replaced", f"{Path(out, 'pamc-run')}"],
    )


def test_folders_made_for_a_run_that_fails_are_removed(refused):
    write(rows_csv=table())
    Path("there").mkdir()
    refused("fit", "rows.csv", "-k", 99, "--out", "there/not/yet/run", *FAST, code=2, says="n_samples=36")


def test_a_name_that_is_too_long_is_an_output_error(tmp_path):
    fitted = model().fit(X)
    assert_refused(lambda: fitted.save(tmp_path / ("x" * 300)), "File name too long", builtin=OSError)


def full(*_, **__):
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def test_a_disk_that_is_full_for_the_model_leaves_nothing(refused, monkeypatch, tmp_path):
    write(rows_csv=table())
    fitted = model().fit(X)
    monkeypatch.setattr("pamc.results.saved_fit.save_file", full)
    refused("fit", "rows.csv", "-k", 3, "--out", "run", *FAST, code=3, says=["cannot write to", "No space left"])
    assert_refused(lambda: fitted.save(tmp_path / "run"), "No space left", builtin=OSError)
    assert not list(tmp_path.glob("run*"))


def test_what_to_do_about_a_damaged_model_is_said(run, refused):
    path = Path("run/model.safetensors")
    data = path.read_bytes()
    for damaged in (data[:-1], bytes([*data[:-1], data[-1] ^ 1])):
        path.write_bytes(damaged)
        refused("predict", "run", "rows.csv", "--out", "p.csv", code=3, says="restore it, or fit again")
        assert_refused(lambda: PamCGC.load("run"), "restore it, or fit again")
    path.unlink()
    refused("predict", "run", "rows.csv", "--out", "p.csv", code=3, says="pass a folder that `pamc fit`")
    assert json.loads(Path("run/run.json").read_text())["seed"] == 0
