"""On a CPU, results are the same bits for any number of threads."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import hashlib, sys, torch
from pamc.graph.positives import PositivePairs
from pamc.losses.clustering import kl_loss, log_soft_assignment, log_target_distribution
from pamc.losses.pamc import pamc_terms
from pamc.ops.torch.rows import column_sums, ordered_sum, row_product

torch.set_num_threads(int(sys.argv[1]))

def show(name, *tensors):
    print(name, *(hashlib.sha256(t.detach().contiguous().numpy().tobytes()).hexdigest()[:16] for t in tensors))

for n, d, c in ((20, 64, 10), (3000, 10, 7), (3000, 33, 10), (50_000, 10, 10), (50_000, 1, 1)):
    g = torch.Generator().manual_seed(0)
    z = torch.randn(n, d, generator=g, requires_grad=True)
    centers = torch.randn(c, d, generator=g, requires_grad=True)
    edges, weight = torch.randint(n, (2, 12 * n), generator=g), torch.rand(12 * n, generator=g)
    pairs = PositivePairs.from_edges(edges, weight, n_nodes=n)
    log_q = log_soft_assignment(z, centers)
    kl = kl_loss(log_target_distribution(log_q), log_q)
    show(f"kl {n} {d} {c}", log_q, kl, *torch.autograd.grad(kl, (z, centers)))
    labels = torch.randint(c, (n,), generator=g)
    for assignment, proxy, self_edges in ((labels, "eq2", "drop"), (torch.rand(n, c, generator=g), "eq6", "keep")):
        assignment.requires_grad_(assignment.is_floating_point())
        terms = pamc_terms(z, pairs, assignment, tau=0.7, n_clusters=c, proxy=proxy, self_edges=self_edges)
        inputs = [z, assignment] if assignment.requires_grad else [z]
        parts = (terms.positive, terms.proxy, terms.alignment, terms.meta_nodes, terms.mass)
        show(f"pamc {n} {d} {c} {proxy}", *parts, *torch.autograd.grad(terms.total, inputs))
    show(f"sums {n} {d} {c}", ordered_sum(log_q), column_sums(z), row_product(log_q, centers))
"""


def run(n_threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(n_threads), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(n_threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def on_one_thread():
    return run(1)


@pytest.mark.parametrize("n_threads", [2, 4])
def test_values_and_gradients_are_the_same_bits_for_any_number_of_threads(on_one_thread, n_threads):
    assert len(on_one_thread) == 20
    assert run(n_threads) == on_one_thread
