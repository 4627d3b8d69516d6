"""The commands and how their errors end."""

from __future__ import annotations

import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import typer

from pamc.cli import (
    bench_command,
    data_commands,
    demo_command,
    fit_command,
    report_command,
    reproduce_command,
    store_commands,
)
from pamc.cli.show import Interrupted, note
from pamc.cli.teamwork import own_rank
from pamc.errors import OutputError, PamcError, PamcWarning
from pamc.training.team import TeamError

__all__ = ["app", "run"]

_INTERRUPTED = 130

# Of several processes that refuse the same command line.
_FIRST_SPEAKS_WITHIN_S = 10.0

app = typer.Typer(
    name="pamc",
    help="Cluster tables, images, text vectors and attributed graphs with the PamC loss.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("fit")(fit_command.fit)
app.command("predict")(fit_command.predict)
app.command("report")(report_command.report)
app.command("ingest")(store_commands.ingest)
app.command("synthesize")(store_commands.synthesize)
app.command("evaluate")(data_commands.evaluate)
app.command("demo")(demo_command.demo)
app.command("datasets")(data_commands.datasets)
app.command("methods")(data_commands.methods)
app.command("reproduce")(reproduce_command.reproduce)
app.command("bench")(bench_command.bench)
app.command("doctor")(data_commands.doctor)


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug", help="Show the trace of an error."),
) -> None:
    """Cluster tables, images, text vectors and attributed graphs with the PamC loss."""
    if debug:
        os.environ["PAMC_DEBUG"] = "1"


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 2 usage, 3 data, 4 backend, 130 interrupted.

    Errors and notes go to standard error, one line each; results go to standard output.
    """
    debug = "--debug" in arguments
    ordered = ["--debug", *(a for a in arguments if a != "--debug")] if debug else list(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_once()
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", PamcWarning)
        try:
            code = int(app(ordered, standalone_mode=False) or 0)
        except (KeyboardInterrupt, typer.Abort):
            code = _INTERRUPTED
        except Interrupted as stop:
            note(f"interrupted: {stop}")
            return _INTERRUPTED
        except TeamError as error:
            # Another process failed and said why.
            return error.exit_code if error.told else _report(error)
        except BrokenPipeError:
            sys.stderr.close()
            return 0
        except Exception as error:
            if debug:
                traceback.print_exc()
            code = _report(error)
    if code == _INTERRUPTED and own_rank() == 0:
        note("interrupted: nothing was written")
    return code


def _report(error: Exception) -> int:
    """Write one line about an error and return the exit code."""
    where = f"process {own_rank()}: " if own_rank() else ""
    usage: Any = getattr(error, "format_message", None)
    if usage is not None:
        if where:
            # The first process says it; torchrun ends it unheard should another one be gone before.
            time.sleep(_FIRST_SPEAKS_WITHIN_S)
        else:
            note(f"error: {_one_line(usage())} (see pamc --help)")
        return int(getattr(error, "exit_code", 2))
    if isinstance(error, PamcError):
        note(f"error: {where}{_one_line(str(error))}")
        return error.exit_code
    if isinstance(error, OSError):
        note(f"error: {where}{_one_line(str(error))}")
        return OutputError.exit_code
    what = f"{where}{type(error).__name__}: {_one_line(str(error))}"
    note(f"error: {what} (not expected: please report it with the output of `pamc doctor`; --debug shows the trace)")
    return 1


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _show_once() -> Callable[..., None]:
    """Return what shows a warning as a note, unless it has shown the same one before."""
    shown: set[str] = set()

    def show(message: Any, *_: Any, **__: Any) -> None:
        text = _one_line(str(message))
        if text not in shown:
            shown.add(text)
            note(f"note: {text}")

    return show
