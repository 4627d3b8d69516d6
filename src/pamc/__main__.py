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
        # A terminal that has no → or … gets an escape in its place instead of an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    if code == EXIT_INTERRUPTED or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # Python ends by the signal, not with the code, where Ctrl-C fell into an `exec` of text (a dataclass being made
        # by an import), caught or not. Among several processes, threads of the network library may hold tensors still,
        # and abort the interpreter while it takes itself apart.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
