"""Pages of the documentation made of rows alone, with their figures: `python -m benchmarks.pages` writes them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pamc.experiments.experiment import EXPERIMENTS, Row
from pamc.experiments.rows import current, published, read_rows

__all__ = ["DOCS", "ROWS", "Page", "Section", "page", "render", "replace", "rows_of", "write"]

ROWS = Path(__file__).parent / "results" / "reproduce"
DOCS = Path(__file__).parents[1] / "docs"


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
    tail: str = field(default="")


def rows_of(name: str) -> list[Row]:
    """Return the publishable rows of an experiment: no quick ones, no errors, none with settings that it has left."""
    return current(published(read_rows(ROWS / f"{name}.jsonl")), EXPERIMENTS[name].cells)


def render(which: Page, folder: Path) -> None:
    """Write the artefacts of all experiments of a page that have rows into a folder."""
    for name in which.sections:
        rows = rows_of(name)
        if rows or name == "bound":
            EXPERIMENTS[name].render(rows, folder)


def page(which: Page, rendered: Path) -> str:
    """Return the text of a page, made of the artefacts in a folder."""
    parts = [which.head]
    for name, section in which.sections.items():
        parts.append(f"## {section.title}\n")
        parts.append(f"{EXPERIMENTS[name].summary} `pamc reproduce {name}`\n")
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


if __name__ == "__main__":
    from benchmarks.choosing_page import choosing_page
    from benchmarks.quality_page import QUALITY
    from benchmarks.reproduce_page import REPRODUCE
    from benchmarks.rivals_page import rivals_page
    from benchmarks.scale_page import scale_page
    from benchmarks.speed_page import speed_page

    for each in (REPRODUCE, QUALITY):
        write(each)
    replace("speed", speed_page)
    replace("scale", scale_page)
    replace("rivals", rivals_page)
    replace("choosing", choosing_page)
