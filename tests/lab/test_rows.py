import json

import pytest

from pamc.errors import DataError
from pamc.lab.cell import Cell
from pamc.lab.rows import FIELDS, RESULTS, RowFile, is_quick, key_of, make_row, provenance, read_rows, usable


def row(seed=0, *, quick=False, error=None, device="cpu", date="2024-05-01T10:00:00Z", commit="abc", value=1.0):
    cell = Cell("table2", "fit", "pamcgc", "acm", seed, quick=quick)
    stamp = {"cpu": "a processor", "gpu": "a card", "commit": commit, "pamc": "0.1", "packages": {"torch": "2.9"}}
    origin = {"date": date, "device": device, "environment": stamp}
    return make_row(cell, origin, values={"value": value}, error=error)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.jsonl"
    with RowFile(path) as rows:
        rows.append(row(0))
        rows.append(row(1))
    return path


def test_rows_are_read_as_they_were_written_one_per_line(file):
    assert read_rows(file) == [row(0), row(1)]
    assert file.read_text().count("\n") == 2
    assert read_rows(file.with_name("absent.jsonl")) == []


@pytest.mark.parametrize("length", [1, 40, -1])
def test_a_cut_last_line_is_left_out_and_overwritten(file, length):
    with file.open("a") as text:
        text.write(json.dumps(row(2))[:length])
    assert read_rows(file) == [row(0), row(1)]
    with RowFile(file) as rows:
        rows.append(row(3))
    assert read_rows(file) == [row(0), row(1), row(3)]


def test_a_whole_last_line_without_its_end_is_kept(file):
    file.write_text(file.read_text().rstrip("\n"))
    assert read_rows(file) == [row(0), row(1)]
    with RowFile(file) as rows:
        rows.append(row(2))
    assert read_rows(file) == [row(0), row(1), row(2)]


@pytest.mark.parametrize("text", ["not json", "[1, 2]", '{"key": 1}'])
def test_a_line_that_is_no_row_is_refused_with_its_number(file, text):
    file.write_text(file.read_text() + text + "\n")
    with pytest.raises(DataError, match=r"rows\.jsonl, line 3, is not a row of results"):
        read_rows(file)


def test_quick_rows_and_errors_are_never_published():
    rows = [row(0), row(1, quick=True), row(2, error="out of memory"), row(0, value=2.0)]
    assert usable(rows, quick=False) == [row(0, value=2.0)]
    assert usable(rows, quick=True) == [row(1, quick=True)]
    # An error that came after a result does not take it away.
    assert usable([row(0), row(0, error="out of memory")], quick=False) == [row(0)]


def test_rows_of_both_kinds_are_not_mixed():
    assert is_quick([row(0, quick=True)]) is True
    assert is_quick([row(0)]) is False
    assert is_quick([]) is False
    with pytest.raises(DataError, match="mixed"):
        is_quick([row(0), row(0, quick=True)])


def test_the_origin_names_devices_dates_commits_and_versions():
    rows = [row(0, date="2024-05-03T10:00:00Z"), row(1, device="cuda", commit="def"), row(2)]
    assert provenance(rows) == (
        "3 runs on a processor, a card; 2024-05-01 to 2024-05-03; commit abc, def; pamc 0.1, torch 2.9"
    )
    assert "; 2024-05-01; commit unknown;" in provenance([row(0, commit=None)])
    assert provenance([]) == "no runs"


def test_every_stored_row_is_in_the_schema_and_has_a_key_of_its_case():
    paths = sorted(RESULTS.rglob("*.jsonl"))
    assert paths
    for path in paths:
        for row in read_rows(path):
            assert tuple(row) == FIELDS
            assert row["case"] == path.stem
            assert json.loads(key_of(row))[0] == path.stem
