"""The encoding of a table: columns of typed variables, fitted once and applied to new rows.

The encoding is stored with the model, so that new rows are encoded from the same raw columns. Missing cells, values
that do not occur in the training data, and missing columns become NaN.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.columns.raw import MISSING_NUMBERS, RawColumn, RawTable
from pamc.data.columns.types import (
    CATEGORY,
    DATE,
    GIVEN,
    NUMBER,
    TEXT,
    TIME,
    ColumnError,
    ColumnType,
    Embed,
    Types,
    listed_problems,
)
from pamc.data.columns.variable import MISSING, Variable, Wide, fit_embedding, fit_variable, with_missing
from pamc.errors import ConfigError, DataError, DataWarning, warn

# Empty cells of a category are a value of their own if their share lies between these bounds and if they are correlated
# with an encoded column of another variable: at least this strongly, and more than in any of so many shuffles.
_LEAST_EMPTY, _MOST_EMPTY, _LEAST_CORRELATION, _N_SHUFFLES = 0.05, 0.95, 0.3, 99
# Maximum number of rows that are compared, and the correlation from which two columns are empty in the same rows.
_MOST_COMPARED, _SAME_ROWS = 5000, 0.7
_IS_INFORMATIVE = (
    f"empty cells count as a value, because they depend on other columns; the type {CATEGORY} imputes them"
)


@dataclass(frozen=True)
class TableEncoding:
    """The encoding of a table.

    Parameters
    ----------
    variables
        The encoded variables. Unless all are numbers, they are sorted by a hash of their values, so that the order of
        the columns in the table does not matter.
    id_column
        Column of the row ids, or None.
    table
        One row per column of the training table, in its order, with the keys `name`, `type`, `encoding`, `missing`,
        `example` and `note`.
    types
        Types set by the user, by column name.
    """

    variables: tuple[Variable, ...]
    id_column: str | None
    table: tuple[dict[str, Any], ...]
    types: dict[str, str | list[str]] = field(default_factory=dict)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(name for variable in self.variables for name in variable.columns)

    @cached_property
    def raw_names(self) -> tuple[str, ...]:
        """Names of the raw columns that are features, in the order of the training table."""
        encoded = {variable.name for variable in self.variables}
        return tuple(row["name"] for row in self.table if row["name"] in encoded)

    @cached_property
    def variable_of(self) -> NDArray[np.int64]:
        """(d,) index of the variable that each encoded column belongs to."""
        return np.repeat(np.arange(len(self.variables)), [len(variable.columns) for variable in self.variables])

    @cached_property
    def is_number(self) -> NDArray[np.bool_]:
        """(d,) whether each encoded column is a number, which may have outliers."""
        return np.array([self.variables[i].kind == NUMBER for i in self.variable_of], dtype=bool)

    def encode(self, table: RawTable) -> Wide:
        """Return the encoded columns (N, d) of new rows, NaN for missing cells.

        Columns are matched by name and may be in any order. A missing column is encoded as NaN, with a warning;
        additional columns are ignored.
        """
        missing = [name for name in self.raw_names if name not in table]
        if len(missing) == len(self.variables):
            raise DataError(
                f"{table.source}: has none of the columns the model was fitted on: {', '.join(self.raw_names[:5])}"
            )
        if missing:
            listed = ", ".join(map(repr, missing[:5]))
            which = f"column {listed}: its" if len(missing) == 1 else f"columns {listed}: their"
            warn(DataWarning(f"{table.source}: has no {which} cells count as missing"), stacklevel=2)
        parts, problems = [], []
        for variable in self.variables:
            try:
                unknown = np.full((table.n_rows, len(variable.columns)), np.nan, dtype=np.float32)
                parts.append(variable.values(table[variable.name]) if variable.name in table else unknown)
            except ColumnError as problem:
                problems.append(f"column {variable.name!r}: {problem}{_located(problem, table, variable.name)}")
        if problems:
            raise DataError(f"{table.source}: {listed_problems(problems)}")
        return np.concatenate(parts, axis=1)

    def cells_of(self, table: RawTable) -> dict[str, NDArray[Any]]:
        """Return the cells (N,) of the features as the table has them: texts (None if missing), numbers or dates."""
        return {name: _cells(table[name]) for name in self.raw_names if name in table}

    def to_dict(self) -> dict[str, Any]:
        """Return the encoding as plain values, without the functions that embed texts."""
        plain = asdict(replace(self, variables=tuple(replace(variable, embed=None) for variable in self.variables)))
        for variable in plain["variables"]:
            del variable["embed"]
        return plain

    def with_functions(self, types: Types | None) -> TableEncoding:
        """Return the encoding with the functions among `types` that embed the texts of columns."""
        functions = {name: kind for name, kind in (types or {}).items() if callable(kind)}
        embedded = {variable.name for variable in self.variables if variable.is_embedded}
        if set(types or {}) - embedded or len(functions) < len(types or {}):
            raise ConfigError(
                "types takes functions that embed texts, for the columns "
                f"that were embedded in the training data: {', '.join(map(repr, sorted(embedded))) or 'none'}"
            )
        variables = (replace(v, embed=functions[v.name]) if v.name in functions else v for v in self.variables)
        return replace(self, variables=tuple(variables))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TableEncoding:
        """Return the encoding from the values that :meth:`to_dict` returns."""
        described: list[dict[str, Any]] = values["variables"]
        variables = []
        for variable in described:
            fields: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in variable.items()}
            variables.append(Variable(**fields))
        return cls(tuple(variables), values["id_column"], tuple(values["table"]), values.get("types", {}))


def fit_encoding(
    table: RawTable, columns: Sequence[ColumnType], types: Types | None = None
) -> tuple[TableEncoding, Wide]:
    """Return the encoding of a table with the given column types, and its encoded rows (N, d).

    `types` are the types set by the user, which are recorded in the encoding.
    """
    encoded: list[tuple[Variable, Wide]] = []
    notes = {column.name: [column.note] if column.note else [] for column in columns}
    for column in columns:
        if column.is_feature:
            embed = (types or {}).get(column.name)
            variable = fit_embedding(column, embed) if callable(embed) else fit_variable(column)
            if variable is None:
                notes[column.name] = ["left out: no value occurs in two rows or more"]
            else:
                encoded.append((variable, variable.values(table[column.name])))
    if not encoded:
        raise DataError(f"{table.source}: no feature column is left; {_why_left_out(notes)}")
    encoded, informative = _with_informative_gaps(table, encoded, columns)
    if any(variable.kind != NUMBER for variable, _ in encoded):
        encoded.sort(key=lambda pair: hashlib.sha256(pair[1].tobytes()).digest())
    by_name = {variable.name: variable for variable, _ in encoded}
    ids = [column.name for column in columns if column.kind == "id"]
    for name in informative:
        notes[name].append(_IS_INFORMATIVE)
    rows = tuple(_described(table[c.name], c, by_name.get(c.name), "; ".join(notes[c.name]) or None) for c in columns)
    given = {name: _plain_type(kind) for name, kind in (types or {}).items()}
    encoding = TableEncoding(tuple(variable for variable, _ in encoded), ids[0] if ids else None, rows, given)
    return encoding, np.concatenate([wide for _, wide in encoded], axis=1)


def _plain_type(kind: str | Sequence[str] | Embed) -> str | list[str]:
    """Return a type that the user set as plain values; a function cannot be saved."""
    return TEXT if callable(kind) else kind if isinstance(kind, str) else list(kind)


def _with_informative_gaps(
    table: RawTable, encoded: Sequence[tuple[Variable, Wide]], columns: Sequence[ColumnType]
) -> tuple[list[tuple[Variable, Wide]], list[str]]:
    """Return the variables, in which empty cells of a category may be a value of their own, and the names of these.

    They are such a value if they depend on the other columns, as "?" for "does not apply" does; empty cells that are
    unrelated to all other columns say nothing about a row. Of several columns that are empty in the same rows, one has
    this value, so that it counts once. The type `category` set by the user means that empty cells are missing.
    """
    is_given = {column.name for column in columns if column.is_given}
    empty = {
        number: np.isnan(wide[:: _step_of(wide), 0])
        for number, (variable, wide) in enumerate(encoded)
        if variable.kind == CATEGORY and variable.name not in is_given and MISSING not in variable.levels
    }
    empty = {number: mask for number, mask in empty.items() if _LEAST_EMPTY <= mask.mean() <= _MOST_EMPTY}
    if not empty:
        return list(encoded), []
    others = _standardized(encoded)
    variable_of = np.repeat(np.arange(len(encoded)), [len(variable.columns) for variable, _ in encoded])
    strength = {number: _relation(mask, others[:, variable_of != number]) for number, mask in empty.items()}
    chosen: list[int] = []
    for number in sorted((number for number in empty if strength[number] > 0), key=lambda number: -strength[number]):
        if all(abs(np.corrcoef(empty[number], empty[other])[0, 1]) < _SAME_ROWS for other in chosen):
            chosen.append(number)
    result = list(encoded)
    for number in chosen:
        variable = with_missing(encoded[number][0])
        result[number] = (variable, variable.values(table[variable.name]))
    return result, [encoded[number][0].name for number in chosen]


def _step_of(wide: Wide) -> int:
    """Return the distance between the rows that are compared."""
    return max(1, -(-len(wide) // _MOST_COMPARED))


def _standardized(encoded: Sequence[tuple[Variable, Wide]]) -> NDArray[np.float64]:
    """Return columns of length 1 and mean 0 of the compared rows, with 0 for missing cells; numbers as ranks."""
    from scipy.stats import rankdata

    parts = []
    for variable, wide in encoded:
        values = wide[:: _step_of(wide)].astype(np.float64)
        if variable.kind == NUMBER:
            values = rankdata(values, axis=0, nan_policy="omit")
        known = ~np.isnan(values)
        n_known = np.maximum(known.sum(axis=0), 1)
        centered = np.where(known, values - np.where(known, values, 0.0).sum(axis=0) / n_known, 0.0)
        norm = np.sqrt(np.square(centered).sum(axis=0))
        parts.append(np.divide(centered, norm, out=np.zeros_like(centered), where=norm > 0))
    return np.concatenate(parts, axis=1)


def _relation(is_empty: NDArray[np.bool_], others: NDArray[np.float64]) -> float:
    """Return the correlation of a mask (N,) with the most similar of (N, d) columns, or 0 if it may be chance."""
    mask = is_empty - is_empty.mean()
    mask /= np.sqrt(np.square(mask).sum())
    correlation = float(np.abs(mask @ others).max(initial=0.0))
    if correlation < _LEAST_CORRELATION:
        return 0.0
    rng = np.random.default_rng(0)
    by_chance = max(np.abs(rng.permutation(mask) @ others).max() for _ in range(_N_SHUFFLES))
    return correlation if correlation > by_chance else 0.0


def _located(problem: ColumnError, table: RawTable, name: str) -> str:
    """Return the location of the cell that a problem is about, for its message."""
    if problem.text is None:
        return ""
    texts, codes = table[name].distinct
    return f" ({table.where(int(np.flatnonzero(codes == texts.index(problem.text))[0]))})"


def _cells(column: RawColumn) -> NDArray[Any]:
    if column.texts is None:
        cells: Any = column.dates if column.numbers is None else column.numbers
        return np.asarray(cells)
    texts, codes = column.distinct
    return np.array([*texts, None], dtype=object)[codes]


def _why_left_out(notes: Mapping[str, list[str]]) -> str:
    return "; ".join(f"{name!r} {'; '.join(texts) or 'is not a feature'}" for name, texts in [*notes.items()][:5])


def _described(
    column: RawColumn, column_type: ColumnType, variable: Variable | None, note: str | None
) -> dict[str, Any]:
    """Return one row of the table that `pamc describe` prints."""
    texts, codes = column.distinct
    is_left_out = variable is None and column_type.kind != "id"
    has_codes = column_type.values is None or is_left_out or column_type.kind == GIVEN
    missing = (codes < 0) if has_codes else column_type.missing
    is_numeric = column_type.kind in (NUMBER, DATE, TIME)
    examples = (text for text in texts if not (is_numeric and text.lower() in MISSING_NUMBERS))
    return {
        "name": column_type.name,
        "type": "left out" if is_left_out else column_type.kind,
        "encoding": "row names" if column_type.kind == "id" else "–" if variable is None else variable.encoded_as,
        "missing": float(missing.mean()) if len(missing) else 0.0,
        "example": next(examples, ""),
        "note": note,
    }
