"""Decode the columns of the user's table: values in their original units, never imputed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.columns.encoding import TableEncoding
from pamc.data.columns.raw import number_text
from pamc.data.columns.types import BOOLEAN, CATEGORY, DATE, GIVEN, NUMBER, ORDERED, TEXT, TIME
from pamc.data.columns.variable import MISSING, Variable, words_of
from pamc.report.wording import NumberFormat, clock_text, date_text

_SECONDS_PER_DAY, _DAYS_PER_YEAR = 86400, 365.2425
_TIME_OF_DAY = "time of day (cosine)"
SEASON = "season (cosine)"


@dataclass(frozen=True, eq=False)
class RawVariable:
    """One column of the user's table.

    Parameters
    ----------
    name, kind, number
        Name, type and index of the column in the table.
    values
        (N,) numbers, NaN if missing; datetime64[s], NaT if missing; codes of `levels`, −1 if missing; for a text,
        (N, n) whether a row has each word.
    missing
        (N,) mask of the missing cells.
    levels
        Values of a category, the words for no and yes, or the words of a text.
    parts
        Encoded parts of a date, such as its season.
    cells
        (N,) original cells: texts (None if missing), numbers or dates; None if only the encoded columns are known.
    """

    name: str
    kind: str
    number: int
    values: NDArray[Any]
    missing: NDArray[np.bool_]
    levels: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    cells: NDArray[Any] | None = None

    @property
    def format(self) -> NumberFormat:
        """Number format of the column."""
        return NumberFormat.of(self.values[~self.missing])

    @property
    def has_times(self) -> bool:
        """Whether the dates have a time of day."""
        return _TIME_OF_DAY in self.parts

    @property
    def colors(self) -> NDArray[Any]:
        """(N,) values that color a map: numbers, dates, hours of times of day, or texts, None if missing."""
        if self.kind == TIME:
            return np.where(self.missing, np.nan, _turn_of_day(self.values) * 24)
        if self.kind in (NUMBER, DATE):
            return self.values
        return np.asarray(np.array([*self.levels, None], dtype=object)[self.values])

    def texts(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the cells of some rows as text, "" if missing."""
        missing = self.missing[rows] & (self.kind in (NUMBER, DATE, TIME))
        if self.cells is not None and self.cells.dtype == object:
            cells = zip(self.cells[rows].tolist(), missing, strict=True)
            return ["" if cell is None or is_missing else str(cell) for cell, is_missing in cells]
        if self.cells is not None:
            return [self._stored_text(cell) for cell in self.cells[rows]]
        missing = self.missing[rows]
        return ["" if is_missing else self._text(row) for row, is_missing in zip(rows, missing, strict=True)]

    def _stored_text(self, cell: Any) -> str:
        """Return a number or date of a data frame as text, "" if missing."""
        if self.kind == TIME:
            return clock_text(cell)
        if cell.dtype.kind == "M":
            return date_text(cell, with_time=self.has_times)
        return "" if np.isnan(cell) else number_text(float(cell))

    def _text(self, row: int) -> str:
        value = self.values[row]
        if self.kind == NUMBER:
            return NumberFormat.exact(float(value))
        if self.kind == TIME:
            return clock_text(value)
        if self.kind == DATE:
            return date_text(value, with_time=self.has_times)
        if self.kind == TEXT:
            return ", ".join(self.levels[i] for i in np.flatnonzero(value))
        return self.levels[int(value)]


def raw_variables(graph: AttributedGraph) -> list[RawVariable]:
    """Return the columns of the table of a graph in the order of the table; none for a plain table of numbers.

    O(N·d) time, O(N) memory per column.
    """
    encoding, features = graph.encoding, graph.features
    if encoding is None or not isinstance(features, np.ndarray):
        return []
    by_name = {}
    start = 0
    for variable in encoding.variables:
        stop = start + len(variable.columns)
        by_name[variable.name] = (variable, features[:, start:stop])
        start = stop
    cells = graph.cells or {}
    return [_decoded(number, *by_name[name], cells) for number, name in enumerate(encoding.raw_names)]


def outlier_features(encoding: TableEncoding) -> NDArray[np.int64]:
    """Return the encoded columns that may have extreme values: numbers, and the years of dates."""
    columns = (column for variable in encoding.variables for column in _may_be_extreme(variable))
    return np.flatnonzero(np.fromiter(columns, dtype=bool))


def _may_be_extreme(variable: Variable) -> list[bool]:
    return [variable.kind == NUMBER or (variable.kind == DATE and i == 0) for i in range(len(variable.columns))]


def _decoded(number: int, variable: Variable, wide: NDArray[Any], cells: Mapping[str, NDArray[Any]]) -> RawVariable:
    missing = np.isnan(wide[:, 0])
    about: dict[str, Any] = {"missing": missing, "levels": variable.levels, "cells": cells.get(variable.name)}
    if variable.kind in (DATE, TIME):
        about |= {"levels": (), "parts": variable.levels}
    if variable.kind == CATEGORY and variable.levels[-1] == MISSING:
        about |= {"levels": variable.levels[:-1], "missing": missing | (wide[:, -1] == 1)}
    if variable.kind == GIVEN:
        # An empty cell is a value of this type, so it is not missing.
        about["levels"] = ("", "given")
    values = _DECODERS[variable.kind](variable, wide)
    if variable.is_embedded:
        about["levels"], values = _words_of_cells(about["cells"], len(wide))
    return RawVariable(variable.name, variable.kind, number, values, **about)


def _words_of_cells(cells: NDArray[Any] | None, n_rows: int) -> tuple[tuple[str, ...], NDArray[Any]]:
    """Return the frequent words of texts, and whether each row has each of them; none if the texts are not known."""
    texts = [] if cells is None else ["" if cell is None else str(cell) for cell in cells]
    vectorizer = words_of(texts)
    if vectorizer is None:
        return (), np.zeros((n_rows, 0), dtype=bool)
    return tuple(vectorizer.get_feature_names_out().tolist()), vectorizer.transform(texts).toarray() > 0


def _numbers(_: Variable, wide: NDArray[Any]) -> NDArray[Any]:
    return wide[:, 0].astype(np.float64)


def _codes(_: Variable, wide: NDArray[Any]) -> NDArray[Any]:
    return np.where(np.isnan(wide[:, 0]), -1, np.nan_to_num(wide[:, 0])).astype(np.int64)


def _indicated(variable: Variable, wide: NDArray[Any]) -> NDArray[Any]:
    missing = np.isnan(wide[:, 0])
    if variable.levels[-1] == MISSING:
        missing |= wide[:, -1] == 1
    return np.where(missing, -1, wide.argmax(axis=1))


def _words(_: Variable, wide: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(wide > 0)


def _dates(variable: Variable, wide: NDArray[Any]) -> NDArray[Any]:
    """Return dates, rounded to the day because years are exact only to about an hour; with the time of day if known.

    A time of day without a date gets the date 1970-01-01.
    """
    missing = np.isnan(wide[:, 0])
    years = np.where(missing | (variable.kind == TIME), 1970.0, wide[:, 0].astype(np.float64))
    days = (years - 1970) * _DAYS_PER_YEAR
    of_day = np.zeros(len(days))
    if _TIME_OF_DAY in variable.levels:
        place = variable.levels.index(_TIME_OF_DAY)
        turn = np.arctan2(wide[:, place + 1], wide[:, place]).astype(np.float64) / (2 * np.pi)
        of_day = np.where(missing, 0.0, turn % 1)
    days = days if variable.kind == TIME else np.rint(days - of_day)
    seconds = days * _SECONDS_PER_DAY + np.rint(of_day * _SECONDS_PER_DAY / 60) * 60
    return np.where(missing, np.datetime64("NaT"), seconds.astype(np.int64).astype("M8[s]"))


def middle_of_day(times: NDArray[Any]) -> np.datetime64:
    """Return the circular mean of times of day, rounded to the minute: the mean of 23:00 and 1:00 is 0:00."""
    angle = 2 * np.pi * _turn_of_day(times)
    turn = np.arctan2(np.sin(angle).mean(), np.cos(angle).mean()) / (2 * np.pi) % 1
    return np.datetime64(int(np.rint(turn * _SECONDS_PER_DAY / 60) * 60) % _SECONDS_PER_DAY, "s")


def _turn_of_day(times: NDArray[Any]) -> NDArray[np.float64]:
    """Return the time of day of dates, from 0 to 1; the result for a missing cell is arbitrary."""
    return np.asarray(times.astype("M8[s]").astype(np.int64) % _SECONDS_PER_DAY / _SECONDS_PER_DAY)


_DECODERS = {
    NUMBER: _numbers,
    BOOLEAN: _codes,
    GIVEN: _codes,
    ORDERED: _codes,
    CATEGORY: _indicated,
    TEXT: _words,
    DATE: _dates,
    TIME: _dates,
}
