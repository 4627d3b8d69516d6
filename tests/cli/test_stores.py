"""`pamc ingest`, `pamc synthesize`, and `pamc fit` of a store."""

import json
from pathlib import Path

import numpy as np
import pytest

from pamc.cli.commands import stores
from pamc.cli.show import shown_bytes
from pamc.data.store import open_store
from pamc.errors import OutputError
from tests.cli.conftest import FAST


@pytest.fixture
def store(pamc, table):
    assert pamc("ingest", *table, "--id", "name", "--truth", "kind", "--out", "s", "--quiet").code == 0
    return open_store("s")


def test_ingest_writes_a_store_and_says_what_is_next(pamc, table, planted):
    result = pamc("ingest", *table, "--id", "name", "--truth", "kind", "--out", "my store", "--quiet")
    assert result.code == 0
    assert "150 rows of 6 features" in result.out
    assert "store: my store" in result.out
    assert result.err == "pamc: next: pamc fit 'my store' --n-clusters K\n"
    store = open_store("my store")
    assert (store.features == planted.features).all()
    assert store.ids(0, 2).tolist() == ["node 0", "node 1"]
    assert store.n_stored == 2 * planted.n_edges


def test_ingest_prints_one_json_object(pamc, table):
    found = pamc("ingest", table[0], "--id", "name", "--drop", "kind", "--out", "s", "--quiet", "--json").json
    assert found["n_nodes"] == 150
    assert found["n_stored"] == 0
    assert found["ids"] == "strings"
    assert found["n_bad_rows"] == 0


def test_bad_rows_end_with_code_3_and_are_skipped_on_request(pamc, table):
    with table[0].open("a", newline="") as file:
        file.write("node x,1,2,3,4,5,oops,class 0\r\n")
    arguments = ["ingest", *table, "--id", "name", "--truth", "kind", "--out", "s", "--quiet"]
    result = pamc(*arguments)
    assert result.code == 3
    assert result.err.count("\n") == 1
    assert "row 150 (line 152), column 'f5': 'oops' is not a number" in result.err
    result = pamc(*arguments, "--skip-bad-rows")
    assert result.code == 0
    assert "skipped: 1 bad row and 0 bad edges, listed in s/bad-rows.csv" in result.out


def test_left_out_edges_are_counted(pamc, table):
    with table[1].open("a", newline="") as file:
        file.write("node 1,node 1\r\n")
    result = pamc("ingest", *table, "--id", "name", "--drop", "kind", "--out", "s", "--quiet")
    assert "left out: 1 self-loops" in result.out


@pytest.mark.parametrize("size", ["much", "2XB", "-1GB", ""])
def test_a_size_that_is_none_is_refused(pamc, table, size):
    result = pamc("ingest", table[0], "--out", "s", f"--memory={size}")
    assert result.code == 2
    assert "--memory must be a size such as 2GB" in result.err


def test_sizes_are_shown_in_the_unit_that_fits():
    assert [shown_bytes(size) for size in (12, 3400, 5_600_000)] == ["12 bytes", "3.4 kB", "5.6 MB"]


def test_too_little_memory_is_refused(pamc, table):
    result = pamc("ingest", table[0], "--out", "s", "--memory", "1MB")
    assert result.code == 2
    assert "at least 256 MB" in result.err


def test_a_store_in_the_way_is_replaced_only_with_overwrite(pamc, table, store):
    arguments = ["ingest", table[0], "--drop", "name,kind", "--out", "s", "--quiet"]
    result = pamc(*arguments)
    assert result.code == OutputError.exit_code
    assert "--overwrite" in result.err
    assert pamc(*arguments, "--overwrite").code == 0
    assert open_store("s").id_kind == "rows"


def test_an_interrupt_says_how_to_go_on(pamc, table, monkeypatch, tmp_path):
    class Impatient:
        def phase(self, name, total=None):
            if name == "neighbors":
                raise KeyboardInterrupt
            return stores.SilentProgress().phase(name, total)

    arguments = ["ingest", *map(str, table), "--id", "name", "--truth", "kind", "--out", "s"]
    monkeypatch.setattr(stores.sys, "argv", ["pamc", *arguments])
    with monkeypatch.context() as patch:
        patch.setattr(stores, "RichProgress", Impatient)
        result = pamc(*arguments)
    assert result.code == 130
    assert "the rows read so far are in s.partial; resume with: pamc ingest" in result.err
    assert "--resume" in result.err
    assert not (tmp_path / "s").exists()
    assert pamc(*arguments, "--resume", "--quiet").code == 0
    assert not (tmp_path / "s.partial").exists()


def test_an_interrupt_before_anything_was_read_leaves_nothing(pamc, table, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("pamc.data.ingest.ingest", interrupt)
    result = pamc("ingest", table[0], "--out", "s")
    assert result.code == 130
    assert "nothing was written" in result.err


def test_synthesize_writes_a_store(pamc):
    arguments = ["--n-nodes", "2e2", "--n-clusters", 4, "--n-features", 5, "--power-law", 2.5, "--degree", 6]
    result = pamc("synthesize", *arguments, "--out", "s", "--quiet")
    assert result.code == 0
    assert "200 rows of 5 features" in result.out
    assert np.bincount(open_store("s").labels).tolist() == [50] * 4
    again = pamc("synthesize", *arguments, "--out", "s", "--quiet", "--overwrite", "--json", "--dtype", "float16")
    assert again.json["n_nodes"] == 200


@pytest.mark.parametrize("count", ["many", "1.5", "0", "nan", "inf", "-3"])
def test_a_count_that_is_none_is_refused(pamc, count):
    result = pamc("synthesize", f"--n-nodes={count}", "--n-clusters", 2, "--out", "s")
    assert result.code == 2
    assert "--n-nodes must be an integer of at least 1" in result.err


def test_fit_of_a_store_is_fit_of_its_files(pamc, table, store):
    fitted = pamc("fit", "s", "-k", 3, "--out", "r1", "--json", *FAST)
    assert fitted.code == 0, fitted.err
    files = pamc("fit", table[0], "--edges", table[1], "--id", "name", "--truth", "kind", "-k", 3, "--out", "r2", *FAST)
    assert files.code == 0
    one, two = (Path(run, "labels.csv").read_text() for run in ("r1", "r2"))
    assert one == two
    assert (np.load("r1/embedding.npy") == np.load("r2/embedding.npy")).all()
    assert fitted.json["metrics"] is not None


def test_a_run_of_a_store_predicts_rows_of_a_table(pamc, table, store):
    pamc("fit", "s", "-k", 3, "--out", "r", *FAST)
    read = json.loads(Path("r/run.json").read_text())["data"]["read"]
    assert read["id_column"] == "name"
    result = pamc("predict", "r", table[0], "--out", "new.csv")
    assert result.code == 0, result.err
    assert Path("new.csv").read_text().splitlines()[1].startswith("node 0,")


def test_fit_of_a_synthesized_store_runs(pamc):
    pamc("synthesize", "--n-nodes", 100, "--n-clusters", 3, "--n-features", 8, "--out", "s", "--quiet")
    assert pamc("fit", "s", "-k", 3, "--out", "r", *FAST).code == 0


def test_options_of_files_do_not_belong_to_a_store(pamc, table, store):
    result = pamc("fit", "s", "-k", 3, "--id", "name", "--edges", table[1])
    assert result.code == 2
    assert "--edges, --id cannot be used with a store" in result.err


def test_a_damaged_store_is_named(pamc, store):
    (store.folder / "manifest.json").write_text("{")
    result = pamc("fit", "s", "-k", 3)
    assert result.code == 3
    assert "manifest.json is damaged" in result.err
