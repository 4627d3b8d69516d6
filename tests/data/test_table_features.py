"""Tables in: .csv, .tsv, .txt and .parquet files become features, ids and labels, or a line says what is wrong."""

import csv
import gzip
import sys
import warnings

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pamc.data.readers import open_table, read_features, read_graph
from pamc.data.readers.columns import integers_if_all
from pamc.data.readers.edges import first_ends
from pamc.data.readers.tables import Cell, is_integer_text, is_number_text
from pamc.errors import BackendError, ConfigError, DataWarning

PEOPLE = "name,age,income,group\nann,31,1.5,red\nbob,25,2.5,blue\ncyd,40,0.5,red\n"
WANTED = np.array([[31, 1.5], [25, 2.5], [40, 0.5]], dtype=np.float32)


@pytest.fixture
def people(write):
    return write("people.csv", PEOPLE)


def read_people(path):
    return read_graph(path, id_column="name", truth_column="group")


def assert_people(graph):
    assert graph.features.dtype == np.float32
    assert (graph.features == WANTED).all()
    assert graph.feature_names == ("age", "income")
    assert graph.ids.tolist() == ["ann", "bob", "cyd"]
    assert graph.labels.tolist() == [1, 0, 1]
    assert graph.edges is None
    assert graph.name == "people"


# What is read


def test_a_csv_gives_features_ids_and_labels(people):
    assert_people(read_people(people))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("people.tsv", PEOPLE.replace(",", "\t")),
        ("people.tab", PEOPLE.replace(",", "\t")),
        ("people.txt", PEOPLE.replace(",", "   ").replace("bob", "# a comment\n\n  bob")),
        ("people.csv", PEOPLE.replace(",", ";")),
        ("people.csv", PEOPLE.replace(",", "\t")),
        ("people.CSV", PEOPLE),
        ("people.csv", PEOPLE.rstrip("\n")),
        ("people.csv", "\n\n" + PEOPLE + "\n\n"),
        ("people.csv", PEOPLE.replace("\n", "\r\n")),
        ("people.csv", "\ufeff" + PEOPLE),
        ("people.csv", PEOPLE.replace("31,1.5", '"31","1.5"')),
        ("people.csv", PEOPLE.replace("25,2.5,", "  25 ,\t2.5  , ")),
        ("people.csv", PEOPLE.replace("name,age", "name, age")),
        ("people.csv.gz", gzip.compress(PEOPLE.encode(), mtime=0)),
        ("people.tsv.gz", gzip.compress(PEOPLE.replace(",", "\t").encode(), mtime=0)),
    ],
    ids=lambda value: value if isinstance(value, str) and "\n" not in value else "",
)
def test_delimiters_line_ends_marks_quotes_blanks_and_gz_do_not_matter(write, name, content):
    assert_people(read_people(write(name, content)))


def test_a_parquet_file_reads_like_the_csv(people, tmp_path):
    target = tmp_path / "people.parquet"
    duckdb.sql(f"COPY (SELECT * FROM read_csv('{people}')) TO '{target}' (FORMAT parquet)")
    assert_people(read_people(target))


def test_parquet_columns_keep_their_order_names_and_kinds(tmp_path):
    target = tmp_path / "kinds.parquet"
    columns = "1 AS a, 2.5::DECIMAL(4, 2) AS B, true AS flag, '7' AS text, 0.1::FLOAT AS f, 3::UTINYINT AS u"
    duckdb.sql(f"COPY (SELECT {columns}) TO '{target}' (FORMAT parquet)")
    graph = read_features(target)
    assert graph.feature_names == ("a", "B", "flag", "text", "f", "u")
    assert graph.features.tolist() == [[1, 2.5, 1, 7, np.float32(0.1), 3]]


def test_names_may_differ_in_case_alone(write, tmp_path):
    assert read_features(write("x.csv", "a,A\n1,2\n")).feature_names == ("a", "A")
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table([pyarrow.array([1.0]), pyarrow.array([2.0])], names=["a", "A"])
    parquet.write_table(table, tmp_path / "x.parquet")
    graph = read_features(tmp_path / "x.parquet")
    assert graph.feature_names == ("a", "A")
    assert graph.features.tolist() == [[1, 2]]


def test_nested_parquet_columns_are_no_features(tmp_path, refusal):
    target = tmp_path / "x.parquet"
    duckdb.sql(f"COPY (SELECT 1 AS a, {{'p': 1, 'q': [2]}} AS s, 3 AS b) TO '{target}' (FORMAT parquet)")
    assert "no feature column is left" in refusal(read_features, target)
    assert read_features(target, drop=["s"]).features.tolist() == [[1, 3]]


def test_columns_are_taken_in_the_order_given(people):
    graph = read_features(people, columns=["income", "age"])
    assert graph.feature_names == ("income", "age")
    assert (graph.features == WANTED[:, ::-1]).all()
    assert read_features(people, columns="age").feature_names == ("age",)


def test_dropped_columns_are_gone(people):
    assert read_features(people, drop=["name", "group", "age"]).feature_names == ("income",)


def test_double_precision_on_request(write):
    path = write("x.csv", "a\n0.1\n")
    assert read_features(path).features[0, 0] == np.float32(0.1)
    assert read_features(path, dtype="float64").features[0, 0] == 0.1


def test_another_dtype_is_refused(people, refusal):
    assert "'float32' or 'float64', got 'int8'" in refusal(read_features, people, dtype="int8", error=ConfigError)


def test_integer_ids_become_integers_and_padded_ones_stay_text(write):
    assert read_features(write("x.csv", "k,a\n10,1\n9,2\n"), id_column="k").ids.tolist() == [10, 9]
    assert read_features(write("y.csv", "k,a\n010,1\n9,2\n"), id_column="k").ids.tolist() == ["010", "9"]


def test_ids_too_large_for_64_bits_stay_text():
    huge = np.array(["99999999999999999999999"])
    assert integers_if_all(huge) is huge


def test_integer_truth_is_coded_in_numeric_order(write):
    path = write("x.csv", "a,t\n1,10\n2,9\n3,10\n")
    assert read_features(path, truth_column="t").labels.tolist() == [1, 0, 1]


def test_a_path_with_glob_marks_or_a_key_value_folder_is_taken_literally(tmp_path):
    folder = tmp_path / "year=2020"
    folder.mkdir()
    path = folder / "odd[1]*.csv"
    path.write_text("a,b\n1,2\n")
    assert read_features(path).feature_names == ("a", "b")


def test_a_quoted_line_break_belongs_to_the_cell(write):
    path = write("x.csv", '"k\n1",a\n"x\ny",1\nz,oops\n')
    assert read_features(write("y.csv", '"k\n1",a\n"x\ny",1\n'), id_column="k\n1").ids.tolist() == ["x\ny"]
    assert open_table(path).numbers(["a"])[1] == Cell(row=1, line=5, column="a", text="oops")


def test_many_columns_are_no_problem(write):
    names = ",".join(f"f{i}" for i in range(3000))
    path = write("wide.csv", names + "\n" + ",".join(map(str, range(3000))) + "\n")
    assert (read_features(path).features[0] == np.arange(3000)).all()


CELLS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)
IDS = CELLS.map(lambda text: text.strip(" \t")).filter(bool)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    table=hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=5),
        elements=st.floats(allow_nan=False, allow_infinity=False, width=32) | st.floats(-1e30, 1e30),
    ),
    data=st.data(),
)
def test_any_table_of_finite_floats_with_ids_is_read_back_exactly(tmp_path_factory, table, data):
    n_rows, n_columns = table.shape
    ids = data.draw(st.lists(IDS, min_size=n_rows, max_size=n_rows, unique=True))
    path = tmp_path_factory.mktemp("csv") / "table.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["key", *(f"f{i}" for i in range(n_columns))])
        writer.writerows([name, *row] for name, row in zip(ids, table.tolist(), strict=True))
    graph = read_features(path, id_column="key")
    assert (graph.features == table.astype(np.float32)).all()
    assert graph.ids.astype(str).tolist() == ids
    assert (read_features(path, id_column="key", dtype="float64").features == table).all()


# What is said


def test_a_first_line_of_numbers_is_data_and_this_is_said(write):
    with pytest.warns(DataWarning, match="first line contains only numbers, so it is read as data.*named c0, c1$"):
        graph = read_features(write("x.csv", "1,2\n3,4\n"))
    assert graph.features.tolist() == [[1, 2], [3, 4]]
    assert graph.feature_names == ("c0", "c1")


@pytest.mark.parametrize(("name", "option"), [("ID", "--id"), ("label", "--truth"), ("Class", "--truth")])
def test_a_number_column_named_like_an_id_or_a_class_is_warned_about(write, name, option):
    path = write("x.csv", f"a,{name}\n1,2\n3,4\n")
    with pytest.warns(DataWarning, match=f"column '{name}' is used as a feature; otherwise pass {option} {name}"):
        assert read_features(path).n_features == 2


@pytest.mark.parametrize("name", ["target", "y"])
def test_a_column_that_an_option_names_is_not_warned_about(write, name):
    path = write("x.csv", f"a,{name}\n1,2\n3,4\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_features(path, columns=["a", name]).n_features == 2
        assert read_features(path, truth_column=name).n_features == 1
        assert read_features(path, id_column=name).n_features == 1
        assert read_features(path, drop=[name]).n_features == 1


def test_a_column_without_a_name_gets_one_and_is_warned_about(write):
    path = write("x.csv", ",a\n0,5\n1,6\n")
    with pytest.warns(DataWarning, match="without a name is used as feature 'c0'; otherwise pass --drop c0"):
        assert read_features(path).feature_names == ("c0", "a")
    assert read_features(path, drop="c0").feature_names == ("a",)


# What is refused


def numbers_with(cell, sep="\n"):
    return sep.join(["a,b", *(f"{i},{i / 7:.3f}" for i in range(30)), f"31,{cell}", ""])


def test_all_stray_cells_of_a_file_are_named_with_value_line_and_ways_out(write, refusal):
    path = write("x.csv", numbers_with("oops").replace("\n5,", "\nbad,"))
    message = refusal(read_features, path)
    assert "2 problems: (1) column 'a': 'bad' (line 7) is not a number" in message
    assert "(2) column 'b': 'oops' (line 32) is not a number; correct or empty such cells" in message


def test_the_line_counts_blank_lines(write, refusal):
    assert "'x' (line 63)" in refusal(read_features, write("x.csv", numbers_with("x", sep="\n\n")))


@pytest.mark.parametrize("cell", ["", "  ", "NaN", "nan", "NA", "null", "None", "?", "-"])
def test_a_missing_cell_of_a_number_is_hidden_and_never_filled(write, cell):
    graph = read_features(write("x.csv", numbers_with(cell)))
    assert graph.encoding is None
    assert np.isnan(graph.features).sum() == 1
    assert np.isnan(graph.features[30, 1])


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e400"])
def test_an_infinite_cell_is_named(write, refusal, cell):
    assert f"column 'b': {cell!r} (line 32) is not a number" in refusal(
        read_features, write("x.csv", numbers_with(cell))
    )


def test_a_missing_parquet_cell_is_hidden(tmp_path):
    target = tmp_path / "x.parquet"
    duckdb.sql(f"COPY (SELECT unnest([1.0, NULL, 3.0]) AS a) TO '{target}' (FORMAT parquet)")
    assert np.isnan(read_features(target).features[:, 0]).tolist() == [False, True, False]


def test_a_number_too_large_for_float32_is_refused_and_fits_float64(write, refusal):
    path = write("x.csv", "a\n1e39\n")
    assert "1e39 is too large for float32" in refusal(read_features, path)
    assert read_features(path, dtype="float64").features[0, 0] == 1e39


def test_a_decimal_comma_is_read(write):
    graph = read_features(write("x.csv", "a;b\n1,5;2\n2,5;1\n"))
    assert graph.features.tolist() == [[1.5, 2.0], [2.5, 1.0]]


def test_digits_of_other_scripts_are_no_numbers_here(write, refusal):
    assert "no feature column is left" in refusal(read_features, write("x.csv", "a\n\u0663\n"))


@pytest.mark.parametrize(("row", "found"), [("3", 1), ("3,4,5", 3)])
def test_a_ragged_row_is_refused_with_its_line_and_both_counts(write, refusal, row, found):
    message = refusal(read_features, write("x.csv", f"a,b\n1,2\n{row}\n5,6\n"))
    assert f"line 3: expected 2 cells, found {found}" in message
    message = refusal(read_features, write("x.txt", f"a b\n1 2\n{row.replace(',', ' ')}\n5 6\n"))
    assert f"line 3: expected 2 cells, found {found}" in message


def test_an_empty_file_and_a_header_without_rows_are_refused(write, refusal):
    assert "is empty" in refusal(read_features, write("x.csv", ""))
    assert "is empty" in refusal(read_features, write("x.txt", "# nothing\n\n"))
    assert "is empty" in refusal(read_features, write("x.csv", "\n \n"))
    assert "header but no rows" in refusal(read_features, write("x.csv", "a,b\n"))


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path, refusal):
    assert "nowhere.csv: there is no such file" in refusal(read_features, tmp_path / "nowhere.csv")
    assert "is a folder" in refusal(read_features, tmp_path)


def test_an_unknown_ending_is_refused_with_the_known_ones(write, refusal):
    message = refusal(read_features, write("x.ods", "a"))
    assert "'.ods'" in message
    assert ".parquet" in message
    assert ".npz" in message
    assert "holds no features" in refusal(read_features, write("plain", "a"))
    assert "holds no table" in refusal(open_table, write("x.npy", "a"))


def test_duplicate_ids_and_duplicate_columns_are_refused(write, refusal):
    assert "'u'" in refusal(read_features, write("x.csv", "k,a\nu,1\nu,2\n"), id_column="k")
    assert "column name 'a' occurs 3 times" in refusal(read_features, write("x.csv", "a,b,a, a\n1,2,3,4\n"))


def test_a_row_without_id_or_truth_is_refused(write, refusal):
    path = write("x.csv", "k,a,t\nu,1,x\n,2,\n")
    message = refusal(read_features, path, id_column="k", drop="t")
    assert message == f"{path}: row 1 (line 3), column 'k': the cell is empty; every row needs an id"
    assert "column 't'" in refusal(read_features, path, truth_column="t", drop="k")


@pytest.mark.parametrize("option", ["id_column", "truth_column", "columns", "drop"])
def test_an_unknown_column_is_refused_with_the_near_miss(people, refusal, option):
    value = "incom" if option.endswith("column") else ["incom"]
    message = refusal(read_features, people, **{option: value})
    assert "'incom'" in message
    assert "did you mean 'income'?" in message


def test_an_unknown_column_of_a_wide_table_is_not_answered_with_all_names(write, refusal):
    path = write("x.csv", ",".join(f"f{i}" for i in range(50)) + "\n" + ",".join("1" * 50) + "\n")
    message = refusal(read_features, path, drop=["zzz"])
    assert "and 40 more" in message
    assert "did you mean" not in message


def test_a_column_named_by_two_options_is_refused(people, refusal):
    message = refusal(read_features, people, id_column="name", drop=["name"], error=ConfigError)
    assert "'name' is named by both --id and --drop" in message


def test_no_feature_column_left_is_refused(people, refusal):
    message = refusal(read_features, people, id_column="name", drop=["age", "income", "group"])
    assert "no feature column is left" in message
    assert "no feature column is left" in refusal(read_features, people, columns=[])


def test_bytes_that_are_not_utf8_are_refused_with_their_line(write, refusal):
    assert "line 3: not UTF-8" in refusal(read_features, write("x.csv", b"a,b\n1,2\n\xff\xfe,3\n"))
    assert "line 2: not UTF-8" in refusal(read_features, write("x.csv.gz", gzip.compress(b"a,b\n\xe9,3\n")))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", "a,größe\n1,2\n".encode("utf-16")),
        ("x.csv.gz", gzip.compress("a,größe\n1,2\n".encode("utf-16"), mtime=0)),
        ("x.tsv", "a\tgröße – cm\n1\t2\n".encode("cp1252")),
    ],
)
def test_a_file_in_another_encoding_is_read_and_noted(write, name, content):
    with pytest.warns(DataWarning, match="is not UTF-8 text and is read as (UTF-16|Windows-1252)"):
        graph = read_features(write(name, content))
    assert graph.feature_names[1].startswith("größe")
    assert graph.features.tolist() == [[1.0, 2.0]]


def test_a_badly_quoted_cell_is_refused_with_its_line(write, refusal):
    assert "line 3: a cell is badly quoted" in refusal(read_features, write("x.csv", 'a,b\n1,2\n"3"x,4\n'))
    assert "badly quoted" in refusal(read_features, write("x.csv", 'a,b\n1,"2\n3,4\n'))


def test_line_ends_of_two_kinds_are_refused_with_that_guess(write, refusal):
    assert "mixed line endings" in refusal(read_features, write("x.csv", "a,b\r\n1,2\n3,4\r\n"))


@pytest.mark.parametrize("cut", [1, 12, 30])
def test_a_truncated_gz_is_refused(write, refusal, cut):
    whole = gzip.compress(PEOPLE.encode())
    assert "x.csv.gz" in refusal(read_features, write("x.csv.gz", whole[:-cut]), drop=["name", "group"])


def test_a_file_that_is_no_gz_or_no_parquet_is_refused(write, refusal):
    assert "x.csv.gz: is damaged, or not compressed by gzip" in refusal(read_features, write("x.csv.gz", "a,b\n1,2\n"))
    assert "x.parquet: cannot be read as .parquet; damaged?" in refusal(read_features, write("x.parquet", "a,b\n1,2\n"))


def test_a_truncated_parquet_is_refused(people, tmp_path, refusal):
    target = tmp_path / "x.parquet"
    duckdb.sql(f"COPY (SELECT * FROM read_csv('{people}')) TO '{target}' (FORMAT parquet)")
    target.write_bytes(target.read_bytes()[:-20])
    assert "x.parquet: cannot be read" in refusal(read_features, target)


def test_duplicate_parquet_columns_are_refused(tmp_path, refusal):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table([pyarrow.array([1.0]), pyarrow.array([2.0])], names=["a", "a"])
    parquet.write_table(table, tmp_path / "x.parquet")
    assert "column name 'a' occurs 2 times" in refusal(read_features, tmp_path / "x.parquet")


def test_without_duckdb_the_error_says_what_to_install(people, monkeypatch, refusal):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert "pip install duckdb" in refusal(read_features, people, drop=["name", "group"], error=BackendError)


# The parts


def test_what_counts_as_a_number_and_as_a_whole_number():
    assert [is_number_text(text) for text in ("1", " 2.5e3 ", "nan", "", "x")] == [True, True, True, False, False]
    assert [is_integer_text(text) for text in (" 7 ", "-7", "7.0", "7.5", "1e3", "")] == [True] * 3 + [False] * 3


def test_the_first_cells_are_those_of_the_first_line_with_any(write):
    assert first_ends(write("x.csv", "\n a;b\n1;2\n")) == ["a", "b"]


def test_a_table_can_be_told_whether_it_has_a_header(write):
    path = write("x.csv", "1,2\n3,4\n")
    assert open_table(path, header=True).names == ("1", "2")
    assert open_table(write("y.csv", "a,b\n"), header=False).names == ("c0", "c1")


def test_whole_numbers_of_64_bits_are_read_exactly(write):
    table = open_table(write("x.csv", "a\n9007199254740993\n7.0\n"))
    assert table.numbers(["a"], dtype="int64")[0].tolist() == [[9007199254740993], [7]]
    wrong = open_table(write("y.csv", "a\n1\n1.5\n")).numbers(["a"], dtype="int64")[1]
    assert wrong == Cell(row=1, line=3, column="a", text="1.5")


def test_a_blank_line_is_an_empty_cell_where_there_is_one_column(write):
    assert np.isnan(read_features(write("x.csv", "a\n1\n\n3\n")).features[:, 0]).tolist() == [False, True, False]
