"""The command as a person meets it: alone, mistyped, completed, in narrow and in dumb terminals, and in a log."""

import fcntl
import inspect
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

import pamc as package
from pamc import progress as progress_module
from pamc.cli import completion
from pamc.cli.app import app
from pamc.cli.fit_run import next_steps
from pamc.cli.show import near
from pamc.config import PRESETS, FitConfig
from pamc.data.catalog import CATALOG
from pamc.lab.cell import cases_of
from pamc.models.method import METHODS
from pamc.progress import FIT_PHASES, FitProgress, RichProgress, TimeLeft
from pamc.report.projection import MAPS
from tests.cli.conftest import FAST

COMMANDS = {command.name: command.callback for command in app.registered_commands}
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def in_terminal(command, *, columns, cwd, **environment):
    """Run a command whose three streams are a terminal of this width; return the exit code and all it showed."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment = {**known, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1", **environment}
    child = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, cwd=cwd, env=environment)
    os.close(side)
    shown, until = b"", time.monotonic() + 120
    while time.monotonic() < until:
        if select.select([main], [], [], 0.2)[0]:
            try:
                piece = os.read(main, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        elif child.poll() is not None:
            break
    os.close(main)
    return child.wait(timeout=60), shown.decode()


def lines_on_screen(shown):
    """Return the lines as they were drawn, without what moves the cursor or sets colors."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


# The phases of a fit and its table, without the fit.
DRAW = """
import time
from pamc.cli.show import print_table
from pamc.progress import RichProgress
progress = RichProgress()
with progress.phase("neighbors"):
    time.sleep(0.15)
with progress.phase("training", 5) as phase:
    for step in range(5):
        time.sleep(0.03)
        phase.advance(loss=1 / (step + 1), contrastive=0.5, clustering=0.25, changed=0.125, separation=0.0625)
print_table("150 rows in 3 clusters", ["cluster", "rows", "share", "confidence"], [["0", "50", "33.3 %", "0.98"]] * 3)
"""
DRAW = [sys.executable, "-c", DRAW]
FIT = [sys.executable, "-m", "pamc", "fit", "rows.csv", "--id", "name", "--truth", "kind", "-k", "3"]
LOUD = [word for word in FAST if word != "--quiet"]


def test_alone_it_shows_examples_and_the_commands_in_groups(pamc):
    result = pamc()
    assert result.code == 0
    assert result.err == ""
    assert result.out.count("pamc fit ") >= 2
    for word in ("Try:", "Cluster your data:", "Look up:", "Laboratory:", *COMMANDS):
        assert word in result.out
    assert max(map(len, result.out.splitlines())) <= 120
    assert result.out.index("  fit ") < result.out.index("  doctor ") < result.out.index("  reproduce ")


def test_the_options_of_fit_come_in_panels(pamc):
    text = pamc("fit", "--help").out
    panels = re.findall(r"^(\w[\w ]*):$", text, flags=re.MULTILINE)
    assert panels == ["Input", "Model", "Output", "Long runs", "Report", "Options"]
    for name, setting in FitConfig.settings().items():
        if setting.expert:
            assert f"--{name.replace('_', '-')} " not in text


def test_an_option_has_one_spelling_in_all_commands():
    options = [option for name in COMMANDS for option in spellings(name)]
    known = set(options)
    assert "--dataset" in known
    for option in known - {"--seeds"}:
        assert f"{option}s" not in known - {"--seeds"}
        assert option.replace("-", "") not in {other.replace("-", "") for other in known - {option}}


def spellings(name):
    parameters = inspect.signature(COMMANDS[name]).parameters.values()
    return {word for each in parameters for word in (getattr(each.default, "param_decls", None) or ())}


HEAVY = {"torch", "scipy", "sklearn", "numpy", "duckdb", "pydantic", "rich"}
IMPORTED = f"{HEAVY!r} & set(sys.modules)"


def test_alone_it_needs_no_heavy_package_and_answers_at_once():
    code = f"import sys; from pamc.cli.app import run; run([]); run(['fit', '--help']); sys.exit(str({IMPORTED} or 0))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == "0\n"


@pytest.mark.parametrize("typed", ["pamc pre", "pamc fit rows.csv --pre", "pamc fit --seed 1 --method s"])
def test_completion_needs_no_heavy_package(typed):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_PAMC_COMPLETE": "complete_bash"}
    at_exit = f"atexit.register(lambda: sys.stderr.write(str({IMPORTED} or 0)))"
    code = f"import atexit, sys; from pamc.cli.app import run; {at_exit}; run([])"
    environment = {**os.environ, **words}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout
    assert done.stderr == "0"


@pytest.mark.parametrize(
    "options",
    [
        ["-k", "3"],
        ["-k", "none"],
        ["-k", "3", "--set", "tau=0"],
        ["-k", "3", "--map", "x"],
        ["-k", "3", "--color", "c"],
    ],
)
def test_what_is_wrong_with_the_file_or_the_settings_is_said_before_torch_is_imported(tmp_path, options):
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n3,4,5\n4,5\n")
    code = "import sys; from pamc.cli.app import run; sys.exit(run(sys.argv[1:]) + 100 * ('torch' in sys.modules))"
    command = [sys.executable, "-c", code, "fit", str(tmp_path / "bad.csv"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (2, 3), done.stderr


def test_a_narrow_terminal_gets_entries_below_each_other(pamc, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = pamc().out.splitlines()
    examples = [line for line in lines if line.startswith("  pamc ")]
    assert max(len(line) for line in lines if line not in examples) <= 40


def test_help_is_a_word_too(pamc):
    assert pamc("help").out == pamc("--help").out
    assert pamc("help", "fit").out == pamc("fit", "--help").out


def test_a_run_folder_is_shown_as_one_would_type_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert near(tmp_path / "pamc-run-1") == Path("pamc-run-1")
    assert near(Path("a")) == Path("a")
    assert near(tmp_path.parent / "b") == tmp_path.parent / "b"
    assert near(tmp_path) == tmp_path


def test_the_version_is_shown(pamc):
    assert pamc("--version").out == f"pamc {package.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_a_sample_and_says_the_defaults(pamc, name):
    text = pamc(name, "--help").out
    assert re.search(rf"^    (torchrun .*-m )?(\w+=\S+ )?pamc {name}", text, flags=re.MULTILINE), text
    for parameter in inspect.signature(COMMANDS[name]).parameters.values():
        default = parameter.default.default
        if default not in (None, ..., False, True):
            assert f"default: {default}" in " ".join(text.split()), parameter.name


def test_the_defaults_in_the_help_are_those_of_the_settings():
    told = inspect.signature(COMMANDS["fit"]).parameters
    defaults = FitConfig()
    for option, setting in {
        "epochs": "n_epochs",
        **{name: name for name in ("alpha", "beta", "n_hops")},
    }.items():
        default = getattr(defaults, setting)
        assert told[option].default.show_default == ("automatic" if default is None else f"{default:g}")
        assert told[option].default.help.startswith(FitConfig.settings()[setting].about)


def test_completion_offers_exactly_the_names_that_are_registered():
    assert sorted(completion.methods_named("")) == list(METHODS)
    assert sorted(completion.datasets_named("")) == sorted(CATALOG)
    assert sorted(completion.experiments_named("")) == sorted(["all", *cases_of("experiment")])
    assert sorted(completion.cases_named("")) == sorted(["all", *cases_of("case")])
    assert completion.presets_named("") == list(PRESETS)
    assert completion.settings_named("") == [f"{name}=" for name in FitConfig.names() if name != "n_clusters"]
    assert completion.settings_named("init=p") == ["init=propagated_svd"]
    assert completion.devices_named("c") == ["cpu", "cuda"]
    assert sorted(completion.maps_named("")) == sorted(MAPS)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("pamc pre", ["predict"]),
        ("pamc fit --pre", ["--preset"]),
        ("pamc fit --method sdcn", ["sdcn", "sdcn+contrast", "sdcn+pamc"]),
        ("pamc fit --preset p", ["paper"]),
        ("pamc fit --dataset d", ["dblp", "digits"]),
        ("pamc fit --set graph", ["graph_trust="]),
    ],
)
def test_the_shell_is_offered_what_can_follow(typed, offered):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_PAMC_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-m", "pamc"], capture_output=True, text=True, check=False, env={**os.environ, **words}
    )
    assert done.stdout.split() == offered, done.stderr


def test_what_was_mistyped_is_guessed(pamc, table):
    rows, _ = table
    assert "Did you mean 'fit'? (see pamc --help)" in pamc("fti").err
    assert "did you mean --n-clusters? (see pamc fit --help)" in pamc("fit", "--n-cluster", 3).err
    assert f"To cluster that file: pamc fit {rows} --n-clusters K" in pamc(rows).err
    assert pamc("fit", "--nothing-like-it").err.count("\n") == 1
    assert "did you mean 'pamcgc'?" in pamc("fit", rows, "-k", 3, "--method", "pamcg").err
    assert "did you mean --dataset?" in pamc("bench", "--data-sets", "usps").err


def test_what_was_an_option_or_has_another_name_says_what_to_write(pamc, table):
    rows, _ = table
    assert "did you mean --set tau=VALUE" in pamc("fit", rows, "-k", 3, "--tau", 0.5).err
    assert "did you mean --set init=VALUE" in pamc("fit", rows, "-k", 3, "--start", "autoencoder").err
    for name, present in {"start": "init", "preparation": "preprocessing"}.items():
        assert f"the setting '{name}' is called '{present}'" in pamc("fit", rows, "-k", 3, "--set", f"{name}=x").err
        Path("my.toml").write_text(f"{name} = 'x'\n")
        assert f"called '{present}'" in pamc("fit", rows, "-k", 3, "--config", "my.toml").err


def test_a_fit_ends_with_what_to_type_next(pamc, table):
    rows, _ = table
    with_truth = pamc("fit", rows, "--id", "name", "--truth", "kind", "-k", 3, "--out", "a run", *FAST)
    assert "pamc: next: pamc predict 'a run' NEW_ROWS.csv --out clusters.csv\n" in with_truth.err
    assert "evaluate" not in with_truth.err
    steps = next_steps(Path("-b"), inductive=False, measured=False)
    assert steps == ["pamc evaluate TRUTH.csv ./-b/labels.csv   (if the true classes are known)"]


@pytest.mark.parametrize("columns", [40, 120])
def test_bars_and_tables_stay_within_the_terminal(tmp_path, columns):
    code, shown = in_terminal(DRAW, columns=columns, cwd=tmp_path)
    assert code == 0, shown
    lines = lines_on_screen(shown)
    assert any("training" in line and "5/5" in line for line in lines), lines
    assert max(map(len, lines)) <= columns
    assert any("loss" in line for line in lines) == (columns == 120)
    assert any("neighbors" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 120])
def test_a_whole_fit_stays_within_the_terminal(table, columns):
    code, shown = in_terminal([*FIT, *LOUD], columns=columns, cwd=table[0].parent)
    assert code == 0, shown
    lines = lines_on_screen(shown)
    drawn = [line for line in lines if line.startswith(("training", "labels", "│", "┃"))]
    assert any("labels" in line and "100%" in line for line in drawn), lines
    assert max(map(len, drawn)) <= columns


def test_no_color_is_set_where_none_is_wanted(tmp_path):
    colored = in_terminal(DRAW, columns=120, cwd=tmp_path)[1]
    assert STYLE.search(colored)
    shown = in_terminal(DRAW, columns=120, cwd=tmp_path, NO_COLOR="1")[1]
    assert not STYLE.search(shown)
    assert "\x1b[" in shown, "the bars are redrawn still"


def test_a_dumb_terminal_and_a_log_get_plain_lines(tmp_path):
    code, shown = in_terminal(DRAW, columns=80, cwd=tmp_path, TERM="dumb")
    assert code == 0, shown
    assert not CONTROL.search(shown.replace("\r\n", "\n"))
    done = subprocess.run(DRAW, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert not CONTROL.search(done.stdout + done.stderr)
    assert re.fullmatch(r"pamc: training 5/5  \d+ s  loss 0.2 .*\n", done.stderr), done.stderr


def test_json_stays_pure_beside_progress(pamc, table):
    result = pamc("fit", table[0], "--id", "name", "--truth", "kind", "-k", 3, "--json", *LOUD)
    assert result.out.count("\n") == 1
    assert result.json["n_nodes"] == 150
    assert not CONTROL.search(result.err)
    assert re.search(r"^pamc: training 5/5  \d+ s  ", result.err, flags=re.MULTILINE), result.err


def test_a_terminal_without_our_characters_is_no_reason_to_fail():
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "pamc"], capture_output=True, check=True, env=ascii_only)
    assert b"N \\xd7 N" in done.stdout


def test_a_long_phase_says_so_now_and_then_in_a_log(capsys, monkeypatch):
    now = iter(range(0, 10_000, 20))
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: next(now))
    with RichProgress().phase("training", 6) as phase:
        for step in range(6):
            phase.advance(loss=1.0 / (step + 1))
    lines = capsys.readouterr().err.splitlines()
    assert 1 < len(lines) < 6
    assert lines[-1].startswith("pamc: training 6/6")
    assert "loss 0.1667" in lines[-1]


def test_a_phase_of_unknown_length_is_silent_in_a_log(capsys):
    with RichProgress().phase("neighbors") as phase:
        phase.advance()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("columns", "shows_values"), [("40", False), ("120", True)])
def test_a_terminal_gets_bars(capsys, monkeypatch, columns, shows_values):
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    progress = RichProgress()
    with progress.phase("neighbors"):
        pass
    with progress.phase("training", 2) as phase:
        phase.advance(loss=0.5)
        phase.advance(loss=0.25)
    drawn = lines_on_screen(capsys.readouterr().err)
    assert any("training" in line and "2/2" in line for line in drawn)
    assert any("loss 0.25" in line for line in drawn) == shows_values


@pytest.mark.parametrize("before", [None, "1"])
def test_debugging_ends_with_the_command_that_asked_for_it(pamc, monkeypatch, before):
    monkeypatch.delenv("PAMC_DEBUG", raising=False)
    if before is not None:
        monkeypatch.setenv("PAMC_DEBUG", before)
    assert pamc("--debug", "--version").code == 0
    assert os.environ.get("PAMC_DEBUG") == before


@pytest.mark.parametrize("columns", [40, 120])
def test_a_fit_is_one_line_with_the_time_left(capsys, monkeypatch, columns):
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    progress = FitProgress()
    for name in FIT_PHASES:
        with progress.phase(name, 2) as phase:
            phase.advance(loss=0.5)
            phase.advance(loss=0.25)
    drawn = lines_on_screen(capsys.readouterr().err)
    assert max(map(len, drawn)) <= columns
    assert drawn[-1].startswith("labels")
    assert "100%" in drawn[-1]
    assert any("left" in line for line in drawn)
    assert any("loss 0.25" in line for line in drawn) == (columns == 120)


def test_an_error_in_a_fit_ends_its_line(capsys, monkeypatch):
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("TERM", "xterm")
    progress = FitProgress()
    with pytest.raises(KeyboardInterrupt), progress.phase("training", 5) as phase:
        phase.advance()
        raise KeyboardInterrupt
    assert capsys.readouterr().err.endswith("\n\x1b[?25h")


def test_a_fit_in_a_log_gets_plain_lines(capsys):
    progress = FitProgress()
    with progress.phase("graph"):
        pass
    with progress.phase("training", 1) as phase:
        phase.advance(loss=0.5)
    assert re.fullmatch(r"pamc: training 1/1  \d+ s  loss 0.5\n", capsys.readouterr().err)


class Time:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_the_time_left_follows_from_the_phases_that_have_finished():
    now = Time()
    left = TimeLeft({"a": 0.25, "b": 0.25, "c": 0.5}, now=now)
    left.begin("a", None)
    assert left.seconds() is None
    now.now = 10.0
    left.end()
    left.begin("b", None)
    assert (left.done, left.seconds()) == (0.25, pytest.approx(30.0))
    left.end()
    left.begin("c", 10)
    now.now = 110.0
    left.step()
    assert left.done == pytest.approx(0.55)
    assert left.seconds() == pytest.approx(900.0), "a phase of known length is measured by its own speed"


def test_a_phase_that_is_repeated_takes_nothing_back():
    left = TimeLeft({"a": 0.5, "b": 0.5}, now=Time())
    for name in ("a", "b"):
        left.begin(name, 1)
        left.step()
        left.end()
    for name in ("a", "unknown", "b"):
        left.begin(name, 1)
        assert left.done == 1.0
        left.end()
    assert left.done == 1.0
