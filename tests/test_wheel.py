import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_wheel_builds_and_works_in_a_clean_environment(tmp_path):
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean" / "bin" / "python"
    constraints = ROOT / "constraints-dev.txt"
    subprocess.run([python, "-m", "pip", "install", "-q", "-c", constraints, wheel], check=True)
    rows = "\n".join(["a,b", *(f"{i % 2 * 5 + i / 100},{i % 2 * 3 - i / 90}" for i in range(40))])
    (tmp_path / "rows.csv").write_text(rows)
    command = [tmp_path / "clean" / "bin" / "pamc", "fit", "rows.csv", "-k", "2", "--out", "run", "--epochs", "3"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "40 rows in 2 clusters" in done.stdout
    assert "pamc-data" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    listed = subprocess.run([python, "-m", "pip", "list"], capture_output=True, text=True, check=True).stdout
    assert "nvidia" not in listed
    assert "pytest" not in listed
