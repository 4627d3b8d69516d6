from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import FAST, pamc  # noqa: F401

X = np.vstack([np.random.default_rng(c).normal(3 * c, 0.3, (12, 4)) for c in range(3)]).round(4)
IDS = [f"n{i}" for i in range(len(X))]
PATH = np.array([(i, i + 1) for i in range(len(X) - 1)])


def table(values=X, ids=None):
    """Return rows as the text of a CSV file, with a column of ids where some are given."""
    names = ["a", "b", "c", "d", "e"][: values.shape[1]]
    lines = [",".join(names), *(",".join(map(str, row)) for row in values.tolist())]
    firsts = [""] * len(lines) if ids is None else ["id,", *(f"{name}," for name in ids)]
    return "".join(f"{first}{line}\n" for first, line in zip(firsts, lines, strict=True))


def edge_table(pairs=PATH, *more, header="source,target"):
    """Return edges between IDS as the text of a CSV file, followed by further lines."""
    return "".join(f"{line}\n" for line in [header, *(f"n{a},n{b}" for a, b in pairs), *more])


def write(**files):
    """Write name_csv="text" to name.csv in the working folder."""
    for name, content in files.items():
        Path(name.replace("_", ".")).write_bytes(content if isinstance(content, bytes) else content.encode())


def listing():
    return {path: path.read_bytes() if path.is_file() else None for path in Path().rglob("*")}


@pytest.fixture
def refused(pamc):  # noqa: F811
    """Return a function that runs a command, sees it refused in one line, and sees the folder untouched."""

    def call(*arguments, code, says):
        before = listing()
        result = pamc(*arguments)
        assert result.code == code, result.err
        assert result.err.startswith("pamc: error: ")
        assert result.err.count("\n") == 1
        for part in [says] if isinstance(says, str) else says:
            assert part in result.err
        assert "this is a bug" not in result.err
        assert result.out == ""
        assert listing() == before
        return result.err

    return call


@pytest.fixture
def run(pamc):  # noqa: F811
    """Write rows.csv and fit it to the folder `run`."""
    write(rows_csv=table())
    result = pamc("fit", "rows.csv", "-k", 3, "--out", "run", *FAST)
    assert result.code == 0, result.err
    return Path("run")


@pytest.fixture(scope="module", autouse=True)
def _quick_fits(few_repeats):
    """These tests are about errors and unusual input, not about the clusters that a fit finds."""
