"""The page `docs/reproduce.md` and its figures, from rows alone: `python -m benchmarks.reproduce_page` writes them."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from benchmarks.why import differences
from pamc.experiments.experiment import EXPERIMENTS, Row
from pamc.experiments.rows import current, published, read_rows

__all__ = ["ROWS", "SECTIONS", "page", "rows_of"]

ROWS = Path(__file__).parent / "results" / "reproduce"
DOCS = Path(__file__).parents[1] / "docs"
FIGURES = DOCS / "reproduce"

_HEAD = """\
# Reproduction

Sixteen systems on the same data under one stated protocol: `pamc reproduce all` runs everything on this page,
resumes where it was stopped, and writes each table as Markdown, LaTeX and CSV and each figure as PNG and SVG. Every
figure below is rendered from the rows in `benchmarks/results/reproduce/` by `python -m benchmarks.reproduce_page`;
none is typed.

How to read it:

- **paper** is what the paper prints. Its figures for other systems are quoted there from their papers; its own rest on
  another project's pre-trained autoencoders, which are not public, and presumably on the best epoch of each metric.
- **last epoch** is ours: no label reached a fit or chose an epoch. The settings were chosen with labels, by the
  systems' authors or, as said below, with the paper's figures in view. `pamc reproduce quality` runs PamCGC with pamc's
  own defaults, which no label chose.
- **oracle epoch** is ours with each metric at its own best epoch, chosen with the true labels, as the released program
  reports. It is here to be compared with the paper, and nowhere else. The first epoch looked at is the start; systems
  that assign once, by K-means, are looked at every 20th epoch.
- All systems that start from an autoencoder start from the same one, ours: 30 epochs on batches of 256 rows. On the
  three graphs, whose features are binary words, each row is first scaled to root mean square 1, because the K-means of
  that autoencoder comes near the paper's AE row: a choice made with the paper's figures, hence with labels, in view.
  The other sets are taken as they are. The other settings per set are those of Table 1 and of the systems' own
  programs, which their authors tuned with labels; those of GAE, VGAE, ARGA, DGI, DAEGC and CGC are one configuration
  each, found with the paper's figures in view.
"""

# Experiments in the order of the page: its sections and the artefacts that each shows.
SECTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "table2": ("Table 2: graphs", ("table2-short.md", "table2-tests.md")),
    "table3": ("Table 3: tables of features", ("table3-short.md", "table3-tests.md")),
    "differences": ("The same systems under other settings", ("differences.md",)),
    "time-memory": (
        "Time and memory",
        (
            "time-memory-cuda.png",
            "time-memory-cuda-ratios.md",
            "time-memory-cuda.md",
            "time-memory-cpu-ratios.md",
            "time-memory-cpu.md",
        ),
    ),
    "embeddings": ("Embeddings", ("embeddings.png",)),
    "ablation": ("PamC in SDCN and AGCN", ("ablation-cuda.png", "ablation-cuda.md")),
    "hyper": ("Settings", ("hyper.png", "hyper.md")),
    "bound": ("The bound", ("bound.png", "bound.md")),
    "edge-drop": ("Dropping edges", ("edge-drop.png", "edge-drop.md")),
    "edge-noise": ("Wrong edges", ("edge-noise.png", "edge-noise.md")),
    "supervision": ("Some known labels", ("supervision.png", "supervision.md")),
    "assignment": ("Hard or soft meta-nodes, Eq 2 or Eq 6", ("assignment.png", "assignment.md")),
}


def rows_of(name: str) -> list[Row]:
    """Return the publishable rows of an experiment: no quick ones, no errors, none with settings that it has left."""
    return current(published(read_rows(ROWS / f"{name}.jsonl")), EXPERIMENTS[name].cells)


def page(rendered: Path) -> str:
    """Return the page, made of the artefacts in a folder; those that were not rendered are left out."""
    parts = [_HEAD]
    for name, (title, artefacts) in SECTIONS.items():
        found = [rendered / artefact for artefact in artefacts if (rendered / artefact).is_file()]
        parts.append(f"## {title}\n")
        parts.append(f"{EXPERIMENTS[name].summary} `pamc reproduce {name}`\n")
        parts += [_shown(path, title) for path in found]
        if name == "table3":
            parts.append(differences([*rows_of("table2"), *rows_of("table3")], rows_of("differences")))
    return "\n".join(parts)


def _shown(path: Path, title: str) -> str:
    return f"![{title}](reproduce/{path.name})\n" if path.suffix == ".png" else _section(path)


def render(folder: Path) -> None:
    """Write the artefacts of all experiments that have rows into a folder."""
    for name in SECTIONS:
        rows = rows_of(name)
        if rows or name == "bound":
            EXPERIMENTS[name].render(rows, folder)


def _section(path: Path) -> str:
    """Return a Markdown artefact without its title, its headings one level lower.

    Of the tests, which stand below the table they belong to, the notes are left out too; where there are several tables
    of one experiment, their titles stay.
    """
    title, text = path.read_text(encoding="utf-8").split("\n", 1)
    text = f"##{title.removeprefix('#')}\n\n{text.strip()}" if path.stem.startswith("time-memory") else text.strip()
    if path.stem.endswith("-tests"):
        text = text[text.index("## ") :]
    return re.sub(r"^(#+) ", r"#\1 ", text, flags=re.MULTILINE) + "\n"


def main() -> None:
    """Render everything anew and replace the page and its figures."""
    with tempfile.TemporaryDirectory() as name:
        rendered = Path(name)
        render(rendered)
        FIGURES.mkdir(exist_ok=True)
        for old in FIGURES.glob("*.png"):
            old.unlink()
        for figure in rendered.glob("*.png"):
            (FIGURES / figure.name).write_bytes(figure.read_bytes())
        (DOCS / "reproduce.md").write_text(page(rendered), encoding="utf-8")


if __name__ == "__main__":
    main()
