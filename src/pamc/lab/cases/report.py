"""Pages of reports in a headless Chromium, and the README's picture of one.

Two pages, of USPS and of 200,000 rows, both clustered by K-means: how long writing takes, how large the file is, when
the page can be used after it was opened from disk, and how long a filter by cluster takes until the map is drawn again.
With the canvas that stands in for WebGL on a machine without a GPU, and, for comparison, with WebGL that is computed
there (SwiftShader). Needs the package playwright and a Chromium, named in PAMC_CHROMIUM or found on the path.
`python -m pamc.lab.cases.report RUN` takes the picture from what `pamc fit --dataset usps --n-clusters 10` wrote.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pamc import clusterer, write_report
from pamc.data.attributed_graph import AttributedGraph
from pamc.lab.cell import Cell, Scope, register_case
from pamc.lab.rows import CHECKOUT
from pamc.lab.settings import load

__all__ = ["PICTURE", "report", "take_picture"]

PICTURE = CHECKOUT / "docs" / "report" / "report.png"
_WIDTH, _HEIGHT = 1360, 1790

_DRAWINGS = {
    "webgl": ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"),
    "canvas": ("--no-sandbox", "--disable-gpu", "--disable-3d-apis"),
}
_N_REPEATS = 5
_N_CLUSTERS = 10
_MANY, _QUICK_MANY = 200_000, 2_000

# Resolves when what the filter changed has been drawn, and can be read.
_FILTER = """(cluster) => new Promise((done) => {
    const began = performance.now(), { gl } = pamc.page.map.points;
    document.querySelector(`.chip[data-filter="${cluster}"]`).click();
    requestAnimationFrame(() => requestAnimationFrame(() => {
        gl?.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
        done(performance.now() - began);
    }));
})"""


def cells(scope: Scope) -> list[Cell]:
    """Return a cell per page and way to draw it."""
    pages = (("many", ""),) if scope.quick else (("usps", "usps"), ("many", ""))
    return [
        Cell(
            "report",
            "report",
            drawing,
            data_set,
            parameters={"page": page, "n_clusters": _N_CLUSTERS},
            quick=scope.quick,
        )
        for page, data_set in pages
        for drawing in _DRAWINGS
    ]


@register_case("report", "pages of reports in a browser: writing, opening, filtering", cells=cells, in_all=False)
def report(cell: Cell, device: str) -> dict[str, Any]:
    """Return the time and size of writing a page, and the times of its use in a browser."""
    folder, written = _written(cell.data_set, cell.quick)
    with _browser(*_DRAWINGS[cell.provider]) as browser:
        seen = [_timed(browser, Path(folder.name, "report.html")) for _ in range(_N_REPEATS)]
    return {**written, **{key: statistics.median(each[key] for each in seen) for key in seen[0]}}


@lru_cache(maxsize=1)
def _written(data_set: str, quick: bool) -> tuple[tempfile.TemporaryDirectory[str], dict[str, Any]]:
    """Return a folder with a page, and what writing it took; the ways to draw it share it."""
    graph = load(data_set, quick).without_edges() if data_set else _many(_QUICK_MANY if quick else _MANY)
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name, "report.html")
    model = clusterer("kmeans", _N_CLUSTERS, random_state=0).fit_graph(graph)
    began = time.perf_counter()
    write_report(model, graph, path, map="pca")
    write_s = time.perf_counter() - began
    return folder, {"write_s": write_s, "bytes": path.stat().st_size, "n_nodes": graph.n_nodes}


@contextmanager
def _browser(*options: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("PAMC_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=chromium, args=list(options))
        yield browser
        browser.close()


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


def take_picture(page_file: Path, out: Path) -> None:
    """Draw the top of a page, with a row of the first cluster kept beside the map, and its cards."""
    with _browser("--no-sandbox", "--disable-gpu") as browser:
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector("html[data-ready]")
        page.locator(".members .link").first.click()
        page.evaluate("window.scrollTo(0, 0)")
        page.mouse.move(0, 0)
        page.wait_for_timeout(500)
        page.screenshot(path=out)


if __name__ == "__main__":
    take_picture(Path(sys.argv[1], "report.html"), PICTURE)
