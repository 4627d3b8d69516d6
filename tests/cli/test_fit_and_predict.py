import csv
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pamc import PamCGC
from tests.cli.conftest import FAST


def read_rows(path):
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_named_rows_and_named_edges_go_through_fit_and_predict(pamc, table):
    rows, edges = table
    fitted = pamc("fit", rows, "--id", "name", "--truth", "kind", "--edges", edges, "-k", 3, "--out", "run", *FAST)
    assert fitted.code == 0, fitted.err
    assert "150 rows in 3 clusters" in fitted.out
    assert "ACC" in fitted.out
    assert "run folder: run" in fitted.out
    files = ["embedding.npy", "labels.csv", "model.safetensors", "report.html", "run.json"]
    assert sorted(path.name for path in Path("run").iterdir()) == files
    labels = read_rows("run/labels.csv")
    assert [row["id"] for row in labels[:2]] == ["node 0", "node 1"]
    predicted = pamc("predict", "run", rows, "--out", "again.csv")
    assert predicted.code == 0, predicted.err
    assert read_rows("again.csv") == labels
    assert not Path("again.csv.partial").exists()
    Path("one.csv").write_text("".join(Path(rows).read_text(encoding="utf-8").splitlines(keepends=True)[:2]))
    assert "1 row → one-labels.csv" in pamc("predict", "run", "one.csv", "--out", "one-labels.csv").out


def test_predict_writes_parquet_and_refuses_an_existing_file(pamc, table):
    rows, _ = table
    assert pamc("fit", rows, "--id", "name", "--truth", "kind", "-k", 3, "--out", "run", *FAST).code == 0
    result = pamc("predict", "run", rows, "--out", "p.parquet", "--json")
    assert result.json["n_nodes"] == 150
    assert sum(result.json["cluster_sizes"]) == 150
    again = pamc("predict", "run", rows, "--out", "p.parquet")
    assert again.code == 3
    assert "--overwrite" in again.err
    assert pamc("predict", "run", rows, "--out", "p.parquet", "--overwrite").code == 0
    assert pamc("predict", "run", rows, "--out", "p.xlsx").code == 2


def test_json_is_one_object_on_standard_output(pamc, table):
    rows, _ = table
    result = pamc("fit", rows, "--id", "name", "--truth", "kind", "-k", 3, "--json", *FAST)
    assert result.code == 0, result.err
    assert result.json["run"].endswith("pamc-run-1")
    assert sum(result.json["cluster_sizes"]) == 150
    assert result.json["metrics"]["acc"] > 0.5
    assert result.json["selection"] == "last"
    second = pamc("fit", rows, "--id", "name", "--drop", "kind", "-k", 3, "--json", *FAST)
    assert second.json["run"].endswith("pamc-run-2")
    assert second.json["metrics"] is None


def test_the_truth_column_changes_nothing_but_the_metrics(pamc, table):
    rows, _ = table
    for name, option in (("with", ["--truth", "kind"]), ("without", ["--drop", "kind"])):
        assert pamc("fit", rows, "--id", "name", *option, "-k", 3, "--out", name, *FAST).code == 0
    assert Path("with/labels.csv").read_text() == Path("without/labels.csv").read_text()


def test_columns_can_be_chosen_and_are_remembered_for_predict(pamc, table):
    rows, _ = table
    fitted = pamc("fit", rows, "--columns", "f0,f1", "--columns", "f2", "-k", 2, "--out", "run", *FAST)
    assert fitted.code == 0, fitted.err
    assert PamCGC.load("run").feature_names_in_.tolist() == ["f0", "f1", "f2"]
    assert pamc("predict", "run", rows, "--out", "p.csv").code == 0
    assert pamc("predict", "run", rows, "--columns", "f1,f0,f2", "--out", "q.csv").code == 0
    assert Path("q.csv").read_text() == Path("p.csv").read_text()
    wrong = pamc("predict", "run", rows, "--columns", "f0,f1", "--out", "r.csv")
    assert wrong.code == 3


def test_the_run_records_what_was_run(pamc, table):
    rows, _ = table
    Path("my.toml").write_text("lr = 0.002\n")
    command = ["fit", rows, "--id", "name", "--drop", "kind", "-k", 3, "--config", "my.toml", "--seed", 7]
    command += ["--set", "tau=0.5"]
    assert pamc(*command, "--out", "run", *FAST).code == 0
    record = json.loads(Path("run/run.json").read_text())
    assert record["seed"] == 7
    assert (record["config"]["lr"], record["config"]["tau"], record["config"]["n_epochs"]) == (0.002, 0.5, 5)
    assert record["data"]["n_nodes"] == 150
    assert len(record["history"]["loss"]) == 5
    assert record["environment"]["packages"]["torch"]
    assert record["metrics"] is None


def test_an_existing_run_is_refused_before_any_work(pamc, table):
    rows, _ = table
    command = ["fit", rows, "--id", "name", "--drop", "kind", "-k", 3, "--out", "run", *FAST]
    assert pamc(*command).code == 0
    before = Path("run/labels.csv").read_bytes()
    refused = pamc(*command)
    assert refused.code == 3
    assert "already holds a run" in refused.err
    assert Path("run/labels.csv").read_bytes() == before
    assert pamc(*command, "--overwrite").code == 0


def test_labels_can_be_parquet(pamc, table):
    rows, _ = table
    command = ["fit", rows, "--drop", "name,kind", "-k", 3, "--out", "run", "--labels-format", "parquet"]
    assert pamc(*command, *FAST).code == 0
    assert Path("run/labels.parquet").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fit", "rows.csv"], 2, "--n-clusters is required"),
        (["fit", "rows.csv", "-k", "many"], 2, "integer of at least 2"),
        (["fit", "rows.csv", "-k", "1"], 2, "at least 2"),
        (["fit", "-k", "3"], 2, "there is nothing to cluster"),
        (["fit", "rows.csv", "--dataset", "digits", "-k", "3"], 2, "not both"),
        (["fit", "--dataset", "digits", "--id", "x", "-k", "3"], 2, "--id cannot be used with --dataset"),
        (["fit", "--dataset", "digts", "-k", "3"], 2, "did you mean 'digits'"),
        (["fit", "rows.csv", "--method", "pamgc", "-k", "3"], 2, "did you mean 'pamcgc'"),
        (["fit", "rows.csv", "--preset", "papr", "-k", "3"], 2, "did you mean 'paper'"),
        (["fit", "rows.csv", "--preset", "paper", "-k", "3"], 2, "missing: alpha, beta, tau, n_hops"),
        (["fit", "rows.csv", "--set", "tau", "-k", "3"], 2, "NAME=VALUE"),
        (["fit", "rows.csv", "--set", "taus=1", "-k", "3"], 2, "did you mean 'tau'"),
        (["fit", "rows.csv", "--set", "proxy=eq9", "-k", "3"], 2, "allowed are eq2, eq6"),
        (["fit", "rows.csv", "--config", "none.toml", "-k", "3"], 2, "cannot read settings"),
        (["fit", "rows.csv", "--labels-format", "xls", "--drop", "name,kind", "-k", "3", *FAST], 2, "csv, parquet"),
        (["fit", "nothing.csv", "-k", "3"], 3, "nothing.csv"),
        (["fit", "rows.csv", "-k", "3", "--types", "name=number"], 3, "'name'"),
        (["fit", "rows.csv", "--id", "nme", "-k", "3"], 3, "name"),
        (["fit", "rows.csv", "--id", "name", "--drop", "kind", "-k", "999"], 2, "999"),
        (["fit", "rows.csv", "--id", "name", "--drop", "kind", "-k", "3", "--out", "/proc/x"], 3, "cannot write"),
        (["predict", "nowhere", "rows.csv", "--out", "p.csv"], 3, "no such model file"),
        (["predict", "nowhere"], 2, "see pamc predict --help"),
        (["fly"], 2, "No such command"),
        (["fit", "--fly"], 2, "--fly"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_exit_code(pamc, table, arguments, code, message):
    result = pamc(*arguments)
    assert result.code == code, result.err
    assert message in result.err
    assert result.out == ""
    assert len(result.err.strip().splitlines()) == 1
    assert result.err.startswith("pamc: error: ")
    assert {path.name for path in Path().iterdir()} == {"rows.csv", "edges.csv"}


@pytest.mark.skipif(__import__("torch").cuda.is_available(), reason="this machine has CUDA")
def test_a_device_that_is_not_there_is_a_backend_error(pamc, table):
    result = pamc("fit", table[0], "--drop", "name,kind", "-k", 3, "--device", "cuda", *FAST)
    assert result.code == 4


def test_debug_shows_the_trace(pamc):
    result = pamc("fit", "nothing.csv", "-k", 3, "--debug")
    assert "Traceback" in result.err
    assert result.code == 3


def test_an_unexpected_error_asks_for_a_report(pamc, table, monkeypatch):
    monkeypatch.setattr("pamc.data.readers.read_graph", lambda *_, **__: 1 / 0)
    result = pamc("fit", table[0], "-k", 3)
    assert result.code == 1
    assert "ZeroDivisionError" in result.err
    assert "pamc doctor" in result.err


def test_notes_about_the_data_go_to_standard_error_once(pamc):
    Path("rows.csv").write_text("a,b,label\n" + "".join(f"{i % 7},{i % 5}.5,{i % 2}\n" for i in range(40)))
    result = pamc("fit", "rows.csv", "-k", 2, "--json", *FAST)
    assert result.code == 0, result.err
    assert result.err.count("'label'") == 1
    assert "pamc: note: " in result.err
    assert any("label" in text for text in result.json["warnings"]) or "label" in result.err


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize("moment", ["pre-training", "training"])
def test_ctrl_c_leaves_no_folder_and_exits_130(tmp_path, moment):
    rows = tmp_path / "rows.csv"
    values = np.random.default_rng(0).normal(size=(1500, 8)).round(4)
    rows.write_text("\n".join([",".join(f"f{i}" for i in range(8)), *(",".join(map(str, row)) for row in values)]))
    endless = {
        "pre-training": ["--set", "pretrain_epochs=1000000"],
        "training": ["--epochs", "1000000", "--set", "tol=0", "--set", "pretrain_epochs=1"],
    }[moment]
    command = [sys.executable, "-m", "pamc", "fit", str(rows), "-k", "3", "--out", str(tmp_path / "run"), *endless]
    # A background job of a shell ignores Ctrl-C, and so would its children.
    listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, preexec_fn=listen, **pipes) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "run.partial").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert "interrupted" in err
    assert out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv"]


@pytest.mark.slow
@pytest.mark.skipif("PAMC_DATA" not in os.environ, reason="PAMC_DATA names no folder of data sets")
def test_the_papers_preset_runs_on_acm_and_predicts_its_own_labels(pamc):
    command = ["fit", "--dataset", "acm", "--preset", "paper", "--n-clusters", 3, "--out", "run", "--epochs", 3]
    fitted = pamc(*command, "--quiet")
    assert fitted.code == 0, fitted.err
    predicted = pamc("predict", "run", Path(os.environ["PAMC_DATA"]) / "acm.npz", "--out", "p.csv")
    assert predicted.code == 0, predicted.err
    assert Path("p.csv").read_text() == Path("run/labels.csv").read_text()
