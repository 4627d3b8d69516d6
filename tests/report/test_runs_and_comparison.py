"""Reports of run folders, old and new, of stores, and of several runs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pamc import PamCGC, clusterer, write_report
from pamc.cli.app import run
from pamc.data.store import open_store
from pamc.data.synthetic import BlockModel, block_model, write_block_model
from pamc.errors import ConfigError, DataError, ModelFileError, OutputError
from pamc.report import content as stores_module
from pamc.report.comparison import comparison_data
from pamc.report.content import FORMAT
from pamc.report.page_file import read_page, unpack, unpack_ids
from pamc.report.runs import run_data
from pamc.report.writing import write_comparison, write_fit_report, write_run_report
from tests.report.made import made_page

TINY = {"hidden": (16,), "n_epochs": 3, "pretrain_epochs": 2, "n_init": 2, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def planted():
    return block_model(120, 3, n_features=6, feature_noise=0.4, random_state=0)


@pytest.fixture(scope="module")
def fitted(planted):
    return clusterer("pamcgc", 3, **TINY).fit_graph(planted)


def page_of(path):
    return read_page(Path(path), formats=(FORMAT,))


def test_a_report_of_a_model_in_python(fitted, planted, tmp_path):
    columns = {"town": ["here", "there"] * 60}
    names = [f"feature <{i}>" for i in range(6)]
    path = write_report(
        fitted, planted.features, tmp_path, ids=[f"p{i}" for i in range(120)], feature_names=names, columns=columns,
        truth=[f"kind {c}" for c in planted.labels], adjacency=planted.edges.T, title="people", map="pca",
    )  # fmt: skip
    data = page_of(path)
    assert path == tmp_path / "report.html"
    assert (data["title"], data["n_rows"], data["map"]["method"]) == ("people", 120, "PCA")
    assert data["truth"]["names"] == ["kind 0", "kind 1", "kind 2"]
    assert data["record"]["metrics"]["acc"] > 0.5
    assert [column["name"] for column in data["columns"][:2]] == ["true class", "town"]
    assert unpack_ids(data["points"]["ids"])[:2] == ["p0", "p1"]
    assert unpack(data["points"]["cluster"]).tolist() == fitted.labels_.tolist()
    assert np.sum(data["flows"]) > 0
    assert "fit(X, adjacency=A)" in data["python"]


def test_a_graph_brings_its_labels_and_a_fit_the_neighbors_it_made(planted, tmp_path):
    model = clusterer("pamcgc", 3, **TINY).fit(planted.features)
    data = page_of(write_report(model, planted.without_edges(), tmp_path / "page.html", map="pca"))
    assert data["truth"] is not None
    assert sum(map(sum, data["flows"])) == pytest.approx(2 * data["record"]["facts"]["n_edges"])


def test_reports_that_cannot_be_made(fitted, planted, tmp_path):
    with pytest.raises(ConfigError, match="not fitted"):
        write_report(PamCGC(3), planted.features, tmp_path)
    with pytest.raises(DataError, match="fitted on 120 rows"):
        write_report(fitted, planted.features[:5], tmp_path)
    with pytest.raises(DataError, match="not the rows of the fit"):
        write_report(fitted, planted.features[::-1], tmp_path)
    with pytest.raises(DataError, match="truth: row 1 has no class"):
        write_report(fitted, planted, tmp_path, truth=np.array(["a", np.nan] * 60, dtype=object))
    with pytest.raises(DataError, match="truth: row 1 has no class"):
        write_report(fitted, planted, tmp_path, truth=["a", None] * 60)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        write_report(fitted, planted, tmp_path / "file" / "page.html", map="pca")


def test_missing_folders_are_made(fitted, planted, tmp_path):
    path = write_report(fitted, planted, tmp_path / "no" / "such" / "page.html", map="pca")
    assert page_of(path)["n_rows"] == 120


def test_classes_of_any_kind_are_a_truth(fitted, planted, tmp_path):
    names = ["b", 7, 2.5]
    mixed = [names[c] for c in planted.labels]
    data = page_of(write_report(fitted, planted, tmp_path, truth=np.array(mixed, dtype=object), map="pca"))
    assert data["truth"]["names"] == ["2.5", "7", "b"]
    numbers = planted.labels.astype(object)
    assert page_of(write_report(fitted, planted, tmp_path, truth=numbers, map="pca"))["truth"]["names"] == list("012")


def saved(fitted, planted, folder, **data):
    ids = np.array([f"p{i}" for i in range(120)])
    fitted.save(folder, ids=ids, record=fitted.record(data={"name": "planted", **data}))
    return folder


def test_a_run_without_a_page_gets_one_of_its_files(fitted, planted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = saved(fitted, planted, tmp_path / "run")
    data = run_data(folder, map_by="pca")
    assert "could not be read again" in data["notes"][0]
    assert (data["features"], data["flows"], data["odd"]) == (None, None, None)
    assert sum(data["clusters"]["n_rows"]) == 120
    assert unpack_ids(data["points"]["ids"])[3] == "p3"
    # From now on the page is what is read.
    write_run_report(folder, map_by="pca")
    shutil.copy(folder / "report.html", tmp_path / "copy.html")
    (folder / "model.safetensors").unlink()
    again = page_of(write_run_report(folder, out=tmp_path / "again.html"))
    assert again["points"] == page_of(tmp_path / "copy.html")["points"]


def test_rows_are_read_again_where_they_still_are(fitted, planted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", planted.features)
    np.savetxt("edges.csv", planted.edges.T, fmt="%d", delimiter=",")
    folder = saved(fitted, planted, tmp_path / "run", features="rows.npy", edges="edges.csv", read={})
    data = run_data(folder, map_by="pca")
    assert data["features"]["cluster"]
    assert np.sum(data["flows"]) > 0
    np.save("rows.npy", planted.features[:50])
    Path("edges.csv").write_text("0,1\n")
    assert "number of rows has changed" in run_data(folder, map_by="pca")["notes"][0]
    np.save("rows.npy", np.full((120, 6), np.inf))
    assert "inf" in run_data(folder, map_by="pca")["notes"][0]


@pytest.mark.slow
def test_rows_that_were_shuffled_are_put_in_order_by_their_ids(planted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ids, kinds = [f"p{i}" for i in range(120)], np.array(["red", "green", "blue"])[planted.labels]
    ages = ["" if i % 7 == 0 else f"{i}.5" for i in range(120)]
    lines = [
        ",".join([name, kind, age, *map(str, row)])
        for name, kind, age, row in zip(ids, kinds, ages, planted.features.tolist(), strict=True)
    ]
    head = "id,kind,age,a,b,c,d,e,f"
    options = ["-k", 3, "--epochs", 2, "--set", "hidden=[16]", "--set", "n_init=2", "--map", "pca", "--quiet"]

    def write(lines):
        Path("rows.csv").write_text("\n".join([head, *lines]) + "\n")

    write(lines)
    fit = ["fit", "rows.csv", "--id", "id", "--truth", "kind", "--drop", "age", "--color", "age", "--out", "in/run"]
    assert run([*map(str, [*fit, *options])]) == 0
    first = page_of("in/run/report.html")
    assert first["columns"][1]["kind"] == "number"
    # The rows are found from where they were named, not in the folder of the moment.
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    Path("rows.csv").write_text("id,kind,age,a\n1,2,3,4\n")
    rebuilt = ["report", "../in/run", "--rebuild", "--map", "pca", "--out", "again.html", "--overwrite"]
    order = np.random.default_rng(0).permutation(120)
    monkeypatch.chdir(tmp_path)
    for changed in (lines, [lines[i] for i in order]):
        write(changed)
        monkeypatch.chdir("elsewhere")
        assert run(rebuilt) == 0
        monkeypatch.chdir(tmp_path)
        again = page_of("elsewhere/again.html")
        for part in ("points", "features", "rows", "truth", "columns"):
            assert again[part] == first[part], part
    renamed = [f"q{line}" for line in lines]
    others = [line.rpartition(",")[0] + ",9" for line in lines]
    swapped = [f"{name},{line.partition(',')[2]}" for name, line in zip(ids, reversed(lines), strict=True)]
    for changed, why in ((renamed, "ids have changed"), (others, "values or"), (swapped, "values or")):
        write(changed)
        data = run_data(Path("in/run"), map_by="pca", rebuild=True)
        assert why in data["notes"][0]
        assert data["features"] is None
        assert data["points"]["ids"] == first["points"]["ids"]
        assert "true class, age" in data["notes"][1]


def test_a_page_made_again_says_which_colors_it_lost(fitted, planted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", planted.features)
    folder = saved(fitted, planted, tmp_path / "run", features="rows.npy", read={})
    write_report(fitted, planted, folder, columns={"town": ["here", "there"] * 60}, map="pca")
    data = run_data(folder, map_by="pca", rebuild=True)
    assert data["features"] is not None
    assert unpack_ids(data["points"]["ids"])[3] == "p3"
    assert any("could not be restored: true class, town" in note for note in data["notes"])


def test_a_known_data_set_is_loaded_again_and_neighbors_are_not_made_again(tmp_path):
    from pamc import load_dataset

    digits = load_dataset("digits")
    model = clusterer("pamcgc", 10, **{**TINY, "n_epochs": 1, "n_init": 1, "init": "propagated_svd"}).fit_graph(digits)
    model.save(tmp_path / "run", record=model.record(data={"name": "digits", "features": None, "read": {}}))
    data = run_data(tmp_path / "run", map_by="pca")
    assert data["truth"] is not None
    assert data["flows"] is None


def test_what_is_no_run_is_refused(fitted, planted, tmp_path):
    with pytest.raises(DataError, match="is not a run"):
        run_data(tmp_path)
    folder = saved(fitted, planted, tmp_path / "run")
    (folder / "run.json").write_text("{")
    with pytest.raises(ModelFileError, match="damaged"):
        run_data(folder)


def test_another_map_of_the_same_page(fitted, planted, tmp_path):
    folder = saved(fitted, planted, tmp_path / "run")
    record = fitted.record()
    write_fit_report(folder, fitted, planted, record, map_by="pca")
    before = page_of(folder / "report.html")
    after = run_data(folder, map_by="pca")
    assert after["points"]["xy"] == before["points"]["xy"]
    assert after["map"] == before["map"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores") / "store"
    write_block_model(folder, BlockModel(n_nodes=600, n_clusters=3, n_features=5, degree=6, seed=0))
    return open_store(folder)


def test_the_page_of_a_store_counts_all_rows_and_samples_the_rest(store, monkeypatch, tmp_path):
    model = clusterer("pamcgc", 3, **{**TINY, "n_hops": 1}).fit_store(store)
    monkeypatch.setattr(stores_module, "_SAMPLED_ROWS", 100)
    path = write_report(model, store, tmp_path / "store.html", columns={"half": np.arange(600) % 2}, map="pca")
    data = page_of(path)
    assert sum(data["clusters"]["n_rows"]) == 600
    assert sum(map(sum, data["flows"])) == pytest.approx(store.n_stored)
    assert any("100 rows drawn" in note for note in data["notes"])
    assert max(data["rows"]["row"]) > 100
    labels = model.labels_
    assert [labels[row] for row in data["rows"]["row"]] == data["rows"]["cluster"]
    assert data["truth"] is not None
    assert [column["name"] for column in data["columns"][:2]] == ["true class", "half"]
    assert len(data["columns"]) == 7


def test_the_page_of_a_very_large_store(store, monkeypatch, tmp_path):
    from pamc.report import points as points_module

    model = clusterer("pamcgc", 3, **{**TINY, "n_hops": 1}).fit_store(store)
    monkeypatch.setattr(points_module, "MOST_POINTS", 500)
    monkeypatch.setattr(points_module, "SAMPLED_POINTS", 50)
    monkeypatch.setattr(stores_module, "_IDS_PER_BLOCK", 64)
    folder = tmp_path / "run"
    model.save(folder, record=model.record(data={"name": "s", "features": str(store.folder), "read": {}}))
    write_fit_report(folder, model, store, model.record(), map_by="pca")
    data = page_of(folder / "report.html")
    rows = unpack(data["points"]["rows"])
    assert 50 <= len(rows) < 150
    assert unpack(data["density"]["count"]).sum() == 600
    assert unpack(data["points"]["cluster"]).tolist() == model.labels_[rows].tolist()
    moved = run_data(folder, map_by="pca")
    assert moved["density"]["count"] == data["density"]["count"]


def test_runs_are_matched_and_compared():
    ids = np.array([f"p{i}" for i in range(300)])
    first = made_page(ids=ids)
    # The same clusters under other numbers, but for ten rows.
    other = json.loads(json.dumps(first))
    labels = unpack(first["points"]["cluster"]).astype(np.int64)
    renamed = (labels + 2) % 5
    renamed[:10] = (renamed[:10] + 1) % 5
    from pamc.report.page_file import pack

    other["points"]["cluster"] = pack(renamed, "u1")
    other["record"]["seed"] = 7
    data = comparison_data([first, other], ["a", "b"])
    assert data["n_changed"] == 10
    assert data["listed"] == list(range(10))
    assert data["runs"][1]["match"]["to_first"] == [3, 4, 0, 1, 2]
    assert data["agreement"][0]["ari"] > 0.9
    assert {"name": "seed", "values": [0, 7]} in data["settings"]


def test_runs_with_other_rows_and_other_numbers_of_clusters():
    some = made_page(ids=np.array([f"p{i}" for i in range(300)]), n_clusters=6)
    others = made_page(ids=np.array([f"p{i}" for i in range(100, 400)]), n_clusters=4)
    data = comparison_data([some, others, some], ["a", "b", "c"])
    assert data["n_rows"] == 200
    assert len(data["agreement"]) == 3
    assert sum("200 of them are in every run" in note for note in data["notes"]) == 3
    fewer = data["runs"][1]["match"]["to_first"]
    assert len(fewer) == 4
    strange = made_page(ids=np.array([f"q{i}" for i in range(300)]))
    with pytest.raises(DataError, match="no id in common"):
        comparison_data([some, strange], ["a", "b"])
    with pytest.raises(ConfigError, match="two runs"):
        comparison_data([some], ["a"])


def test_the_command_writes_and_compares(fitted, planted, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        saved(fitted, planted, tmp_path / name)
    assert run(["report", "one", "--map", "pca", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": "one/report.html", "runs": ["one"]}
    assert run(["report", "one", "two"]) == 0
    assert "pamc-comparison.html" in capsys.readouterr().out
    assert (
        json.loads(json.dumps(read_page(Path("pamc-comparison.html"), formats=("pamc-comparison",))))["n_changed"] == 0
    )
    assert run(["report", "one", "--out", "pamc-comparison.html"]) == 3
    assert run(["report", "one", "--out", "."]) == 3
    assert run(["report", "one", "--map", "tsne"]) == 2
    assert run(["report", "one", "two", "--rebuild"]) == 2
    assert run(["report", "three"]) == 3
    assert run(["report", "one", "--out", "not/there/yet.html"]) == 0
    assert Path("not/there/yet.html").is_file()
    write_comparison([Path("one"), Path("two")], Path("c.html"))
    assert Path("c.html").is_file()


def test_only_a_comparison_is_replaced_unasked(fitted, planted, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        saved(fitted, planted, tmp_path / name)
    target = Path("pamc-comparison.html")
    target.write_text("mine")
    assert run(["report", "one", "two"]) == 3
    assert "exists; name another file, or pass --overwrite" in capsys.readouterr().err
    assert target.read_text() == "mine"
    assert run(["report", "one", "two", "--overwrite"]) == 0
    assert run(["report", "one", "two"]) == 0


def test_a_page_that_lacks_a_part_is_refused_whatever_is_asked_of_it(fitted, planted, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        write_run_report(saved(fitted, planted, tmp_path / name), map_by="pca")
    page = Path("one/report.html")
    damaged = page.read_text().replace('"points":', '"spots":', 1)
    page.write_text(damaged)
    for arguments in (["one"], ["one", "two"]):
        assert run(["report", *arguments]) == 3
        assert "damaged (it has no points)" in capsys.readouterr().err
    assert page.read_text() == damaged
