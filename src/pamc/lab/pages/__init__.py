"""Pages of the documentation and the README with parts generated from rows: `python -m pamc.lab.pages`.

People write the pages; the text between `<!-- table NAME -->` and `<!-- end NAME -->` is generated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pamc.lab.cell import CASES, Row
from pamc.lab.rows import CHECKOUT, provenance, rows_of

__all__ = ["DOCS", "Part", "experiment", "filled", "joined", "origin"]

DOCS = CHECKOUT / "docs"
_NOT_YET = "*Not measured yet.*"


@dataclass(frozen=True)
class Part:
    """Generated text between a pair of markers.

    Parameters
    ----------
    rows
        Returns the rows to render; None for a part that needs none.
    text
        Renders the rows as Markdown, and draws figures into a folder.
    """

    rows: Callable[[], Sequence[Row]] | None
    text: Callable[[Sequence[Row], Path], str]


def filled(text: str, parts: Mapping[str, Part], folder: Path) -> str:
    """Return a page with all its parts rendered anew; their figures are drawn into a folder."""
    for name, part in parts.items():
        rows = [] if part.rows is None else part.rows()
        rendered = part.text(rows, folder) if rows or part.rows is None else _NOT_YET
        before, after = f"<!-- table {name} -->\n", f"<!-- end {name} -->"
        start, end = text.index(before) + len(before), text.index(after)
        text = text[:start] + rendered.strip() + "\n" + text[end:]
    return text


def joined(*parts: str) -> str:
    """Return paragraphs and tables with one empty line between them."""
    return "\n\n".join(part.strip() for part in parts)


def origin(rows: Sequence[Row]) -> str:
    """Return a line on the origin of the rows of a table."""
    return f"Rows: {provenance(rows)}."


def experiment(name: str, *tables: str, titled: bool = False) -> Part:
    """Return the part with some tables of an experiment, without those that were not rendered.

    With `titled`, tables keep their titles, one level lower.
    """

    def text(rows: Sequence[Row], folder: Path) -> str:
        render = CASES[name].render
        rendered = [] if render is None else render(rows, folder)
        paths = [folder / f"{table}.md" for table in tables]
        return joined(*(_lowered(path.read_text(encoding="utf-8"), titled) for path in paths if path in rendered))

    return Part(None if name == "bound" else lambda: rows_of(name), text)


def _lowered(table: str, titled: bool) -> str:
    """Return a Markdown table with its headings one level lower, with or without its title."""
    title, text = table.split("\n", 1)
    return re.sub(r"^(#+) ", r"#\1 ", joined(f"#{title}", text) if titled else text, flags=re.MULTILINE)
