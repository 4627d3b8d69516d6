"""The command, for stores of any size and with small samples: `-m tests.distributed.store_command fit …`.

Processes after the first fail where they read features of another one.
"""

from pamc.__main__ import main
from pamc.initialize import sample
from pamc.training import pipeline, sources
from pamc.training.pipeline import run_worker
from tests.training.own_rows import OwnRows

# Not when pytest looks for doctests here: the limits of its own process stay as they are.
if __name__ == "__main__":
    sources.LARGE_ROWS = 100
    pipeline.run_worker = lambda group, store: run_worker(group, OwnRows(store, group))
    sample.CORE_ROWS, sample.SAMPLE_ROWS = 200, 500
    main()
