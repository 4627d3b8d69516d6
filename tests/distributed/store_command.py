"""The command, for stores of any size and with small samples: `-m tests.distributed.store_command fit …`.

Processes after the first fail where they read features of another one.
"""

from pamc.__main__ import main
from pamc.cli import fit_command
from pamc.training import sampled
from pamc.training.large import help_fit_store
from tests.training.own_rows import OwnRows

# Not when pytest looks for doctests here: the limits of its own process stay as they are.
if __name__ == "__main__":
    fit_command.LARGE_ROWS = 100
    fit_command.help_fit_store = lambda team, store: help_fit_store(team, OwnRows(store, team))
    sampled.CORE_ROWS, sampled.SAMPLE_ROWS = 200, 500
    main()
