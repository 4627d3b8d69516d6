"""The command, for stores of any size and with small samples: `-m tests.distributed.store_command fit …`."""

from pamc.__main__ import main
from pamc.cli import fit_command
from pamc.training import sampled

# Not when pytest looks for doctests here: the limits of its own process stay as they are.
if __name__ == "__main__":
    fit_command.LARGE_ROWS = 100
    sampled.CORE_ROWS, sampled.SAMPLE_ROWS = 200, 500
    main()
