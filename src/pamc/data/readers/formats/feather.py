"""Feather files, which contain an Arrow table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pamc.data.readers.conversion import converted, load_package, values_of
from pamc.data.readers.format import FORMATS, Format
from pamc.data.readers.formats.parquet import ParquetTable, open_parquet


@dataclass(frozen=True)
class FeatherTable(ParquetTable):
    """The table in a Feather file, converted to Parquet."""

    converted: Path = Path()

    @property
    def stored(self) -> Path:
        """The converted file."""
        return self.converted


def open_feather(path: Path, header: bool | None) -> FeatherTable:
    """Open the table in a Feather file."""
    target = converted(path, ".parquet", _write_parquet)
    return FeatherTable(**{**values_of(open_parquet(target, header)), "path": path}, converted=target)


def _write_parquet(path: Path, target: Path) -> None:
    table = load_package("pyarrow.feather", "feather", "Feather").read_table(path)
    load_package("pyarrow.parquet", "feather", "Feather").write_table(table, target)


FORMATS.register("feather")(Format(endings=(".feather", ".arrow"), open_table=open_feather))
