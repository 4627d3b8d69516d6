"""Names that moved to :mod:`pamc.training.pipeline` and :mod:`pamc.training.sources`."""

from __future__ import annotations

from functools import partial

from pamc.training.pipeline import fit_method, plan_store, run_worker
from pamc.training.sources import LARGE_ROWS

__all__ = ["LARGE_ROWS", "fit_store", "plan_store", "run_store_worker"]

fit_store = partial(fit_method, "pamcgc")
run_store_worker = run_worker
