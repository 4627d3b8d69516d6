"""The command: what it says when called alone, the panels of its help, and how errors end."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import sys
import textwrap
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

import pamc
from pamc.cli.launch import own_rank
from pamc.cli.options import CLUSTER, COMMANDS, LABORATORY, LOOK_UP
from pamc.cli.show import EXIT_INTERRUPTED, Interrupted, note, print_text
from pamc.config import RENAMED_SETTINGS, FitConfig
from pamc.errors import OutputError, PamcError, PamcWarning

__all__ = ["app", "run"]

# Of several processes that refuse the same command line.
_FIRST_SPEAKS_WITHIN_S = 10.0

_ABOUT = "Cluster tables, images, text vectors and attributed graphs with the PamC loss."

_EXAMPLES = (
    ("pamc demo", "handwritten digits, offline, K-means beside it"),
    ("pamc fit customers.csv --id customer -k 5", "a table; writes labels, model and a report to pamc-run-1"),
    ("pamc fit papers.csv --id doi --edges cites.csv -k 7", "rows and a graph between them"),
    ("pamc predict pamc-run-1 new.csv --out clusters.csv", "the clusters of new rows"),
)

_WIDEST = 100


class GroupedCommands(TyperGroup):
    """A group of commands that shows them by their panels."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the name of a command.

        Typer's own flags are None where they are not given; to convert that it would import pydantic (0.1 s).
        """
        for parameter in self.get_params(ctx):
            if getattr(parameter, "is_flag", False) and parameter.default is None:
                parameter.default = False
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, a section for each panel."""
        for panel, rows in _panels(self, ctx).items():
            with formatter.section(panel):
                formatter.write_dl(rows)


class PanelCommand(TyperCommand):
    """A command that shows its arguments and options by their panels, in the order of their declaration."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options; to complete what follows them, their values need not be converted (see above)."""
        if not ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        values, ctx.args, _ = self.make_parser(ctx).parse_args(args=args)
        ctx.params.update(values)
        return ctx.args  # type: ignore[no-any-return]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, a section for each panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            row = parameter.get_help_record(ctx)
            if row is not None:
                panels.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(row)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


app = typer.Typer(
    name="pamc",
    help=_ABOUT,
    cls=GroupedCommands,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _name in sorted(COMMANDS, key=lambda name: COMMANDS[name].place):
    app.command(_name, cls=PanelCommand, rich_help_panel=COMMANDS[_name].panel)(COMMANDS[_name].run)


@app.callback()
def options(
    context: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show the trace of an error."),
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    """Cluster tables, images, text vectors and attributed graphs with the PamC loss."""
    if debug:
        os.environ["PAMC_DEBUG"] = "1"
    if version:
        print_text(f"pamc {pamc.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print_text(_welcome(context))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 2 usage, 3 data, 4 backend, 130 interrupted.

    Errors and notes go to standard error, one line each; results go to standard output.
    """
    debug = "--debug" in arguments
    ordered = [argument for argument in arguments if argument != "--debug"]
    if ordered[:1] == ["help"]:
        ordered = [*ordered[1:], "--help"]
    ordered = ["--debug", *ordered] if debug else ordered
    with _debugging_ends(), warnings.catch_warnings():
        warnings.showwarning = _show_once()
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", PamcWarning)
        try:
            code = int(app(ordered, standalone_mode=False, prog_name="pamc") or 0)
        except (KeyboardInterrupt, typer.Abort):
            code = EXIT_INTERRUPTED
        except Interrupted as stop:
            note(f"interrupted: {stop}")
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            sys.stderr.close()
            return 0
        except Exception as error:
            if isinstance(error, PamcError) and getattr(error, "told", False):
                # Another process failed and said why.
                return error.exit_code
            if debug:
                traceback.print_exc()
            code = _report(error)
    if code == EXIT_INTERRUPTED and own_rank() == 0:
        note("interrupted: nothing was written")
    return code


@contextmanager
def _debugging_ends() -> Iterator[None]:
    """Take back what `--debug` set, so that it holds for one command line and not for the next one of the process."""
    before = os.environ.get("PAMC_DEBUG")
    try:
        yield
    finally:
        os.environ.pop("PAMC_DEBUG", None)
        if before is not None:
            os.environ["PAMC_DEBUG"] = before


def _report(error: Exception) -> int:
    """Write one line about an error and return the exit code."""
    where = f"process {own_rank()}: " if own_rank() else ""
    usage: Any = getattr(error, "format_message", None)
    if usage is not None:
        if where:
            # The first process says it; torchrun ends it unheard should another one be gone before.
            time.sleep(_FIRST_SPEAKS_WITHIN_S)
        else:
            note(f"error: {_usage(error)}")
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


def _usage(error: Any) -> str:
    """Return what is wrong with a command line, what was probably meant, and where to read more."""
    text = _one_line(error.format_message())
    context = getattr(error, "ctx", None)
    if wrong := getattr(error, "option_name", None):
        if context is not None and context.info_name == "fit" and (setting := _setting_named(wrong)):
            return f"{_one_line(error.message)}: it is a setting; write --set {setting}=VALUE"
        near = difflib.get_close_matches(wrong, getattr(error, "possibilities", None) or (), n=1, cutoff=0.0)
        if near:
            text = f"{_one_line(error.message)}; did you mean {near[0]}?"
    unknown = re.match(r"No such command '(.+?)'", text)
    if unknown and Path(unknown[1]).is_file():
        text += f" To cluster that file: pamc fit {shlex.quote(unknown[1])} --n-clusters K"
    return f"{text} (see {'pamc' if context is None else context.command_path} --help)"


def _setting_named(option: str) -> str | None:
    """Return the setting that an unknown option names, by its present name."""
    name = option.removeprefix("--").replace("-", "_")
    name = RENAMED_SETTINGS.get(name, name)
    return name if name in FitConfig.names() else None


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


def _welcome(context: typer.Context) -> str:
    """Return what the command can do: examples, and the commands in groups, as wide as the terminal."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    lines = [*textwrap.wrap(f"pamc {pamc.__version__}. {_ABOUT}", width), "", "Try:"]
    longest = max(len(command) for command, _ in _EXAMPLES)
    for command, about in _EXAMPLES:
        lines += _entry(command, about, longest, width)
    for panel, rows in _panels(context.command, context).items():
        lines += ["", f"{panel}:"]
        longest = max(len(name) for name, _ in rows)
        for name, about in rows:
            lines += _entry(name, about, longest, width)
    more = (
        "pamc COMMAND --help says more and has examples; pamc --install-completion makes the TAB key complete "
        "commands, options and names."
    )
    return "\n".join([*lines, "", *textwrap.wrap(more, width, break_on_hyphens=False)])


def _panels(group: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the commands and the first sentences of their help, by panel."""
    panels: dict[str, list[tuple[str, str]]] = {CLUSTER: [], LOOK_UP: [], LABORATORY: []}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        about = (command.help or "").partition("\n")[0].removesuffix(".")
        panels.setdefault(str(command.rich_help_panel or LABORATORY), []).append((name, about))
    return {panel: rows for panel, rows in panels.items() if rows}


def _entry(name: str, about: str, longest: int, width: int) -> list[str]:
    """Return a name and what it stands for: side by side where there is room, else one below the other."""
    column = 2 + longest + 2
    if width - column < 30:
        return [f"  {name}", *textwrap.wrap(about, width, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    first = f"  {name}".ljust(column)
    return textwrap.wrap(about, width, initial_indent=first, subsequent_indent=" " * column)
