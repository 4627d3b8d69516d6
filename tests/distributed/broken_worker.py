"""The command with one process that breaks: rank 1 meets an error of pamc's, or an unexpected one, in some epoch."""

import os
import sys

from pamc.__main__ import main
from pamc.errors import DataError
from pamc.training import trainer

BREAKS = {"expected": DataError("row 7 of process 1 cannot be read"), "unexpected": ZeroDivisionError("division by 0")}

if __name__ == "__main__":
    error = BREAKS[sys.argv.pop(1)]
    accumulate, n_calls = trainer.accumulate_gradient, 0

    def breaks(*arguments, **options):
        global n_calls
        n_calls += 1
        if n_calls == 3 and os.environ["RANK"] == "1":
            raise error
        return accumulate(*arguments, **options)

    trainer.accumulate_gradient = breaks
    main()
