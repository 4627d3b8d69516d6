import pytest
import torch

from pamc.config import FitConfig
from pamc.data.synthetic import block_model
from pamc.errors import TrainingError
from pamc.graph.adjacency import build_adjacency
from pamc.graph.influence import positive_pairs
from pamc.models.base import GraphModel, LossTerms, Model, Reading
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.models.method import METHODS, BuildInput
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.ops import reference
from pamc.runtime import generator
from pamc.training import trainer
from pamc.training.engine import accumulate_gradient
from pamc.training.trainer import train

CPU = torch.device("cpu")
N_NODES, N_CLUSTERS = 401, 5


def parts(config=None, *, known_labels=None, seed=0):
    """Return a float64 PamCGC model and its rows on a small block model."""
    config = config or FitConfig(n_clusters=N_CLUSTERS, precision="float64", alpha=1.0)
    graph = block_model(N_NODES, N_CLUSTERS, n_features=12, random_state=seed)
    adjacency = build_adjacency(graph.edges, n_nodes=N_NODES)
    pairs, _ = positive_pairs(adjacency, n_hops=config.n_hops or 2, max_positives=None, dtype=torch.float64)
    rows = FeatureLoader(graph.features, device=CPU, dtype=torch.float64)
    encoder = MLP((12, 20, 6), generator=generator(seed, "weights"), dtype=torch.float64)
    centers = encode_rows(encoder, rows)[:N_CLUSTERS].clone()
    return PamCGCModel(encoder, centers, pairs, config, known_labels=known_labels), rows


def gradient(model, rows, chunk_size):
    model.zero_grad()
    terms = accumulate_gradient(model, rows, chunk_size=chunk_size)
    return terms.total.item(), torch.cat([p.grad.ravel() for p in model.parameters()])


@pytest.mark.parametrize("chunk_size", [1, 7, 100, 400, 401, 5000])
@pytest.mark.parametrize("meta_assignment", ["hard", "soft"])
def test_chunked_gradients_equal_one_chunk_gradients(chunk_size, meta_assignment):
    model, rows = parts(
        FitConfig(n_clusters=N_CLUSTERS, precision="float64", alpha=1.0, meta_assignment=meta_assignment)
    )
    value, whole = gradient(model, rows, None)
    chunked_value, chunked = gradient(model, rows, chunk_size)
    assert chunked_value == pytest.approx(value, rel=1e-10)
    assert (chunked - whole).norm() <= 1e-10 * whole.norm()


def test_one_chunk_runs_the_encoder_once_per_epoch_and_several_run_it_twice():
    model, rows = parts()
    calls = []
    model.encoder.register_forward_hook(lambda *_: calls.append(1))
    accumulate_gradient(model, rows)
    assert len(calls) == 1
    accumulate_gradient(model, rows, chunk_size=201)
    assert len(calls) == 1 + 4


@pytest.mark.parametrize(
    "options",
    [
        {"proxy": "eq2", "meta_assignment": "hard", "self_edges": "drop", "kl_reduction": "mean"},
        {"proxy": "eq6", "meta_assignment": "hard", "self_edges": "keep", "kl_reduction": "mean"},
        {"proxy": "eq2", "meta_assignment": "soft", "self_edges": "drop", "kl_reduction": "sum", "eta": 2.0},
        {"proxy": "eq6", "meta_assignment": "soft_detached", "alpha": 0.5, "beta": 3.0, "tau": 0.25},
    ],
)
def test_the_objective_is_eq_12_of_the_dense_reference_in_value_and_gradient(options):
    config = FitConfig(n_clusters=N_CLUSTERS, precision="float64", **{"alpha": 1.0, **options})
    model, rows = parts(config)
    z = encode_rows(model.encoder, rows).requires_grad_()
    total = model.objective(z).total
    ours = torch.autograd.grad(total, [z, model.centers])
    pairs = model.pairs
    gamma = torch.zeros(N_NODES, N_NODES, dtype=torch.float64)
    gamma[pairs.rows, pairs.indices] = pairs.log_weight.exp()
    gamma += torch.diag(pairs.log_self_weight.exp())
    expected = reference.objective(
        z,
        model.centers,
        gamma,
        alpha=config.alpha,
        beta=config.beta,
        tau=config.tau,
        eta=config.eta,
        proxy=config.proxy,
        meta_assignment=config.meta_assignment,
        self_edges=config.self_edges,
        kl_reduction=config.kl_reduction,
    )
    theirs = torch.autograd.grad(expected, [z, model.centers])
    assert abs((total - expected).item()) <= 1e-12 * max(1, abs(expected.item()))
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).norm() <= 1e-11 * other.norm()


def test_every_epoch_records_every_term_and_the_loss_is_their_weighted_sum():
    config = FitConfig(n_clusters=N_CLUSTERS, precision="float64", alpha=0.7, beta=0.3)
    model, rows = parts(config)
    records = list(train(model, rows, n_epochs=5, lr=1e-3))
    assert [record.epoch for record in records] == [1, 2, 3, 4, 5]
    for record in records:
        values = record.values
        assert set(values) == {
            "loss", "positive", "proxy", "kl", "alignment", "uniformity", "center_distance", "n_nonempty", "changed",
        }  # fmt: skip
        total = 0.7 * (values["positive"] + values["proxy"]) + 0.3 * values["kl"]
        assert values["loss"] == pytest.approx(total, rel=1e-12)
        assert 0 <= values["alignment"] <= 4
        assert -8 <= values["uniformity"] <= 0
        assert record.seconds > 0
    assert records[0].values["changed"] == 1
    assert records[-1].values["loss"] < records[0].values["loss"]


def test_the_center_distance_is_zero_when_centers_are_cluster_means():
    model, rows = parts()
    z = encode_rows(model.encoder, rows)
    for _ in range(50):
        labels = model.objective(z).labels
        means = torch.stack([z[labels == c].mean(dim=0) for c in range(N_CLUSTERS)])
        model.centers.data.copy_(means)
        if torch.equal(model.objective(z).labels, labels):
            break
    assert model.objective(z).monitors["center_distance"].item() == pytest.approx(0, abs=1e-12)


def test_training_stops_when_labels_stop_changing():
    model, rows = parts()
    records = list(train(model, rows, n_epochs=500, lr=1e-9, tol=0.001))
    assert len(records) == 10
    assert all(record.values["changed"] == 0 for record in records[1:])


def test_training_goes_on_while_few_labels_change_in_each_epoch(monkeypatch):
    # Labels change by 0.1 % in each of the first 24 epochs, which is 1 % in ten epochs.
    monkeypatch.setattr(trainer, "_changed", lambda record: 0.001 if record.epoch < 25 else 0.0)
    model, rows = parts()
    assert len(list(train(model, rows, n_epochs=500, lr=1e-9, tol=0.0045))) == 30


def test_known_labels_replace_the_argmax_in_the_meta_nodes():
    known = torch.full((N_NODES,), -1)
    known[:50] = 3
    for meta_assignment in ("hard", "soft"):
        config = FitConfig(n_clusters=N_CLUSTERS, precision="float64", alpha=1.0, meta_assignment=meta_assignment)
        plain, rows = parts(config)
        informed, _ = parts(config, known_labels=known)
        z = encode_rows(plain.encoder, rows)
        assert torch.equal(plain.objective(z).labels, informed.objective(z).labels)
        log_q = None if meta_assignment == "hard" else torch.log_softmax(z[:, :N_CLUSTERS], dim=1)
        expected = plain._assignment(z[:, :N_CLUSTERS].argmax(dim=1), log_q)
        got = informed._assignment(z[:, :N_CLUSTERS].argmax(dim=1), log_q)
        assert torch.equal(got[50:], expected[50:])
        first = got[:50] if got.ndim == 1 else got[:50].argmax(dim=1)
        assert (first == 3).all()


class Exploding(Model):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(12, 2, dtype=torch.float64)

    def objective(self, z):
        total = z.sum() / 0.0
        return LossTerms(total=total, parts={"broken": total}, labels=z.argmax(dim=1))


def test_a_loss_that_is_not_finite_stops_with_the_epoch_and_the_terms():
    _, rows = parts()
    with pytest.raises(TrainingError, match=r"epoch 1: loss, broken is not finite .*broken (-?inf|nan)"):
        list(train(Exploding(), rows, n_epochs=3, lr=1e-3))


@pytest.mark.fast_variants(2)
@pytest.mark.parametrize("chunk_size", [1, 7, 100, 400])
@pytest.mark.parametrize("name", ["idec", "scgc", "pamcgc+ae"])
def test_reconstruction_is_added_chunk_by_chunk_to_the_same_gradient(name, chunk_size):
    base, rows = parts()
    weight = {"alpha": 1.0} if name == "pamcgc+ae" else {}
    config = METHODS[name].config(n_clusters=N_CLUSTERS, precision="float64", **weight)
    given = BuildInput(
        n_nodes=N_NODES,
        n_features=12,
        config=config,
        seed=0,
        device=CPU,
        dtype=torch.float64,
        adjacency=build_adjacency(block_model(N_NODES, N_CLUSTERS, n_features=12).edges, n_nodes=N_NODES),
        pairs=base.pairs,
        encoder=base.encoder,
        decoder=MLP((6, 20, 12), generator=generator(1, "weights"), dtype=torch.float64),
        centers=base.centers,
    )
    model = METHODS[name].build(given)
    value, whole = gradient(model, rows, None)
    chunked_value, chunked = gradient(model, rows, chunk_size)
    assert chunked_value == pytest.approx(value, rel=1e-10)
    assert (chunked - whole).norm() <= 1e-10 * whole.norm()
    terms = accumulate_gradient(model, rows, chunk_size=chunk_size)
    x = rows.whole()
    expected = (model.decoder(model.encoder(x)) - x).square().mean()
    assert terms.parts["reconstruction"].item() == pytest.approx(expected.item(), rel=1e-10)
    assert model.objective(encode_rows(model.encoder, rows)).total.item() + model.row_weight * expected.item() == (
        pytest.approx(terms.total.item(), rel=1e-10)
    )


class Drawing(GraphModel):
    draws = True

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def loss(self, x):
        total = self.weight * torch.randn(())
        return LossTerms(total=total, parts={"draw": total.detach() * 0 + torch.rand(())})

    def read(self, x):
        return Reading(x)


def test_a_loss_that_draws_gets_new_numbers_in_each_epoch_the_same_in_each_run_and_the_global_state_stays():
    _, rows = parts()
    torch.manual_seed(123)
    before = torch.get_rng_state()
    one, again = (
        [record.values["draw"] for record in train(Drawing(), rows, n_epochs=3, lr=0.1, seed=5)] for _ in "12"
    )
    other = [record.values["draw"] for record in train(Drawing(), rows, n_epochs=3, lr=0.1, seed=6)]
    assert one == again
    assert len(set(one)) == 3
    assert one != other
    assert torch.equal(torch.get_rng_state(), before)


def test_a_method_that_assigns_at_the_end_has_no_share_of_changed_labels_and_never_stops_early():
    _, rows = parts()
    records = list(train(Drawing(), rows, n_epochs=4, lr=0.1, tol=0.5))
    assert len(records) == 4
    assert all("changed" not in record.values and record.labels is None for record in records)


def test_epochs_that_are_read_together_are_the_same_epochs():
    one_by_one, together = ([] for _ in range(2))
    for records, read_every in ((one_by_one, 1), (together, 4)):
        model, rows = parts()
        records += train(model, rows, n_epochs=10, lr=1e-3, read_every=read_every)
    assert [record.epoch for record in together] == list(range(1, 11))
    assert [record.values for record in together] == [record.values for record in one_by_one]
    read_last = [record.epoch for record in together if record.labels is not None]
    assert read_last == [10]
    for epoch in read_last:
        assert torch.equal(together[epoch - 1].labels, one_by_one[epoch - 1].labels)


def test_epochs_that_are_read_together_end_at_multiples_also_after_a_resume():
    batches = list(trainer._run_epochs(_Counted(), range(4, 24), 10, None, ahead=False))
    assert [list(epochs) for epochs, *_ in batches] == [[*range(4, 11)], [*range(11, 21)], [*range(21, 24)]]


class _Counted:
    labels = None

    def __call__(self, epoch):
        return torch.tensor([float(epoch)])


@pytest.mark.parametrize("read_every", [3, 20, 50])
def test_a_tolerance_is_checked_every_ten_epochs_and_no_epoch_is_run_in_vain(read_every):
    model, rows = parts()
    alike, _ = parts()
    assert len(list(train(model, rows, n_epochs=500, lr=1e-9, tol=0.001, read_every=read_every))) == 10
    assert len(list(train(alike, rows, n_epochs=10, lr=1e-9))) == 10
    torch.testing.assert_close(model.state_dict(), alike.state_dict(), rtol=0, atol=0)
