"""Views of rows: copies that the user gives, and images that are moved."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits

from pamc import PamCGC, clusterer, evaluate
from pamc.config import FitConfig
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.synthetic import blobs
from pamc.errors import ConfigError, DataError
from pamc.models.views import Views, moved_images
from pamc.training.pipeline import fit_method, run_worker
from tests.training.threads import run_team

SETTINGS = {"hidden": (16,), "pretrain_epochs": 3, "n_init": 2}
FAST = {"n_epochs": 4, "advanced": SETTINGS, "random_state": 0, "device": "cpu"}
SHAPE = (4, 5)


@pytest.fixture(scope="module")
def X():  # noqa: N802
    return blobs(90, 3, n_features=20, random_state=0).features.astype(np.float64)


@pytest.fixture(scope="module")
def fitted(X):
    return PamCGC(3, image_shape=SHAPE, **FAST).fit(X)


def test_views_have_a_term_of_their_own_and_the_record_says_how_neighbors_were_found(fitted):
    assert set(fitted.history_) >= {"positive", "proxy", "kl", "views"}
    assert all(-0.5 <= value <= 0.5 for value in fitted.history_["views"])
    weight, last = fitted.record().config, {name: values[-1] for name, values in fitted.history_.items()}
    total = weight["alpha"] * (last["positive"] + last["proxy"] + last["views"]) + weight["beta"] * last["kl"]
    assert last["loss"] == pytest.approx(total, rel=1e-5)
    facts = fitted.record().facts
    assert (facts["graph"], facts["neighbors_by"], facts["preprocessing"]) == ("knn", "tangent distance", "scale")


def test_fits_of_images_are_reproducible_and_differ_from_fits_of_rows(X, fitted):
    assert np.array_equal(clone(fitted).fit(X).embedding_, fitted.embedding_)
    assert "views" not in PamCGC(3, **FAST).fit(X).history_


def test_chunks_give_the_same_fit(X, fitted):
    settings = {**FAST, "advanced": {**SETTINGS, "chunk_size": 32}}
    chunked = PamCGC(3, image_shape=SHAPE, **settings).fit(X)
    assert np.allclose(chunked.embedding_, fitted.embedding_, atol=1e-4)


@pytest.mark.parametrize("kind", ["image_shape", "copies"])
def test_several_processes_give_the_fit_of_one(X, kind):
    views = np.stack([X + 0.1, X - 0.1]) if kind == "copies" else None
    changes = {"image_shape": SHAPE} if kind == "image_shape" else {}
    config = FitConfig(n_clusters=3, n_epochs=4, precision="float64", n_dims=4, **SETTINGS, **changes)
    options = {"seed": 0, "device": torch.device("cpu"), "views": views}
    alone = fit_method("pamcgc", AttributedGraph(X), config, **options)

    def work(group):
        if group.rank > 0:
            return run_worker(group)
        return fit_method("pamcgc", AttributedGraph(X), config, **options, group=group)

    for size in (2, 3):
        fit = run_team(size, work)[0]
        for name in ("loss", "views"):
            np.testing.assert_allclose(fit.history[name], alone.history[name], rtol=1e-10)
        torch.testing.assert_close(fit.z, alone.z, rtol=0, atol=1e-10)


def test_a_model_of_images_is_saved_with_its_shape(X, fitted, tmp_path):
    fitted.save(tmp_path / "run")
    loaded = PamCGC.load(tmp_path / "run", device="cpu")
    assert loaded.image_shape == SHAPE
    assert np.array_equal(loaded.predict(X), fitted.labels_)


def test_every_epoch_draws_other_views_and_every_device_and_batch_the_same():
    views = Views(None, SHAPE, seed=1)
    x, rows = torch.rand(6, 20), torch.arange(6)
    first, second = (views.of(x, rows, torch.tensor(step)) for step in (0, 1))
    assert not torch.equal(first, second)
    assert torch.allclose(views.of(x[2:4], rows[2:4], torch.tensor(0)), first[2:4], atol=1e-6)


def test_copies_of_a_row_are_drawn_from_those_of_the_row():
    copies = torch.arange(24.0).reshape(3, 4, 2)
    views = Views(copies, None, seed=1)
    drawn = [views.of(copies[0], torch.arange(4), torch.tensor(step)) for step in range(40)]
    for row in range(4):
        assert {tuple(x[row].tolist()) for x in drawn} == {tuple(copies[v, row].tolist()) for v in range(3)}


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (3, 3, 4)])
def test_moving_an_image_by_nothing_changes_nothing(shape):
    x = torch.rand(5, 36)
    assert torch.allclose(moved_images(x, shape, torch.zeros(5, 4)), x, atol=1e-5)


@pytest.mark.parametrize("form", ["array", "several arrays", "callable", "list"])
def test_copies_come_as_arrays_or_callables(X, form):
    rng = np.random.default_rng(0)
    copy = X + rng.normal(scale=0.1, size=X.shape)
    views = {
        "array": copy,
        "several arrays": np.stack([copy, X]),
        "callable": lambda rows: rows + rng.normal(scale=0.1, size=rows.shape),
        "list": [copy, lambda rows: rows],
    }[form]
    model = PamCGC(3, **FAST).fit(X, views=views)
    assert len(model.history_["views"]) == model.n_iter_


def test_copies_teach_the_encoder_what_to_ignore():
    """The first column is noise, which copies draw anew: training on them makes the embedding depend on it less."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(200, 1)) * 2, blobs(200, 3, n_features=4, random_state=0).features], axis=1)

    def redrawn(rows):
        rows[:, 0] = rng.permutation(rows[:, 0])
        return rows

    settings = {**FAST, "n_epochs": 20, "advanced": {"hidden": (32,), "pretrain_epochs": 100, "preprocessing": "none"}}
    changed = redrawn(X.copy())
    moves = []
    for views in (None, redrawn):
        model = PamCGC(3, **settings).fit(X, views=views)
        z, z_changed = model.transform(X), model.transform(changed)
        moves.append(np.linalg.norm(z - z_changed, axis=1).mean() / np.linalg.norm(z - z.mean(axis=0), axis=1).mean())
    assert moves[1] < 0.8 * moves[0]


@pytest.mark.parametrize(
    ("settings", "how", "error", "problem"),
    [
        ({"image_shape": (4, 4)}, {}, ConfigError, "has 16 pixels, but the rows have 20 columns"),
        ({"image_shape": 20}, {}, ConfigError, "image_shape must be"),
        ({"image_shape": "4x5"}, {}, ConfigError, "image_shape must be"),
        ({"image_shape": (1, 20)}, {}, ConfigError, "image_shape must be an integer of at least 2|at least 2"),
        ({}, {"views": np.zeros((90, 3))}, DataError, r"view 0 has shape \(90, 3\)"),
        ({}, {"views": [lambda X: X, lambda X: X[:5]]}, DataError, r"view 1 has shape \(5, 20\)"),
        ({}, {"views": np.full((90, 20), np.nan)}, DataError, "not finite"),
        ({}, {"views": np.full((90, 20), "a")}, DataError, "must be numbers"),
    ],
)
def test_wrong_shapes_and_views_raise_an_error(X, settings, how, error, problem):
    with pytest.raises(error, match=problem):
        PamCGC(3, **settings, **FAST).fit(X, **how)


def test_views_need_dense_rows_and_pamcgc(X):
    with pytest.raises(DataError, match="need dense rows"):
        PamCGC(3, image_shape=SHAPE, **FAST).fit(sp.csr_matrix(X))
    with pytest.raises(ConfigError, match="K-means cannot use views or image_shape"):
        clusterer("kmeans", 3).fit(X, views=X)


@pytest.mark.slow
def test_digits_are_found_whatever_their_position():
    X, y = load_digits(return_X_y=True)
    model = PamCGC(10, image_shape=(8, 8), random_state=0, device="cpu").fit(X)
    assert evaluate(y, model.labels_)["acc"] > 0.95
