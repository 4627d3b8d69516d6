"""The command `pamc`."""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """Run the command and exit with its code."""
    try:
        from pamc.cli.app import run
        from pamc.cli.show import EXIT_INTERRUPTED
    except ModuleNotFoundError as error:
        sys.stderr.write(f"pamc: the command needs the package {error.name}: pip install {error.name}\n")
        raise SystemExit(4) from None
    for stream in (sys.stdout, sys.stderr):
        # If a terminal cannot encode → or …, write an escape sequence instead of raising an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    if code == EXIT_INTERRUPTED or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # Exit without shutting down the interpreter. If Ctrl-C interrupts the `exec` of a string, as in the creation of
        # a dataclass during an import, Python exits by the signal instead of with the code, even if the exception is
        # caught. With several processes, threads of the network library may still hold tensors at shutdown, which
        # aborts the interpreter.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
