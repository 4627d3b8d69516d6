"""The rows of requests become inputs of the model, or an error with the status of the answer."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pamc.serving.schema import DATE, NUMBER, TEXT, Column, RequestError, Schema

PLAIN = Schema((Column("0"), Column("1")), is_plain=True, has_names=False)
NAMED = Schema((Column("age"), Column("size")), is_plain=True, has_names=True)
MIXED = Schema(
    (Column("age", NUMBER), Column("since", DATE), Column("plan", TEXT, ("a", "b"))), is_plain=False, has_names=True
)


def in_parquet(**columns):
    file = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), file)
    return file.getvalue().to_pybytes()


def test_lists_objects_and_files_give_the_same_inputs():
    expected = [[1.5, 2], [np.nan, 4]]
    for schema, body in ((PLAIN, [[1.5, 2], [None, 4]]), (NAMED, [{"age": 1.5, "size": 2}, {"size": 4, "age": None}])):
        for content in (body, {"rows": body}):
            values = schema.from_json(json.dumps(content).encode(), max_rows=9)["X"]
            np.testing.assert_array_equal(values, np.array(expected, dtype=np.float32))
    file = in_parquet(size=[2, 4], age=[1.5, None], other=["x", "y"])
    np.testing.assert_array_equal(NAMED.from_parquet(file, max_rows=9)["X"], np.array(expected, dtype=np.float32))


def test_cells_of_a_mixed_table_are_numbers_seconds_and_texts():
    rows = [{"age": 3, "since": "1970-01-02", "plan": "a"}, {"since": "1970-01-01T01:00:00+01:00", "plan": 7.0}, {}]
    inputs = MIXED.from_json(json.dumps(rows).encode(), max_rows=9)
    np.testing.assert_array_equal(inputs["age"][:, 0], [3, np.nan, np.nan])
    np.testing.assert_array_equal(inputs["since"][:, 0], [86400, 0, np.nan])
    assert inputs["plan"][:, 0].tolist() == ["a", "7", ""]
    days = np.array(["1970-01-02", "NaT"], dtype="M8[D]")
    from_file = MIXED.from_parquet(in_parquet(since=days, plan=["b", None]), max_rows=9)
    np.testing.assert_array_equal(from_file["since"][:, 0], [86400, np.nan])
    assert np.isnan(from_file["age"]).all()
    assert from_file["plan"][:, 0].tolist() == ["b", ""]


@pytest.mark.parametrize(
    ("schema", "body", "status", "message"),
    [
        (PLAIN, b"{", 400, "not JSON"),
        (PLAIN, b"\xff", 400, "not JSON"),
        (PLAIN, b"[" * 100_000, 400, "not JSON"),
        (PLAIN, b"3", 422, "must be a list of rows"),
        (PLAIN, b'{"rows": [[1, 2]], "path": "x"}', 422, "must be a list of rows"),
        (PLAIN, b"[]", 422, "no rows"),
        (PLAIN, b"[[1, 2], [1]]", 422, "row 1 has 1 values, expected 2"),
        (PLAIN, b'[[1, "x"]]', 422, "row 0, column 1 must be a number or null, got 'x'"),
        (PLAIN, b"[[1, true]]", 422, "must be a number"),
        (PLAIN, b"[[1, 1e999]]", 422, "infinite or too large"),
        (PLAIN, b"[[1, 1e39]]", 422, "infinite or too large"),
        (PLAIN, b"[[1, " + b"9" * 400 + b"]]", 422, "too large"),
        (PLAIN, b'[{"0": 1}]', 422, "columns have no names"),
        (PLAIN, b"[[1, 2]] " * 1, 200, ""),
        (PLAIN, json.dumps([[1, 2]] * 10).encode(), 413, "10 rows are more than the limit of 9"),
        (NAMED, b'[{"age": 1}]', 422, "row 0 has no column 'size'"),
        (NAMED, b'[{"age": 1, "size": 2, "x": 3}]', 422, "unknown column 'x'"),
        (MIXED, b'[{"since": "soon"}]', 422, "must be an ISO date"),
        (MIXED, b'[{"plan": []}]', 422, "must be a text"),
    ],
)
def test_what_is_wrong_is_refused_with_its_status(schema, body, status, message):
    if status == 200:
        assert schema.from_json(body, max_rows=9)["X"].shape == (1, 2)
        return
    with pytest.raises(RequestError, match=message) as refused:
        schema.from_json(body, max_rows=9)
    assert refused.value.status == status


def test_files_that_are_no_parquet_or_have_other_columns_are_refused():
    for schema, body, status in (
        (NAMED, b"PAR1 no", 400),
        (NAMED, in_parquet(other=[1]), 422),
        (NAMED, in_parquet(age=[1]), 422),
        (NAMED, in_parquet(age=["x"], size=[1]), 422),
        (PLAIN, in_parquet(a=[1.0]), 422),
        (PLAIN, in_parquet(a=[1.0] * 10, b=[1.0] * 10), 413),
    ):
        with pytest.raises(RequestError) as refused:
            schema.from_parquet(body, max_rows=9)
        assert refused.value.status == status
