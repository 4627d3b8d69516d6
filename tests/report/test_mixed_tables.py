"""Explanations of tables of mixed types, in the words of the user's columns."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pamc
from pamc import PamCGC
from pamc.data.columns.frames import raw_table
from pamc.data.columns.types import DATE, NUMBER, TEXT
from pamc.data.customers import make_customers
from pamc.data.rows import table_graph
from pamc.report.content import FORMAT, Extras, page_data
from pamc.report.facts import cluster_facts
from pamc.report.page_file import read_page
from pamc.report.traits import CLOSE_TO_AVERAGE
from pamc.report.variables import raw_variables
from pamc.report.wording import NumberFormat, share_text
from tests.report.made import made_record

pytestmark = pytest.mark.filterwarnings("ignore::pamc.errors.DataWarning")

N = 200
FIRST = np.arange(N) < 80
CALLS = [f"2024-05-01 {9 if own else 20}:{i % 60:02d}" for i, own in enumerate(FIRST)]
COMPLAINTS = ["refund for a late parcel", "the parcel came very late", "where is the refund now"]
PRAISE = ["nice people in the shop", "thanks for the quick help", "the shop is really nice"]


def cycled(values, n):
    return [values[i % len(values)] for i in range(n)]


def planted():
    """Return customers in two groups, and the group of each: the first is rich, from Köln, recent and complains."""
    n, others = int(FIRST.sum()), int((~FIRST).sum())
    income = np.concatenate([np.linspace(50_000, 72_000, n), np.linspace(20_000, 40_000, others)])
    income[0] = 9e8
    frame = pd.DataFrame(
        {
            "customer": [f"C{i}" for i in range(N)],
            "income": income,
            "city": cycled(["Köln"] * 4 + ["Bonn"], n) + cycled(["Bonn", "Kiel", "Jena", "Ulm", "Köln"], others),
            "newsletter": cycled(["yes"], n) + cycled(["no", "no", "yes"], others),
            "signed_up": pd.to_datetime(
                cycled(["2024-03-01", "2024-11-05"], n) + cycled(["2016-05-01", "2018-07-01", "2019-01-01"], others)
            ),
            "comment": cycled(COMPLAINTS, n) + cycled(PRAISE, others),
            "region": cycled(["north", "south"], N),
            "rating": pd.Categorical(
                cycled(["high"], n) + cycled(["low", "mid"], others), ["low", "mid", "high"], True
            ),
        }
    )
    frame["comment"] += [f" {i}" for i in range(N)]
    frame.loc[4:6, "income"] = np.nan
    frame.loc[FIRST & (np.arange(N) % 2 == 0), "city"] = None
    return frame, np.where(FIRST, 0, 1)


def model_of(labels, n_clusters=2, encoding=None):
    """Return what a fitted estimator has, without a fit."""
    draw = np.random.default_rng(0)
    centers = 5 * np.eye(max(n_clusters, 3))[:n_clusters]
    z = (centers[labels] + 0.1 * draw.normal(size=(len(labels), centers.shape[1]))).astype(np.float32)
    about = {"cluster_centers_": centers, "meta_nodes_": centers, "columns_": encoding}
    return SimpleNamespace(labels_=labels, confidence_=draw.uniform(0.5, 1, len(labels)), embedding_=z, **about)


def facts_of(frame, labels, n_clusters=2, **options):
    graph = table_graph(raw_table(frame))
    return cluster_facts(model_of(labels, n_clusters, graph.encoding), graph, **options)


@pytest.fixture(scope="module")
def frame():
    return planted()[0]


@pytest.fixture(scope="module")
def facts(frame):
    return facts_of(frame, planted()[1], n_features=20)


def said(facts, cluster=0):
    own = facts.features["cluster"] == cluster
    return dict(zip(facts.features["trait"][own], facts.features["text"][own], strict=True))


@pytest.mark.parametrize(
    ("trait", "text"),
    [
        ("city = Köln", "80 % (35 % of all rows)"),
        ("income", "median 62,000 (36,000 in all rows)"),
        ("newsletter = yes", "100 % (60 % of all rows)"),
        ("signed_up", "mostly in 2024: 100 % (40 % of all rows)"),
        ("rating", "median high (mid in all rows)"),
        ("city is missing", "50 % (20 % of all rows)"),
    ],
)
def test_a_trait_is_said_in_the_words_of_the_column(facts, trait, text):
    assert said(facts)[trait] == text


def test_a_text_is_described_by_the_words_that_set_a_cluster_apart(facts):
    (trait,) = (name for name in said(facts) if name.startswith("comment"))
    assert trait == "comment: “late”"
    assert said(facts)[trait].startswith("68 % (27 % of all rows); ")
    assert "“parcel” 68 % (27 %)" in said(facts)[trait]


def test_a_column_that_does_not_differ_is_not_listed(facts):
    assert "region" not in facts.features["name"]


def test_a_column_counts_once_however_many_values_it_has(facts):
    own = (facts.features["cluster"] == 0) & (facts.features["kind"] != "missing")
    aspects = facts.features["trait"][own]
    # A date is described by when it is and by its month.
    names = [name for name, trait in zip(facts.features["name"][own], aspects, strict=True) if " in " not in trait]
    assert len(names) == len(set(names))


def test_the_strongest_traits_come_first_and_the_other_cluster_has_the_opposite(facts):
    for cluster in (0, 1):
        sizes = np.abs(facts.features["difference"][facts.features["cluster"] == cluster])
        assert (np.diff(sizes) <= 0).all()
    income = (facts.features["name"] == "income") & (facts.features["kind"] == NUMBER)
    assert facts.features["difference"][income].tolist()[0] > 0 > facts.features["difference"][income].tolist()[1]


def test_one_outlier_does_not_decide_what_is_typical(facts):
    line = np.flatnonzero((facts.features["name"] == "income") & (facts.features["cluster"] == 0))[0]
    assert 50_000 < facts.features["inside"][line] < 72_000


def test_clusters_are_named_by_their_most_distinctive_traits(facts):
    first, second = facts.clusters["name"].tolist()
    assert first != second
    assert set(first.split(", ")) <= {"signed_up in 2024", "high income", "high rating"}


def test_clusters_that_are_alike_are_close_to_the_average(frame):
    labels = np.random.default_rng(0).permutation(np.arange(N) % 2)
    names = facts_of(frame, labels).clusters["name"]
    assert names.tolist() == [CLOSE_TO_AVERAGE] * 2


def test_an_empty_cluster_has_no_name_and_no_typical_value(frame):
    facts = facts_of(frame, planted()[1], n_clusters=3)
    assert facts.clusters["name"][2] == ""
    own = facts.profile["cluster"] == 2
    assert (facts.profile["typical"][own] == "").all()
    assert np.isnan(facts.profile["missing"][own]).all()


@pytest.mark.parametrize(
    ("phrase", "values"),
    [
        ("with vip", {"vip": np.where(FIRST, "x", None)}),
        ("city = Köln", {"city": np.where(FIRST, "Köln", cycled(["Bonn", "Kiel", "Ulm"], N))}),
        ("mostly newsletter", {"newsletter": np.where(FIRST, "yes", cycled(["no", "no", "no", "yes"], N))}),
        ("income missing", {"income": np.where(FIRST & (np.arange(N) % 4 > 0), np.nan, np.arange(N) % 37)}),
        ("called from 6 to 12 h", {"called": CALLS}),
    ],
)
def test_a_name_is_made_from_any_type_of_column(phrase, values):
    frame = pd.DataFrame({**values, "other": cycled(["a", "b", "c"], N)})
    name = facts_of(frame, planted()[1]).clusters["name"][0]
    assert phrase in name


def test_the_profile_has_a_typical_value_for_each_column_in_each_cluster(facts):
    profile = pd.DataFrame(facts.profile).set_index(["cluster", "column"])
    assert profile.loc[(0, "city")].to_list() == ["category", "Köln", 0.8, 0.5]
    assert profile.loc[(0, "signed_up"), "typical"].startswith("2024-")
    assert profile.loc[(0, "income"), "typical"] == "62,000"
    assert profile.loc[(-1, "newsletter"), ["typical", "share"]].to_list() == ["yes", pytest.approx(0.6)]
    assert profile.loc[(1, "rating"), "typical"] in ("low", "mid")
    assert "parcel" in profile.loc[(0, "comment"), "typical"]
    assert len(profile) == 3 * 7


def test_listed_rows_show_the_cells_of_the_table_and_nothing_where_they_are_missing(frame, facts):
    cells = pd.DataFrame(facts.cells).pivot(index="row", columns="column", values="cell")
    listed = frame.loc[cells.index]
    assert set(cells.index) == set(facts.rows["row"]) | set(facts.odd["row"])
    for column in ("city", "comment", "newsletter", "rating"):
        assert cells[column].tolist() == listed[column].astype(object).where(listed[column].notna(), "").tolist()
    assert cells["signed_up"].tolist() == listed["signed_up"].dt.strftime("%Y-%m-%d").tolist()
    numbers = pd.to_numeric(cells["income"], errors="coerce")
    assert numbers.isna().tolist() == listed["income"].isna().tolist()
    assert numbers.dropna().to_numpy() == pytest.approx(listed["income"].dropna().to_numpy(), rel=1e-6)


def test_an_extreme_value_is_named_by_the_column_of_the_table(facts):
    extreme = facts.odd["reason"] == "extreme value"
    assert facts.odd["row"][extreme].tolist() == [0]
    assert facts.odd["feature"][extreme].tolist() == ["income"]


def test_values_are_read_back_from_the_encoding_as_they_were(frame):
    moments = pd.to_datetime(["2024-02-29 23:59", "1999-12-31 00:00", "2031-07-01 06:30", None] * 50)
    found = {variable.name: variable for variable in raw_variables(table_graph(raw_table(frame.assign(at=moments))))}
    assert {found[name].kind for name in ("income", "at", "comment")} == {NUMBER, DATE, TEXT}
    assert found["at"].texts(np.arange(4)) == ["2024-02-29 23:59", "1999-12-31 00:00", "2031-07-01 06:30", ""]
    days = frame["signed_up"].dt.strftime("%Y-%m-%d").tolist()
    assert found["signed_up"].texts(np.arange(N)) == days


def test_a_rare_value_that_was_pooled_is_shown_as_it_was():
    towns = ["Köln"] * 150 + ["Bonn"] * 40 + [f"Dorf {i % 9}" if i < 9 else "Ulm" for i in range(10)]
    graph = table_graph(raw_table(pd.DataFrame({"town": towns, "age": np.arange(N) % 50})), {"town": "category"})
    town = raw_variables(graph)[0]
    assert town.texts(np.array([0, 192])) == ["Köln", "Dorf 2"]


def test_months_are_said_if_dates_span_little_more_than_a_year():
    dates = np.where(FIRST, np.datetime64("2024-03-05"), np.datetime64("2023-10-01") + np.arange(N) % 150)
    facts = facts_of(pd.DataFrame({"joined": dates, "city": cycled(["a", "b", "c"], N)}), planted()[1])
    assert said(facts)["joined"].startswith("mostly in March 2024: 100 % ")


def test_times_of_day_are_described_by_parts_of_the_day_and_averaged_around_midnight():
    times = np.where(FIRST, np.where(np.arange(N) % 2 == 0, "23:00", "1:00"), "9:30")
    table = pd.DataFrame({"at": times, "city": cycled(["a", "b", "c"], N)})
    facts = facts_of(table, planted()[1])
    profile = pd.DataFrame(facts.profile).set_index(["cluster", "column"])["typical"]
    assert (profile[0, "at"], profile[1, "at"]) == ("00:00", "09:30")
    assert said(facts, 1)["at from 6 to 12 h"] == "100 % (60 % of all rows)"
    at = {variable.name: variable for variable in raw_variables(table_graph(raw_table(table)))}["at"]
    assert (at.texts(np.array([0, 1, 199])), at.colors[[0, 199]].tolist()) == (["23:00", "1:00", "9:30"], [23.0, 9.5])


def test_numbers_with_the_same_median_are_told_apart_by_their_share_above_it():
    returns = np.where(FIRST, (np.arange(N) % 5 < 2) * 3, (np.arange(N) % 20 == 0) * 1.0)
    facts = facts_of(pd.DataFrame({"returns": returns, "city": cycled(["a", "b", "c"], N)}), planted()[1])
    assert re.fullmatch(r"above 0 in \d+ % \(\d+ % of all rows\)", said(facts)["returns"])
    assert said(facts, 1)["returns"].startswith("at most 0 in ")


@pytest.mark.parametrize(
    ("values", "value", "text"),
    [
        ([1990, 2001, 2024], 2001.0, "2001"),
        ([1, 2, 3, 4], 2.5, "2"),
        ([0.001, 0.004, 0.0075], 0.004, "0.0040"),
        ([100, 900, 4000], 318.7, "320"),
        ([5, 5, 5], 5.0, "5"),
        ([-3000, -1000, 2500], -1000.0, "−1,000"),
        ([0.0, 10.0, 30.0], 0.0, "0"),
        ([1.0, 2.0], np.nan, "–"),
        ([1e300, 2e300], 1e300, "1e+300"),
    ],
)
def test_typical_numbers_are_rounded_to_the_spread_of_their_column(values, value, text):
    assert NumberFormat.of(np.array(values, dtype=np.float64)).text(value) == text


def test_a_share_is_zero_only_for_none_and_all_only_for_all():
    assert [share_text(x) for x in (0.0, 1e-4, 0.5, 0.9999, 1.0, np.nan)] == [
        "0 %", "less than 1 %", "50 %", "more than 99 %", "100 %", "–"
    ]  # fmt: skip


def test_the_page_has_the_profile_the_cells_and_raw_columns_that_color_the_map(frame):
    graph = table_graph(raw_table(frame))
    model = model_of(planted()[1], encoding=graph.encoding)
    record = made_record(model, facts={"preprocessing": "variables", "graph": "not used"}, metrics=None)
    data = page_data(model, graph, record, Extras(map_by="pca"))
    assert set(data["profile"]["column"]) == set(frame.columns) - {"customer"}
    assert set(data["cells"]["id"]) <= set(frame["customer"])
    kinds = {column["name"]: column["kind"] for column in data["columns"]}
    assert kinds.items() >= {"income": "number", "city": "class", "signed_up": "class", "newsletter": "class"}.items()
    assert "comment" not in kinds
    (city,) = (column for column in data["columns"] if column["name"] == "city")
    assert city["names"] == ["(missing)", "Bonn", "Jena", "Kiel", "Köln", "Ulm"]


def test_explain_returns_the_same_as_tidy_frames(tmp_path):
    frame = pd.DataFrame(make_customers(120, random_state=1).columns)
    settings = {"n_epochs": 3, "advanced": {"hidden": (16,), "pretrain_epochs": 3}, "random_state": 0, "device": "cpu"}
    model = PamCGC(4, **settings).fit(frame)
    found = pamc.explain(model, frame)
    assert set(found.features["name"]) <= set(frame.columns)
    assert found.clusters["name"].str.len().gt(0).all()
    assert list(found.profile) == ["cluster", "column", "type", "typical", "share", "missing"]
    assert list(found.cells) == ["row", "id", "column", "cell"]
    assert found.rows["id"].str.match(r"C\d{5}$").all()
    assert found._repr_html_().count("<table") == 8
    # The encoding is in the model, so columns in another order are the same columns.
    assert pamc.explain(model, frame[frame.columns[::-1]]).profile.equals(found.profile)
    path = pamc.write_report(model, frame, tmp_path / "page.html", map="pca")
    data = read_page(path, formats=(FORMAT,))
    assert data["clusters"]["name"] == found.clusters["name"].tolist()
    assert data["features"]["text"] == found.features["text"].tolist()


def test_plain_numbers_are_explained_as_before(facts):
    X = np.random.default_rng(0).normal(size=(60, 3))
    found = pamc.explain(PamCGC(2, n_epochs=2, advanced={"hidden": (8,)}, random_state=0, device="cpu").fit(X), X)
    assert (found.profile, found.cells) == (None, None)
    assert list(found.clusters) == ["cluster", "n_rows", "share", "confidence", "edges_inside"]
    assert list(found.features) == ["cluster", "feature", "name", "difference", "inside", "elsewhere", "kind"]
