"""Pages of the documentation and tables of the README, filled in from rows: `python -m pamc.lab.pages`.

People write the pages. What stands between `<!-- table NAME -->` and `<!-- end NAME -->` is made of rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pamc.lab.cell import CASES, Row
from pamc.lab.rows import CHECKOUT, provenance, rows_of

__all__ = ["DOCS", "Part", "between_marks", "experiment", "filled", "joined", "origin"]

DOCS = CHECKOUT / "docs"
_NOT_YET = "*Not measured yet.*"


@dataclass(frozen=True)
class Part:
    """What stands between a pair of marks.

    Parameters
    ----------
    rows
        Returns the rows that it is made of; None for a part that needs none.
    text
        Returns the Markdown made of these rows, and draws its figures into a folder.
    """

    rows: Callable[[], Sequence[Row]] | None
    text: Callable[[Sequence[Row], Path], str]


def filled(text: str, parts: Mapping[str, Part], folder: Path) -> str:
    """Return a page with all its parts made anew; their figures are drawn into a folder."""
    for name, part in parts.items():
        rows = [] if part.rows is None else part.rows()
        made = part.text(rows, folder) if rows or part.rows is None else _NOT_YET
        text = between_marks(text, name, made)
    return text


def between_marks(text: str, name: str, table: str) -> str:
    """Return a document with the table between the two marks of a name replaced."""
    before, after = f"<!-- table {name} -->\n", f"<!-- end {name} -->"
    start, end = text.index(before) + len(before), text.index(after)
    return text[:start] + table.strip() + "\n" + text[end:]


def joined(*parts: str) -> str:
    """Return paragraphs, tables and figures with one empty line between them."""
    return "\n\n".join(part.strip() for part in parts)


def origin(rows: Sequence[Row]) -> str:
    """Return the line that says where the rows of a table come from."""
    return f"Rows: {provenance(rows)}."


def experiment(name: str, *tables: str, titled: bool = False) -> Part:
    """Return the part with some tables of an experiment, in order; those that were not rendered are left out.

    Parameters
    ----------
    titled
        Whether tables keep their titles, one level lower.
    """

    def text(rows: Sequence[Row], folder: Path) -> str:
        draw = CASES[name].render
        rendered = [] if draw is None else draw(rows, folder)
        paths = [folder / f"{table}.md" for table in tables]
        return joined(*(_lowered(path.read_text(encoding="utf-8"), titled) for path in paths if path in rendered))

    return Part(None if name == "bound" else lambda: rows_of(name), text)


def _lowered(table: str, titled: bool) -> str:
    """Return a table as Markdown with its headings one level lower, with its title or without."""
    title, text = table.split("\n", 1)
    return re.sub(r"^(#+) ", r"#\1 ", joined(f"#{title}", text) if titled else text, flags=re.MULTILINE)
