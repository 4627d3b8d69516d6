"""Pages of the documentation, tables of the README and figures, all made of rows: `python -m pamc.lab.pages`."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pamc.lab.cell import CASES
from pamc.lab.rows import CHECKOUT, rows_of

__all__ = ["DOCS", "Page", "Section", "between_marks", "page", "render", "replace", "write"]

DOCS = CHECKOUT / "docs"


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Parameters
    ----------
    title
        Its heading.
    artefacts
        The files of the experiment that it shows, in order; those that were not rendered are left out.
    titled
        Whether the tables keep their own titles, one level lower.
    more
        Returns what follows, in Markdown.
    """

    title: str
    artefacts: tuple[str, ...]
    titled: bool = False
    more: Callable[[], str] | None = None


@dataclass(frozen=True)
class Page:
    """A page, `docs/<name>.md`, with its figures in the folder of the same name.

    Parameters
    ----------
    name
        Of the page.
    head
        What it begins with.
    sections
        By the name of the experiment whose rows they show.
    tail
        What it ends with.
    """

    name: str
    head: str
    sections: dict[str, Section]
    tail: str = ""


def render(which: Page, folder: Path) -> None:
    """Write the artefacts of all experiments of a page that have rows into a folder."""
    for name in which.sections:
        rows, draw = rows_of(name), CASES[name].render
        if draw is not None and (rows or name == "bound"):
            draw(rows, folder)


def page(which: Page, rendered: Path) -> str:
    """Return the text of a page, made of the artefacts in a folder."""
    parts = [which.head]
    for name, section in which.sections.items():
        parts.append(f"## {section.title}\n")
        parts.append(f"{CASES[name].summary} `pamc reproduce {name}`\n")
        paths = [rendered / artefact for artefact in section.artefacts]
        parts += [_shown(which, path, section) for path in paths if path.is_file()]
        if section.more is not None:
            parts.append(section.more())
    return "\n".join([*parts, which.tail] if which.tail else parts)


def _shown(which: Page, path: Path, section: Section) -> str:
    if path.suffix == ".png":
        return f"![{section.title}]({which.name}/{path.name})\n"
    return _table(path, titled=section.titled)


def _table(path: Path, *, titled: bool) -> str:
    """Return a Markdown artefact, its headings one level lower.

    Of the tests, which stand below the table they belong to, the notes are left out too.
    """
    title, text = path.read_text(encoding="utf-8").split("\n", 1)
    text = f"##{title.removeprefix('#')}\n\n{text.strip()}" if titled else text.strip()
    if path.stem.endswith("-tests"):
        text = text[text.index("## ") :]
    return re.sub(r"^(#+) ", r"#\1 ", text, flags=re.MULTILINE) + "\n"


def write(which: Page) -> None:
    """Render a page anew and replace it and its figures."""

    def text(folder: Path) -> str:
        render(which, folder)
        return page(which, folder)

    replace(which.name, text)


def replace(name: str, text: Callable[[Path], str]) -> None:
    """Replace the page of a name and its figures by a text and by the figures that it leaves in a folder."""
    with tempfile.TemporaryDirectory() as made:
        rendered, figures = Path(made), DOCS / name
        content = text(rendered)
        figures.mkdir(exist_ok=True)
        for old in figures.glob("*.png"):
            old.unlink()
        for figure in rendered.glob("*.png"):
            (figures / figure.name).write_bytes(figure.read_bytes())
        (DOCS / f"{name}.md").write_text(content, encoding="utf-8")


def between_marks(text: str, name: str, table: str) -> str:
    """Return a document with the table between the two marks of a name replaced."""
    before, after = f"<!-- table {name} -->\n", f"<!-- end {name} -->"
    start, end = text.index(before) + len(before), text.index(after)
    return text[:start] + table.strip() + "\n" + text[end:]
