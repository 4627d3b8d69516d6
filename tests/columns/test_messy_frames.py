"""Data frames and files as programs write them: every cell is read as it is meant, or a message says why not."""

import datetime
import re

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pamc import PamCGC, explain, ingest
from pamc.data.adapters import from_object
from pamc.data.columns.encoding import fit_encoding
from pamc.data.columns.frames import raw_table
from pamc.data.columns.types import find_types
from pamc.data.ingest import rows as ingest_rows
from pamc.data.readers import read_graph
from pamc.errors import ConfigError, DataError, DataWarning

pytestmark = pytest.mark.filterwarnings("ignore::pamc.errors.DataWarning")

N = 60
I = np.arange(N)  # noqa: E741
FAST = {"n_epochs": 1, "advanced": {"hidden": (8,), "pretrain_epochs": 1, "n_init": 1}, "random_state": 0}


def frame(**columns):
    size = np.random.default_rng(0).normal(size=N) + I % 3 * 5
    return pd.DataFrame({"color": np.array(["red", "green", "blue"])[I % 3], "size": size, **columns})


def described(X, types=None):
    """Return the rows of `pamc describe` by name, and the encoded rows."""
    table = raw_table(X)
    encoding, wide = fit_encoding(table, find_types(table, types))
    return {row["name"]: row for row in encoding.table}, wide


def kind(cells, types=None):
    return described(frame(x=cells), types)[0]["x"]["type"]


@pytest.mark.parametrize(
    "cells",
    [
        pd.array(["a", "b", None] * 20, dtype="string"),
        pd.array(["a", "b", None] * 20, dtype="string[pyarrow]"),
        ["a", "b", pd.NA] * 20,
    ],
)
def test_missing_values_of_pandas_are_missing(cells):
    row = described(frame(x=cells))[0]["x"]
    assert (row["type"], row["missing"]) == ("category", pytest.approx(1 / 3))


def test_nullable_types_are_read_as_the_plain_ones():
    plain = frame(n=[1.0, None, 3.0] * 20, b=[True, None, False] * 20)
    rows, wide = described(plain.convert_dtypes())
    assert (rows["n"]["type"], rows["b"]["type"], rows["n"]["missing"]) == ("number", "yes/no", pytest.approx(1 / 3))
    np.testing.assert_array_equal(wide, described(plain)[1])
    assert described(pa.table({"c": ["a", "b"] * 30, "n": pa.nulls(N)}))[0]["n"]["note"] == "left out: has no values"


def test_an_ordered_category_of_arrow_keeps_its_order():
    sizes = pd.Categorical(np.array(["S", "L", "M"])[I % 3], categories=["S", "M", "L"], ordered=True)
    rows, wide = described(pa.Table.from_pandas(frame(size=sizes)))
    assert rows["size"]["type"] == "ordered"
    assert [0.0, 2.0, 1.0] in wide[:3].T.tolist()


@pytest.mark.parametrize("first", [10**18, 1234567890123450])
def test_long_integers_identify_rows_with_all_of_their_digits(first, tmp_path):
    X = frame(tweet=first + 7 * I)
    assert from_object(X).ids.tolist() == [str(first + 7 * i) for i in range(N)]
    X.to_csv(tmp_path / "x.csv", index=False)
    X.to_parquet(tmp_path / "x.parquet")
    for name in ("x.csv", "x.parquet"):
        assert read_graph(tmp_path / name).ids.tolist() == [str(first + 7 * i) for i in range(N)]
    note = described(frame(tweet=first + 10 * (I % 4)))[0]["tweet"]["note"]
    assert (
        note == "read as codes because all cells have 16 or more digits; if these are numbers, give it the type number"
    )


def test_zero_padded_codes_that_differ_identify_the_rows():
    assert from_object(frame(code=[f"{i:05d}" for i in I])).ids[1] == "00001"
    assert kind([f"{i % 4:05d}" for i in I]) == "category"


def test_the_index_of_a_mixed_frame_names_the_rows():
    names = [f"n{i}" for i in I]
    assert from_object(frame().set_axis(names)).ids.tolist() == names
    assert from_object(frame(key=[f"k{i}" for i in I]).set_axis(names)).ids[0] == "k0"


def test_an_empty_id_is_an_error():
    cells = [None, *(f"c{i}" for i in range(N - 1))]
    with pytest.raises(DataError, match="column 'cust' has no id in row 0"):
        PamCGC(3, types={"cust": "id"}, **FAST).fit(frame(cust=cells))


@pytest.mark.parametrize(
    "text",
    [
        "2020-01-{day:02d} 00:00:10+00:00",
        "2020-01-{day:02d}T00:00:10.123Z",
        "2020-01-{day:02d} 00:00:10+00",
        "1/{day}/2020 1:10 PM",
        "2020-01-{day:02d}T10:00",
    ],
)
def test_dates_in_the_formats_of_programs_are_dates(text):
    assert kind([text.format(day=1 + i % 28) for i in I]) == "date"


def test_offsets_and_time_zones_are_converted_to_utc():
    utc = pd.date_range("2020-01-01", periods=N, freq="31h", tz="UTC")
    wide = described(frame(d=utc))[1]
    np.testing.assert_array_equal(described(frame(d=utc.tz_convert("Asia/Tokyo")))[1], wide)
    texts = [date.isoformat(sep=" ") for date in utc.tz_convert("Asia/Tokyo")]
    np.testing.assert_array_equal(described(frame(d=texts))[1], wide)


def test_a_cell_that_is_no_date_among_dates_is_named():
    cells = [*(f"2020-01-{1 + i % 28:02d}" for i in range(N - 1)), "not yet"]
    with pytest.raises(DataError, match=re.escape("column 'x': 'not yet' (row 59) is not a date like the others")):
        described(frame(x=cells))


def test_a_date_with_two_readings_is_noted_even_if_the_first_cell_has_one():
    note = described(frame(x=[f"{1 + i % 12:02d}/01/2020" for i in I]))[0]["x"]["note"]
    assert note.startswith("02/01/2020 is read with the day first")


@pytest.mark.parametrize("package", [pd.DataFrame, pl.from_pandas])
def test_durations_are_numbers_of_days(package):
    rows, _ = described(package(frame(d=pd.to_timedelta(36 * (I % 7), unit="h"))))
    assert (rows["d"]["type"], rows["d"]["example"]) == ("number", "0")


@pytest.mark.parametrize(
    ("fitted", "new"),
    [
        ([f"{i}.5%" for i in I], [f"{i}.5" for i in I]),
        (["rot", "blau"] * 30, ["red", "blue"] * 30),
        ([f"{i}.5" for i in I], [f"{i}.5 €" for i in I]),
        (["2020-01-01", "2020-01-02"] * 30, ["01/02/2020"] * N),
    ],
)
def test_new_rows_in_another_unit_or_language_are_refused_with_the_place(fitted, new):
    table = raw_table(frame(x=fitted))
    encoding, _ = fit_encoding(table, find_types(table))
    encoding.encode(table)
    with pytest.raises(DataError, match=r"column 'x': .* \(row 0\)"):
        encoding.encode(raw_table(frame(x=new)))


def test_one_new_category_is_no_reason_to_refuse_and_neither_is_a_new_ordered_value():
    table = raw_table(frame(x=["low", "high"] * 30))
    encoding, wide = fit_encoding(table, find_types(table, {"x": "low<high"}))
    encoded = encoding.encode(raw_table(frame(x=["low", "medium"] * 30, color="pink")))
    assert np.isnan(encoded).any(axis=0).sum() == wide.shape[1] - 1
    with pytest.raises(DataError, match="'Low' and all other values do not occur in the training data"):
        encoding.encode(raw_table(frame(x=["Low", "High"] * 30)))


def test_ordered_numbers_may_have_decimal_commas():
    table = raw_table(frame(x=["0,5", "10", "1,5"] * 20))
    assert find_types(table, {"x": "ordered"})[2].levels == ("0,5", "1,5", "10")
    numbers = raw_table(frame(x=[1.0, 3.0, 2.5] * 20))
    assert find_types(numbers, {"x": [1, 2.5, 3]})[2].levels == ("1", "2.5", "3")


@pytest.mark.parametrize(
    ("types", "says"),
    [
        ("category", "types must be a dict"),
        ([("color", "category")], "types must be a dict"),
        ({"color": None}, "must be a name, a list of ordered values or a function"),
        ({"color": {"red", "green", "blue"}}, "must be a name, a list of ordered values or a function"),
        ({"color": ["red", "green", "green", "blue"]}, "at least two different values"),
        ({"color": "red<green<blue<"}, "at least two different values"),
    ],
)
def test_types_of_another_form_are_refused(types, says):
    with pytest.raises(ConfigError, match=says):
        PamCGC(3, types=types, **FAST).fit(frame())


def test_types_need_named_columns():
    with pytest.raises(DataError, match="pass X as a data frame"):
        PamCGC(3, types={"a": "number"}, **FAST).fit(np.zeros((N, 2)))
    with pytest.raises(DataError, match="column names are not strings"):
        PamCGC(3, types={"a": "number"}, **FAST).fit(frame().set_axis([0, 1], axis=1))


def test_types_are_saved_with_the_model(tmp_path):
    types = {"color": ["red", "green", "blue"], "size": "number"}
    PamCGC(3, types=types, **FAST).fit(frame()).save(tmp_path / "run")
    assert PamCGC.load(tmp_path / "run").types == types


@pytest.mark.parametrize("cells", [[[1]] * N, [np.inf] * N, [{"a": 1}] * N, [np.zeros(2)] * N])
def test_an_ignored_column_may_have_any_cells(cells):
    X = frame(x=pd.Series(cells, dtype=object if not np.isscalar(cells[0]) else float))
    fitted = PamCGC(3, types={"x": "ignore"}, **FAST).fit(X)
    assert np.array_equal(fitted.predict(X), fitted.labels_)
    with pytest.raises(DataError, match="column 'x'"):
        PamCGC(3, **FAST).fit(X)


@pytest.mark.parametrize(
    ("X", "says"),
    [
        (pd.concat([frame(), frame()[["size"]]], axis=1), "column name 'size' occurs 2 times"),
        (frame().to_dict("records"), "pandas.DataFrame(X)"),
        (frame().to_dict("list"), "pandas.DataFrame(X)"),
        (frame().to_records(), "pandas.DataFrame(X)"),
        (pl.Series([1.0, 2.0]), "must be a table of rows and columns"),
        (frame().set_axis([0, 1], axis=1), "need strings as names"),
        (pa.table({"d": pa.array([2**30] * N, pa.int32()).cast(pa.date32())}), "column 'd' has a date that cannot"),
    ],
    ids=["twice", "records", "dict", "record array", "series", "numbered columns", "date"],
)
def test_what_is_no_table_of_named_columns_is_refused(X, says):
    with pytest.raises(DataError, match=re.escape(says)):
        PamCGC(3, **FAST).fit(X)


def test_a_number_in_another_unit_is_a_copy():
    rows, _ = described(frame().assign(cents=lambda X: -100 * X["size"] + 3))
    assert rows["cents"]["note"] == "left out: the same as column 'size'"


def test_examples_are_values_and_empty_cells_are_counted():
    rows, _ = described(frame(x=["-", "1", "2,5"] * 20, given=["x", None, None] * 20))
    assert rows["x"]["example"] == "1"
    assert rows["given"]["missing"] == pytest.approx(2 / 3)


def test_original_cells_are_shown_with_all_of_their_digits():
    X = frame(
        amount=[f"{192486.56 + i * i:.2f} €" for i in I],
        phone=7216981940 + I**3,
        agreed=["Y", "N"] * 30,
        at=pd.date_range("2020-03-01 10:07", periods=N, freq="37h"),
        extra=["x", None, None] * 20,
    )
    cells = explain(PamCGC(3, **FAST).fit(X), X).cells.set_index(["row", "column"])["cell"]
    for row in {row for row, _ in cells.index}:
        assert cells[row, "amount"] == X["amount"][row]
        assert cells[row, "phone"] == str(X["phone"][row])
        assert cells[row, "agreed"] == X["agreed"][row]
        assert cells[row, "extra"] == (X["extra"][row] or "")
        assert cells[row, "at"] == str(X["at"][row])[:16]


def write_sheet(path, rows):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def test_a_sheet_may_have_blank_rows_and_times_at_midnight(tmp_path):
    at = [datetime.datetime(2020, 1, 1 + i % 28, 6 * (i % 2)) for i in range(N)]
    rows = [["name", "at"], *([f"n{i}", at[i]] for i in range(N)), [None, None], [None, None]]
    graph = read_graph(write_sheet(tmp_path / "x.xlsx", rows))
    assert graph.n_nodes == N
    assert {row["name"]: row["type"] for row in graph.encoding.table} == {"name": "id", "at": "date"}
    with pytest.raises(DataError, match=r"y.xlsx: the first sheet is empty"):
        read_graph(write_sheet(tmp_path / "y.xlsx", [[None]]))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("inside", ["\n", "\r\n"])
def test_a_line_break_in_the_header_is_part_of_a_name(tmp_path, end, inside):
    path = tmp_path / "x.csv"
    lines = [f'id,"k{inside}name",x', *(f"c{i},{'rgb'[i % 3]},{i * i}" for i in range(30))]
    path.write_bytes(end.join([*lines, ""]).encode())
    assert read_graph(path).n_nodes == 30


def test_types_of_a_store_do_not_depend_on_patterns_in_the_order_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(ingest_rows, "_LEAST_SAMPLED", 200)
    monkeypatch.setattr(ingest_rows, "_MOST_SAMPLED", 200)
    X = pd.DataFrame({"sex": ["M", "F"] * 1000, "size": np.random.default_rng(0).normal(size=2000)})
    X.to_csv(tmp_path / "x.csv", index=False)
    store = ingest(tmp_path / "x.csv", out=tmp_path / "store")
    assert {row["name"]: row["type"] for row in store.encoding.table} == {"sex": "category", "size": "number"}


def test_an_error_in_one_of_several_files_names_it(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    X = frame(n=I.astype(str))
    X.to_csv(folder / "a.csv", index=False)
    X.assign(n=[*map(str, I[:-1]), "abc"]).to_csv(folder / "b.csv", index=False)
    with pytest.raises(DataError, match=re.escape("column 'n': 'abc' (b.csv, line 61) is not a number")):
        ingest(folder, out=tmp_path / "store")
    X.drop(columns="n").to_csv(folder / "b.csv", index=False)
    with pytest.raises(DataError, match=r"b.csv: has no column 'n'"):
        ingest(folder, out=tmp_path / "store")


def test_parts_that_store_a_column_in_different_ways_are_refused(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    frame(n=I).to_parquet(folder / "a.parquet")
    frame(n=I.astype(str)).to_parquet(folder / "b.parquet")
    with pytest.raises(DataError, match=r"column 'n' contains numbers in .*a.parquet and text or dates in .*b.parquet"):
        ingest(folder, out=tmp_path / "store")


def test_bad_rows_are_skipped_in_tables_of_numbers_only(tmp_path):
    frame().to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(ConfigError, match="bad rows can be skipped only in a table of plain numbers"):
        ingest(tmp_path / "x.csv", out=tmp_path / "store", skip_bad_rows=True)


def test_a_missing_column_is_a_note():
    table = raw_table(frame())
    encoding, _ = fit_encoding(table, find_types(table))
    with pytest.warns(DataWarning, match="has no column 'color': its cells count as missing"):
        encoding.encode(raw_table(frame().drop(columns="color")))


def test_times_of_day_of_all_libraries_are_the_same_and_so_are_those_of_timestamps():
    from datetime import datetime, time

    import polars as pl
    import pyarrow as pa

    times = [time(i % 24, 7 * i % 60) for i in I]
    other = {"size": [float(i % 9) for i in I]}
    texts = [str(value)[:5] for value in times]
    stamps = [datetime(2024, 1 + i % 12, 3, value.hour, value.minute) for i, value in enumerate(times)]
    expected, wide = fit_encoding(raw := raw_table(pd.DataFrame({"at": texts, **other})), find_types(raw))
    assert {row["name"]: row["type"] for row in expected.table} == {"at": "time", "size": "number"}
    assert {"at: time of day (cosine)", "at: time of day (sine)"} < set(expected.feature_names)
    for make_frame in (pd.DataFrame, pl.DataFrame, pa.table):
        table = raw_table(make_frame({"at": times, **other}))
        assert np.array_equal(fit_encoding(table, find_types(table))[1], wide)
        assert np.array_equal(expected.encode(table), wide)
    dated = raw_table(pd.DataFrame({"at": stamps, **other}))
    assert np.array_equal(fit_encoding(dated, find_types(dated, {"at": "time"}))[1], wide)
    with pytest.raises(DataError, match=r"'noon' is not a time like those in the training data \(row 0\)"):
        expected.encode(raw_table(pd.DataFrame({"at": ["noon", *texts[1:]], **other})))
