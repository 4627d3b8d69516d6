"""The page of errors has every class and every message of the source, and none that the source has not."""

import re
from pathlib import Path

import pytest

import pamc.errors
from tests.docs.messages import CLASSES, HOLE, messages

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
SECTIONS = dict(
    re.findall(r"^## (\w+)$\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
)
BASES = {"PamcError", "PamcWarning"}


def tight(text):
    """Return a text without the spaces around what varies, which the source and the page have differently."""
    return re.sub(rf"\s*{HOLE}\s*", HOLE, " ".join(text.replace("\\`", "`").split()))


def patterns(section):
    """Return the messages in the first cells of a section's tables."""
    cells = re.findall(r"^\| (`.*?`) \| ", SECTIONS[section], flags=re.MULTILINE)
    return [part for cell in cells for part in re.split(r"`, `", cell.strip("`"))]


def matches(pattern, text):
    parts = [re.escape(part) for part in tight(pattern).split(HOLE)]
    return re.fullmatch(".*".join(parts), tight(text)) is not None


def test_every_class_has_a_section_and_its_exit_code():
    assert set(SECTIONS) == CLASSES - BASES
    text = PAGE.read_text(encoding="utf-8")
    for name in SECTIONS:
        kind = getattr(pamc.errors, name, None)
        if kind is not None and hasattr(kind, "exit_code"):
            assert re.search(rf"^\| \[`{name}`\].*\| {kind.exit_code} \|", text, flags=re.MULTILINE), name


@pytest.mark.parametrize("name", sorted(CLASSES - BASES))
def test_every_message_is_on_the_page_and_every_row_of_the_page_a_message(name):
    told, rows = [message for message in messages() if message.error == name], patterns(name)
    missing = [f"{m.module}:{m.line} {m.text}" for m in told if not any(matches(row, m.text) for row in rows)]
    assert not missing, f"docs/errors.md has no row in {name} for {missing}"
    stale = [row for row in rows if not any(matches(row, m.text) for m in told)]
    assert not stale, f"no {name} of the source reads {stale}"


def test_the_search_finds_what_it_should():
    found = {(message.error, tight(message.text)) for message in messages()}
    assert ("ConfigError", "the number of clusters is set by --n-clusters, not by --set") in found
    assert any(error == "DataWarning" and "self-loops are left out" in text for error, text in found)
    assert len(found) > 250
