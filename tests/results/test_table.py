"""Summaries of runs, and tables that survive every character."""

from __future__ import annotations

import csv
import io
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pamc.errors import ConfigError, DataError
from pamc.results.table import MeanStd, Table, mean_std, paired_t_test


def test_mean_and_sample_standard_deviation():
    assert mean_std([1.0, 2.0, 6.0]) == pytest.approx((3.0, math.sqrt(7.0)))
    mean, std = mean_std([0.5])
    assert (mean, std) == (0.5, 0.0)


def test_the_mean_of_nothing_is_refused():
    with pytest.raises(DataError, match="at least one value"):
        mean_std([])


def test_a_share_is_written_in_percent():
    assert MeanStd(0.79649, 0.00351).percent() == "79.6 ± 0.4"
    assert MeanStd(0.79649, 0.00351).percent(decimals=2) == "79.65 ± 0.35"


def test_the_paired_t_test_is_the_textbook_formula():
    a, b = [0.80, 0.82, 0.81, 0.79], [0.78, 0.79, 0.80, 0.80]
    mean, std = mean_std([x - y for x, y in zip(a, b, strict=True)])
    t = mean / (std / math.sqrt(4))
    result = paired_t_test(a, b)
    assert result.statistic == pytest.approx(t)
    assert result.p_value == pytest.approx(2 * stats.t.sf(t, df=3))
    assert paired_t_test(b, a).statistic == pytest.approx(-t)


def test_equal_differences_have_a_defined_answer():
    assert paired_t_test([0.5, 0.7], [0.5, 0.7]) == (0.0, 1.0)
    assert paired_t_test([0.8, 0.9, 0.7], [0.7, 0.8, 0.6]) == (math.inf, 0.0)
    assert paired_t_test([0.7, 0.8, 0.6], [0.8, 0.9, 0.7]) == (-math.inf, 0.0)


@pytest.mark.parametrize(("a", "b"), [([1.0, 2.0], [1.0]), ([1.0], [2.0]), ([], [])])
def test_lists_that_cannot_be_paired_are_refused(a, b):
    with pytest.raises(DataError, match=f"got {len(a)} and {len(b)} values"):
        paired_t_test(a, b)


@pytest.fixture
def table() -> Table:
    return Table(["method", "ACC", "n_hops"], [["A|B & C", "66.8 ± 0.1", "1"], ["50 %, α", "–", "2"]])


def test_markdown_keeps_its_columns_when_a_cell_holds_a_bar(table):
    assert table.markdown() == (
        "| method | ACC | n_hops |\n"
        "|:---|---:|---:|\n"
        "| A\\|B & C | 66.8 ± 0.1 | 1 |\n"
        "| 50 %, α | – | 2 |\n"
    )  # fmt: skip


def test_latex_escapes_what_latex_reads(table):
    assert table.latex() == (
        "\\begin{tabular}{lrr}\n"
        "\\toprule\n"
        "method & ACC & n\\_hops \\\\\n"
        "\\midrule\n"
        "A|B \\& C & 66.8 $\\pm$ 0.1 & 1 \\\\\n"
        "50 \\%, α & – & 2 \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
    )


def test_every_special_character_of_latex_is_escaped_once():
    latex = Table(["x"], [["\\ { } $ # ^ ~"]]).latex()
    assert r"\textbackslash{} \{ \} \$ \# \textasciicircum{} \textasciitilde{} \\" in latex


@given(st.lists(st.lists(st.text("ab|,\"'\\\n &%_", max_size=6), min_size=2, max_size=2), max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_text_survives_csv_and_stays_in_its_cell_elsewhere(rows):
    table = Table(["first", "second"], rows)
    assert list(csv.reader(io.StringIO(table.csv(), newline=""))) == [["first", "second"], *rows]
    lines = table.markdown().splitlines()
    assert len(lines) == 2 + len(rows)
    for line in lines:
        assert line.replace("\\\\", "").replace("\\|", "").count("|") == 3
    assert len(table.latex().splitlines()) == 6 + len(rows)


def test_columns_may_be_aligned_otherwise():
    table = Table(["a", "b", "c"], [["1", "2", "3"]], align="rcl")
    assert table.markdown().splitlines()[1] == "|---:|:---:|:---|"
    assert "{rcl}" in table.latex()


@pytest.mark.parametrize("align", ["l", "lrr", "lx"])
def test_an_alignment_that_does_not_fit_is_refused(align):
    with pytest.raises(ConfigError, match=f"2 letters out of l, c and r, got '{align}'"):
        Table(["a", "b"], [], align=align)


def test_a_row_of_another_length_is_refused():
    with pytest.raises(DataError, match="row 1 of the table has 3 cells for 2 columns"):
        Table(["a", "b"], [["1", "2"], ["1", "2", "3"]])
