import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc import clusterer
from pamc.data.synthetic import block_model
from pamc.initialize.initializers.autoencoder import kept_starts
from tests.methods.tiny import tiny

pytestmark = pytest.mark.filterwarnings("ignore::pamc.errors.PamcWarning")


@pytest.fixture(scope="module")
def graph():
    return block_model(90, 3, n_features=7, random_state=0)


def fit(graph, name="dec", seed=0, **changes):
    return clusterer(name, 3, random_state=seed, **tiny(name, n_epochs=2, pretrain_epochs=2, **changes)).fit_graph(
        graph
    )


def was_kept(model):
    return model.record().facts["init_kept"]


def test_a_start_is_made_once_and_methods_that_begin_alike_share_it_to_the_bit(graph, tmp_path):
    alone = fit(graph, "idec")
    with kept_starts(tmp_path):
        first, second = fit(graph, "dec"), fit(graph, "idec")
    assert (was_kept(alone), was_kept(first), was_kept(second)) == (False, False, True)
    assert np.array_equal(second.embedding_, alone.embedding_)
    assert len(list(tmp_path.iterdir())) == 1


def test_another_seed_other_rows_or_other_settings_are_another_start(graph, tmp_path):
    other = block_model(90, 3, n_features=7, random_state=1)
    sparse = type(graph)(sp.csr_matrix(graph.features), graph.edges)
    with kept_starts(tmp_path):
        fits = [
            fit(graph), fit(graph, seed=1), fit(other), fit(graph, n_dims=5), fit(graph, pretrain_lr=1e-4), fit(sparse)
        ]  # fmt: skip
        assert not any(was_kept(model) for model in fits)
        assert was_kept(fit(sparse))
    assert len(list(tmp_path.iterdir())) == len(fits)


def test_nothing_is_kept_outside_of_a_block(graph, tmp_path):
    with kept_starts(tmp_path):
        fit(graph)
    assert not was_kept(fit(graph))
    with kept_starts(None):
        assert not was_kept(fit(graph))


def test_a_start_is_written_whole_or_not_at_all(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt), kept_starts(tmp_path):
        fit(graph)
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".pt"]
