import subprocess
import sys
from pathlib import Path

import pytest


def test_evaluate_prints_the_four_metrics(pamc):
    Path("truth.csv").write_text("id,label\na,x\nb,x\nc,y\nd,y\n")
    Path("labels.csv").write_text("id,cluster,confidence\nd,0,0.9\nc,0,0.9\nb,1,0.9\na,1,0.9\n")
    result = pamc("evaluate", "truth.csv", "labels.csv")
    assert result.code == 0, result.err
    assert result.out.count("100.00") == 4
    assert pamc("evaluate", "truth.csv", "labels.csv", "--json").json == {"acc": 1.0, "nmi": 1.0, "ari": 1.0, "f1": 1.0}


def test_evaluate_refuses_files_of_different_length(pamc):
    Path("truth.csv").write_text("label\nx\ny\n")
    Path("labels.csv").write_text("cluster\n0\n1\n1\n")
    result = pamc("evaluate", "truth.csv", "labels.csv")
    assert result.code == 3
    assert "2" in result.err
    assert "3" in result.err


def test_datasets_lists_the_catalog_and_what_was_found(pamc):
    result = pamc("datasets")
    assert result.code == 0
    for name in ("usps", "reut", "digits"):
        assert name in result.out
    found = {row["name"]: row["available"] for row in pamc("datasets", "--json").json}
    assert found["digits"] is True
    assert len(found) == 11


def test_doctor_prints_what_a_bug_report_needs(pamc):
    result = pamc("doctor")
    assert result.code == 0
    for word in ("torch", "python", "device", "commit"):
        assert word in result.out
    facts = pamc("doctor", "--json").json
    assert facts["packages"]["numpy"]


@pytest.mark.slow
def test_the_demo_shows_both_methods_and_writes_a_run(pamc):
    result = pamc("demo", "--seeds", 1, "--epochs", 1, "--quiet", "--out", "demo")
    assert result.code == 0, result.err
    assert "K-means" in result.out
    assert "PamCGC" in result.out
    assert "run folder: demo" in result.out
    assert Path("demo/labels.csv").is_file()
    summary = pamc("demo", "--seeds", 1, "--epochs", 0, "--quiet", "--json").json
    assert summary["run"].endswith("pamc-demo-1")
    assert set(summary["mean"]) == {"K-means", "PamCGC"}


def test_help_is_shown_without_arguments_and_names_the_commands(pamc):
    result = pamc("--help")
    assert result.code == 0
    for command in ("fit", "predict", "evaluate", "demo", "datasets", "doctor"):
        assert command in result.out
    assert "--n-clusters" in pamc("fit", "--help").out


def test_python_m_pamc_is_the_command():
    command = [sys.executable, "-m", "pamc", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert '"python"' in done.stdout


NO_TYPER = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise ModuleNotFoundError("blocked", name="typer")
sys.meta_path.insert(0, Block())
from pamc.__main__ import main
main()
"""


def test_without_typer_the_command_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", NO_TYPER], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr == "pamc: the command needs the package typer: pip install typer\n"


CTRL_C_IN_AN_IMPORT = """
from pamc.__main__ import main
from pamc.cli import app
def interrupted(*arguments, **options):
    exec("raise KeyboardInterrupt")
app.app = interrupted
main()
"""


def test_ctrl_c_in_the_middle_of_an_import_exits_130(tmp_path):
    (tmp_path / "interrupted.py").write_text(CTRL_C_IN_AN_IMPORT)
    command = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "pamc: interrupted: nothing was written\n"


@pytest.mark.slow
def test_the_demo_beats_k_means_on_digits(pamc):
    mean = pamc("demo", "--quiet", "--json").json["mean"]
    assert mean["PamCGC"]["acc"] > mean["K-means"]["acc"]
