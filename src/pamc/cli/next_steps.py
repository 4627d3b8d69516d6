"""What to type after a fit."""

from __future__ import annotations

import shlex
from pathlib import Path

__all__ = ["next_steps"]


def next_steps(run: Path, *, inductive: bool, measured: bool) -> list[str]:
    """Return the commands that follow a fit, the likeliest first.

    Parameters
    ----------
    run
        Folder of the run.
    inductive
        Whether the method can label new rows.
    measured
        Whether the clusters were compared with true classes already.

    Examples
    --------
    >>> next_steps(Path("pamc-run-1"), inductive=True, measured=True)
    ['pamc predict pamc-run-1 NEW_ROWS.csv --out clusters.csv']
    """
    folder = shlex.quote(f"./{run}" if str(run).startswith("-") else str(run))
    steps = []
    if inductive:
        steps.append(f"pamc predict {folder} NEW_ROWS.csv --out clusters.csv")
    if not measured:
        steps.append(f"pamc evaluate TRUTH.csv {folder}/labels.csv   (if the true classes are known)")
    return steps
