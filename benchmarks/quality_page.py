"""The page `docs/quality.md`: what it says beside its tables and figures."""

from __future__ import annotations

from benchmarks.pages import Page, Section
from benchmarks.rows import latest
from benchmarks.start_choices import ALTERNATIVES, AS_IS
from pamc.experiments.paper.quality import DATA_SETS
from pamc.results.table import Table, mean_std

__all__ = ["QUALITY", "fit_times", "tried"]

_HEAD = """\
# Without labels and without settings

What `pamc fit --dataset NAME --n-clusters K` gives, with no other option: one configuration for all data, the last
epoch, twenty seeds (ten for the other starts, three for the ablations). No label is read by preprocessing, graph,
start, training, stopping or the choice between them; labels serve the metrics below and nothing else. The tables of
features (USPS, HHAR, news4, reut21578_4, digits) get a graph of their own nearest neighbors; the neighbor lists that
come with some of them are not used.

Every figure is rendered from the rows in `benchmarks/results/` by `python -m benchmarks.pages`; none is typed.

How to read it: no fit sees a label, but people do. The constants of the default (how far walks go, how many repeats,
the weights of the two terms) were chosen by their accuracy over these ten sets together, never for one of them. The
figures are therefore what one fixed rule gives on the sets it was made with; on others it may do worse.
"""

_TAIL = """\
## What the tables say

- The start and the clustering term do most of the work. Without the contrast (α 0) no set is better by more than a
  tenth of a point, and Cora, Photo and news4 are worse by 0.7 to 1.5. Eq 6 in place of Eq 2, γ_ii kept and one hop
  change at most 0.3, so the default keeps the paper's form of each. Meta-nodes of soft assignments are worse on
  news4.
- Hiding features while the encoder learns, and a softer first assignment, are each worth up to one and a half points
  where they help, and cost up to half a point where they do not.
- Of the label-free scores, modularity goes with accuracy on every set but reut21578_4, and on most of them better than
  the others.
- The default lost no cluster in 200 fits. A start whose clusters training empties is gone back to, so that the other
  starts lose none either; the autoencoder is left as the paper has it, and loses clusters on six of the ten sets.

## Where it falls short

- **reut21578_4.** The best other program is ahead. The largest class, more than half of the rows, falls into three
  clusters, and the two smallest classes share one. Where clusters may be smaller (a tenth of N / C), the next cluster
  is one more part of the largest class. None of the alternatives and settings above changes that.
- **ACM, and by a tenth of a point CITE.** The best other program is ahead.
- **news4.** Two ways to join small groups into four clusters are nearly equally good: one seed of twenty takes the
  worse one, by five points, and makes the spread of ACC the largest of all sets. With fewer clusterings to agree on
  it happened more often.
"""


def _columns(kind: str) -> list[str]:
    return [kind, *DATA_SETS]


def fit_times() -> str:
    """Return the section with the seconds of whole fits, by the defaults and by the paper's recipe."""
    rows = latest("fit-time")
    seconds = {(row["provider"], row["parameters"]["data_set"]): row["values"]["seconds"] for row in rows}
    body = [
        [title, *(f"{seconds[provider, name]:.1f}" for name in DATA_SETS)]
        for title, provider in (("the paper's recipe (s)", "paper"), ("pamc's defaults (s)", "pamc"))
    ]
    body.append(["times as long", *(f"{seconds['pamc', name] / seconds['paper', name]:.2f}" for name in DATA_SETS)])
    environment = rows[-1]["environment"]
    machine = environment["gpu"] or environment["cpu"]
    table = Table(_columns(machine), body, "l" + "r" * len(DATA_SETS))
    about = (
        "Whole fits from raw rows, one after the other with nothing beside them: graph, start, 200 epochs, labels. The "
        "paper's recipe pre-trains an autoencoder."
    )
    return f"## What it costs\n\n{about} `python -m benchmarks.run fit-time`\n\n{table.markdown()}\n"


def tried() -> str:
    """Return the section with what else the start could be: ACC of its clusters before training."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row in latest("start-choices"):
        own = found.setdefault((row["provider"], row["parameters"]["data_set"]), {})
        own[row["parameters"]["seed"]] = row["values"]["acc"]
    body = []
    for title in ALTERNATIVES:
        line = []
        for name in DATA_SETS:
            own, base = found.get((title, name), {}), found.get((AS_IS, name), {})
            if title == AS_IS:
                line.append(f"{100 * mean_std(list(own.values())).mean:.1f}" if own else "–")
            else:
                both = own.keys() & base.keys()
                line.append(f"{100 * mean_std([own[s] - base[s] for s in both]).mean:+.1f}" if both else "–")
        body.append([title, *line])
    table = Table(_columns("clusters of the start"), body, "l" + "r" * len(DATA_SETS))
    most = max(len(own) for own in found.values())
    n_seeds = "one seed" if most == 1 else f"{most} seeds"
    about = (
        f"ACC in percent of the start's own clusters, before any training, {n_seeds}; below the first line, the "
        "difference to it in points."
    )
    return f"## Tried and left\n\n{about} `python -m benchmarks.run start-choices`\n\n{table.markdown()}\n"


def _more() -> str:
    return f"{fit_times()}\n{tried()}"


_SECTIONS = {
    "quality": Section(
        "Every data set, every start",
        (
            "quality.md",
            "quality-starts.md",
            "quality-decisions.md",
            "quality-ablations.md",
            "quality-scores.png",
            "quality-scores.md",
        ),
        titled=True,
        more=_more,
    )
}

QUALITY = Page("quality", _HEAD, _SECTIONS, _TAIL)
