"""The command, for stores of any size and with small samples: `-m tests.distributed.store_command fit …`.

Processes after the first fail where they read features of another one.
"""

from pamc.__main__ import main
from pamc.initialize import sample
from pamc.training import store_pipeline
from pamc.training.store_pipeline import run_store_worker
from tests.training.own_rows import OwnRows

# Not when pytest looks for doctests here: the limits of its own process stay as they are.
if __name__ == "__main__":
    store_pipeline.LARGE_ROWS = 100
    store_pipeline.run_store_worker = lambda group, store: run_store_worker(group, OwnRows(store, group))
    sample.CORE_ROWS, sample.SAMPLE_ROWS = 200, 500
    main()
