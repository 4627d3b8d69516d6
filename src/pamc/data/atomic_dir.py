"""A folder that is written beside its place and renamed once, so it is whole or absent."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from pamc.errors import OutputError

__all__ = ["cannot_write", "check_replaceable", "commit", "missing_folders", "partial_of", "remove_folder"]


def partial_of(target: Path) -> Path:
    """Return the folder in which the content of `target` is made.

    Examples
    --------
    >>> partial_of(Path("runs/first")).name
    'first.partial'
    """
    return target.with_name(target.name + ".partial")


def check_replaceable(target: Path, *, what: str, holds_one: bool, overwrite: bool) -> None:
    """Refuse a target that may not be written: what holds anything but a `what` is never replaced.

    Parameters
    ----------
    target
        The folder to write.
    what
        What the folder will hold, for messages: "run", "store".
    holds_one
        Whether it holds one already, which is replaced with `overwrite` alone.
    overwrite
        Whether that is wanted.
    """
    if target.name in ("", ".."):
        hint = target / f"pamc-{what}"
        raise OutputError(f"{target} cannot be replaced as a whole; name a folder in it, such as {hint}")
    if not target.exists():
        return
    if not target.is_dir():
        raise OutputError(f"{target} is a file; name a folder that does not exist yet")
    if holds_one and not overwrite:
        raise OutputError(f"{target} already holds a {what}; name another folder, or pass --overwrite to replace it")
    if not holds_one and any(target.iterdir()):
        raise OutputError(f"{target} holds files that are not a {what}; name another folder (these are never replaced)")


def missing_folders(path: Path) -> list[Path]:
    """Return the folders above a path that do not exist yet, the innermost first."""
    return [folder for folder in path.parents if not folder.exists()]


def commit(target: Path, partial: Path) -> None:
    """Put `partial` in the place of `target`; the old folder goes only when the new one stands."""
    if not target.exists():
        partial.rename(target)
        return
    replaced = target.with_name(target.name + ".replaced")
    target.rename(replaced)
    partial.rename(target)
    shutil.rmtree(replaced)


def remove_folder(partial: Path, above: list[Path]) -> None:
    """Remove a folder and those above it that were made for it, the innermost first."""
    shutil.rmtree(partial, ignore_errors=True)
    with suppress(OSError):
        for folder in above:
            folder.rmdir()


def cannot_write(target: Path, error: OSError) -> OutputError:
    """Return the error that says a place cannot be written."""
    if isinstance(error, OutputError):
        return error
    return OutputError(f"cannot write to {target}: {error.strerror or error}")
