import warnings

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from pamc import clusterer
from pamc.data.synthetic import block_model
from pamc.errors import ConfigError, ModelFileError
from pamc.models.method import METHODS, register_method
from pamc.runtime import seed_for
from tests.methods.tiny import tiny

pytestmark = pytest.mark.filterwarnings("ignore::pamc.errors.PamcWarning")


@pytest.fixture(scope="module")
def graph():
    return block_model(120, 3, n_features=9, degree=8, homophily=0.9, feature_noise=0.5, random_state=1)


def test_kmeans_is_scikit_learns_on_the_rows_as_they_are(graph):
    ours = clusterer("kmeans", 3, random_state=4, preprocessing="none").fit(graph.features)
    theirs = KMeans(3, n_init=20, random_state=seed_for(4, "k-means")).fit(graph.features.astype(np.float64))
    assert np.array_equal(ours.labels_, theirs.labels_)
    assert np.allclose(ours.cluster_centers_, theirs.cluster_centers_, atol=1e-5)
    assert np.array_equal(ours.embedding_, graph.features.astype(np.float32))


def test_svd_embeds_the_adjacency_and_never_looks_at_the_features(graph):
    one = clusterer("svd", 3, random_state=0, n_dims=4).fit(graph.features, adjacency=graph.edges)
    other = clusterer("svd", 3, random_state=0, n_dims=4).fit(graph.features[:, ::-1] * 3 + 1, adjacency=graph.edges)
    assert np.array_equal(one.embedding_, other.embedding_)
    dense = np.zeros((120, 120))
    dense[graph.edges[0], graph.edges[1]] = dense[graph.edges[1], graph.edges[0]] = 1
    values = np.linalg.svd(dense, compute_uv=False)[:4]
    assert np.allclose(np.linalg.norm(one.embedding_, axis=0), values, rtol=1e-2)


def test_pamcgc_with_an_autoencoder_needs_one():
    with pytest.raises(ConfigError, match="init must be 'autoencoder'"):
        clusterer("pamcgc+ae", 3, init="propagated_svd").fit(np.eye(5))


def test_scgc_takes_neighbors_and_scgc_star_influence_as_positives(graph):
    fitted = {
        name: clusterer(name, 3, random_state=0, **tiny(name, n_hops=2, n_epochs=2)).fit_graph(graph)
        for name in ("scgc", "scgc*")
    }
    pairs = {name: model.record().facts["n_positive_pairs"] for name, model in fitted.items()}
    assert pairs["scgc"] == 2 * fitted["scgc"].record().facts["n_edges"]
    assert pairs["scgc*"] > pairs["scgc"]
    assert "reconstruction" in fitted["scgc"].history_
    assert "reconstruction" not in fitted["scgc*"].history_


def sdcn_state(hidden, n_features, n_dims, *, decoder=True):
    sizes = (n_features, *hidden, n_dims)
    generator = torch.Generator().manual_seed(0)
    state = {}
    for names, widths in (
        (("enc_1", "enc_2", "enc_3", "z_layer"), sizes),
        (("dec_1", "dec_2", "dec_3", "x_bar_layer"), sizes[::-1]),
    ):
        if names[0] == "dec_1" and not decoder:
            continue
        for name, n_in, n_out in zip(names, widths, widths[1:], strict=False):
            state[f"{name}.weight"] = torch.randn(n_out, n_in, generator=generator) / n_in**0.5
            state[f"{name}.bias"] = torch.zeros(n_out)
    return state


def test_weights_in_sdcns_layout_fill_encoder_and_decoder(graph, tmp_path):
    state = sdcn_state((8, 6, 7), 9, 5)
    torch.save(state, tmp_path / "weights.pkl")
    options = tiny("sdcn", hidden=(8, 6, 7), n_dims=5, n_epochs=0, preprocessing="none")
    model = clusterer("sdcn", 3, random_state=0, pretrained=str(tmp_path / "weights.pkl"), **options).fit_graph(graph)
    x = torch.from_numpy(graph.features).float()
    for name in ("enc_1", "enc_2", "enc_3", "z_layer"):
        x = x @ state[f"{name}.weight"].T
        x = x if name == "z_layer" else x.relu()
    assert np.allclose(model.embedding_, x.numpy(), atol=1e-5)


def test_weights_without_a_decoder_are_refused_by_a_method_that_needs_one(graph, tmp_path):
    torch.save(sdcn_state((8, 6, 7), 9, 5, decoder=False), tmp_path / "weights.pkl")
    options = tiny("idec", hidden=(8, 6, 7), n_dims=5, n_epochs=1, preprocessing="none")
    with pytest.raises(ModelFileError, match="no decoder"):
        clusterer("idec", 3, pretrained=str(tmp_path / "weights.pkl"), **options).fit_graph(graph)


def test_a_method_without_an_autoencoder_takes_no_pretrained_weights():
    with pytest.raises(TypeError, match="gae has no parameter 'pretrained'"):
        clusterer("gae", 3, pretrained="weights.pkl")


def test_a_name_is_registered_once():
    assert "kmeans" in METHODS
    with pytest.raises(ConfigError, match="registered twice"):
        register_method("kmeans", title="x", reference="x", config=METHODS["kmeans"].config, uses_graph=False)(None)


def test_more_epochs_than_none_change_a_trained_method(graph):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short, long = (clusterer("dec", 3, random_state=0, **tiny("dec", n_epochs=n)).fit_graph(graph) for n in (0, 5))
    assert short.n_iter_ == 0
    assert long.n_iter_ == 5
    assert not np.array_equal(short.embedding_, long.embedding_)
