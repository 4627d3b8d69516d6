"""Bad places, damaged runs and nonsense settings through the command."""

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.bad_input.conftest import IDS, X, table, write
from tests.cli.conftest import FAST

pytestmark = pytest.mark.slow


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("rows.csv", "is a file; name a folder that does not exist yet"),
        ("rows.csv/run", ["cannot write to rows.csv/run", "Not a directory"]),
        ("/proc/run", "cannot write to /proc/run"),
        (".", "; name a"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused(refused, out, says):
    write(rows_csv=table())
    refused("fit", "rows.csv", "-k", 3, "--out", out, *FAST, code=3, says=says)


def test_a_folder_that_holds_a_run_is_left_as_it_is(run, refused):
    says = ["already holds a run", "--overwrite"]
    refused("fit", "rows.csv", "-k", 3, "--out", "run", *FAST, code=3, says=says)


@pytest.mark.parametrize("place", ["numpy.save", "pathlib.Path.write_text"])
def test_a_full_disk_during_fit_leaves_nothing(refused, monkeypatch, place):
    write(rows_csv=table())
    monkeypatch.setattr(place, no_space)
    refused("fit", "rows.csv", "-k", 3, "--out", "run", *FAST, code=3, says=["cannot write to run", "No space left"])


def test_a_full_disk_during_predict_leaves_nothing(run, refused, monkeypatch):
    monkeypatch.setattr("pamc.results.run_folder.write_labels", no_space)
    refused("predict", "run", "rows.csv", "--out", "p.csv", code=3, says="No space left")


def test_an_empty_folder_is_taken_and_its_name_may_be_unusual(pamc):
    Path("ö ut ☃").mkdir()
    Path("sp ace").mkdir()
    Path("sp ace/röws ☃.csv").write_text(table())
    result = pamc("fit", "sp ace/röws ☃.csv", "-k", 3, "--out", "ö ut ☃", *FAST)
    assert result.code == 0, result.err
    assert "pamc predict 'ö ut ☃' NEW_ROWS.csv" in result.err
    assert Path("ö ut ☃/run.json").is_file()
    assert pamc("predict", "ö ut ☃", "sp ace/röws ☃.csv", "--out", "ä.csv").code == 0


def test_names_that_begin_with_a_dash_work_and_the_hint_does_too(pamc, refused):
    Path("-rows.csv").write_text(table())
    refused("fit", "-rows.csv", "-k", 3, code=2, says="No such option")
    result = pamc("fit", "-k", 3, "--out", "-run", *FAST, "--", "-rows.csv")
    assert result.code == 0, result.err
    assert "pamc predict ./-run NEW_ROWS.csv" in result.err
    assert pamc("predict", "./-run", "./-rows.csv", "--out", "p.csv").code == 0


def test_predict_works_from_another_folder(run, pamc, monkeypatch):
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert pamc("predict", "../run", "../rows.csv", "--out", "p.csv").code == 0
    assert Path("p.csv").read_text() == Path("../run/labels.csv").read_text()


def test_whoever_may_read_one_file_of_a_run_may_read_all(run):
    assert {path.stat().st_mode for path in run.iterdir()} == {Path("rows.csv").stat().st_mode}


MODEL = Path("run/model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 4, 100, -1])
def test_predict_refuses_a_truncated_model(run, refused, size):
    MODEL.write_bytes(MODEL.read_bytes()[:size])
    refused("predict", "run", "rows.csv", "--out", "p.csv", code=3, says=["model.safetensors", "damaged"])


def test_predict_refuses_a_tampered_model(run, refused):
    data = bytearray(MODEL.read_bytes())
    data[-3] ^= 1
    MODEL.write_bytes(data)
    refused("predict", "run", "rows.csv", "--out", "p.csv", code=3, says="changed after it was written")


@pytest.mark.slow
@pytest.mark.parametrize("text", [None, b"", b"{", b'{"data": 3}', b"\xff"])
def test_predict_needs_no_record(run, pamc, text):
    assert pamc("predict", "run", "rows.csv", "--out", "p.csv").code == 0
    record = Path("run/run.json")
    record.unlink() if text is None else record.write_bytes(text)
    assert pamc("predict", "run", "rows.csv", "--out", "q.csv").code == 0
    assert Path("p.csv").read_text() == Path("q.csv").read_text()


NEW_ROWS = {
    "empty file": ("", "is empty"),
    "header only": ("a,b,c,d\n", "no rows"),
    "missing column": ("a,b,c\n1,2,3\n", "not those the model was fitted on; missing: d"),
    "text in a number": ("a,b,c,d\n1,2,x,4\n1,2,3,4\n", ["row 0 (line 2), column 'c'", "'x' is not a number"]),
    "too far": ("a,b,c,d\n1,2,3,4\n1,3e30,3,4\n", ["row 1 is too far from the training rows", "check its units"]),
}


@pytest.mark.parametrize("case", NEW_ROWS)
def test_predict_refuses_rows_that_do_not_fit_the_model(run, refused, case):
    text, says = NEW_ROWS[case]
    write(new_csv=text)
    refused("predict", "run", "new.csv", "--out", "p.csv", code=3, says=says)


def test_predict_finds_columns_by_name_in_any_order_and_among_others(run, pamc):
    lines = [",".join(["note", *"dcba"]), *(",".join(["x", *map(str, row[::-1])]) for row in X)]
    write(new_csv="\n".join(lines), plain_csv="\n".join(["a,b,c,d", *(",".join(map(str, row)) for row in X)]))
    assert pamc("predict", "run", "new.csv", "--out", "p.csv").code == 0
    assert pamc("predict", "run", "plain.csv", "--out", "q.csv").code == 0
    assert Path("p.csv").read_text() == Path("q.csv").read_text()


def test_predict_refuses_an_array_with_another_number_of_columns(run, pamc, refused):
    np.save("new.npy", X[:, :3])
    refused("predict", "run", "new.npy", "--out", "p.csv", code=3, says="X has 3 features, but PamCGC is expecting 4")
    np.save("new.npy", X)
    assert pamc("predict", "run", "new.npy", "--out", "p.csv").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("out", "code", "says"),
    [
        ("p.xlsx", 2, "must end in .csv or .parquet"),
        ("folder.csv", 3, "is a folder; name a file"),
        ("rows.csv/p.csv", 3, "Not a directory"),
        ("/proc/p.csv", 3, "cannot write to /proc/p.csv"),
        ("x" * 300 + ".csv", 3, "File name too long"),
    ],
)
def test_predict_refuses_a_place_that_cannot_be_written(run, refused, out, code, says):
    Path("folder.csv").mkdir()
    refused("predict", "run", "rows.csv", "--out", out, "--overwrite", code=code, says=says)


def test_new_rows_need_only_the_feature_columns_of_the_run(pamc):
    values = np.column_stack([X, np.arange(36)])
    write(
        old_csv=table(values, ids=IDS).replace("d,e", "d,when", 1),
        new_csv=table(),
        empty_csv="kind,a,b,c,d\n,1,2,3,4\n",
    )
    write(named_csv=table(ids=[f"new {i}" for i in range(36)]))
    Path("old.csv").write_text(Path("old.csv").read_text().replace("id,", "kind,id,", 1).replace("\nn", "\nx,n"))
    options = ["--id", "id", "--truth", "kind", "--drop", "when", "-k", 3, "--out", "run"]
    assert pamc("fit", "old.csv", *options, *FAST).code == 0
    for name, says in (("new.csv", "rows are numbered from 0"), ("named.csv", ""), ("empty.csv", "numbered from 0")):
        result = pamc("predict", "run", name, "--out", f"of-{name}")
        assert result.code == 0, result.err
        assert says in result.err
        assert len(result.err.splitlines()) == bool(says)
    clusters = [
        [line.split(",")[1:] for line in Path(f).read_text().splitlines()] for f in ("run/labels.csv", "of-new.csv")
    ]
    assert clusters[0] == clusters[1]
    assert Path("of-named.csv").read_text().splitlines()[1].startswith("new 0,")


@pytest.mark.parametrize(
    ("truth", "labels", "says"),
    [
        (
            "id,label\na,1\nb,2\n",
            "id,cluster\nc,1\nd,2\n",
            ["2 ids are not in truth.csv; the first: 'c', 'd'", "like 'a'"],
        ),
        ("id,label\n01,1\n02,2\n", "id,cluster\n1,1\n2,2\n", ["2 ids are not in truth.csv", "look like '01'"]),
        ("id,label\na,1\nb,2\n", "id,cluster\na,1\n", ["2 labels", "has 1", "both must label the same rows"]),
        ("id,label\na,1\na,2\n", "id,cluster\na,1\nb,2\n", "contains some ids more than once"),
        ("", "id,cluster\na,1\n", "truth.csv: is empty"),
        ("id,label\n", "id,cluster\na,1\n", "no rows; add a line per row"),
        ("u,v\n1,2\n", "id,cluster\na,1\n", "which column holds the labels?"),
    ],
)
def test_evaluate_refuses_files_that_do_not_match(refused, truth, labels, says):
    write(truth_csv=truth, labels_csv=labels)
    refused("evaluate", "truth.csv", "labels.csv", code=3, says=says)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("tau=", "tau must be a finite number above 0, got ''"),
        ("tau=abc", "got 'abc'"),
        ("tau==1", "got '=1'"),
        ("tau=nan", "got nan"),
        ("tau=1\nlr=1", "tau must be a finite number above 0"),
        ("=3", "unknown setting ''"),
        ("lr=-1", "lr must be a finite number above 0, got -1"),
        ("batch_size=true", "batch_size must be an integer of at least 1, got True"),
        ("chunk_size=0", "chunk_size must be an integer of at least 1, got 0"),
        ("hidden=[0]", "hidden must be an integer of at least 1, got 0"),
        ("precision=float16", "allowed are auto, bfloat16, float32, float64"),
        ("n_clusters=5", "set by --n-clusters"),
    ],
)
def test_a_nonsense_setting_is_a_usage_error(refused, setting, says):
    write(rows_csv=table())
    refused("fit", "rows.csv", "-k", 3, "--set", setting, "--quiet", code=2, says=says)


def test_blanks_around_a_setting_do_not_matter(pamc):
    write(rows_csv=table())
    assert pamc("fit", "rows.csv", "-k", 3, "--out", "run", *FAST, "--set", " tau = 0.5 ").code == 0
    assert json.loads(Path("run/run.json").read_text())["config"]["tau"] == 0.5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"tau = = 3", ["my.toml: settings are not valid TOML", "line 1"]),
        (b"tauu = 3", ["my.toml: unknown setting 'tauu'", "did you mean 'tau'"]),
        (b"tau = -1", "my.toml: tau must be a finite number above 0"),
        (b"\xff\xfe", "my.toml: "),
    ],
)
def test_a_bad_file_of_settings_is_a_usage_error_that_names_it(refused, text, says):
    write(rows_csv=table(), my_toml=text)
    refused("fit", "rows.csv", "-k", 3, "--config", "my.toml", code=2, says=says)


def test_a_file_of_settings_can_ask_for_a_default_that_a_preset_changes(pamc):
    write(rows_csv=table(), my_toml="lr = 0.0001\nalpha = 1.0\nbeta = 1.0\ntau = 1.0\nn_hops = 1\n")
    command = ["fit", "rows.csv", "-k", 3, "--preset", "paper", "--config", "my.toml", "--out", "run", *FAST]
    result = pamc(*command)
    assert result.code == 0, result.err
    assert json.loads(Path("run/run.json").read_text())["config"]["lr"] == 0.0001


def test_a_wrong_format_of_the_labels_is_refused_before_any_work(refused, monkeypatch):
    monkeypatch.setattr("pamc.data.readers.read_graph", lambda *_, **__: 1 / 0)
    refused("fit", "rows.csv", "-k", 3, "--labels-format", "CSV", code=2, says="allowed are csv, parquet")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("lr=1e30", ["epoch 2: ", "is not finite", "A smaller lr"]),
        ("pretrain_lr=1e30", ["before the first epoch: the embedding is not finite", "A smaller pretrain_lr"]),
    ],
)
def test_training_that_leaves_the_numbers_stops_with_the_epoch(refused, setting, says):
    write(rows_csv=table())
    refused("fit", "rows.csv", "-k", 3, "--out", "run", *FAST, "--set", setting, code=1, says=says)


def test_the_same_note_is_shown_once(pamc):
    write(rows_csv=table())
    result = pamc("fit", "rows.csv", "-k", 3, "--out", "run", *FAST, "--set", "lr=1e6", "--set", "init=autoencoder")
    notes = [line for line in result.err.splitlines() if "note:" in line]
    assert result.code == 0, result.err
    assert len(notes) == len(set(notes)) > 0


def test_a_run_that_left_its_partial_folder_is_named(refused):
    write(rows_csv=table())
    Path("run.partial").mkdir()
    says = ["run.partial exists", "remove it first"]
    refused("fit", "rows.csv", "-k", 3, "--out", "run", *FAST, code=3, says=says)
    shutil.rmtree("run.partial")
