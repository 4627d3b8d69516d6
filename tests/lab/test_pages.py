"""Every page is what the rows give, whatever of them is there."""

import re

import pytest

from pamc.errors import UnknownNameError
from pamc.lab import rows as row_store
from pamc.lab.cell import CASES, cases_of
from pamc.lab.pages import DOCS, filled
from pamc.lab.pages import __main__ as main
from pamc.lab.pages.contents import PAGES, path_of
from pamc.lab.pages.pictures import FIGURES, draw
from pamc.lab.rows import stored

pytestmark = pytest.mark.claims


@pytest.fixture(scope="module", autouse=True)
def _quick_fits():
    """Do not patch constants here: pages show them."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_rows_give(name, tmp_path):
    text = path_of(name).read_text(encoding="utf-8")
    assert filled(text, PAGES[name], tmp_path) == text, f"run python -m pamc.lab.pages {name}"
    figures = {path.name for path in tmp_path.glob("*.png")}
    assert figures == {path.name for path in (DOCS / name).glob("*.png")}
    assert set(re.findall(rf"\({name}/([\w-]+\.png)\)", text)) <= figures


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_marks_of_its_parts_and_no_others(name):
    text = path_of(name).read_text(encoding="utf-8")
    for mark in ("<!-- table {} -->", "<!-- end {} -->"):
        assert all(text.count(mark.format(part)) == 1 for part in PAGES[name])
        assert text.count(mark.split("{}")[0]) == len(PAGES[name])


@pytest.mark.parametrize("name", ["speed", "scale", "choosing"])
def test_without_rows_every_part_says_so(name, tmp_path, monkeypatch):
    monkeypatch.setattr(row_store, "RESULTS", tmp_path / "none")
    text = filled(path_of(name).read_text(encoding="utf-8"), PAGES[name], tmp_path)
    assert text.count("Not measured yet") == sum(part.rows is not None for part in PAGES[name].values())


def test_every_experiment_is_on_a_page_with_its_command():
    text = "".join(path_of(name).read_text(encoding="utf-8") for name in ("reproduce", "quality"))
    for name in cases_of("experiment"):
        assert f"{CASES[name].summary} `pamc reproduce {name}`" in text


def test_published_rows_are_not_quick():
    for case in cases_of("case"):
        assert not any(row["quick"] for row in stored(case))


@pytest.mark.slow
def test_the_pictures_of_the_method_are_drawn(tmp_path):
    paths = draw(tmp_path / "pictures")
    assert [path.stem for path in paths] == list(FIGURES)
    assert all(path.stat().st_size > 5000 for path in paths)


def test_a_page_is_written_with_its_figures(tmp_path, monkeypatch):
    page = tmp_path / "choosing.md"
    page.write_text(path_of("choosing").read_text(encoding="utf-8").replace("<!-- end", "stale\n<!-- end"))
    monkeypatch.setattr(main, "path_of", lambda name: page)
    monkeypatch.setattr(main, "DOCS", tmp_path)
    (tmp_path / "choosing").mkdir()
    (tmp_path / "choosing" / "old.png").touch()
    monkeypatch.setattr("sys.argv", ["pages", "choosing"])
    main.main()
    assert page.read_text(encoding="utf-8") == path_of("choosing").read_text(encoding="utf-8")
    assert {path.name for path in (tmp_path / "choosing").iterdir()} == {
        path.name for path in (DOCS / "choosing").iterdir()
    }
    monkeypatch.setattr("sys.argv", ["pages", "chosing"])
    with pytest.raises(UnknownNameError, match="choosing"):
        main.main()
