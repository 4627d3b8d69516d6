"""The type of a column is found from its cells, and the user may overrule it."""

import re

import numpy as np
import pytest

from pamc.data.columns.types import KINDS, find_types
from pamc.errors import DataError, UnknownNameError
from tests.columns.conftest import table

CITIES = ["Köln", "Bonn", "Köln", "Bonn", "Ulm", "Ulm"]
FOUND = {
    "plain numbers": (["1.5", "2", "-3e2", "4", "5", "6"], "number"),
    "thousands": (["1,200.50", "70,600.00", "3", "4", "5", "6"], "number"),
    "a decimal comma": (["1,5", "2,25", "3", "1.200,5", "5", "6"], "number"),
    "percent": (["12 %", "7%", "3.5 %", "4%", "5%", "6%"], "number"),
    "currency": (["$1,200", "$7.50", "-$3", "$4", "$5", "$6"], "number"),
    "blanks between thousands": (["1 200", "12 000 000", "3", "4", "5", "6"], "number"),
    "yes and no": (["yes", "no", "Yes", None, "no", "no"], "yes/no"),
    "true and false": (["True", "false", "TRUE", None, "false", "true"], "yes/no"),
    "yes and no in German": (["ja", "Nein", "JA", None, "nein", "ja"], "yes/no"),
    "yes and no in Spanish": (["Sí", "no", "sí", None, "No", "no"], "yes/no"),
    "yes and no in Japanese": (["はい", "いいえ", "はい", None, "いいえ", "はい"], "yes/no"),
    "yes in one language and no in another": (["ja", "non", "ja", None, "non", "non"], "category"),
    "south and north": (["s", "n", "s", None, "n", "n"], "category"),
    "times of day": (["9:05", "14:15", "23:59", None, "0:00", "7:30"], "time"),
    "times of day with seconds": (["09:05:01", "14:15:30", "23:59:59", None, "00:00:00", "7:30:00"], "time"),
    "times of day in halves": (["9:05 AM", "2:15 pm", "11:59 PM", None, "12:00 AM", "7:30 AM"], "time"),
    "ratios": (["4:3", "16:9", "4:3", None, "16:9", "16:9"], "category"),
    "durations": (["75:10", "12:30", "75:10", None, "12:30", "75:10"], "category"),
    "few words": (CITIES, "category"),
    "none is a value": (["none", "wood", "none", "wood", "none", "wood"], "category"),
    "postal codes": (["01067", "50667", "01067", "50667", "80331", "80331"], "category"),
    "dates": (["2024-01-31", "2023-12-01", None, "2020-02-29", "2021-05-05", "2022-06-06"], "date"),
    "days first": (["31.01.2024", "1.12.2023", "2.2.2020", "3.3.2020", "4.4.2020", "5.5.2020"], "date"),
    "times": (["2024-01-31 10:00", "2024-02-01 23:59", "2024-03-01 00:00"] * 2, "date"),
    "sentences": ([f"a long sentence number {i} about things" for i in range(6)], "text"),
    "names": (["ann", "bob", "cid", "dan", "eve", "flo"], "id"),
    "numbered rows": (["1", "2", "3", "4", "5", "6"], "id"),
    "one value": (["a"] * 6, "ignore"),
    "one value or none": (["x", None, "x", None, None, "x"], "given"),
    "nothing": ([None] * 6, "ignore"),
    "nearly all differ": (["ann", "bob", "cid", "dan", "eve", "eve"], "ignore"),
}


@pytest.mark.parametrize("case", FOUND)
def test_the_type_is_found_from_the_cells(typed, case):
    cells, kind = FOUND[case]
    assert typed(x=cells)["x"].kind == kind


def test_numbers_are_read_as_written(typed):
    assert typed(x=["$1,200", "-$7.50", None])["x"].values.tolist()[:2] == [1200, -7.5]
    assert typed(x=["1.200,5 €", "7,25 €", "3 €"])["x"].values.tolist() == [1200.5, 7.25, 3]


def test_an_ambiguous_separator_is_read_as_in_the_other_columns_with_a_note(typed):
    found = typed(income=["70,600", "81,300", "65,100"], height=["1,75", "1,8", "1,62"])["income"]
    assert found.values.tolist() == [70.6, 81.3, 65.1]
    assert "70,600 is read as 70.6 (as in other columns); if it is 70600" in found.note
    alone = typed(income=["70,600", "81,300", "65,100"])["income"]
    assert alone.values.tolist() == [70600, 81300, 65100]
    assert "every cell allows both readings" in alone.note
    given = typed({"income": "decimal comma"}, income=["70,600", "81,300", "65,100"])["income"]
    assert given.values.tolist() == [70.6, 81.3, 65.1]


def test_all_problems_of_a_table_are_in_one_message_that_states_both_readings():
    conflict = ["1.234,5", "1,234.5", "2"]
    with pytest.raises(DataError) as caught:
        find_types(table(a=conflict, b=["12 %", "$3", "4"]))
    message = str(caught.value)
    assert "2 problems: (1) column 'a': '1,234.5' (row 1) has a decimal point, but '1.234,5' (row 0)" in message
    assert "(2) column 'b': mixes units" in message


def test_dates_that_could_be_two_are_read_with_the_day_first_and_noted(typed):
    found = typed(x=["1/2/2024", "3/4/2024", "5/6/2023"])["x"]
    assert str(found.values[0])[:10] == "2024-02-01"
    assert "2024-02-01 or 2024-01-02" in found.note
    assert typed(x=["1/31/2024", "3/4/2024", "5/6/2023"])["x"].note is None


def test_one_column_names_the_rows_and_copies_are_left_out(typed):
    names = [f"n{i}" for i in range(6)]
    found = typed(label=names, customer_id=[f"c{i}" for i in range(6)], city=CITIES, town=CITIES)
    assert [column.kind for column in found.values()] == ["ignore", "id", "category", "ignore"]
    assert "'customer_id' identifies the rows already" in found["label"].note
    assert "the same as column 'city'" in found["town"].note


def test_the_user_overrules_the_type(typed):
    codes = ["1", "2", "2", "3", "1", "3"]
    assert typed(x=codes)["x"].kind == "number"
    assert typed({"x": "category"}, x=codes)["x"].kind == "category"
    ordered = typed({"x": "S<M<L"}, x=["M", "S", "L", "S", None, "L"])["x"]
    assert ordered.values.tolist() == [1, 0, 2, 0, -1, 2]
    assert typed({"x": ["S", "M"]}, x=["M", "S"])["x"].levels == ("S", "M")


@pytest.mark.parametrize(
    ("types", "error", "says"),
    [
        ({"y": "number"}, DataError, "types names a column 'y' that does not exist"),
        ({"x": "numbr"}, UnknownNameError, "did you mean 'number'"),
        ({"x": "number"}, DataError, "'Köln' (row 0) is not a number"),
        ({"x": "date"}, DataError, "is not a date like the others"),
        ({"x": "time"}, DataError, "'Köln' (row 0) is not a time like the others"),
        ({"x": "yes/no"}, DataError, "is not a yes/no column"),
        ({"x": "ordered"}, DataError, "needs its order"),
        ({"x": "Köln<Bonn"}, DataError, "'Ulm' (row 4) is not in the given order"),
    ],
)
def test_a_type_that_the_cells_contradict_is_refused(types, error, says):
    with pytest.raises(error, match=re.escape(says)):
        find_types(table(x=CITIES), types)


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_can_be_given_to_a_column_that_fits(typed, kind):
    cells = {"date": ["2024-01-01", "2024-01-02"], "yes/no": ["yes", "no"], "time": ["9:00", "14:15"]}
    cells = cells.get(kind, ["1", "2"])
    assert typed({"x": kind}, x=cells * 3)["x"].is_given


def test_missing_cells_are_marked(typed):
    assert typed(x=["1.5", "-", None, "NA", "2.5", "3"])["x"].missing.tolist() == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]
    assert np.isnan(typed(x=["yes", None, "no"])["x"].values[1])


def test_dates_in_several_formats_and_amounts_that_are_no_numbers_are_errors_and_not_categories_or_ids(typed):
    with pytest.raises(DataError, match=r"column 'x': '31/01/2024' \(row 1\) is not a date like the others"):
        typed(x=["2024-01-31", "31/01/2024", "2024-02-29", "01/03/2024", None, "2024-03-02"])
    amounts = ["1.000,50 €", "2000.500,10 €", "3000.1.2 €", "4000.100,2 €", None, "5.5.5 €"]
    with pytest.raises(DataError, match=r"column 'x': '2000\.500,10 €' \(row 1\) is not a number, nor are 3 other"):
        typed(x=amounts)


def test_a_group_of_thousands_does_not_start_with_zero(typed):
    others = ["1,5", "2,5", "3,5", "4,5", "5,5", "6,5"]
    found = typed(x=["0.110", "0.250", "2.503", None, "7.125", "0.5"], y=others)["x"]
    assert (found.values[0], found.values[2], found.note) == (0.11, 2.503, None)
