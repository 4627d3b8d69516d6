"""Pages in a headless Chromium: `python -m benchmarks.report_page [--quick]`.

Two pages, of USPS and of 200,000 rows, both clustered by K-means: how long writing takes, how large the file is, when
the page can be used after it was opened from disk, and how long a filter by cluster takes until the map is drawn again.
With the canvas that stands in for WebGL on a machine without a GPU, and, for comparison, with WebGL that is computed
there (SwiftShader). Needs the package playwright and a Chromium, named in PAMC_CHROMIUM or found on the path.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import append, stamp
from pamc import clusterer, load_dataset
from pamc.bench.rows import Row
from pamc.data.attributed_graph import AttributedGraph
from pamc.report.writing import write_report

__all__ = ["main", "measure"]

DRAWINGS = {
    "webgl": ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"),
    "canvas": ("--no-sandbox", "--disable-gpu", "--disable-3d-apis"),
}
N_REPEATS = 5

# Resolves when what the filter changed has been drawn, and can be read.
_FILTER = """(cluster) => new Promise((done) => {
    const began = performance.now(), { gl } = pamc.page.map.points;
    document.querySelector(`.chip[data-filter="${cluster}"]`).click();
    requestAnimationFrame(() => requestAnimationFrame(() => {
        gl?.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
        done(performance.now() - began);
    }));
})"""


def main() -> None:
    """Measure, print and append the rows."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--quick", action="store_true", help="the rows are marked and never shown in tables")
    parser.add_argument("--many", type=int, default=200_000, help="rows of the second page")
    arguments = parser.parse_args()
    origin = stamp(quick=arguments.quick, device="cpu")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, graph in (("usps", load_dataset("usps").without_edges()), ("many", _many(arguments.many))):
            rows += measure(name, graph, Path(folder))
    append("report", rows, origin)
    for row in rows:
        print(row["provider"], json.dumps(row["parameters"]), json.dumps(row["values"]))


def measure(name: str, graph: AttributedGraph, folder: Path) -> list[Row]:
    """Return a row for each way to draw the page of a graph."""
    from playwright.sync_api import sync_playwright

    path = folder / f"{name}.html"
    model = clusterer("kmeans", 10, random_state=0).fit_graph(graph)
    began = time.perf_counter()
    write_report(model, graph, path, map="pca")
    written = {"write_s": time.perf_counter() - began, "bytes": path.stat().st_size}
    chromium = os.environ.get("PAMC_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    rows: list[Row] = []
    with sync_playwright() as playing:
        for drawing, options in DRAWINGS.items():
            browser = playing.chromium.launch(executable_path=chromium, args=list(options))
            seen = [_timed(browser, path) for _ in range(N_REPEATS)]
            values = {key: statistics.median(each[key] for each in seen) for key in seen[0]}
            browser.close()
            parameters = {"page": name, "n_nodes": graph.n_nodes, "n_clusters": 10}
            rows.append({"provider": drawing, "parameters": parameters, "values": {**written, **values}})
    return rows


def _timed(browser: Any, path: Path) -> dict[str, float]:
    """Return milliseconds until a page can be used, and of the median filter."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(f"{path.as_uri()}?any-webgl")
    page.wait_for_selector("html[data-ready]")
    ready = float(page.evaluate("document.documentElement.dataset.ready"))
    filters = [page.evaluate(_FILTER, cluster) for cluster in range(6)]
    page.close()
    return {"ready_ms": ready, "filter_ms": statistics.median(filters), "slowest_filter_ms": max(filters)}


def _many(n_nodes: int) -> AttributedGraph:
    draw = np.random.default_rng(0)
    labels = draw.integers(10, size=n_nodes)
    features = 4 * draw.normal(size=(10, 16))[labels] + draw.normal(size=(n_nodes, 16))
    return AttributedGraph(features.astype(np.float32), labels=labels, name="many")


if __name__ == "__main__":
    main()
