"""Typed columns are encoded in their own units, stored with the model, and read again from raw columns."""

import json

import numpy as np
import pytest

from pamc.data.columns.encoding import TableEncoding, fit_encoding
from pamc.data.columns.types import find_types
from pamc.data.columns.variable import OTHER
from pamc.data.preprocessing import fit_preprocessing
from pamc.errors import DataError, DataWarning
from tests.columns.conftest import table

N = 200


@pytest.fixture(scope="module")
def cells():
    rng = np.random.default_rng(0)
    return {
        "income": [f"{value:,.0f}" for value in 40_000 + 9000 * rng.normal(size=N)],
        "city": [f"city {number}" for number in rng.integers(30, size=N)],
        "member": ["yes" if value else "no" for value in rng.random(N) < 0.3],
        "since": [f"{2015 + year}-{month:02d}-01" for year, month in rng.integers((0, 1), (9, 13), size=(N, 2))],
        "comment": [f"{word} product and very {word} delivery" for word in rng.choice(["good", "bad", "late"], N)],
    }


@pytest.fixture(scope="module")
def fitted(cells):
    raw = table(**cells)
    return fit_encoding(raw, find_types(raw, {"comment": "text"}))


def test_values_are_encoded_in_their_own_units(fitted, cells):
    encoding, wide = fitted
    column = {name: wide[:, i] for i, name in enumerate(encoding.feature_names)}
    assert column["income"][0] == float(cells["income"][0].replace(",", ""))
    assert set(column["member"].tolist()) == {0.0, 1.0}
    assert 2014 < column["since: year"].min() < column["since: year"].max() < 2025
    assert column[f"city = {cells['city'][0]}"][0] == 1


def test_the_encoding_survives_json_bitwise(fitted, cells):
    encoding, wide = fitted
    restored = TableEncoding.from_dict(json.loads(json.dumps(encoding.to_dict())))
    assert restored == encoding
    assert np.array_equal(restored.encode(table(**cells)), wide)


def test_every_variable_counts_as_one_however_many_values_it_has(fitted):
    encoding, wide = fitted
    scaled = fit_preprocessing(wide, table=encoding).apply(wide)
    variance = np.bincount(encoding.variable_of, scaled.var(axis=0))
    counts = {variable.name: value for variable, value in zip(encoding.variables, variance, strict=True)}
    assert counts.pop("city") < 10
    assert all(0.9 < value < 1.1 for value in counts.values())


def test_an_outlier_does_not_decide():
    values = [str(i / 10) for i in range(40)]
    raw = table(x=[*values, "1e9"], c=["a", "b"] * 20 + ["a"])
    encoding, wide = fit_encoding(raw, find_types(raw))
    column = encoding.feature_names.index("x")
    scaled = fit_preprocessing(wide, table=encoding).apply(wide)[:, column]
    assert scaled.max() < 6
    assert np.ptp(scaled[:40]) > 2


def test_rare_values_are_pooled_and_unseen_ones_join_them():
    raw = table(c=["a"] * 10 + ["b"] * 10 + ["x", "y", "z"], d=["u", "v"] * 11 + ["u"])
    encoding, _ = fit_encoding(raw, find_types(raw))
    levels = {variable.name: variable.levels for variable in encoding.variables}
    assert levels == {"c": ("a", "b", OTHER), "d": ("u", "v")}
    wide = encoding.encode(table(c=["new", "a", None], d=["new", None, "v"]))
    column = {name: wide[:, i].tolist() for i, name in enumerate(encoding.feature_names)}
    assert column[f"c = {OTHER}"][:2] == [1, 0]
    assert np.isnan(column["d = u"][:2]).all()
    assert np.isnan(column["c = a"][2])


def test_new_rows_may_lack_a_column_with_a_note_and_have_others(fitted, cells):
    encoding, wide = fitted
    fewer = {name: values for name, values in cells.items() if name != "city"}
    with pytest.warns(DataWarning, match="has no column 'city'"):
        encoded = encoding.encode(table(another=["?"] * N, **fewer))
    hidden = np.array([name.startswith("city") for name in encoding.feature_names])
    assert np.isnan(encoded[:, hidden]).all()
    assert np.array_equal(encoded[:, ~hidden], wide[:, ~hidden])


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("income", "much", "'much' is not a number with a decimal point"),
        ("income", "1.200,50", "is not a number with a decimal point"),
        ("member", "maybe", "'maybe' is neither yes nor no"),
        ("since", "last week", "'last week' is not a date like those in the training data"),
        ("city", [f"land {i}" for i in range(N)], "other values do not occur in the training data"),
    ],
)
def test_a_column_of_another_type_is_refused(fitted, cells, column, value, says):
    values = value if isinstance(value, list) else [value, *cells[column][1:]]
    with pytest.raises(DataError) as caught:
        fitted[0].encode(table(**{**cells, column: values}))
    assert f"column {column!r}: " in str(caught.value)
    assert says in str(caught.value)


def test_a_table_without_any_of_the_columns_is_refused(fitted):
    with pytest.raises(DataError, match="has none of the columns"):
        fitted[0].encode(table(x=["1"]))


def with_gaps(which, n_rows=400):
    """Return a table whose steel is empty in some rows: if the form is a coil ("depend"), or anywhere."""
    rng = np.random.default_rng(0)
    form = rng.choice(["coil", "sheet"], n_rows)
    is_empty = (form == "coil") & (rng.random(n_rows) < 0.8) if which == "depend" else rng.random(n_rows) < 0.4
    steel = np.where(is_empty, None, rng.choice(["A", "R", "S"], n_rows))
    return table(form=form, steel=steel, width=[f"{value:.2f}" for value in rng.normal(size=n_rows)]), is_empty


def test_empty_cells_of_a_category_that_depend_on_other_columns_are_a_value():
    raw, is_empty = with_gaps("depend")
    encoding, wide = fit_encoding(raw, find_types(raw))
    columns = {name: wide[:, i] for i, name in enumerate(encoding.feature_names)}
    assert np.array_equal(columns["steel is missing"] == 1, is_empty)
    assert not np.isnan(wide).any()
    row = next(row for row in encoding.table if row["name"] == "steel")
    assert row["encoding"] == "4 columns, one per value, one for empty cells"
    assert "depend on other columns" in row["note"]
    assert row["missing"] == pytest.approx(is_empty.mean())
    with pytest.warns(DataWarning, match="has no column 'steel'"):
        unknown = encoding.encode(table(form=["coil"], width=["1"]))
    assert np.isnan(unknown[0, list(columns).index("steel is missing")])


@pytest.mark.parametrize(("which", "types"), [("random", None), ("depend", {"steel": "category"})])
def test_other_empty_cells_are_missing(which, types):
    raw, is_empty = with_gaps(which)
    encoding, wide = fit_encoding(raw, find_types(raw, types))
    assert "steel is missing" not in encoding.feature_names
    assert np.array_equal(np.isnan(wide).any(axis=1), is_empty)


def test_of_columns_that_are_empty_in_the_same_rows_one_has_a_value_for_empty_cells():
    raw, is_empty = with_gaps("depend")
    grade = np.where(is_empty, None, np.random.default_rng(1).choice(["x", "y"], len(is_empty)))
    both = table(**{column.name: column.texts for column in raw.columns}, grade=grade)
    names = fit_encoding(both, find_types(both))[0].feature_names
    assert sum(name.endswith("is missing") for name in names) == 1
