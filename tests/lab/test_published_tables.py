"""The figures that pamc ships are those of the paper's LaTeX source, parsed here on its own."""

import os
import re
from pathlib import Path

import pytest

from pamc.lab.settings import METRICS, paper_decimals, paper_figure, paper_methods, paper_sets, paper_title

pytestmark = pytest.mark.claims

PAPER = os.environ.get("PAMC_PAPER")
NAMES = {"k-means": "kmeans", "ourmodel": "pamcgc"}


def plain(cell):
    """Return the text of a LaTeX cell: commands, braces and dollars gone, ± for its command."""
    cell = cell.replace(r"\pm", "±")
    cell = re.sub(r"\\multirow\{\d+\}\{\*\}", "", cell)
    return re.sub(r"\\[a-zA-Z]+|[{}$]", "", cell).strip()


def method_name(cell):
    name = plain(cell).lower()
    return NAMES.get(name, name)


def tabular(label):
    after = Path(PAPER).read_text(encoding="utf-8").partition(rf"\label{{{label}}}")[2]
    spec, body = re.search(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", after, flags=re.DOTALL).groups()
    return spec, [line.split("&") for line in body.split(r"\\") if "&" in line]


def figure(cell):
    match = re.fullmatch(r"(\d+\.(\d+))±(\d+\.(\d+))", plain(cell))
    mean, decimals, std, same = match.groups()
    assert len(decimals) == len(same)
    return float(mean), float(std), len(decimals)


@pytest.fixture
def paper():
    if not PAPER:
        pytest.skip("PAMC_PAPER is not set")


def found(data_set, method, metric):
    shipped = paper_figure(data_set, method, metric)
    return None if shipped is None else (shipped.mean, shipped.std, shipped.decimals)


def test_every_figure_of_table_2_is_the_one_in_the_source(paper):
    _, lines = tabular("table_graph_results")
    body = [line for line in lines if "pm" in line[1]]
    assert [method_name(line[0]) for line in body] == list(paper_methods())
    for method, *cells in body:
        columns = [(data_set, metric) for data_set in ("dblp", "acm", "cite") for metric in METRICS]
        for (data_set, metric), cell in zip(columns, cells, strict=True):
            assert found(data_set, method_name(method), metric) == figure(cell)


def test_every_figure_of_table_3_is_the_one_in_the_source_and_hidden_columns_are_marked(paper):
    spec, (head, *body) = tabular("table_non_graph_results")
    methods = [method_name(cell) for cell in head[2:]]
    assert len(body) == 12
    data_set, seen = None, set()
    for first, metric, *cells in body:
        data_set = plain(first).lower() or data_set
        for method, kind, cell in zip(methods, spec[2:], cells, strict=True):
            name = plain(metric).lower()
            assert found(data_set, method, name) == figure(cell)
            assert paper_figure(data_set, method, name).hidden is (kind == "H")
            seen.add((data_set, method, name))
    assert seen == {
        (data_set, method, metric)
        for data_set in paper_sets("table3")
        for method in paper_methods()
        for metric in METRICS
        if paper_figure(data_set, method, metric) is not None
    }


def test_the_tables_have_the_sets_and_the_methods_of_the_paper():
    assert paper_sets("table2") == ("dblp", "acm", "cite")
    assert paper_sets("table3") == ("usps", "hhar", "reut")
    assert (paper_decimals("table2"), paper_decimals("table3")) == (1, 2)
    assert len(paper_methods()) == 16
    hidden = {m for m in paper_methods() if (f := paper_figure("reut", m, "acc")) is not None and f.hidden}
    assert hidden == {"ae", "dec", "idec"}
    assert paper_figure("usps", "cgc", "acc") is None
    assert paper_figure("news4", "pamcgc", "acc") is None


def test_a_figure_is_written_as_the_paper_prints_it():
    assert str(paper_figure("dblp", "pamcgc", "acc")) == "79.6 ± 0.0"
    assert str(paper_figure("usps", "gae", "acc")) == "63.10 ± 0.33"
    assert str(paper_figure("usps", "ae", "acc")) == "71.04 ± 0.03†"
    assert (paper_title("scgc*"), paper_title("sdcn+pamc")) == ("SCGC*", "sdcn+pamc")
