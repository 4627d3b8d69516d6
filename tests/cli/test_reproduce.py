import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pamc.cli.commands import laboratory
from pamc.errors import BackendError
from pamc.lab import cell
from pamc.lab.cell import Case, Cell, cases_of
from pamc.lab.rows import QUICK_NOTE, is_quick, read_rows
from pamc.registry import Registry
from tests.lab import fake_tasks

pytestmark = pytest.mark.slow


def cells_of(name, data_set="blocks"):
    def cells(scope):
        if scope.data_sets is not None and data_set not in scope.data_sets:
            return []
        n_seeds = scope.seeds or 2
        return [Cell(name, "test-square", "pamcgc", data_set, seed, quick=scope.quick) for seed in range(n_seeds)]

    return cells


def failing_cells(scope):
    return [*cells_of("broken")(scope), *fake_tasks.cells(1, task="test-fail", healed="healed")]


def draw(rows, folder):
    path = folder / f"{rows[0]['case']}.md"
    path.write_text(f"{'quick' if is_quick(rows) else 'full'}: {[row['values']['square'] for row in rows]}")
    return [path]


def draw_nothing(rows, folder):
    raise BackendError("matplotlib is not installed")


@pytest.fixture
def experiments(monkeypatch, tmp_path):
    """Put small experiments in the place of the paper's."""
    # All cases are found first: they are not to be filed in this registry.
    assert len(cell.CASES)
    found = Registry("experiment")
    for experiment in (
        Case("squares", "Squares of seeds.", cells_of("squares"), draw),
        Case("absent", "Data that are not here.", cells_of("absent", "reut"), draw),
        Case("broken", "One cell fails.", failing_cells, draw),
        Case("pictures", "Needs a package.", cells_of("pictures"), draw_nothing),
    ):
        found.register(experiment.name)(experiment)
    monkeypatch.setattr(cell, "CASES", found)
    monkeypatch.setenv("PAMC_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PAMC_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("experiments")
class TestReproduce:
    def test_it_runs_draws_and_says_what_it_did(self, pamc):
        result = pamc("reproduce", "squares", "--seeds", 3)
        assert result.code == 0, result.err
        assert result.out.splitlines() == ["pamc-reproduce/squares.md", "cells: 3 run, 0 reused, 0 failed"]
        assert Path("pamc-reproduce/squares.md").read_text() == "full: [0, 1, 4]"
        assert result.err.count("\n") == 1
        assert "squares: 3 cells, 0 reused, 0 failed, 0:00:0" in result.err

    def test_the_same_command_reuses_what_is_there(self, pamc):
        pamc("reproduce", "squares", "--out", "here", "--quiet")
        result = pamc("reproduce", "squares", "--out", "here", "--seeds", 3, "--quiet", "--json")
        assert result.json == {"artefacts": ["here/squares.md"], "n_run": 1, "n_reused": 2, "n_failed": 0}
        assert result.err == ""
        assert len(read_rows(Path("here/rows/squares.jsonl"))) == 3

    def test_files_of_the_users_stay(self, pamc):
        Path("here/starts").mkdir(parents=True)
        Path("here/starts/thesis.txt").write_text("mine")
        Path("here/.pamc-starts").mkdir()
        Path("here/.pamc-starts/kept.pt").write_text("an autoencoder")
        pamc("reproduce", "squares", "--out", "here")
        assert Path("here/starts/thesis.txt").read_text() == "mine"
        assert not Path("here/.pamc-starts").exists()

    def test_rendering_alone_removes_nothing(self, pamc):
        pamc("reproduce", "squares", "--out", "here")
        Path("here/.pamc-starts").mkdir()
        Path("here/.pamc-starts/kept.pt").write_text("an autoencoder")
        assert pamc("reproduce", "squares", "--out", "here", "--render-only").code == 0
        assert Path("here/.pamc-starts/kept.pt").exists()

    @pytest.mark.parametrize("option", ["--method", "--dataset"])
    def test_an_option_that_names_nothing_is_refused(self, pamc, option):
        result = pamc("reproduce", "squares", option, " , ")
        assert result.code == 2
        assert f"{option} lists no names" in result.err

    def test_a_name_that_no_experiment_has_is_said(self, pamc):
        result = pamc("reproduce", "squares", "--dataset", "blocks,usps", "--quick")
        assert result.code == 0, result.err
        assert "note: usps: in none of these experiments (a quick run uses only digits and blocks)" in result.err

    def test_a_misspelt_experiment_is_refused_beside_all(self, pamc):
        result = pamc("reproduce", "all", "squars")
        assert result.code == 2
        assert "did you mean 'squares'" in result.err

    def test_a_file_in_the_place_of_the_folder_is_refused(self, pamc):
        Path("here").write_text("a file")
        for extra in ([], ["--render-only"]):
            result = pamc("reproduce", "squares", "--out", "here", *extra)
            assert result.code == 3
            assert "here is a file; name a folder" in result.err

    def test_a_row_that_lacks_fields_is_named_by_its_line(self, pamc):
        pamc("reproduce", "squares", "--out", "here")
        path = Path("here/rows/squares.jsonl")
        path.write_text('{"key": "x", "error": null, "quick": false}\n' + path.read_text())
        result = pamc("reproduce", "squares", "--out", "here")
        assert result.code == 3
        assert "line 1, is not a row of results" in result.err

    def test_render_only_draws_from_the_rows_alone(self, pamc):
        pamc("reproduce", "squares")
        Path("pamc-reproduce/squares.md").unlink()
        result = pamc("reproduce", "squares", "--render-only")
        assert result.code == 0
        assert result.out.splitlines()[-1] == "cells: 0 run, 0 reused, 0 failed"
        assert Path("pamc-reproduce/squares.md").is_file()
        result = pamc("reproduce", "squares", "--render-only", "--out", "empty")
        assert result.code == 3
        assert "empty/rows/squares.jsonl has no row without an error" in result.err
        assert pamc("reproduce", "all", "--render-only").code == 0

    def test_quick_has_a_folder_of_its_own_and_does_not_mix(self, pamc):
        assert pamc("reproduce", "squares", "--quick").code == 0
        assert Path("pamc-reproduce-quick/squares.md").read_text().startswith("quick")
        result = pamc("reproduce", "squares", "--out", "pamc-reproduce-quick")
        assert result.code == 2
        assert "contains rows of quick runs; choose another --out for full runs" in result.err

    def test_missing_data_are_skipped_with_the_place_they_were_looked_for(self, pamc, tmp_path):
        result = pamc("reproduce", "squares", "absent")
        assert result.code == 0
        assert [str(tmp_path / "data" / "reut.npz") in line for line in result.err.splitlines()] == [True, False]
        result = pamc("reproduce", "absent")
        assert result.code == 3
        assert result.err.startswith("pamc: error: nothing can run: data set 'reut' was not found")
        assert result.err.count("\n") == 1

    def test_failed_cells_are_shown_and_end_in_code_1_and_the_rest_is_drawn(self, pamc):
        result = pamc("reproduce", "broken")
        assert result.code == 1
        assert "failed: broken, m on blocks, seed 0: MemoryError: no memory left" in result.err
        assert result.out.splitlines() == ["pamc-reproduce/broken.md", "cells: 3 run, 0 reused, 1 failed"]
        Path("healed").touch()
        result = pamc("reproduce", "broken")
        assert (result.code, result.out.splitlines()[-1]) == (0, "cells: 1 run, 2 reused, 0 failed")

    def test_what_cannot_be_drawn_keeps_its_rows_and_lets_the_others_go_on(self, pamc):
        result = pamc("reproduce", "pictures", "squares")
        assert result.code == 4
        assert "pictures was not rendered, but its rows are saved: matplotlib is not installed" in result.err
        assert Path("pamc-reproduce/squares.md").is_file()
        assert len(read_rows(Path("pamc-reproduce/rows/pictures.jsonl"))) == 2

    def test_all_is_every_experiment(self, pamc):
        result = pamc("reproduce", "all", "--seeds", 1, "--quiet")
        assert result.code == 1
        assert sorted(path.stem for path in Path("pamc-reproduce/rows").iterdir()) == ["broken", "pictures", "squares"]
        assert result.out.splitlines()[-1] == "cells: 4 run, 0 reused, 1 failed"

    def test_list_names_the_experiments(self, pamc):
        result = pamc("reproduce", "--list")
        assert result.code == 0
        assert "squares   Squares of seeds." in result.out.splitlines()
        assert {"name": "broken", "summary": "One cell fails."} in pamc("reproduce", "--list", "--json").json

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            ([], 2, "name one or more experiments, or all: absent, broken, pictures, squares"),
            (["squars"], 2, "did you mean 'squares'?"),
            (["squares", "--dataset", "acn"], 2, "did you mean 'acm'?"),
            (["squares", "--method", "pamcg"], 2, "did you mean 'pamcgc'?"),
            (["squares", "--dataset", "acm, cite"], 3, "no experiment uses these data sets and methods"),
            (["squares", "--device", "tpu"], 2, "device"),
            (["squares", "--jobs", "0"], 2, "jobs"),
        ],
    )
    def test_wrong_arguments_say_what_is_allowed(self, pamc, arguments, code, said):
        result = pamc("reproduce", *arguments)
        assert result.code == code
        assert said in result.err.replace("\n", " ")
        assert not Path("pamc-reproduce").exists()

    def test_ctrl_c_says_where_the_finished_cells_are(self, pamc, monkeypatch):
        def interrupt(cell, device):
            if cell.seed == 1:
                raise KeyboardInterrupt
            return {"square": 0}

        monkeypatch.setitem(fake_tasks.TASKS._entries, "test-square", interrupt)
        result = pamc("reproduce", "squares")
        assert result.code == 130
        assert "finished cells are in pamc-reproduce/rows; run the same command to resume" in result.err
        assert "nothing was written" not in result.err
        assert len(read_rows(Path("pamc-reproduce/rows/squares.jsonl"))) == 1


def test_a_terminal_shows_a_bar_with_the_time_left(monkeypatch):
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    now = iter(range(100))
    monkeypatch.setattr(laboratory.time, "monotonic", lambda: next(now))
    with laboratory.CellProgress().phase("fake", 4) as phase:
        phase.advance(reused=1, failed=0)
        times = [task.fields["times"] for task in phase._bar.tasks]
        phase.advance(reused=1, failed=1)
        times += [task.fields["times"] for task in phase._bar.tasks]
    assert times[0].endswith("elapsed, ? left")
    assert "? left" not in times[1]
    assert phase.counts == "1 reused, 1 failed"


@pytest.mark.slow
def test_everything_killed_half_way_loses_no_finished_cell_and_ends_with_every_artefact(tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "pamc", "reproduce", "all", "--quick", "--out", str(out), "--json"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as process:
        path, end = out / "rows" / "hyper.jsonl", time.monotonic() + 180
        while not path.exists() or path.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    kept = {path.name: read_rows(path) for path in (out / "rows").iterdir()}
    assert len(kept) >= 6
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    summary = json.loads(done.stdout)
    rows = {path.name: read_rows(path) for path in (out / "rows").iterdir()}
    assert summary["n_failed"] == 0
    assert summary["n_reused"] == sum(map(len, kept.values()))
    assert summary["n_reused"] + summary["n_run"] == sum(map(len, rows.values()))
    for name, before in kept.items():
        assert rows[name][: len(before)] == before
    stems = {Path(artefact).stem for artefact in summary["artefacts"]}
    for name in cases_of("experiment"):
        assert any(stem.startswith(name) for stem in stems), name
    assert all(Path(artefact).stat().st_size > 0 for artefact in summary["artefacts"])
    assert not (out / ".pamc-starts").exists()
    for path in out.glob("*.md"):
        assert path.stem == "bound" or QUICK_NOTE in path.read_text(encoding="utf-8"), path.name
