"""A wrong argument is refused at the door, with what to do."""

import math

import pytest
import torch

from pamc.errors import BackendError, ConfigError, DataError, UnknownNameError
from pamc.graph.positives import PositivePairs
from pamc.losses.contrastive import ContrastiveLoss, contrastive_loss
from pamc.losses.pamc import PamCLoss, meta_nodes, pamc_loss, proxy_loss

Z = torch.eye(4)
EDGES = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
LABELS = torch.tensor([0, 0, 1, 1])


def loss(z=Z, edges=EDGES, labels=LABELS, **options):
    return pamc_loss(z, edges, labels, **options)


@pytest.mark.parametrize("z", [torch.ones(4), torch.ones(4, 4, dtype=torch.int64), torch.ones(4, 4) * 1j])
def test_z_must_be_a_matrix_of_numbers(z):
    with pytest.raises(DataError, match="z must be a 2-D floating-point tensor, got torch"):
        loss(z)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
def test_an_empty_z_is_refused(shape):
    with pytest.raises(DataError, match="at least one row and one column"):
        loss(torch.ones(shape))


@pytest.mark.parametrize("tau", [0, -1.0, math.nan, math.inf])
def test_tau_must_be_finite_and_above_0(tau):
    for function in (
        lambda: loss(tau=tau),
        lambda: PamCLoss(tau=tau),
        lambda: contrastive_loss(Z, EDGES, tau=tau),
        lambda: ContrastiveLoss(tau=tau),
        lambda: proxy_loss(Z, tau=tau),
    ):
        with pytest.raises(ConfigError, match=r"tau .* finite number above 0"):
            function()


@pytest.mark.parametrize(("option", "value"), [("proxy", "eq3"), ("self_edges", "dropp")])
def test_an_unknown_choice_is_refused_with_the_known_ones(option, value):
    for function in (lambda: loss(**{option: value}), lambda: PamCLoss(**{option: value})):
        with pytest.raises(UnknownNameError, match=f"unknown {option} '{value}': allowed are .*did you mean"):
            function()


def test_an_unknown_choice_of_the_other_losses_is_refused():
    with pytest.raises(UnknownNameError, match="self_edges"):
        contrastive_loss(Z, EDGES, self_edges="all")
    with pytest.raises(UnknownNameError, match="self_edges"):
        ContrastiveLoss(self_edges="all")
    with pytest.raises(UnknownNameError, match="proxy"):
        proxy_loss(Z, tau=1.0, proxy="eq3")


def test_an_unknown_backend_is_refused():
    with pytest.raises(UnknownNameError, match="backend"):
        loss(backend="cuda")


def test_a_device_without_a_backend_is_refused():
    on_meta = [x.to("meta") for x in (Z, LABELS)]
    pairs = PositivePairs.from_edges(EDGES, n_nodes=4).to(device="meta")
    soft = torch.ones(4, 2, device="meta")
    with pytest.raises(BackendError, match="'meta'"):
        loss(on_meta[0], pairs, soft)


def test_edges_as_rows_are_refused_with_what_to_do():
    with pytest.raises(DataError, match=r"edges must have shape \(2, E\), got \(4, 2\); pass edges.T"):
        loss(edges=EDGES.T)
    with pytest.raises(DataError, match=r"edges must have shape \(2, E\), got \(4,\)$"):
        loss(edges=EDGES[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_edges_must_be_integers(dtype):
    with pytest.raises(DataError, match=f"row indices.*{dtype}"):
        loss(edges=EDGES.to(dtype))


def test_edges_to_unknown_rows_are_refused_with_the_first_three():
    with pytest.raises(DataError, match=r"4 of 5 edges .*0 to 3.*: 4→0, 0→-1, 9→9$"):
        loss(edges=torch.tensor([[4, 0, 9, 0, 7], [0, -1, 9, 1, 7]]))


def test_a_weight_for_each_edge_is_asked_for():
    with pytest.raises(DataError, match=r"one value per edge \(4\), got shape \(3,\)"):
        loss(edge_weight=torch.ones(3))


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_a_weight_below_0_or_not_finite_is_refused(wrong):
    with pytest.raises(DataError, match=rf"1 of 4 are not; the first is {wrong:g} at edge 2"):
        loss(edge_weight=torch.tensor([1.0, 0.0, wrong, 1.0]))


def test_a_weight_that_wants_a_gradient_is_refused_because_it_is_a_constant():
    with pytest.raises(ConfigError, match=r"γ is a constant of the loss: pass edge_weight.detach\(\)"):
        loss(edge_weight=torch.ones(4, requires_grad=True))


def test_weights_beside_prepared_pairs_are_refused():
    with pytest.raises(ConfigError, match="carry their weights"):
        loss(edges=PositivePairs.from_edges(EDGES, n_nodes=4), edge_weight=torch.ones(4))


def test_pairs_over_other_nodes_are_refused():
    with pytest.raises(DataError, match="over 5 nodes, but z has 4 rows"):
        loss(edges=PositivePairs.from_edges(EDGES, n_nodes=5))


def test_pairs_and_assignments_on_another_device_are_refused():
    with pytest.raises(DataError, match="edges are on meta and z on cpu"):
        loss(edges=PositivePairs.from_edges(EDGES, n_nodes=4).to(device="meta"))
    with pytest.raises(DataError, match="assignment is on meta and z on cpu"):
        loss(labels=LABELS.to("meta"))


@pytest.mark.parametrize(
    "assignment",
    [torch.zeros(3, dtype=torch.int64), torch.zeros(4), torch.zeros(4, dtype=torch.bool), torch.zeros(3, 2),
     torch.zeros(4, 2, dtype=torch.int64), torch.zeros(4, 2, 1)],
)  # fmt: skip
def test_an_assignment_is_labels_or_shares_for_every_row(assignment):
    with pytest.raises(DataError, match=r"\(4,\) integer labels or \(4, C\) floating-point, got torch"):
        loss(labels=assignment)


@pytest.mark.parametrize(("labels", "got"), [([0, 1, 2, 0], "0 to 2"), ([0, -1, 1, 0], "-1 to 1")])
def test_labels_outside_the_clusters_are_refused(labels, got):
    with pytest.raises(DataError, match=f"between 0 and n_clusters - 1 = 1, got {got}"):
        loss(labels=torch.tensor(labels), n_clusters=2)


def test_negative_labels_are_refused_without_n_clusters_too():
    with pytest.raises(DataError, match="got -1 to 1"):
        meta_nodes(Z, torch.tensor([0, -1, 1, 0]))


def test_n_clusters_must_agree_with_a_soft_assignment():
    with pytest.raises(DataError, match="3 columns, but n_clusters is 2"):
        loss(labels=torch.ones(4, 3), n_clusters=2)


def test_n_clusters_must_be_at_least_1():
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        loss(n_clusters=0)


@pytest.mark.parametrize(
    ("shape", "n_clusters", "expected"),
    [((4,), None, r"\(C, 4\)"), ((2, 3), None, r"\(C, 4\)"), ((3, 4), 2, r"\(2, 4\)")],
)
def test_given_meta_nodes_must_fit(shape, n_clusters, expected):
    with pytest.raises(DataError, match=f"meta_nodes must have shape {expected}"):
        loss(meta_nodes=torch.ones(shape), n_clusters=n_clusters)


def test_given_meta_nodes_set_the_number_of_clusters():
    with pytest.raises(DataError, match="n_clusters - 1 = 0"):
        loss(meta_nodes=torch.ones(1, 4))


def test_masses_must_fit_the_meta_nodes():
    with pytest.raises(DataError, match=r"one value per meta-node \(4\), got shape \(2,\)"):
        proxy_loss(Z, tau=1.0, mass=torch.ones(2))
    with pytest.raises(DataError, match="meta_nodes must be a 2-D floating-point tensor"):
        proxy_loss(LABELS, tau=1.0)


def test_arguments_are_not_modified():
    weight = torch.rand(4)
    arguments = [Z.clone().requires_grad_(), EDGES, LABELS, weight]
    before = [x.detach().clone() for x in arguments]
    loss(*arguments[:3], edge_weight=weight).backward()
    assert all(torch.equal(a, b) for a, b in zip(arguments, before, strict=True))
