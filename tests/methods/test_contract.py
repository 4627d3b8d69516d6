"""What every method promises, checked for every name in the registry."""

import copy
import inspect
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

from pamc import clusterer, evaluate
from pamc.data.synthetic import block_model
from pamc.errors import DataWarning, EmptyClusterWarning, PamcError
from pamc.estimator import estimator_class
from pamc.models.base import GraphModel, Model
from pamc.models.method import METHODS
from tests.methods.tiny import tiny

SIXTEEN = {
    "kmeans", "svd", "ae", "dec", "idec", "gae", "vgae", "arga", "dgi", "daegc", "sdcn", "agcn", "cgc", "scgc", "scgc*",
    "pamcgc",
}  # fmt: skip
VARIANTS = {"sdcn+pamc", "sdcn+contrast", "agcn+pamc", "agcn+contrast", "pamcgc+ae"}
N_NODES, N_CLUSTERS = 150, 3
QUIET = pytest.mark.filterwarnings("ignore::pamc.errors.PamcWarning")


@pytest.fixture(scope="module")
def graph():
    return block_model(N_NODES, N_CLUSTERS, n_features=10, degree=8, homophily=0.9, feature_noise=0.6, random_state=3)


@pytest.fixture(scope="module")
def fitted(graph):
    """Return each method fitted once, by name."""
    done = {}

    def fit(name):
        if name not in done:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                done[name] = clusterer(name, N_CLUSTERS, random_state=0, **tiny(name)).fit_graph(graph)
        return done[name]

    return fit


def test_the_sixteen_systems_and_their_variants_are_registered():
    assert set(METHODS) == SIXTEEN | VARIANTS


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_finite_and_better_than_chance(name, graph, fitted):
    model = fitted(name)
    assert model.labels_.shape == (N_NODES,)
    assert np.isfinite(model.embedding_).all()
    assert np.isfinite(model.cluster_centers_).all()
    assert ((model.confidence_ > 0) & (model.confidence_ <= 1 + 1e-6)).all()
    assert all(np.isfinite(values).all() for values in model.history_.values())
    assert evaluate(graph.labels, model.labels_)["acc"] > 1 / N_CLUSTERS + 0.2


@pytest.mark.slow
@QUIET
@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_answer_and_leaves_the_global_generators_alone(name, graph, fitted):
    first = fitted(name)
    numpy_before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()
    again = clusterer(name, N_CLUSTERS, random_state=0, **tiny(name)).fit_graph(graph)
    assert np.array_equal(again.labels_, first.labels_)
    assert np.array_equal(again.embedding_, first.embedding_)
    assert again.history_ == first.history_
    assert np.array_equal(np.random.get_state()[1], numpy_before)
    assert torch.equal(torch.get_rng_state(), torch_before)


@pytest.mark.slow
@QUIET
@pytest.mark.parametrize("name", METHODS)
def test_a_watcher_sees_every_epoch_and_changes_nothing(name, graph, fitted):
    seen = []

    def watch(epoch):
        seen.append((epoch.number, epoch.labels()))
        assert epoch.values["loss"] == again_history[epoch.number - 1]

    first = fitted(name)
    again_history = first.history_.get("loss", [])
    again = clusterer(name, N_CLUSTERS, random_state=0, **tiny(name)).fit_graph(graph, on_epoch=watch)
    assert [epoch for epoch, _ in seen] == list(range(1, first.n_iter_ + 1))
    assert all(labels.shape == (N_NODES,) and labels.dtype == np.int64 for _, labels in seen)
    assert np.array_equal(again.embedding_, first.embedding_)


@pytest.mark.slow
@QUIET
@pytest.mark.parametrize("name", METHODS)
def test_sparse_rows_give_what_dense_rows_give(name):
    rng = np.random.default_rng(0)
    dense = rng.random((60, 40)) * (rng.random((60, 40)) < 0.08)
    dense[:, 0] = np.arange(60) % 2 + 0.1
    edges = np.array([[i, (i + 2) % 60] for i in range(60)]).T
    options = tiny(name, precision="float64", preprocessing="none", n_epochs=5, pretrain_epochs=2)
    one, other = (
        clusterer(name, 2, random_state=0, **options).fit(X, adjacency=edges) for X in (dense, sp.csr_matrix(dense))
    )
    assert np.abs(one.embedding_ - other.embedding_).max() <= 1e-8 * max(1, np.abs(one.embedding_).max())


@pytest.mark.parametrize("name", METHODS)
def test_a_graph_is_built_where_it_is_needed_and_ignored_aloud_where_it_is_not(name, graph):
    method, options = METHODS[name], tiny(name, n_epochs=2, pretrain_epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = clusterer(name, N_CLUSTERS, random_state=0, **options).fit(graph.features)
    kind = alone.record().facts["graph"]
    assert kind == ("knn" if method.uses_graph else "not used")
    if not method.uses_graph:
        with pytest.warns(DataWarning, match="the graph is ignored"):
            clusterer(name, N_CLUSTERS, random_state=0, **options).fit(graph.features, adjacency=graph.edges)
    if not method.uses_features:
        with pytest.warns(DataWarning, match="the features are ignored"):
            clusterer(name, N_CLUSTERS, random_state=0, **options).fit(graph.features, adjacency=graph.edges)


@QUIET
@pytest.mark.parametrize("name", METHODS)
def test_a_run_folder_gives_the_model_back(name, graph, fitted, tmp_path):
    model = fitted(name)
    model.save(tmp_path / "run")
    loaded = estimator_class(name).load(tmp_path / "run")
    assert np.array_equal(loaded.labels_, model.labels_)
    assert np.array_equal(loaded.embedding_, model.embedding_)
    assert loaded.record().method == name
    if METHODS[name].inductive:
        assert np.array_equal(loaded.predict(graph.features), model.labels_)


@pytest.mark.parametrize("name", METHODS)
def test_inductive_methods_predict_and_the_others_do_not_pretend_to(name, graph, fitted):
    model = fitted(name)
    network = model._fit_result.network
    if METHODS[name].inductive:
        assert isinstance(network, Model)
        assert np.array_equal(model.predict(graph.features), model.labels_)
        few = graph.features[:7]
        assert np.allclose(model.predict_proba(few).sum(axis=1), 1)
        assert np.array_equal(model.transform(few), model.embedding_[:7])
        assert model.score(graph.features) <= 0
    else:
        assert isinstance(network, GraphModel)
        assert not hasattr(model, "predict")
        assert not hasattr(model, "transform")


@pytest.mark.parametrize("name", METHODS)
def test_parameters_are_the_settings_and_survive_cloning(name):
    model = clusterer(name, 4, random_state=1, **tiny(name))
    parameters = model.get_params()
    names = {parameter.removeprefix("advanced__") for parameter in parameters}
    assert set(METHODS[name].config.names()) | {"random_state", "device", "verbose"} <= names
    cloned = clone(model)
    assert cloned.get_params() == parameters
    assert cloned.config == model.config
    assert METHODS[name].config.from_toml(model.config.to_toml()) == model.config
    assert repr(model).startswith(type(model).__name__ + "(")


@pytest.mark.parametrize("name", METHODS)
def test_an_estimator_can_be_pickled_before_and_after_its_fit(name, fitted):
    unfitted = clusterer(name, 4, random_state=1, **tiny(name))
    assert pickle.loads(pickle.dumps(unfitted)).get_params() == unfitted.get_params()  # noqa: S301
    loaded = pickle.loads(pickle.dumps(fitted(name)))  # noqa: S301
    assert np.array_equal(loaded.labels_, fitted(name).labels_)
    assert type(loaded) is estimator_class(name)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_names_its_paper(name):
    method = METHODS[name]
    assert method.title
    assert any(character.isdigit() for character in method.reference)
    assert method.config.__doc__
    assert inspect.getdoc(method.build)


@pytest.mark.slow
@QUIET
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("n_nodes", [4, 17])
def test_a_handful_of_rows_is_enough(name, n_nodes):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(n_nodes, 3)).astype(np.float32)
    edges = np.array([[i, i + 1] for i in range(n_nodes - 1)]).T
    options = tiny(name, n_epochs=3, pretrain_epochs=2)
    model = clusterer(name, 2, random_state=0, **options).fit(features, adjacency=edges)
    assert model.labels_.shape == (n_nodes,)
    assert np.isfinite(model.embedding_).all()


@QUIET
@pytest.mark.parametrize("name", METHODS)
def test_more_clusters_than_rows_are_refused(name):
    with pytest.raises(PamcError, match="ask for fewer clusters"):
        clusterer(name, 5, **tiny(name)).fit(np.eye(3))


@QUIET
@pytest.mark.parametrize("name", METHODS)
def test_known_labels_are_used_or_refused(name, graph):
    known = np.where(np.arange(N_NODES) < 30, graph.labels, -1)
    model = clusterer(name, N_CLUSTERS, random_state=0, **tiny(name, n_epochs=2, pretrain_epochs=1))
    if METHODS[name].uses_known_labels:
        assert model.fit_graph(graph, known_labels=known).n_iter_ == 2
    else:
        with pytest.raises(PamcError, match="cannot use known_labels; the methods that can are pamcgc"):
            model.fit_graph(graph, known_labels=known)


@QUIET
@pytest.mark.parametrize("name", METHODS)
def test_a_fitted_estimator_can_be_copied(name, fitted):
    copied = copy.deepcopy(fitted(name))
    assert np.array_equal(copied.labels_, fitted(name).labels_)
    assert copied.record().method == name


def test_clusters_without_a_row_are_said_by_methods_that_do_not_watch_them():
    rng = np.random.default_rng(0)
    with pytest.warns(EmptyClusterWarning, match="of 6 clusters are empty after training"):
        clusterer("sdcn", 6, random_state=0, **tiny("sdcn", n_epochs=5, pretrain_epochs=2)).fit(rng.random((90, 3)))


@pytest.mark.parametrize(
    ("name", "setting"),
    [("kmeans", "metric"), ("dec", "n_neighbors"), ("scgc", "n_hops"), ("gae", "tol"), ("dgi", "tol"), ("svd", "lr")],
)
def test_a_setting_that_would_do_nothing_is_no_setting(name, setting):
    assert setting not in METHODS[name].config.names()


def test_svd_needs_no_features_where_there_is_a_graph(graph):
    nothing = np.zeros((N_NODES, 1))
    with pytest.warns(DataWarning, match="the features are ignored"):
        model = clusterer("svd", N_CLUSTERS, random_state=0).fit(nothing, adjacency=graph.edges)
    assert model.labels_.shape == (N_NODES,)


def test_a_parameter_that_a_method_does_not_have_is_refused_with_those_it_has():
    with pytest.raises(TypeError, match=r"kmeans has no parameter 'hidden'.*n_init"):
        clusterer("kmeans", 3, hidden=(10,))
    with pytest.raises(PamcError, match=r"unknown method 'kmean'.*did you mean 'kmeans'"):
        clusterer("kmean", 3)
