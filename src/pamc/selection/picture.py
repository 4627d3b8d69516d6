"""Stability against the number of clusters: as text, as SVG, and with matplotlib."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.errors import BackendError

__all__ = ["as_svg", "as_text", "draw"]

_COLUMNS = ("stability", "error", "chance", "modularity", "silhouette", "objective")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 560, 260, 44, 40, 14, 12
_BAR = 20
_NARROWEST = 20
_MARKS = (" <- recommended", " <-")


def as_text(chosen: Any, *, width: int | None = None, summary: bool = True) -> str:
    """Return a line per candidate with a bar of its stability, and the recommendation below.

    Where lines of `width` characters do not hold it all, the bars are left out, then columns from the right, which are
    named below.
    """
    table = chosen.table
    names, bar, mark = _fitting(width)
    sizes = {name: max(len(name), 10 if bar else 6) for name in names}
    lines = ["  ".join([f"{'k':>4}", *(f"{name:>{size}}" for name, size in sizes.items())])]
    for place, k in enumerate(table["n_clusters"]):
        numbers = "  ".join([f"{k:>4}", *(f"{table[name][place]:{size}.3f}" for name, size in sizes.items())])
        drawn = "#" * round(bar * max(0.0, float(table["stability"][place])))
        line = numbers + (f"  {drawn:<{bar}}" if bar else "") + (mark if k == chosen.n_clusters else "")
        lines.append(line.rstrip())
    below = [chosen.summary] if summary else []
    if len(names) < len(_COLUMNS):
        below.insert(0, f"(no room for {', '.join(_COLUMNS[len(names) :])})")
    for text in below:
        lines += [text] if width is None else textwrap.wrap(text, max(width, _NARROWEST)) or [""]
    return "\n".join(lines)


def _fitting(width: int | None) -> tuple[tuple[str, ...], int, str]:
    """Return the columns, the length of a bar and the mark of the recommended number that fit in a line."""
    if width is None or width >= 4 + 12 * len(_COLUMNS) + 2 + _BAR + len(_MARKS[0]):
        return _COLUMNS, _BAR, _MARKS[0]
    for n_columns in range(len(_COLUMNS), 1, -1):
        used = 4 + sum(2 + max(len(name), 6) for name in _COLUMNS[:n_columns])
        for mark in _MARKS:
            if used + len(mark) <= width:
                return _COLUMNS[:n_columns], 0, mark
    return _COLUMNS[:1], 0, _MARKS[1]


def as_svg(chosen: Any) -> str:
    """Return an SVG element in the colors of the text around it, with a description for readers who do not see it."""
    table = chosen.table
    k = table["n_clusters"].astype(np.float64)
    x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * (k - k[0]) / max(k[-1] - k[0], 1.0)
    lines = {"stability": ("#2563eb", ""), "chance": ("#9a6700", "5 4")}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img" '
        f'aria-label="Stability for {k[0]:.0f} to {k[-1]:.0f} clusters" font-family="sans-serif" font-size="12" '
        'fill="currentColor">'
    ]
    for value in (0.0, 0.5, 1.0):
        y = float(_height(np.array([value]))[0])
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="currentColor" stroke-opacity="0.2"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    if chosen.n_clusters is not None:
        at = float(x[table["n_clusters"] == chosen.n_clusters][0])
        parts.append(f'<path d="M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="currentColor" stroke-dasharray="2 3"/>')
    for name, (color, dashes) in lines.items():
        corners = list(zip(x.tolist(), _height(table[name]).tolist(), strict=True))
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dashes}"/>'
        )
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{color}"/>' for a, b in corners]
    step = max(1, -(-len(k) // 20))
    for a, number in zip(x[::step].tolist(), table["n_clusters"][::step].tolist(), strict=True):
        parts.append(f'<text x="{a:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{number}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 4}" text-anchor="middle">number of clusters</text>')
    for place, (name, (color, _)) in enumerate(lines.items()):
        at = _WIDTH - 130 * (len(lines) - place)
        shown = "without clusters" if name == "chance" else name
        parts.append(f'<circle cx="{at}" cy="{_TOP + 4}" r="4" fill="{color}"/>')
        parts.append(f'<text x="{at + 8}" y="{_TOP + 8}">{shown}</text>')
    return "".join([*parts, "</svg>"])


def draw(chosen: Any, ax: Any = None) -> Any:
    """Draw the same with matplotlib and return its axes."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise BackendError('plot() needs matplotlib: pip install "pamc[explain]"; svg() and text() do not') from error
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
    table = chosen.table
    ax.errorbar(table["n_clusters"], table["stability"], yerr=table["error"], marker="o", label="stability")
    ax.plot(table["n_clusters"], table["chance"], linestyle="--", label="without clusters")
    if chosen.n_clusters is not None:
        ax.axvline(chosen.n_clusters, linestyle=":", color="gray")
    ax.set(xlabel="number of clusters", ylabel="agreement of halves", xticks=table["n_clusters"])
    ax.legend()
    return ax


def _height(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * np.clip(values, 0.0, 1.0)
