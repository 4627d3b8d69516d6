"""A reader who pastes every block in order gets the output that is shown."""

import sys
import warnings
from pathlib import Path

import pytest

from pamc.models.method import METHODS
from tests.docs.pages import printed, same, steps

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "start.md", *sorted(page for page in (DOCS / "tutorials").glob("*.md") if page.stem != "index")]
# The others, of a few seconds each, are run with the slow tests.
FAST = ("start", "customers", "torch-model", "anndata")

# Packages that a page needs and that the development environment does not install.
PARTNERS = {
    "tracking": ("mlflow", "sqlalchemy", "alembic", "tensorboard"),
    "topics": ("bertopic",),
    "scanpy": ("scanpy",),
}

pytestmark = pytest.mark.slow


def run_page(page, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    # A page may add a method and a folder of modules, which other tests must not see.
    monkeypatch.setattr(METHODS, "_entries", {name: METHODS[name] for name in METHODS})
    monkeypatch.setattr(sys, "path", list(sys.path))
    n_shown = 0
    for step, got in printed(page):
        if step.shown is not None:
            n_shown += 1
            assert same(step.shown, got), f"{page.name}:{step.line} printed\n{got}\nand shows\n{step.shown}"
        else:
            assert got == "", f"{page.name}:{step.line} prints what the page does not show:\n{got}"
    assert n_shown > 0


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem in FAST], ids=lambda page: page.stem)
def test_a_page_prints_what_it_shows(page, monkeypatch):
    run_page(page, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in FAST], ids=lambda page: page.stem)
def test_a_longer_page_prints_what_it_shows(page, monkeypatch):
    for package in PARTNERS.get(page.stem, ()):
        pytest.importorskip(package, reason=f"the page needs {package}, which an extra of pamc installs")
    with warnings.catch_warnings():
        if page.stem in PARTNERS:
            # Other programs warn about each other.
            warnings.simplefilter("ignore")
        run_page(page, monkeypatch)


def test_all_the_tutorials_are_there_and_none_is_empty():
    names = {"customers", "citations", "graph-alone", "relations", "baskets", "text", "images", "torch-model"}
    names |= {"new-rows", "noise", "levels", "export", "anndata", "tracking", "topics", "scanpy", "own-method"}
    names |= {"updates", "serving"}
    assert {page.stem for page in PAGES} == {"start", *names}
    for page in PAGES:
        assert any(step.shown for step in steps(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("shown", "got", "alike"),
    [
        ("ACC 0.95\n", "ACC 0.95\n", True),
        ("ACC 0.95\n", "ACC 0.96\n", True),
        ("ACC 0.95\n", "ACC 0.91\n", False),
        ("ACC 1.0\n", "ACC 0.95\n", False),
        ("95 rows\n", "96 rows\n", False),
        ("took ... s\n", "took 17 s\n", True),
        ("a\nb\n", "a\n", False),
    ],
)
def test_what_counts_as_the_same_output(shown, got, alike):
    assert same(shown, got) == alike
