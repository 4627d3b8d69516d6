"""Generated parts of `docs/production.md`: updates compared with fits from scratch, and the server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pamc.lab.cell import Row
from pamc.lab.pages import Part, joined, origin
from pamc.lab.pages.style import MISSING
from pamc.lab.rows import stored
from pamc.results.table import Table


def _updates(rows: Sequence[Row], folder: Path) -> str:
    """Return kept numbers, ACC, cost and reported changes of the updates, one line per data set and planted change."""
    body = []
    for row in rows:
        values = row["values"]
        fresh, cost = values.get("fresh_acc"), values.get("cost")
        body.append(
            [
                row["data_set"],
                row["parameters"]["planted"],
                f"{100 * values['least_kept']:.1f} %",
                f"{100 * values['acc']:.1f}",
                MISSING if fresh is None else f"{100 * fresh:.1f}",
                MISSING if cost is None else f"{cost:.2f}",
                "yes" if values["is_reported"] else "no",
                str(values["n_false_changes"]),
            ]
        )
    columns = ["data", "planted", "least kept", "ACC", "ACC of fits", "cost", "reported", "other changes"]
    about = (
        "Twenty rounds of 10 % new rows. Kept is the share of old rows with the same number, in the worst round, apart "
        "from the rows of a planted split; ACC is the mean over the rounds, beside that of fits from scratch to the "
        "same rows, and cost is the processor time relative to theirs. In the tenth round, a new cluster arrives or a "
        "cluster splits: reported says whether exactly this was reported in that round, and other changes counts the "
        "reports of all other rounds."
    )
    return joined(about, Table(columns, body, "llrrrrrr").markdown(), origin(rows))


def _serving(rows: Sequence[Row], folder: Path) -> str:
    """Return the rates of the server, the growth of its memory, and its answers to malformed bodies."""
    row = rows[-1]
    values = row["values"]
    growth = (values["resident_bytes_after"] - values["resident_bytes_before"]) / 1e6
    statuses = ", ".join(f"{count} × {status}" for status, count in values["statuses_of_malformed"].items())
    body = [
        ["requests of one row, JSON", f"{values['requests_per_s']:,.0f} per second"],
        ["their time, median and 99th percentile", f"{1e3 * values['p50_s']:.1f} ms, {1e3 * values['p99_s']:.1f} ms"],
        [f"rows in Parquet files of {values['n_rows']:,} rows", f"{values['rows_per_s']:,.0f} per second"],
        [f"growth of memory over {values['n_requests']:,} requests", f"{growth:.1f} MB"],
        [f"answers to {values['n_malformed']:,} malformed bodies", statuses],
    ]
    about = f"The model of the {row['data_set']} on loopback, with the client on the same cores."
    return joined(about, Table(["measure", "value"], body, "lr").markdown(), origin([row]))


PRODUCTION = {
    "updates": Part(partial(stored, "updates"), _updates),
    "serving": Part(partial(stored, "serving"), _serving),
}
