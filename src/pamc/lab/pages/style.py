"""Figures, tables and text of measurements, in one style for all pages and experiments."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pamc.errors import BackendError
from pamc.lab.cell import Row
from pamc.lab.rows import QUICK_NOTE, is_quick, provenance
from pamc.models.method import METHODS
from pamc.results.table import Table, mean_std

# Okabe and Ito (2008): distinguishable with any color vision, and by lightness in gray print.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

# Tol (2021), "muted", for up to ten classes.
CLASS_COLORS = (
    "#332288", "#88CCEE", "#117733", "#DDCC77", "#CC6677", "#44AA99", "#882255", "#999933", "#AA4499", "#BBBBBB",
)  # fmt: skip

_METHOD_COLORS = dict(zip(("pamcgc", "scgc*", "sdcn", "agcn", "scgc", "gae", "kmeans"), PALETTE, strict=True))

_STYLE: Mapping[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "figure.dpi": 100,
    "savefig.dpi": 150,
    # With a fixed salt and without a date, equal rows give equal files.
    "svg.hashsalt": "pamc",
}

# At the mean width of the note's font.
_NOTE_CHARACTERS_PER_INCH = 17

K = TypeVar("K", bound=Hashable)


@contextmanager
def drawing(n_rows: int = 1, n_columns: int = 1, *, size: tuple[float, float], **options: Any) -> Iterator[Any]:
    """Yield a new figure and its axes (n_rows, n_columns) in the common style; draw and save it inside the block.

    `size` is in inches; `options` are passed to matplotlib's `Figure.subplots`.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BackendError('figures need matplotlib: pip install "pamc[reproduce]"') from error

    with matplotlib.rc_context(dict(_STYLE)):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, figure.subplots(n_rows, n_columns, squeeze=False, **options)


def save_figure(figure: Any, folder: Path, stem: str, *, rows: Sequence[Row] = (), note: str = "") -> list[Path]:
    """Write a figure as PNG (150 dpi) and SVG and return the two paths.

    The note is drawn at the bottom. A figure of quick rows, and the title of its files, state that it is not a result.
    """
    folder.mkdir(parents=True, exist_ok=True)
    quick = is_quick(rows)
    if note:
        text = textwrap.fill(note, int(_NOTE_CHARACTERS_PER_INCH * figure.get_figwidth()))
        figure.supxlabel(text, fontsize=7, color="#444444")
    if quick:
        figure.text(0.5, 0.5, QUICK_NOTE, fontsize=22, color="#B00000", alpha=0.45, rotation=15, ha="center", zorder=9)
    # Compute the layout once for both files.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    title = {"Title": f"{stem}: {QUICK_NOTE}" if quick else stem}
    paths = [folder / f"{stem}.png", folder / f"{stem}.svg"]
    figure.savefig(paths[0], metadata={**title, "Software": None})
    figure.savefig(paths[1], metadata={**title, "Date": None, "Creator": None})
    return paths


def write_table(
    table: Table, folder: Path, stem: str, *, title: str, rows: Sequence[Row], note: str = ""
) -> list[Path]:
    """Write a table as Markdown, LaTeX and CSV and return the three paths.

    The Markdown includes the title, the note and the origin of the rows. All three files of a table of quick rows state
    that it is not a result.
    """
    folder.mkdir(parents=True, exist_ok=True)
    quick = is_quick(rows)
    lines = [f"# {title}", *([f"**{QUICK_NOTE}**"] if quick else []), table.markdown().rstrip("\n")]
    lines += [text for text in (note, f"Rows: {provenance(rows)}." if rows else "") if text]
    latex = table.latex() + (f"\\par\\emph{{{QUICK_NOTE}}}\n" if quick else "")
    csv = (f"# {QUICK_NOTE}\n" if quick else "") + table.csv()
    paths = []
    for suffix, text in (("md", "\n\n".join(lines) + "\n"), ("tex", latex), ("csv", csv)):
        path = folder / f"{stem}.{suffix}"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def by(rows: Sequence[Row], key: Callable[[Row], K]) -> dict[K, list[Row]]:
    """Return rows grouped by a key, with groups and rows in their original order."""
    groups: dict[K, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def percent(values: Sequence[float], *, decimals: int = 1) -> str:
    """Return mean ± standard deviation of shares in percent; a single value has no deviation, and no value gives "–".

    Examples
    --------
    >>> percent([0.79, 0.81]), percent([0.79]), percent([])
    ('80.0 ± 1.4', '79.0', '–')
    """
    if len(values) == 1:
        return f"{100 * values[0]:.{decimals}f}"
    return mean_std(values).percent(decimals=decimals) if len(values) else MISSING


def mean_text(values: Sequence[float], decimals: int) -> str:
    """Return the mean of values as text, or "–" if there are none."""
    return f"{mean_std(values).mean:.{decimals}f}" if len(values) else MISSING


def acc_of(row: Row) -> float:
    """Return the ACC of a fit at the last epoch, in percent."""
    return 100 * float(row["values"]["last"]["acc"])


def data_sets_in(rows: Sequence[Row]) -> list[str]:
    """Return the names of the data sets of rows, in their original order."""
    return list(by(rows, lambda row: str(row["data_set"])))


def title_of(method: str) -> str:
    """Return a method's title, or the name itself if it is not a method."""
    return METHODS[method].title if method in METHODS else method


def method_color(method: str) -> str:
    """Return the color of a method, the same in every figure."""
    return _METHOD_COLORS.get(method, "#7F7F7F")


def legend(figure: Any, panel: Any, *, loc: str = "outside right center", **options: Any) -> None:
    """Draw the legend of one panel outside all panels."""
    figure.legend(*panel.get_legend_handles_labels(), loc=loc, **options)


def bar_groups(
    axes: Any,
    groups: Sequence[str],
    bars: Mapping[str, Sequence[Sequence[float]]],
    *,
    colors: Sequence[str],
    tops: Mapping[str, Sequence[Sequence[float]]] | None = None,
    spread: bool = True,
) -> None:
    """Draw a group of bars for each data set: the means, and standard deviations of several values.

    Parameters
    ----------
    bars
        Maps each label of the legend to the values of its bar in each group; without values, a group has no such bar.
    tops
        Maps the same labels to values that are stacked on the bars, hatched.
    spread
        Whether to draw standard deviations.
    """
    width = 0.82 / max(len(bars), 1)
    for number, (name, values) in enumerate(bars.items()):
        drawn = [group for group, value in enumerate(values) if len(value)]
        x = np.array(drawn, dtype=float) + (number - (len(bars) - 1) / 2) * width
        height, std = np.array([mean_std(values[group]) for group in drawn]).reshape(-1, 2).T
        style = {"color": colors[number], "edgecolor": "white", "linewidth": 0.4}
        error = {"yerr": std, "error_kw": {"elinewidth": 0.8, "ecolor": "#333333"}} if spread and std.any() else {}
        axes.bar(x, height, width * 0.92, label=name, **style, **error)
        if tops is not None:
            top = np.array([mean_std(tops[name][group]).mean for group in drawn])
            axes.bar(x, top, width * 0.92, bottom=height, hatch="/////", alpha=0.55, **style)
    crowded = len(groups) > 4 and max(map(len, groups)) > 5
    rotated: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    axes.set_xticks(range(len(groups)), groups, **rotated)
    axes.tick_params(axis="x", length=0)


def line_with_band(
    axes: Any, points: Mapping[float, Sequence[float]], *, label: str, color: str, marker: str = "o", **options: Any
) -> None:
    """Draw the means of values as a line over x, and one standard deviation on both sides as a band."""
    x = sorted(points)
    mean, std = np.array([mean_std(points[value]) for value in x]).reshape(-1, 2).T
    axes.plot(x, mean, color=color, marker=marker, label=label, **options)
    if std.any():
        axes.fill_between(x, mean - std, mean + std, color=color, alpha=0.15, linewidth=0)


MISSING = "–"

_MIB = 1 << 20
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))

# Others are compared with the first of these providers that was measured.
_PAMC = ("triton", "torch")


def time_text(seconds: float | None) -> str:
    """Return a time in a suitable unit, such as "2.13 ms"."""
    if seconds is None:
        return MISSING
    scale, unit = next((pair for pair in _TIME_UNITS if seconds >= pair[0]), _TIME_UNITS[-1])
    return f"{_three(seconds / scale)} {unit}"


def bytes_text(n_bytes: float | None) -> str:
    """Return a size in mebibytes, such as "3.00 MiB"."""
    if n_bytes is None:
        return MISSING
    return f"{_three(n_bytes / _MIB)} MiB" if n_bytes >= _MIB / 100 else f"{n_bytes / _MIB:.3f} MiB"


def ratio_to_pamc(rows: Sequence[Row], row: Row, name: str) -> float | None:
    """Return a row's value divided by that of pamc at the same parameters; None if one is missing."""
    same = {
        other["provider"]: other["values"].get(name)
        for other in rows
        if all(other[field] == row[field] for field in ("data_set", "parameters", "device"))
    }
    base, value = next((same[provider] for provider in _PAMC if same.get(provider)), None), row["values"].get(name)
    return None if base is None or value is None else float(value / base)


def tables(case: str, rows: Sequence[Row]) -> list[tuple[str, Table]]:
    """Return the titled tables of a case: one per sweep, and one of the fitted exponents."""
    measured = [row for row in rows if "time_exponent" not in row["values"]]
    fitted = [row for row in rows if "time_exponent" in row["values"]]
    sweeps = by(measured, lambda row: str(row["parameters"].get("sweep"))).values()
    return [*(_sweep_table(case, sweep) for sweep in sweeps), *([_exponents(case, fitted)] if fitted else [])]


def _sweep_table(case: str, rows: Sequence[Row]) -> tuple[str, Table]:
    """Return a table whose title lists the parameters that all rows have in common."""
    several_seeds = len({row["seed"] for row in rows}) > 1
    parameters = [
        {"data_set": row["data_set"] or None, "seed": row["seed"] if several_seeds else None, **row["parameters"]}
        for row in rows
    ]
    names = dict.fromkeys(name for one in parameters for name, value in one.items() if value is not None)
    varying = [name for name in names if len({json.dumps(one.get(name)) for one in parameters}) > 1]
    values = [row["values"] for row in rows]
    columns: dict[str, list[str]] = {"provider": [row["provider"] for row in rows]}
    columns |= {name: [_text(one.get(name)) for one in parameters] for name in varying}
    columns["time"] = [row["error"] or time_text(row["values"].get("seconds")) for row in rows]
    compared = {"× time": "seconds"}
    if any(one.get("peak_bytes") is not None for one in values):
        columns["memory"] = [bytes_text(one.get("peak_bytes")) for one in values]
        compared["× memory"] = "peak_bytes"
    if any(row["provider"] in _PAMC for row in rows) and len({row["provider"] for row in rows}) > 1:
        for title, name in compared.items():
            columns[title] = [_text(ratio_to_pamc(rows, row, name), _three) for row in rows]
    for name, (title, write) in _FURTHER.items():
        if any(name in one for one in values):
            columns[title] = [_text(one.get(name), write) for one in values]
    common = ", ".join(f"{name} {_text(parameters[0][name])}" for name in names if name not in varying)
    return f"{case}: {common}" if common else case, Table(list(columns), list(zip(*columns.values(), strict=True)))


def _exponents(case: str, rows: Sequence[Row]) -> tuple[str, Table]:
    body = []
    for row in rows:
        sweep = row["parameters"]["sweep"]
        low, high = row["parameters"][sweep]
        texts = [_text(row["values"].get(name), "{:.2f}".format) for name in ("time_exponent", "memory_exponent")]
        body.append([row["provider"], sweep, f"{low} to {high}", *texts])
    return f"{case}: fitted exponents", Table(["provider", "over", "sizes", "time exponent", "memory exponent"], body)


def _three(value: float) -> str:
    """Return a number of at least about 0.01 with three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _text(value: Any, write: Callable[[Any], str] = str) -> str:
    """Return a value as text; the numbers of a list are joined by hyphens."""
    return MISSING if value is None else "-".join(map(str, value)) if isinstance(value, list) else write(value)


def _tera(value: float) -> str:
    return _three(value / 1e12) if value >= 1e10 else f"{value / 1e12:.4f}"


# Optional values of a table: heading and format of the column, which appears if any row has the value.
_FURTHER: dict[str, tuple[str, Callable[[Any], str]]] = {
    "times_encoder": ("× encoder", _three),
    "times_faster": ("× sparse", _three),
    "first_layer_times_faster": ("in layer 1", _three),
    "bytes_per_s": ("TB/s", _tera),
    "share_of_copy": ("of a copy", lambda share: f"{100 * share:.0f} %"),
    "flop_per_s": ("TFLOP/s", _tera),
    "rows_per_s": ("rows/s", lambda rate: f"{rate:,.0f}"),
    "gradient_error": ("gradient error", lambda error: f"{error:.1e}"),
    "max_degree": ("largest degree", str),
}
