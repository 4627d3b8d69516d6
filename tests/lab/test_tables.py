import csv
import io

import numpy as np
import pytest
from scipy import stats

from pamc.lab import settings as data
from pamc.lab.cases import tables
from pamc.lab.cases.tables import table_cells
from pamc.lab.cell import CASES, Cell, Scope
from pamc.lab.fits import EpochWatch, assigns_every_epoch, fit
from pamc.lab.rows import make_row
from pamc.lab.settings import METRICS, paper_methods, quick_settings, settings_of, table_1_row
from pamc.models.method import METHODS
from pamc.training.fallback import Epoch

# ACC at the last epoch by data set, method and seed; the oracle epoch has 0.05 more.
ACC = {
    ("dblp", "pamcgc"): [0.70, 0.74, 0.72],
    ("dblp", "scgc*"): [0.69, 0.70, 0.71],
    ("dblp", "kmeans"): [0.40, 0.44],
}


def make(table, data_set, method, seed, acc, *, quick=False, settings=None, date="2024-05-01T10:00:00Z", commit="abc"):
    cell = Cell(table, "fit", method, data_set, seed, settings=settings or {}, quick=quick)
    stamp = {"cpu": "a processor", "gpu": None, "commit": commit, "pamc": "0.1", "packages": {"torch": "2.9"}}
    last = {name: acc - shift for name, shift in zip(METRICS, (0, 0.1, 0.2, 0.01), strict=True)}
    values = {"last": last, "oracle": {name: value + 0.05 for name, value in last.items()}}
    return make_row(cell, {"date": date, "device": "cpu", "environment": stamp}, values=values)


def rows_of(table, figures, **options):
    return [
        make(table, data_set, method, seed, value, **options)
        for (data_set, method), values in figures.items()
        for seed, value in enumerate(values)
    ]


def render(name, rows, folder):
    return {path.name: path.read_text(encoding="utf-8") for path in CASES[name].render(rows, folder)}


def table_lines(text):
    """Return the cells of each line of the Markdown tables in a text."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]


def line_of(text, *start):
    (line,) = [line for line in table_lines(text) if line[: len(start)] == list(start)]
    return line


@pytest.fixture
def files(tmp_path):
    return render("table2", rows_of("table2", ACC), tmp_path)


def test_the_full_table_has_the_papers_figures_beside_ours(files):
    text = files["table2.md"]
    mean, std = 100 * np.mean(ACC["dblp", "pamcgc"]), 100 * np.std(ACC["dblp", "pamcgc"], ddof=1)
    ours = f"{mean:.1f} ± {std:.1f}"
    assert line_of(text, "DBLP", "PamCGC", "ACC") == [
        "DBLP", "PamCGC", "ACC", "79.6 ± 0.0", ours, f"{mean + 5:.1f} ± {std:.1f}", "-7.6", "-2.6", "3",
    ]  # fmt: skip
    assert line_of(text, "DBLP", "PamCGC", "NMI")[3:5] == ["49.2 ± 0.1", f"{mean - 10:.1f} ± {std:.1f}"]
    assert line_of(text, "DBLP", "K-means", "ACC")[-1] == "2"
    assert "chosen with the true labels, as the released program reports" in table_lines(text)[0][5]


def test_missing_cells_are_marked(files):
    text = files["table2.md"]
    assert line_of(text, "DBLP", "DAEGC", "ACC")[3:] == ["62.1 ± 0.5", *["–"] * 5]
    assert line_of(text, "ACM", "PamCGC", "F1")[3:] == ["92.5 ± 0.0", *["–"] * 5]
    assert len(table_lines(text)) == 1 + 3 * 16 * 4
    assert line_of(files["table2-tests.md"], "DBLP", "DAEGC")[2:] == ["–"] * 4


def test_the_short_table_is_acc_alone(files):
    lines = table_lines(files["table2-short.md"])
    assert len(lines) == 1 + 16
    assert lines[0][:4] == [
        "ACC", "DBLP, paper", "DBLP, last epoch", "DBLP, oracle epoch (chosen with the true labels)",
    ]  # fmt: skip
    assert line_of(files["table2-short.md"], "SCGC*")[1:4] == ["77.7 ± 0.1", "70.0 ± 1.0", "75.0 ± 1.0"]


def test_the_t_test_pairs_the_seeds_that_both_methods_have(files):
    text = files["table2-tests.md"]
    expected = stats.ttest_rel(ACC["dblp", "pamcgc"], ACC["dblp", "scgc*"])
    difference, t, p = "+2.00", f"{expected.statistic:.2f}", f"{expected.pvalue:.2g}"
    assert line_of(text, "DBLP", "SCGC*")[2:] == ["3", difference, t, p]
    assert line_of(text, "DBLP", "K-means")[2:6] == ["2", "+30.00", "inf", "0"]
    assert len(table_lines(text)) == 1 + 15


def test_every_table_says_which_runs_it_is_made_of(tmp_path):
    later = rows_of("table2", {("dblp", "ae"): [0.5]}, date="2024-06-01T10:00:00Z", commit="def")
    files = render("table2", [*rows_of("table2", ACC), *later], tmp_path)
    origin = "9 runs on a processor; 2024-05-01 to 2024-06-01; commit abc, def; pamc 0.1, torch 2.9"
    for name, text in files.items():
        assert origin in text or not name.endswith("md")


def test_every_table_is_also_there_in_latex_and_csv(files):
    assert files["table2.tex"].count(r"\begin{tabular}") == files["table2.tex"].count(r"\bottomrule") == 1
    assert r"DBLP & PamCGC & ACC & 79.6 $\pm$ 0.0 & 72.0 $\pm$ 2.0" in files["table2.tex"]
    lines = list(csv.DictReader(io.StringIO(files["table2.csv"])))
    assert len(lines) == 3 * 16 * 4
    found = {(line["data set"], line["method"], line["metric"]): line for line in lines}
    assert found["DBLP", "PamCGC", "ACC"]["paper"] == "79.6 ± 0.0"
    assert found["CITE", "CGC", "F1"]["seeds"] == "–"


def test_table_3_says_that_reut_is_missing_and_shows_the_stand_ins_by_name(tmp_path):
    rows = rows_of("table3", {("usps", "pamcgc"): [0.8, 0.81], ("news4", "pamcgc"): [0.5, 0.6]})
    text = render("table3", rows, tmp_path)["table3.md"]
    assert "REUT was not run" in text
    assert list(dict.fromkeys(line[0] for line in table_lines(text)[1:])) == ["USPS", "HHAR", "REUT", "news4"]
    assert line_of(text, "news4", "PamCGC", "ACC")[3:5] == ["–", "55.00 ± 7.07"]
    assert line_of(text, "USPS", "AE", "ACC")[3] == "71.04 ± 0.03†"
    assert "† The column" in text
    with_reut = [*rows, *rows_of("table3", {("reut", "pamcgc"): [0.8]})]
    assert "REUT was not run" not in render("table3", with_reut, tmp_path)["table3.md"]


def test_every_artefact_of_quick_rows_says_so(tmp_path):
    figures = {("blocks", "pamcgc"): [0.8, 0.81], ("blocks", "kmeans"): [0.7, 0.75]}
    files = render("table2", rows_of("table2", figures, quick=True), tmp_path)
    assert len(files) == 9
    for text in files.values():
        assert "quick settings: not a result" in text
        assert "DBLP" not in text
    full = render("table2", rows_of("table2", ACC), tmp_path)
    assert not any("quick settings" in text for text in full.values())


def test_runs_with_older_settings_do_not_mix_with_the_newest(tmp_path):
    old = rows_of("table2", {("dblp", "pamcgc"): [0.1] * 5}, settings={"tau": 9.0})
    text = render("table2", [*old, *rows_of("table2", ACC)], tmp_path)["table2.md"]
    assert line_of(text, "DBLP", "PamCGC", "ACC")[-1] == "3"


@pytest.fixture
def sixteen(monkeypatch):
    """Let settings be asked for methods that this installation may not have."""
    known = {name: METHODS[name] if name in METHODS else METHODS["kmeans"] for name in paper_methods()}
    monkeypatch.setattr("pamc.lab.settings.METHODS", known)


def test_the_tables_run_sixteen_methods_with_their_seeds(sixteen, monkeypatch):
    monkeypatch.setattr(tables, "available", lambda name: None)
    cells = table_cells("table2", Scope())
    assert len(cells) == 3 * (5 * 10 + 11 * 3)
    assert len({cell.key for cell in cells}) == len(cells)
    sets = [cell.data_set for cell in table_cells("table3", Scope(seeds=1, methods=("kmeans",)))]
    assert sets == ["usps", "hhar", "news4", "reut21578_4"]
    monkeypatch.setattr(tables, "available", lambda name: "reut.npz")
    cells = table_cells("table3", Scope(seeds=2, methods=("kmeans", "pamcgc"), data_sets=("reut", "acm")))
    assert [(cell.data_set, cell.provider, cell.seed) for cell in cells] == [
        ("reut", "kmeans", 0), ("reut", "kmeans", 1), ("reut", "pamcgc", 0), ("reut", "pamcgc", 1),
    ]  # fmt: skip


def test_quick_cells_are_small_and_say_so(sixteen):
    for table in ("table2", "table3"):
        cells = table_cells(table, Scope(quick=True))
        assert len(cells) == 16 * 2
        assert {cell.data_set for cell in cells} == {"digits", "blocks"}
        assert all(cell.quick for cell in cells)
        assert {cell.settings.get("n_epochs", 0) for cell in cells} == {0, 3}


def test_settings_are_table_1_for_pamcgc_and_scgc_star_and_the_programs_for_others():
    for method in ("pamcgc", "scgc*"):
        settings = settings_of(method, "dblp")
        assert [settings[name] for name in ("alpha", "beta", "n_hops", "tau", "lr")] == [2.0, 2.5, 3, 0.5, 1e-3]
        assert settings["preprocessing"] == "rms"
        assert settings_of(method, "usps")["preprocessing"] == "none"
    assert settings_of("pamcgc", "cite")["init"] == "autoencoder"
    assert settings_of("pamcgc", "news4") == settings_of("pamcgc", "reut")
    assert (settings_of("kmeans", "acm")["preprocessing"], settings_of("dec", "acm")["preprocessing"]) == (
        "none",
        "rms",
    )
    own = settings_of("scgc*", "usps", own_program=True)
    assert [own[name] for name in ("alpha", "beta", "n_hops", "tau", "lr")] == [4.0, 0.1, 4, 0.25, 1e-3]
    assert settings_of("scgc", "hhar")["tau"] == 2.25
    assert (settings_of("sdcn", "cite")["lr"], settings_of("sdcn", "acm")["lr"]) == (1e-4, 1e-3)
    assert settings_of("agcn", "usps")["kl_weight"] == 1000.0
    assert settings_of("sdcn+pamc", "usps")["n_hops"] == 4
    assert table_1_row("blocks") == "acm"
    with pytest.raises(ValueError, match=r"unknown data set 'upsp'.*did you mean 'usps'"):
        settings_of("kmeans", "upsp")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_its_settings(method):
    for data_set in ("usps", "blocks", "digits"):
        METHODS[method].config().with_(**{**settings_of(method, data_set), **quick_settings(method)})


def test_the_watch_finds_the_best_epoch_of_each_metric():
    truth = np.array([0, 0, 0, 1, 1, 1])
    watch = EpochWatch(truth, every=2)
    for epoch in range(1, 6):
        watch(Epoch(epoch, {}, lambda epoch=epoch: truth if epoch == 4 else np.array([0, 1, 0, 1, 0, 1])))
    assert watch.epochs == [2, 4]
    watch.add(5, np.zeros(6, dtype=np.int64))
    best, epochs = watch.oracle()
    assert best == {"acc": 1.0, "nmi": 1.0, "ari": 1.0, "f1": 1.0}
    assert set(epochs.values()) == {4}


# Methods that look at the features alone say so on a set with a graph.
UNUSED_GRAPH = pytest.mark.filterwarnings("ignore:.*uses the features only:pamc.errors.DataWarning")


@UNUSED_GRAPH
@pytest.mark.parametrize(("method", "every"), [("kmeans", 20), ("dec", 1)])
def test_a_fit_reports_the_last_epoch_and_the_oracle(method, every):
    settings = {**settings_of(method, "blocks"), **quick_settings(method)}
    values = fit(Cell("table2", "fit", method, "blocks", 0, settings=settings, quick=True), "cpu")
    assert values["selection"] == "last"
    assert values["evaluated_every"] == every
    assert values["n_epochs_run"] == (3 if method == "dec" else 0)
    assert all(values["oracle"][name] >= values["last"][name] for name in METRICS)
    assert values["config"]["n_clusters"] == 4
    assert sum(values["cluster_sizes"]) == 300
    assert values["peak_bytes"] is None
    assert {"training", "evaluation"} <= values["seconds"].keys()
    assert assigns_every_epoch(method) is (every == 1)


@UNUSED_GRAPH
def test_labels_do_not_reach_the_fit(monkeypatch):
    settings = {**settings_of("dec", "blocks"), **quick_settings("dec")}
    cell = Cell("table2", "fit", "dec", "blocks", 0, settings=settings, quick=True)
    before = fit(cell, "cpu")
    graph = data.load("blocks", True)
    wrong = np.roll(graph.labels, 1)
    other = type(graph)(graph.features, graph.edges, labels=wrong)
    monkeypatch.setattr("pamc.lab.fits.load", lambda name, quick: other)
    after = fit(cell, "cpu")
    assert after["cluster_sizes"] == before["cluster_sizes"]
    assert after["scores"] == before["scores"]
    assert after["last"] != before["last"]


def test_data_sets_of_the_experiments(monkeypatch, tmp_path):
    assert data.n_classes(data.load("blocks", False)) == 4
    digits = data.load("digits", False)
    assert (digits.n_nodes, digits.edges, data.n_classes(digits)) == (1797, None, 10)
    assert data.load("digits", True).n_nodes == 450
    assert data.load("digits", True) is data.load("digits", True)
    monkeypatch.setenv("PAMC_DATA", str(tmp_path))
    monkeypatch.setenv("PAMC_CACHE", str(tmp_path / "cache"))
    assert data.why_missing("blocks") is data.why_missing("digits") is None
    assert str(tmp_path / "reut.npz") in data.why_missing("reut")
    with pytest.raises(ValueError, match="unknown data set"):
        data.load("block", True)
