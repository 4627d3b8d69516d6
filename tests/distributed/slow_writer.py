"""The command with a slow disk: half of a checkpoint, a pause, the other half."""

import time
from pathlib import Path

from safetensors.torch import save

from pamc.__main__ import main
from pamc.training import checkpoint

PAUSE_S = 0.15


def slow_save_file(tensors, path, metadata=None):
    content = save(tensors, metadata=metadata)
    with Path(path).open("wb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
        time.sleep(PAUSE_S)
        file.write(content[len(content) // 2 :])


# Not when pytest looks for doctests here: its own process writes as fast as it can.
if __name__ == "__main__":
    checkpoint.save_file = slow_save_file
    main()
