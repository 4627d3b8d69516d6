"""Tables of mixed types through Python: the same clusters whatever the order and the names, and prediction."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from pamc import PamCGC, choose_k, clusterer, evaluate, explain, ingest
from pamc.data.customers import make_customers
from pamc.errors import ConfigError, DataError, DataWarning

FAST = {"n_epochs": 3, "advanced": {"hidden": (16,), "pretrain_epochs": 9}, "random_state": 0, "device": "cpu"}
NOTES = "ignore:.*identifies the rows:pamc.errors.DataWarning"
pytestmark = pytest.mark.filterwarnings(NOTES, "ignore:.*left out:pamc.errors.DataWarning")


def frame_of(n_rows=160, **options):
    customers = make_customers(n_rows, **options)
    return pd.DataFrame(customers.columns), customers.segments


@pytest.fixture(scope="module")
def frame():
    return frame_of()[0]


@pytest.fixture(scope="module")
def fitted(frame):
    with pytest.warns(DataWarning, match="'customer_id': identifies the rows"):
        return PamCGC(4, **FAST).fit(frame)


def test_labels_are_predict_of_the_raw_columns(fitted, frame):
    assert np.array_equal(fitted.predict(frame), fitted.labels_)
    assert fitted.n_features_in_ == 10
    assert fitted.feature_names_in_.tolist() == frame.columns[1:].tolist()
    assert fitted.columns_.id_column == "customer_id"


def test_the_types_of_columns_are_in_the_record_and_the_model_survives_a_folder(fitted, frame, tmp_path):
    fitted.save(tmp_path / "run")
    loaded = PamCGC.load(tmp_path / "run", device="cpu")
    assert loaded.columns_ == fitted.columns_
    assert np.array_equal(loaded.predict(frame), fitted.labels_)
    columns = {row["name"]: row["type"] for row in fitted.record().data["columns"]}
    assert columns["city"] == "category"
    assert (tmp_path / "run" / "labels.csv").read_text().splitlines()[1].startswith(frame["customer_id"][0])


CHANGES = {
    "shuffled columns": lambda frame, rng: frame[rng.permutation(frame.columns)],
    "renamed columns": lambda frame, rng: frame.rename(columns={"city": "town", "visits": "a"}),
    "renamed categories": lambda frame, rng: frame.assign(
        plan=frame["plan"].map({"free": "z", "standard": "b", "premium": "m"}),
        city=frame["city"].str.replace("city", str(rng.integers(99))),
    ),
    "a column twice": lambda frame, rng: frame.assign(copy=frame["city"], again=frame["visits"]),
    "a constant column": lambda frame, rng: frame.assign(country="DE", code=7),
    "another unit": lambda frame, rng: frame.assign(visits=(4 * frame["visits"].astype(float)).astype(object)),
}


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(CHANGES)), st.integers(0, 99))
def test_a_change_that_says_nothing_new_gives_the_same_clusters(frame, fitted, change, seed):
    changed = CHANGES[change](frame, np.random.default_rng(seed))
    assert np.array_equal(PamCGC(4, **FAST).fit(changed).labels_, fitted.labels_)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 99))
def test_new_rows_have_their_columns_in_any_order_and_are_labeled_one_by_one(frame, fitted, seed):
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(frame), 20, replace=False)
    assert np.array_equal(fitted.predict(frame.iloc[rows][rng.permutation(frame.columns)]), fitted.labels_[rows])


def test_new_rows_may_have_new_missing_cells_unseen_categories_and_fewer_columns(fitted, frame):
    changed = frame.assign(city="Atlantis", age=None)
    assert fitted.predict(changed).shape == (160,)
    with pytest.warns(DataWarning, match="has no columns 'age', 'city': their cells"):
        assert np.isfinite(fitted.predict_proba(frame.drop(columns=["city", "age"]))).all()
    with pytest.raises(DataError, match=r"column 'age': .* is not a number"):
        fitted.predict(frame.assign(age="old"))
    with pytest.raises(DataError, match="must be a data frame"):
        fitted.predict(np.zeros((3, 10)))


@pytest.mark.parametrize("n_rows", [0, 1, 3])
def test_new_rows_may_be_empty_and_so_may_the_table_of_new_rows(fitted, frame, n_rows):
    empty = frame.iloc[:n_rows].astype(object).assign(**dict.fromkeys(frame.columns[1:]))
    assert fitted.predict(empty).shape == (n_rows,)


@pytest.mark.filterwarnings("ignore:.*without any value")
@pytest.mark.parametrize("name", ["plan", "comment"])
def test_a_single_column_of_categories_or_texts_with_empty_cells_can_be_clustered(commented, name):
    model = PamCGC(3, **FAST).fit(commented[[name]])
    known = commented[name].notna().to_numpy()
    truth = commented[name][known] if name == "plan" else counted(commented[name][known]).argmax(axis=1)
    assert evaluate(truth, model.labels_[known])["ari"] > 0.9


WORDS = ["good", "bad", "late"]


def counted(texts):
    """Embed texts by how often they contain each of three words."""
    return np.array([[text.count(word) for word in WORDS] for text in texts], dtype=np.float32)


@pytest.fixture(scope="module")
def commented(frame):
    words = np.random.default_rng(0).choice(WORDS, len(frame))
    texts = [f"the {word} product number {i} arrived {word}" for i, word in enumerate(words)]
    return frame.assign(comment=np.where(np.arange(len(frame)) % 9, texts, None))


def test_texts_are_embedded_by_a_function_that_is_passed_again_to_label_new_rows(commented, tmp_path):
    model = PamCGC(4, types={"comment": counted}, **FAST).fit(commented)
    row = next(row for row in model.columns_.table if row["name"] == "comment")
    assert (row["type"], row["encoding"]) == ("text", "embedding with 3 dimensions")
    model.save(tmp_path / "run")
    loaded = PamCGC.load(tmp_path / "run", types={"comment": counted}, device="cpu")
    assert np.array_equal(loaded.predict(commented.iloc[:20]), model.labels_[:20])
    without = PamCGC.load(tmp_path / "run", device="cpu")
    with pytest.raises(DataError, match=r"was embedded by a function.*PamCGC.load\(folder, types="):
        without.predict(commented)
    with pytest.raises(ConfigError, match="were embedded in the training data: 'comment'"):
        PamCGC.load(tmp_path / "run", types={"city": counted}, device="cpu")


@pytest.mark.filterwarnings("ignore:.*without any value")
def test_clusters_of_embedded_texts_are_described_by_their_words(commented):
    model = PamCGC(3, types={"comment": counted}, **FAST).fit(commented[["comment", "city"]])
    described = explain(model, commented[["comment", "city"]]).features
    assert {trait for trait in described["trait"] if trait.startswith("comment: ")} == {
        f"comment: “{word}”" for word in WORDS
    }


@pytest.mark.parametrize(
    "embed", [lambda texts: np.zeros(len(texts)), lambda texts: np.full((len(texts), 2), np.nan), lambda texts: [["a"]]]
)
def test_an_embedding_of_another_shape_is_refused(commented, embed):
    with pytest.raises(DataError, match="the function that embeds column 'comment' must return"):
        PamCGC(4, types={"comment": embed}, **FAST).fit(commented)


def test_a_store_has_no_functions_among_its_types(commented, tmp_path):
    commented.to_csv(tmp_path / "table.csv", index=False)
    with pytest.raises(ConfigError, match="types of a store cannot be functions"):
        ingest(tmp_path / "table.csv", out=tmp_path / "store", types={"comment": counted})


@pytest.mark.slow
def test_planted_segments_are_found_and_one_hot_k_means_does_not_find_them():
    frame, segments = frame_of(2000)
    model = PamCGC(4, random_state=0, device="cpu").fit(frame)
    assert evaluate(segments, model.labels_)["ari"] >= 0.9
    by_kmeans = clusterer("kmeans", 4, preprocessing="standardize", random_state=0).fit(one_hot(frame)).labels_
    assert evaluate(segments, by_kmeans)["ari"] <= 0.6


def one_hot(frame):
    """Return numbers with the median for missing cells, and one column per value of each category."""
    numbers = frame[["revenue", "visits", "age", "basket"]].apply(lambda x: pd.to_numeric(x.str.replace(",", "")))
    numbers["first_order"] = (pd.to_datetime(frame["first_order"]) - pd.Timestamp("2015-01-01")).dt.days
    values = pd.get_dummies(frame[["channel", "plan", "city", "subscriber", "newsletter"]])
    return pd.concat([numbers.fillna(numbers.median()), values], axis=1).astype(float).to_numpy()


def test_every_kind_of_column_can_be_clustered_explained_and_given_to_other_methods(frame):
    rng = np.random.default_rng(0)
    mixed = pd.DataFrame(
        {
            "count": pd.array([*rng.integers(9, size=59), None], dtype="Int64"),
            "flag": rng.random(60) < 0.5,
            "size": pd.Categorical(rng.choice(["S", "M", "L"], 60), categories=["S", "M", "L"], ordered=True),
            "color": pd.Categorical(rng.choice(["red", "blue"], 60)),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(2000, size=60), unit="D"),
            "text": [f"the {word} thing number {i} is {word}" for i, word in enumerate(rng.choice(["old", "new"], 60))],
        }
    )
    model = PamCGC(2, **FAST).fit(mixed)
    kinds = {row["name"]: row["type"] for row in model.columns_.table}
    assert kinds == dict(zip(mixed.columns, ["number", "yes/no", "ordered", "category", "date", "text"], strict=True))
    assert {"size", "color", "when", "text"} & set(explain(model, mixed).features["name"])
    assert clusterer("kmeans", 2, random_state=0).fit(mixed).labels_.shape == (60,)


def test_types_are_a_parameter_that_is_cloned_and_overrules(frame):
    model = clone(PamCGC(4, types={"age": "category", "city": "ignore"}, **FAST)).fit(frame)
    kinds = {row["name"]: row["type"] for row in model.columns_.table}
    assert (kinds["age"], kinds["city"]) == ("category", "left out")


def test_the_number_of_clusters_of_a_mixed_table_can_be_chosen(frame):
    assert choose_k(frame, candidates=[2, 3], random_state=0).why


def test_a_graph_and_a_mixed_table_are_clustered_together(frame):
    segments = frame_of()[1]
    rng = np.random.default_rng(0)
    same = {(i, j) for i in range(160) for j in rng.choice(np.flatnonzero(segments == segments[i]), 4) if i < j}
    model = PamCGC(4, **FAST).fit(frame, adjacency=np.array(sorted(same)))
    assert evaluate(segments, model.labels_)["acc"] > 0.9


def test_missing_cells_of_a_table_of_numbers_are_hidden_and_hardly_change_the_clusters():
    rng = np.random.default_rng(0)
    centers = 6 * rng.normal(size=(3, 8))
    truth = rng.integers(3, size=240)
    rows = centers[truth] + rng.normal(size=(240, 8))
    holes = np.where(rng.random(rows.shape) < 0.3, np.nan, rows)
    model = PamCGC(3, random_state=0, device="cpu").fit(holes)
    assert model.columns_ is None
    assert evaluate(truth, model.labels_)["nmi"] > 0.95
    assert np.array_equal(model.predict(holes), model.labels_)


def test_a_model_of_complete_numbers_labels_rows_with_missing_cells():
    rows = np.random.default_rng(0).normal(size=(60, 4))
    model = PamCGC(2, **FAST).fit(rows)
    rows[3, 1] = np.nan
    assert model.predict(rows).shape == (60,)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_other_data_frames_give_the_same_clusters(frame, fitted, library):
    package = pytest.importorskip(library)
    columns = {name: frame[name].tolist() for name in frame.columns}
    other = package.DataFrame(columns) if library == "polars" else package.table(columns)
    assert np.array_equal(PamCGC(4, **FAST).fit(other).labels_, fitted.labels_)
    assert np.array_equal(fitted.predict(other), fitted.labels_)
