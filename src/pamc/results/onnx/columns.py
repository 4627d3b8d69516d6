"""The columns of a table as inputs of an ONNX graph, encoded as in :mod:`pamc.data.columns.encoding`.

Numbers, dates and times (in seconds since 1970 or midnight) are double tensors, NaN if missing; all other columns are
texts, "" if missing. A value that does not occur in the training data is handled as in `predict`; but the graph
cannot raise an error if most values do not occur.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pamc.data.columns.encoding import TableEncoding
from pamc.data.columns.parsing import NO_WORDS, YES_WORDS
from pamc.data.columns.raw import MISSING_ANYWHERE
from pamc.data.columns.types import CATEGORY, DATE, GIVEN, NUMBER, ORDERED, TEXT, TIME
from pamc.data.columns.variable import MISSING, OTHER, Variable
from pamc.errors import ConfigError
from pamc.results.onnx.builder import GraphBuilder

NUMERIC = (NUMBER, DATE, TIME)

_SECONDS_PER_DAY, _SECONDS_PER_YEAR = 86400.0, 86400.0 * 365.2425
_MISSING = -1.0


def encode_table(graph: GraphBuilder, encoding: TableEncoding) -> str:
    """Add one input per column of a table, and return its encoded columns (n, d) as float32."""
    texts = [variable.name for variable in encoding.variables if variable.kind == TEXT]
    if texts:
        raise ConfigError(
            f"column {texts[0]!r} is free text, whose words an ONNX graph cannot count as pamc does: fit with "
            f"types={{{texts[0]!r}: 'ignore'}} to export the model"
        )
    parts = {variable.name: _encoded(graph, variable) for variable in encoding.variables}
    return graph.add("Concat", *(parts[variable.name] for variable in encoding.variables), axis=1)


def described_columns(encoding: TableEncoding | None, names: Any) -> list[dict[str, Any]] | None:
    """Return the names and types of the columns, and the values of categories; None for numbers without names."""
    if encoding is None:
        return None if names is None else [{"name": str(name), "type": "number"} for name in names]
    kinds = {NUMBER: "number", DATE: "date"}
    columns = []
    for variable in encoding.variables:
        known = [level for level in variable.levels if level not in (MISSING, OTHER)]
        values = {"values": known} if variable.kind in (CATEGORY, ORDERED) else {}
        columns.append({"name": variable.name, "type": kinds.get(variable.kind, "text"), **values})
    return columns


def _encoded(graph: GraphBuilder, variable: Variable) -> str:
    """Add the input of a column and return its encoded columns (n, number of columns) as float32."""
    if variable.kind in NUMERIC:
        column = graph.input(variable.name, np.float64, 1)
        return graph.cast(column if variable.kind == NUMBER else _date_parts(graph, variable, column), np.float32)
    column = graph.input(variable.name, object, 1)
    if variable.kind == CATEGORY:
        return _indicators(graph, variable, column)
    nothing = float("nan")
    if variable.kind == GIVEN:
        return graph.lookup(column, dict.fromkeys(_spellings(MISSING_ANYWHERE), 0.0), 1.0)
    if variable.kind == ORDERED:
        return graph.lookup(column, {level: float(rank) for rank, level in enumerate(variable.levels)}, nothing)
    no, yes = _spellings(NO_WORDS), _spellings(YES_WORDS)
    return graph.lookup(column, dict.fromkeys(no, 0.0) | dict.fromkeys(yes, 1.0), nothing)


def _indicators(graph: GraphBuilder, variable: Variable, column: str) -> str:
    """Return one column per value of a category, NaN if the value is unknown or, unless it counts as one, missing."""
    place = {level: float(number) for number, level in enumerate(variable.levels)}
    missing = dict.fromkeys(_spellings(MISSING_ANYWHERE), place.get(MISSING, _MISSING))
    places = graph.lookup(column, {**missing, **place}, place.get(OTHER, _MISSING))
    number = graph.constant(np.arange(len(place))[None], np.float32)
    indicators = graph.cast(graph.add("Equal", places, number), np.float32)
    is_missing = graph.add("Less", places, graph.constant(0.0, np.float32))
    return graph.add("Where", is_missing, graph.constant(np.nan, np.float32), indicators)


def _date_parts(graph: GraphBuilder, variable: Variable, seconds: str) -> str:
    """Return the year, season and time of day of dates."""
    year = graph.add("Add", graph.add("Div", seconds, _double(graph, _SECONDS_PER_YEAR)), _double(graph, 1970.0))
    days = graph.add("Div", seconds, _double(graph, _SECONDS_PER_DAY))
    turns = {"season": _fraction(graph, year), "time of day": _fraction(graph, days)}
    parts = [year if part == "year" else _wave(graph, part, turns) for part in variable.levels]
    return graph.add("Concat", *parts, axis=1)


def _wave(graph: GraphBuilder, part: str, turns: dict[str, str]) -> str:
    """Return the sine or cosine of a turn, such as "season (cosine)"."""
    name, _, function = part.rstrip(")").partition(" (")
    angle = graph.add("Mul", turns[name], _double(graph, 2 * math.pi))
    # cos(x) = sin(x + π/2): onnxruntime has no cosine of double precision.
    quarter = _double(graph, math.pi / 2 if function == "cosine" else 0.0)
    return graph.add("Sin", graph.add("Add", angle, quarter))


def _fraction(graph: GraphBuilder, value: str) -> str:
    return graph.add("Sub", value, graph.add("Floor", value))


def _double(graph: GraphBuilder, value: float) -> str:
    return graph.constant(value, np.float64)


def _spellings(texts: object) -> list[str]:
    """Return texts in lower case, upper case, capitalized, and as common programs write them."""
    lower = sorted(texts)  # type: ignore[call-overload]
    more = ["NaN", "NaT"] if "nan" in lower else []
    return list(dict.fromkeys([*lower, *(f(text) for text in lower for f in (str.upper, str.capitalize)), *more]))
