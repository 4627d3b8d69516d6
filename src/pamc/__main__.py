"""The command `pamc`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command and exit with its code."""
    try:
        from pamc.cli.app import run
    except ModuleNotFoundError as error:
        sys.stderr.write(f"pamc: the command needs the package {error.name}: pip install {error.name}\n")
        raise SystemExit(4) from None
    raise SystemExit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
