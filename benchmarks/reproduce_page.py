"""The page `docs/reproduce.md`: what it says beside its tables and figures."""

from __future__ import annotations

from benchmarks.pages import Page, Section, rows_of
from benchmarks.why import differences

__all__ = ["REPRODUCE"]

_HEAD = """\
# Reproduction

Sixteen systems on the same data under one stated protocol: `pamc reproduce all` runs everything on this page,
resumes where it was stopped, and writes each table as Markdown, LaTeX and CSV and each figure as PNG and SVG. Every
figure below is rendered from the rows in `benchmarks/results/reproduce/` by `python -m benchmarks.pages`;
none is typed.

How to read it:

- **paper** is what the paper prints. Its figures for other systems are quoted there from their papers; its own rest on
  another project's pre-trained autoencoders, which are not public, and presumably on the best epoch of each metric.
- **last epoch** is ours: no label reached a fit or chose an epoch. The settings were chosen with labels, by the
  systems' authors or, as said below, with the paper's figures in view. `pamc reproduce quality` runs PamCGC with pamc's
  own defaults, one configuration for all sets.
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


def _why() -> str:
    return differences([*rows_of("table2"), *rows_of("table3")], rows_of("differences"))


# In the order of the page.
_SECTIONS = {
    "table2": Section("Table 2: graphs", ("table2-short.md", "table2-tests.md")),
    "table3": Section("Table 3: tables of features", ("table3-short.md", "table3-tests.md"), more=_why),
    "differences": Section("The same systems under other settings", ("differences.md",)),
    "time-memory": Section(
        "Time and memory",
        (
            "time-memory-cuda.png",
            "time-memory-cuda-ratios.md",
            "time-memory-cuda.md",
            "time-memory-cpu-ratios.md",
            "time-memory-cpu.md",
        ),
        titled=True,
    ),
    "embeddings": Section("Embeddings", ("embeddings.png",)),
    "ablation": Section("PamC in SDCN and AGCN", ("ablation-cuda.png", "ablation-cuda.md")),
    "hyper": Section("Settings", ("hyper.png", "hyper.md")),
    "bound": Section("The bound", ("bound.png", "bound.md")),
    "edge-drop": Section("Dropping edges", ("edge-drop.png", "edge-drop.md")),
    "edge-noise": Section("Wrong edges", ("edge-noise.png", "edge-noise.md")),
    "supervision": Section("Some known labels", ("supervision.png", "supervision.md")),
    "assignment": Section("Hard or soft meta-nodes, Eq 2 or Eq 6", ("assignment.png", "assignment.md")),
}

REPRODUCE = Page("reproduce", _HEAD, _SECTIONS)
