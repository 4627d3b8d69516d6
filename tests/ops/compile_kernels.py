"""Compile every kernel for a GPU that is not there: a program of its own, whose Triton does not interpret.

Each function that launches kernels is called on the host, and each launch compiles its kernel and runs nothing. Prints
the names of the kernels that were compiled.
"""

import sys

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from pamc.graph.positives import PositivePairs
from pamc.ops.triton import adam, clustering, linear, proxy
from pamc.ops.triton import objective as triton_objective
from pamc.ops.triton import positives as triton_positives
from tests.ops.test_triton_objective import SETTINGS, constants_of

N = 300


class Pretended:
    """A driver of one Hopper GPU."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


def only_compile():
    """Compile kernels for that GPU from now on, and run none."""
    run = JITFunction.run

    def compiled(self, *arguments, grid, warmup, **options):
        sys.stdout.write(f"{self.__name__}\n")
        return run(self, *arguments, grid=grid, warmup=True, **options)

    JITFunction.run = compiled
    driver.set_active(Pretended())


def pairs_of(kind):
    """Return pairs with a hub, whose rows are cut."""
    edges = torch.randint(0, N, (2, 900), generator=torch.Generator().manual_seed(0))
    edges = torch.cat([edges, torch.stack([torch.zeros(N - 1, dtype=torch.int64), torch.arange(1, N)])], dim=1)
    return PositivePairs.from_edges(edges, n_nodes=N).to(dtype=kind)


def positives(n_dims, dtype, pairs):
    z = torch.randn(N, n_dims).to(dtype).requires_grad_()
    log_mass, _ = triton_positives.positive_log_mass(z, pairs, tau=0.5, self_edges="keep")
    torch.autograd.grad(log_mass.sum(), z)


def objective(n_dims, dtype, *, known):
    z, centers = torch.randn(N, n_dims).to(dtype).requires_grad_(), torch.randn(3, n_dims).to(dtype).requires_grad_()
    labels = torch.zeros(N, dtype=torch.int64) if known else None
    values = triton_objective.objective(z, centers, pairs_of(dtype), **constants_of(SETTINGS), known_labels=labels)
    torch.autograd.grad(values.total, (z, centers))


def parts(dtype):
    """The kernels of each part of the loss, of the encoder and of the step."""
    z, centers = torch.randn(N, 10).to(dtype).requires_grad_(), torch.randn(3, 10).to(dtype).requires_grad_()
    kl, labels = clustering.self_training(z, centers, eta=1.0)
    sums, mass = clustering.cluster_sums(z, labels.zero_(), 3)
    value = proxy.proxy(sums, mass, tau=0.5, kind="eq6")
    torch.autograd.grad(kl + value, (z, centers))
    proxy.uniformity(z.detach(), step=1, n_rows=N)
    clustering.with_changes(torch.zeros(3, dtype=dtype), labels, labels)
    rows = torch.randn(N, 64).to(dtype)
    linear.relu_backward(rows, rows)
    linear.relu_linear_backward(z.detach(), torch.randn(10, 64).to(dtype), rows)
    linear.narrow_product(rows, torch.randn(64, 10).to(dtype), torch.zeros(10, dtype=dtype))
    linear.transposed(rows)


def step():
    weight = torch.randn(20, 30).requires_grad_()
    weight.grad = torch.randn(20, 30)
    adam.KernelAdam([weight], lr=1e-3, betas=(0.9, 0.999), epsilon=1e-8).step()


def main():
    only_compile()
    # Several rows side by side, and rows longer than those cut.
    triton_positives._MANY_PROGRAMS = N // triton_positives._SIDE_BY_SIDE
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        positives(10, dtype, pairs_of(torch.float32 if dtype == torch.bfloat16 else dtype))
    objective(10, torch.float32, known=False)
    parts(torch.float32)
    step()
    # One row at a time, some of them cut too.
    triton_positives._MANY_PROGRAMS, triton_positives.PIECE = 1 << 20, 128
    positives(64, torch.float32, pairs_of(torch.float32))
    objective(10, torch.float32, known=True)


if __name__ == "__main__":
    main()
