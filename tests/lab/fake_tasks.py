"""Tasks without a fit, in a module of their own so that worker processes can import them."""

import os
import time
from pathlib import Path

from pamc.lab.cell import TASKS, Cell


@TASKS.register("test-square")
def square(cell, device):
    if "log" in cell.parameters:
        with Path(cell.parameters["log"]).open("a") as log:
            log.write(f"{cell.seed}\n")
    time.sleep(float(os.environ.get("TEST_SECONDS", "0")))
    return {"square": cell.seed**2, "pair": (1, 2)}


@TASKS.register("test-fail")
def fail(cell, device):
    if not Path(cell.parameters["healed"]).exists():
        raise MemoryError("no memory\nleft")
    return {"square": 0}


@TASKS.register("test-nan")
def not_a_number(cell, device):
    return {"square": float("nan")}


@TASKS.register("test-die")
def die(cell, device):
    os._exit(9)


def cells(n, *, task="test-square", **options):
    return [Cell("fake", task, "m", "blocks", seed, settings={"hidden": [2]}, parameters=options) for seed in range(n)]
