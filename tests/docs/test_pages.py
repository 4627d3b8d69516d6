"""Pages that are made of the code or of rows are what these give; what a page names exists."""

import importlib
import re
from pathlib import Path

import pytest

import pamc
from pamc.config import FitConfig
from pamc.lab.pages.contents import accuracy_table
from pamc.lab.pages.pictures import FIGURES

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)


def text_of(name):
    return (DOCS / name).read_text(encoding="utf-8")


def test_without_rows_no_program_is_compared():
    assert accuracy_table([], "acc").endswith("Ahead on 0 of 0.\n")


def test_the_settings_are_those_of_the_code():
    text = text_of("parameters.md")
    for name in FitConfig.names():
        assert f"| `{name}` |" in text


def test_every_figure_of_the_method_is_there_and_small():
    text = text_of("pictures.md")
    assert re.findall(r"\(pictures/(\w+)\.png\)", text) == list(FIGURES)
    for name in FIGURES:
        assert 0 < (DOCS / "pictures" / f"{name}.png").stat().st_size < 250_000


def test_every_equation_has_its_function_in_the_reference_and_in_training():
    rows = re.findall(r"^\| (\d+) \| (.*)\|$", text_of("equations.md"), flags=re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 13))
    for number, row in rows:
        named = re.findall(r"\{(?:func|class)\}`~([\w.]+)`", row)
        assert named[0].startswith("pamc.ops.reference."), number
        assert len(named) >= 2, number
        assert f"(eq{number})" in text_of("equations.md")
        for name in named:
            assert exists(name), name


def exists(name):
    """Return whether a dotted name is a module's attribute and the API page has an entry that it can be linked to."""
    module, _, last = name.rpartition(".")
    found = hasattr(importlib.import_module(module), last)
    pages = text_of("api.md") + text_of("methods.md")
    entry = rf"auto(function|class):: {re.escape(name)}$|automodule:: {re.escape(module)}$"
    return found and re.search(entry, pages, flags=re.MULTILINE) is not None


def test_the_api_has_every_public_name():
    text = text_of("api.md")
    assert "<!-- public names that stand nowhere above -->" in text, "docs/conf.py puts new names there"
    for name in ("PamCGC", "PamCLoss", "pamc_loss", "clusterer", "load_dataset", "evaluate", "AttributedGraph"):
        assert name in pamc.__all__
        assert f":: pamc.{name}\n" in text
    for name in re.findall(r"auto(?:function|class):: ([\w.]+)", text):
        module, _, last = name.rpartition(".")
        assert hasattr(importlib.import_module(module), last), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_page_is_reached_from_the_index(page):
    name = str(page.relative_to(DOCS).with_suffix(""))
    parents = {"index": text_of("index.md"), "tutorials": text_of("tutorials/index.md")}
    parents["notebooks"] = text_of("notebooks/index.md")
    folder, _, last = name.rpartition("/")
    listed = parents[folder or "index"] if last != "index" or not folder else parents["index"]
    entry = name if not folder or last == "index" else last
    assert name == "index" or re.search(rf"^{re.escape(entry)}$", listed, flags=re.MULTILINE), name
