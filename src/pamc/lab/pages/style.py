"""One style for all figures and tables that experiments draw from rows."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pamc.errors import BackendError
from pamc.lab.cell import Row
from pamc.lab.rows import QUICK_NOTE, is_quick, provenance
from pamc.models.method import METHODS
from pamc.results.table import Table, mean_std

# Okabe and Ito (2008): told apart with any color vision, and by their lightness in gray print.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

# Tol (2021), "muted": up to ten classes.
CLASS_COLORS = (
    "#332288", "#88CCEE", "#117733", "#DDCC77", "#CC6677", "#44AA99", "#882255", "#999933", "#AA4499", "#BBBBBB",
)  # fmt: skip

_METHOD_COLORS = {
    "pamcgc": PALETTE[0],
    "scgc*": PALETTE[1],
    "scgc": PALETTE[4],
    "sdcn": PALETTE[2],
    "agcn": PALETTE[3],
    "gae": PALETTE[5],
    "kmeans": PALETTE[6],
}

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
    # With a fixed salt and no date, equal rows give equal files.
    "svg.hashsalt": "pamc",
}

# Of the note's font, at its mean width.
_NOTE_CHARACTERS_PER_INCH = 17

K = TypeVar("K", bound=Hashable)


@contextmanager
def drawing(n_rows: int = 1, n_columns: int = 1, *, size: tuple[float, float], **options: Any) -> Iterator[Any]:
    """Yield a new figure and its (n_rows, n_columns) axes, in the one style; draw and save it inside the block.

    The size is in inches, and the options are those of matplotlib's `Figure.subplots`.
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

    The note stands at the bottom. Across a figure of quick rows, and in the title of its files, stands that it is no
    result.
    """
    folder.mkdir(parents=True, exist_ok=True)
    quick = is_quick(rows)
    if note:
        text = textwrap.fill(note, int(_NOTE_CHARACTERS_PER_INCH * figure.get_figwidth()))
        figure.supxlabel(text, fontsize=7, color="#444444")
    if quick:
        figure.text(0.5, 0.5, QUICK_NOTE, fontsize=22, color="#B00000", alpha=0.45, rotation=15, ha="center", zorder=9)
    # The layout is found once, for both files.
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

    The Markdown has the title, the note and where the rows come from; a table of quick rows says that it is no result
    in each of the three.
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
    """Return rows grouped by a key, groups and rows in the order in which they come."""
    groups: dict[K, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def percent(values: Sequence[float], *, decimals: int = 1) -> str:
    """Return mean ± standard deviation of shares in percent; one value has no spread, and none is "–".

    Examples
    --------
    >>> percent([0.79, 0.81]), percent([0.79]), percent([])
    ('80.0 ± 1.4', '79.0', '–')
    """
    if len(values) == 1:
        return f"{100 * values[0]:.{decimals}f}"
    return mean_std(values).percent(decimals=decimals) if len(values) else MISSING


def mean_text(values: Sequence[float], decimals: int) -> str:
    """Return the mean of values, "–" of none."""
    return f"{mean_std(values).mean:.{decimals}f}" if len(values) else MISSING


def acc_of(row: Row) -> float:
    """Return ACC of a fit at the last epoch, in percent."""
    return 100 * float(row["values"]["last"]["acc"])


def data_sets_in(rows: Sequence[Row]) -> list[str]:
    """Return the data sets of rows, in the order in which they come."""
    return list(by(rows, lambda row: str(row["data_set"])))


def title_of(method: str) -> str:
    """Return a method's title, and the name itself where no method has it."""
    return METHODS[method].title if method in METHODS else method


def method_color(method: str) -> str:
    """Return the color of a method, the same in every figure."""
    return _METHOD_COLORS.get(method, "#7F7F7F")


def legend(figure: Any, panel: Any, *, loc: str = "outside right center", **options: Any) -> None:
    """Draw the legend of a panel outside of all panels."""
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
    """Draw a group of bars for each data set: mean, and standard deviation where there are several values.

    Parameters
    ----------
    bars
        By legend, for each group the values of that bar; a group without values has no bar.
    tops
        Values that stand on top of the bars, hatched, by the same legends.
    """
    width = 0.82 / max(len(bars), 1)
    for number, (name, values) in enumerate(bars.items()):
        at = [place for place, value in enumerate(values) if len(value)]
        x = np.array(at, dtype=float) + (number - (len(bars) - 1) / 2) * width
        means = [mean_std(values[place]) for place in at]
        stds = [value.std for value in means]
        height = np.array([value.mean for value in means])
        look = {"color": colors[number], "edgecolor": "white", "linewidth": 0.4}
        error = {"yerr": stds, "error_kw": {"elinewidth": 0.8, "ecolor": "#333333"}} if spread and any(stds) else {}
        axes.bar(x, height, width * 0.92, label=name, **look, **error)
        if tops is not None:
            more = np.array([mean_std(tops[name][place]).mean for place in at])
            axes.bar(x, more, width * 0.92, bottom=height, hatch="/////", alpha=0.55, **look)
    crowded = len(groups) > 4 and max(map(len, groups)) > 5
    turned: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    axes.set_xticks(range(len(groups)), groups, **turned)
    axes.tick_params(axis="x", length=0)


def line_with_band(
    axes: Any, points: Mapping[float, Sequence[float]], *, label: str, color: str, marker: str = "o", **options: Any
) -> None:
    """Draw the means of values by x as a line, and one standard deviation to both sides as a band."""
    x = sorted(points)
    mean, std = np.array([mean_std(points[place]) for place in x]).reshape(-1, 2).T
    axes.plot(x, mean, color=color, marker=marker, label=label, **options)
    if std.any():
        axes.fill_between(x, mean - std, mean + std, color=color, alpha=0.15, linewidth=0)


MISSING = "–"

_MIB = 1 << 20
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))

# Of pamc's own providers, the one that others are compared with is the first that was measured.
_PAMC = ("triton", "torch")


class ShownTable(NamedTuple):
    """A table of texts."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def time_text(seconds: float | None) -> str:
    """Return a time in the unit that suits it, such as "2.13 ms"."""
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
    """Return how many times a row's value is that of pamc at the same parameters; None where one is missing."""
    same = {
        other["provider"]: other["values"].get(name)
        for other in rows
        if all(other[field] == row[field] for field in ("data_set", "parameters", "device"))
    }
    base, own = next((same[each] for each in _PAMC if same.get(each)), None), row["values"].get(name)
    return None if base is None or own is None else float(own / base)


def tables(case: str, rows: Sequence[Row]) -> list[ShownTable]:
    """Return the tables of a case: what was measured, each sweep in a table of its own, and the exponents fitted."""
    points = [row for row in rows if "time_exponent" not in row["values"]]
    fitted = [row for row in rows if "time_exponent" in row["values"]]
    found = [_measured(case, group) for group in by(points, lambda row: str(row["parameters"].get("sweep"))).values()]
    return [*found, _exponents(case, fitted)] if fitted else found


def _shown_parameters(row: Row, *, seed: bool) -> dict[str, Any]:
    """Return what tells the rows of a table apart beside their provider."""
    more = {"data_set": row["data_set"]} if row["data_set"] else {}
    return {**more, **({"seed": row["seed"]} if seed else {}), **row["parameters"]}


def _measured(case: str, rows: Sequence[Row]) -> ShownTable:
    several = len({row["seed"] for row in rows}) > 1
    parameters = [_shown_parameters(row, seed=several) for row in rows]
    names = list(dict.fromkeys(name for own in parameters for name in own))
    varying = [name for name in names if len({json.dumps(own.get(name)) for own in parameters}) > 1]
    values = [row["values"] for row in rows]
    columns: dict[str, list[str]] = {"provider": [row["provider"] for row in rows]}
    columns |= {name: [_text(own.get(name)) for own in parameters] for name in varying}
    columns["time"] = [row["error"] or time_text(row["values"].get("seconds")) for row in rows]
    measured = {"× time": "seconds"}
    if any(own.get("peak_bytes") is not None for own in values):
        columns["memory"] = [bytes_text(own.get("peak_bytes")) for own in values]
        measured["× memory"] = "peak_bytes"
    if any(row["provider"] in _PAMC for row in rows) and len({row["provider"] for row in rows}) > 1:
        for title, name in measured.items():
            columns[title] = [_text(ratio_to_pamc(rows, row, name), _three) for row in rows]
    for name, (title, write) in _FURTHER.items():
        if any(name in own for own in values):
            columns[title] = [_text(own.get(name), write) for own in values]
    fixed = ", ".join(f"{name} {_text(parameters[0][name])}" for name in names if name not in varying)
    body = [list(line) for line in zip(*columns.values(), strict=True)]
    return ShownTable(f"{case}: {fixed}" if fixed else case, list(columns), body)


def _exponents(case: str, rows: Sequence[Row]) -> ShownTable:
    body = []
    for row in rows:
        sweep, values = row["parameters"]["sweep"], row["values"]
        low, high = row["parameters"][sweep]
        texts = [_text(values.get(name), "{:.2f}".format) for name in ("time_exponent", "memory_exponent")]
        body.append([row["provider"], sweep, f"{low} to {high}", *texts])
    columns = ["provider", "over", "sizes", "time exponent", "memory exponent"]
    return ShownTable(f"{case}: fitted exponents", columns, body)


def _three(value: float) -> str:
    """Return a number of at least about 0.01 with three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _text(value: Any, write: Callable[[Any], str] = str) -> str:
    """Return a value as it is shown; numbers of a list with dashes between them."""
    return MISSING if value is None else "-".join(map(str, value)) if isinstance(value, list) else write(value)


def _tera(value: float) -> str:
    return f"{_three(value / 1e12)}" if value >= 1e10 else f"{value / 1e12:.4f}"


# Values that a table shows where there are some, their heading and how they are written.
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
