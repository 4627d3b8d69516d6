"""The blocks of a page, run from top to bottom as a reader pastes them: `python -m tests.docs.pages --write PAGE…`.

A block marked python runs in one namespace per page, one marked sh in one folder per page; both share that folder. The
text block that follows shows what was printed. `...` in it stands for anything, as in a doctest, and a number with a
decimal point may differ by 2 in its last digit, for processors do not add up in one order. With `--write` the text
blocks are replaced by what was printed, those that have `...` apart.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

from pamc.cli.app import run as run_pamc

FENCE = re.compile(r"^```(python|sh|text)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+\.\d+")


@dataclass
class Step:
    """A block to run, where it begins, and what it should print (None: nothing is shown)."""

    language: str
    source: str
    line: int
    shown: str | None = None
    span: tuple[int, int] | None = None


def steps(text):
    """Return the blocks of a page with the output that follows each."""
    found = []
    for fence in FENCE.finditer(text):
        language, body = fence.groups()
        if language == "text":
            if not found or found[-1].shown is not None:
                raise ValueError(f"line {_line(text, fence.start())}: a text block that follows no block that runs")
            found[-1].shown, found[-1].span = body, fence.span(2)
        else:
            found.append(Step(language, body, _line(text, fence.start())))
    return found


def printed(page):
    """Yield the steps of a page with what each printed, in a folder of their own."""
    namespace = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for step in steps(page.read_text(encoding="utf-8")):
            yield step, _run(step, page, namespace)


def same(shown, got):
    """Return whether what was printed is what is shown."""
    shown, got = _plain(shown), _plain(got)
    pairs = list(zip(shown.splitlines(), got.splitlines(), strict=False))
    if shown.count("\n") != got.count("\n"):
        pairs = [(shown, got)]
    check = doctest.OutputChecker().check_output
    return all(check(f"{a}\n", f"{_matched(a, b)}\n", doctest.ELLIPSIS) for a, b in pairs)


def _run(step, page, namespace):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        if step.language == "python":
            # Line numbers of an error are those of the page.
            exec(compile("\n" * step.line + step.source, str(page), "exec"), namespace)
        else:
            for line in step.source.replace("\\\n", " ").splitlines():
                _type(line, out, page)
    return out.getvalue()


def _type(line, out, page):
    """Run one line of shell; a plain pamc command runs in this process, which has torch in memory already."""
    words = shlex.split(line, comments=True)
    if words[:1] == ["pamc"] and not set(words) & {"|", ">", "2>&1", ";", "&&", "||"}:
        error = io.StringIO()
        with contextlib.redirect_stderr(error):
            code = run_pamc(words[1:])
        # A page may show an error, which is all that such a command says.
        out.write(error.getvalue() if code in (2, 3) else "")
        if code not in (0, 2, 3):
            raise RuntimeError(f"{page}: {line!r} ended with {code}: {error.getvalue()}")
    elif words:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(line, shell=True, text=True, capture_output=True, env={**os.environ, "PATH": path})
        if done.returncode:
            raise RuntimeError(f"{page}: {line!r} ended with {done.returncode}: {done.stderr}")
        out.write(done.stdout)


def _plain(text):
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def _matched(shown, got):
    """Return what was printed with the numbers that are near those shown written as shown."""
    wanted, found = NUMBER.findall(shown), NUMBER.findall(got)
    if len(wanted) != len(found) or "..." in shown:
        return got
    near = iter(
        a if abs(float(a) - float(b)) < 2.5 * 10 ** -max(len(number.partition(".")[2]) for number in (a, b)) else b
        for a, b in zip(wanted, found, strict=True)
    )
    return NUMBER.sub(lambda _: next(near), got)


def _line(text, position):
    return text.count("\n", 0, position) + 1


def write(page):
    """Replace the text blocks of a page by what its blocks print."""
    text = page.read_text(encoding="utf-8")
    results = list(printed(page))
    for step, got in reversed(results):
        if step.shown is not None and not same(step.shown, got):
            start, end = step.span
            # Where a page was written is a matter of the reader's machine.
            text = text[:start] + re.sub(r"file://\S+", "file://...", _plain(got)) + text[end:]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    for name in sys.argv[1:]:
        if name != "--write":
            write(Path(name).resolve())
