"""What the interpreter takes, a compiler may refuse: every kernel is compiled for a GPU, which need not be there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("triton", reason="triton is not installed")

ROOT = Path(__file__).parents[2]


def test_every_kernel_compiles_for_a_gpu():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.ops.compile_kernels"],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": f"{ROOT / 'src'}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(done.stdout.split()) == launched_kernels()


def launched_kernels():
    """Return what the functions around the kernels launch: a name, and a grid in brackets."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "pamc" / "ops" / "triton").glob("*.py")]
    return {name for source in sources for name in re.findall(r"\.(\w+)\[\(", source)}
