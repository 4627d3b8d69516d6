"""Figures and tables of the experiments: cells that are told apart, and artefacts made of rows alone."""

import csv
import sys
import zlib
from itertools import product

import numpy as np
import pytest

from pamc.data.catalog import CATALOG
from pamc.errors import BackendError
from pamc.lab.cases import time_memory
from pamc.lab.cases.time_memory import acc_differences
from pamc.lab.cell import CASES, TASKS, Scope
from pamc.lab.pages.style import bar_groups, by, drawing, method_color, save_figure, write_table
from pamc.lab.rows import QUICK_NOTE, make_row
from pamc.results.table import Table

pytestmark = pytest.mark.claims

NAMES = [
    "ablation",
    "assignment",
    "bound",
    "edge-drop",
    "edge-noise",
    "embeddings",
    "hyper",
    "supervision",
    "time-memory",
]
WITH_CELLS = [name for name in NAMES if name != "bound"]
SMALL = Scope(seeds=2, data_sets=("acm", "usps"), device="cpu")
ONE_SET = Scope(seeds=2, data_sets=("acm",), device="cpu")
QUICK = Scope(quick=True, device="cpu")
STAMP = {"gpu": "A GPU", "cpu": "A CPU", "commit": "0", "pamc": "0", "packages": {}}


def synthetic_values(cell):
    """Return values of the form that a cell's task returns, drawn at random by its key."""
    rng = np.random.default_rng(zlib.crc32(cell.key.encode()))
    share = cell.parameters.get("share", 0.0)
    metrics = {name: 0.6 + 0.3 * rng.random() - 0.2 * share for name in ("acc", "nmi", "ari", "f1")}
    n_classes = CATALOG[cell.data_set].n_classes if cell.data_set in CATALOG else 4
    sizes = rng.integers(1, 50, n_classes)
    sizes[0] *= rng.random() < 0.8
    slow = 3.0 if cell.provider in ("scgc*", "scgc") or "contrast" in cell.provider else 1.0
    training = slow * (1 + 0.1 * rng.random())
    seconds = {"training": training, "graph": 0.2, "training_with_evaluation": training + 0.4, "inference": 0.1}
    values = {"last": metrics, "cluster_sizes": sizes.tolist(), "seconds": seconds, "warnings": []}
    if cell.task == "time":
        values |= {"n_epochs_run": 200, "n_inferences": 200, "peak_training_bytes": int(slow * 4e8)}
    elif cell.task == "edges":
        values |= {"n_edges": round(20000 * (1 - share)), "n_isolated": round(1000 * share), "homophily": 0.8}
        values |= {"n_positive_pairs": round(10**6 * (1 - share)), "peak_training_bytes": int(4e8 * (1 - share / 2))}
    elif cell.task == "known-labels":
        measured = {**metrics, "agreement": metrics["acc"] if share else None}
        values |= {"n_known": round(1000 * share), "unknown": measured, "held_out": measured}
    elif cell.task == "embed":
        classes = rng.integers(n_classes, size=300)
        middles = 4 * rng.standard_normal((n_classes, 2))
        points = middles[classes] + rng.standard_normal((300, 2))
        trained = cell.parameters["stage"] == "trained"
        marks = {"centers": (middles + 0.3).tolist(), "meta_nodes": middles.tolist()}
        values |= marks if trained else dict.fromkeys(marks)
        values |= {"classes": classes.tolist(), "points": points.tolist(), "map": "pca"}
    return values


def synthetic_rows(name, scope, device="cuda"):
    stamp = {"date": "2024-05-01T10:00:00Z", "device": device, "environment": STAMP}
    return [make_row(cell, stamp, values=synthetic_values(cell)) for cell in CASES[name].cells(scope)]


def read_csv(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize(("name", "quick"), list(product(NAMES, [False, True])))
def test_cells_have_keys_of_their_own_and_a_task_that_exists(name, quick):
    cells = CASES[name].cells(Scope(quick=quick, device="cpu"))
    assert len({cell.key for cell in cells}) == len(cells)
    assert all(cell.case == name and cell.quick is quick for cell in cells)
    assert {cell.task for cell in cells} <= set(TASKS)
    assert bool(cells) == (name != "bound")


@pytest.mark.parametrize("name", WITH_CELLS)
def test_a_scope_keeps_the_data_sets_and_methods_asked_for(name):
    scope = Scope(seeds=2, data_sets=("acm", "cora"), methods=("pamcgc", "sdcn", "kmeans"), device="cpu")
    cells = CASES[name].cells(scope)
    assert {cell.data_set for cell in cells} == {"acm"}
    assert {cell.provider for cell in cells} <= {"pamcgc", "sdcn", "kmeans"}
    assert {cell.seed for cell in cells} == {0, 1}


@pytest.mark.parametrize(
    ("name", "n_seeds"), [(name, {"hyper": 1, "embeddings": 1}.get(name, 3)) for name in WITH_CELLS]
)
def test_an_experiment_has_its_own_number_of_seeds(name, n_seeds):
    assert {cell.seed for cell in CASES[name].cells(Scope(device="cpu"))} == set(range(n_seeds))


@pytest.mark.parametrize("name", ["time-memory", "ablation"])
def test_timed_cells_run_alone_and_on_a_cpu_for_a_twentieth_of_the_papers_epochs(name):
    for cell in CASES[name].cells(Scope(device="cpu")):
        assert cell.parameters["alone"] is (name == "time-memory" or cell.seed == 0)
        assert cell.parameters["device"] == "cpu"
        assert cell.settings["n_epochs"] == (10 if name == "time-memory" else 200)


@pytest.mark.parametrize("name", NAMES)
def test_rendering_writes_figures_and_tables_from_rows_alone(name, tmp_path):
    rows = synthetic_rows(name, ONE_SET) if name != "bound" else []
    paths = CASES[name].render(rows, tmp_path / "new")
    assert len(set(paths)) == len(paths)
    suffixes = {path.suffix for path in paths}
    assert suffixes == ({".png", ".svg"} if name == "embeddings" else {".png", ".svg", ".md", ".tex", ".csv"})
    for path in paths:
        assert path.name.startswith(name)
        assert path.stat().st_size > (5000 if path.suffix in (".png", ".svg") else 100)
        assert QUICK_NOTE.encode() not in path.read_bytes()


@pytest.mark.parametrize("name", WITH_CELLS)
def test_every_artefact_of_quick_rows_says_that_it_is_no_result(name, tmp_path):
    scope = Scope(quick=True, data_sets=("blocks",), device="cpu")
    paths = CASES[name].render(synthetic_rows(name, scope, "cpu"), tmp_path)
    for path in paths:
        assert QUICK_NOTE.encode() in path.read_bytes(), path.name


@pytest.mark.parametrize("name", ["time-memory", "ablation", "hyper"])
def test_a_part_of_the_rows_is_enough(name, tmp_path):
    scope = Scope(seeds=1, data_sets=("acm",), methods=("pamcgc", "sdcn"), device="cpu")
    for path in CASES[name].render(synthetic_rows(name, scope, "cpu"), tmp_path):
        assert path.stat().st_size > 50


def test_equal_rows_give_equal_files(tmp_path):
    rows = synthetic_rows("supervision", ONE_SET)
    first, second = (CASES["supervision"].render(rows, tmp_path / name) for name in "ab")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_rows_of_two_devices_are_told_apart(tmp_path):
    rows = [row for device in ("cpu", "cuda") for row in synthetic_rows("time-memory", ONE_SET, device)]
    names = {path.name for path in CASES["time-memory"].render(rows, tmp_path)}
    assert {"time-memory-cpu.md", "time-memory-cuda.md", "time-memory-cpu.png", "time-memory-cuda.png"} <= names
    assert "A GPU" in (tmp_path / "time-memory-cuda.md").read_text(encoding="utf-8")
    assert "A CPU" in (tmp_path / "time-memory-cpu.md").read_text(encoding="utf-8")


@pytest.fixture
def tables_alone(monkeypatch):
    """Leave out the figure, which takes the time."""
    monkeypatch.setattr(time_memory, "_figure", lambda *_: [])


@pytest.mark.usefixtures("tables_alone")
def test_ratios_are_those_of_the_means(tmp_path):
    rows = synthetic_rows("time-memory", SMALL)
    for row in rows:
        factor = {"scgc*": 3.0, "pamcgc": 1.0}.get(row["provider"], 9.0) * (1 + row["seed"])
        row["values"]["seconds"] = {
            "training": 2 * factor,
            "graph": 1.0,
            "training_with_evaluation": 5 * factor,
            "inference": factor,
        }
        row["values"]["peak_training_bytes"] = round(2**20 * factor * (4 if row["provider"] == "scgc*" else 1))
    CASES["time-memory"].render(rows, tmp_path)
    ratios = {row["data set"]: row for row in read_csv(tmp_path / "time-memory-cuda-ratios.csv")}
    assert set(ratios) == {"acm", "usps", "geometric mean"}
    for row in ratios.values():
        assert row["training"] == row["inference"] == row["with evaluation"] == "3.00"
        assert row["memory"] == "12.00"
        assert row["with γ"] == f"{(3 * 3 + 1) / (3 + 1):.2f}"
        assert row["with both, as in the paper"] == f"{(3 * 7.5 + 1) / (7.5 + 1):.2f}"
    table = read_csv(tmp_path / "time-memory-cuda.csv")
    (own,) = [row for row in table if (row["data set"], row["method"]) == ("acm", "PamCGC")]
    assert own["training (s)"] == "3.00 ± 1.41"
    assert own["memory (MiB)"] == "2 ± 1"


@pytest.mark.usefixtures("tables_alone")
def test_memory_is_left_out_where_it_was_not_measured(tmp_path):
    rows = synthetic_rows("time-memory", SMALL, "cpu")
    for row in rows:
        row["values"]["peak_training_bytes"] = None
    CASES["time-memory"].render(rows, tmp_path)
    assert {row["memory"] for row in read_csv(tmp_path / "time-memory-cpu-ratios.csv")} == {"–"}


def test_accuracy_with_pamc_and_without_is_compared_seed_by_seed():
    def row(method, seed, acc):
        return {"provider": method, "seed": seed, "data_set": "acm", "values": {"last": {"acc": acc}}}

    rows = [row("sdcn+pamc", 0, 0.9), row("sdcn+pamc", 1, 0.5), row("sdcn+pamc", 2, 0.1)]
    rows += [row("sdcn+contrast", 1, 0.3), row("sdcn+contrast", 0, 0.8), row("agcn+contrast", 2, 0.0)]
    assert acc_differences(rows, "sdcn", "acm") == pytest.approx([10, 20])
    assert acc_differences(rows, "agcn", "acm") == []


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BackendError, match=r'pip install "pamc\[reproduce\]"'):
        CASES["bound"].render([], tmp_path)


def test_a_figure_is_a_png_of_150_dpi_and_an_svg(tmp_path):
    from PIL import Image

    with drawing(size=(3, 2)) as (figure, axes):
        bar_groups(axes[0, 0], ["a", "b"], {"x": [[1.0, 3.0], []], "y": [[2.0], [4.0]]}, colors=["red", "blue"])
        png, svg = save_figure(figure, tmp_path, "some")
        heights = [[bar.get_height() for bar in group] for group in axes[0, 0].containers if hasattr(group, "patches")]
    with Image.open(png) as image:
        assert image.size == (450, 300)
        assert image.info["dpi"] == pytest.approx((150, 150), abs=0.1)
    assert svg.read_text(encoding="utf-8").startswith("<?xml")
    assert heights == [[2.0], [2.0, 4.0]]


def test_drawing_leaves_no_style_behind():
    import matplotlib

    before = dict(matplotlib.rcParams)
    with drawing(size=(1, 1)):
        pass
    assert dict(matplotlib.rcParams) == before


def test_methods_of_one_figure_have_colors_of_their_own():
    for name in ("time-memory", "edge-noise", "hyper"):
        methods = {cell.provider for cell in CASES[name].cells(QUICK)}
        assert len({method_color(method) for method in methods}) == len(methods)


def test_a_table_carries_its_note_and_where_its_rows_come_from(tmp_path):
    rows = synthetic_rows("assignment", Scope(seeds=1, data_sets=("acm",)))
    paths = write_table(Table(["a"], [["1"]]), tmp_path, "some", title="Some title", rows=rows, note="Some note.")
    assert [path.name for path in paths] == ["some.md", "some.tex", "some.csv"]
    text = paths[0].read_text(encoding="utf-8")
    assert text.startswith("# Some title\n")
    assert "Some note." in text
    assert f"{len(rows)} runs on A GPU" in text
    assert paths[2].read_text(encoding="utf-8") == "a\n1\n"


def test_grouping_keeps_the_order_of_rows():
    rows = [{"a": 2, "b": 0}, {"a": 1, "b": 1}, {"a": 2, "b": 2}]
    assert list(by(rows, lambda row: row["a"]).items()) == [(2, [rows[0], rows[2]]), (1, [rows[1]])]
