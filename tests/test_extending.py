"""The files that CONTRIBUTING shows are all that it takes to add a method, an initializer, a reader or a command."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pamc

ROOT = Path(__file__).parents[1]
FILES = dict(
    re.findall(
        r"<!-- file src/(\S+) -->\n```python\n(.*?)```",
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
)


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """Return a function that runs the command of a copy of the package with the files of CONTRIBUTING in it."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(Path(pamc.__file__).parent, folder / "pamc", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in FILES.items():
        assert not (folder / name).exists()
        (folder / name).write_text(text, encoding="utf-8")
    rows = np.random.default_rng(0).normal(size=(60, 4)) + np.repeat([[0.0], [8.0]], 30, axis=0)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row.tolist()) + "\n" for row in rows), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(folder)}

    def run(*arguments):
        command = [sys.executable, "-m", "pamc", *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_there_is_a_file_for_each_kind():
    assert sorted(str(Path(name).parent) for name in FILES) == [
        "pamc/cli/commands",
        "pamc/data/readers/formats",
        "pamc/initialize/initializers",
        "pamc/models/methods",
    ]


def test_a_command_is_one_file(extended):
    assert extended("hello", "--name", "ann") == "hello ann\n"
    assert "Greet somebody" in extended("--help")


@pytest.mark.slow
@pytest.mark.fast_variants(1)
@pytest.mark.parametrize("chosen", [["--method", "first-columns"], ["--set", "init=pca", "--epochs", "5"]])
def test_a_method_an_initializer_and_a_reader_are_one_file_each(extended, chosen):
    found = json.loads(extended("fit", "rows.jsonl", "-k", "2", *chosen, "--json", "--quiet", "--no-report"))
    assert sorted(found["cluster_sizes"]) == [30, 30]


def test_completion_offers_them(extended):
    assert "first-columns" in extended("methods")
