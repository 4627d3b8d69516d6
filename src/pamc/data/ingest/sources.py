"""The files that a name stands for: one table, a folder of parts, or a pattern."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from pamc.data.files import existing_file, kind_of
from pamc.data.readers import endings, is_table, open_table
from pamc.data.readers.tables import Table
from pamc.data.store import is_store
from pamc.errors import DataError

__all__ = ["Parts", "source_files"]


def source_files(given: str | PathLike[str]) -> list[Path]:
    """Return the tables that a path stands for, in the order of their names.

    Parameters
    ----------
    given
        A file; a folder, of which all tables at any depth are taken, but for files and folders whose name begins with a
        dot or an underscore; or a pattern such as ``parts/*.csv``.

    Examples
    --------
    >>> source_files("no-such-*.csv")
    Traceback (most recent call last):
    pamc.errors.DataError: no-such-*.csv: no file has such a name
    """
    path, known = Path(given), ", ".join(endings("table"))
    if is_store(path):
        raise DataError(f"{path}: is a store already; `pamc fit {path}` clusters it")
    if path.is_dir():
        found = [file for file in sorted(path.rglob("*")) if file.is_file() and not _is_hidden(file, path)]
        files = [file for file in found if is_table(file) and file.stat().st_size > 0]
        if not files:
            raise DataError(f"{path}: the folder holds no table; tables end in {known}")
    elif not path.exists() and glob.has_magic(str(given)):
        # Unlike Path.glob, it takes patterns that begin at the root.
        found = [Path(name) for name in sorted(glob.glob(str(given), recursive=True))]  # noqa: PTH207
        files = [file for file in found if file.is_file()]
        if not files:
            raise DataError(f"{given}: no file has such a name")
    else:
        files = [existing_file(path)]
    strange = [file for file in files if not is_table(file)]
    if strange:
        raise DataError(f"{strange[0]}: cannot be ingested; known endings are {known}, the text ones also with .gz")
    kinds = sorted({kind_of(file) for file in files})
    if len(kinds) > 1:
        raise DataError(
            f"{given}: holds files of several kinds ({', '.join(kinds)}), which may be copies of each other; name one "
            f"kind with a pattern, such as '{Path(given) / ('*' + kinds[0])}'"
        )
    return files


@dataclass(frozen=True)
class Parts:
    """Tables of the same columns, one after the other.

    Parameters
    ----------
    files
        Their paths.
    first
        The first of them.
    headers
        Per file, whether its first line names the columns: then columns go by position. None where all are as the first
        and columns go by name.
    """

    files: Sequence[Path]
    first: Table
    headers: Sequence[bool] | None = None

    def __iter__(self) -> Iterator[tuple[int, Path]]:
        return iter(enumerate(self.files))

    def table(self, number: int) -> Table:
        """Return a part, or say in which column it differs from the first."""
        if number == 0:
            return self.first
        header = self.first.has_header if self.headers is None else self.headers[number]
        table = open_table(self.files[number], header=header)
        if self.headers is not None:
            if len(table.names) != len(self.first.names):
                raise DataError(
                    f"has {len(table.names)} columns and {self.first.path} has {len(self.first.names)}; all parts must "
                    "have the same columns"
                )
            return table
        missing = [name for name in self.first.names if name not in table]
        added = [name for name in table.names if name not in self.first]
        if missing or added:
            what = f"no column {missing[0]!r}" if missing else f"a column {added[0]!r}"
            raise DataError(f"has {what}, unlike {self.first.path}; all parts must have the same columns")
        return table

    def position(self, table: Table, col: int) -> int:
        """Return where in a part the column stands that the first part has at a position."""
        return col if self.headers is not None else table.names.index(self.first.names[col])


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
