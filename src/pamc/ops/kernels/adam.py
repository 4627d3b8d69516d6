"""Device code of :mod:`pamc.ops.triton.adam`; ADAM is its :class:`~pamc.ops.triton.adam.Constants`."""

import triton
import triton.language as tl


@triton.jit
def _move(parameter, grad, mean, square, powers, program, block, size, ADAM: tl.constexpr):
    """Update a block of ADAM.numbers elements of a tensor with the moments and powers of this program."""
    first = block.to(tl.int64) * ADAM.numbers
    inside = first + tl.arange(0, ADAM.numbers)
    valid = inside < size
    at = program.to(tl.int64) * ADAM.numbers + tl.arange(0, ADAM.numbers)
    kind = parameter.dtype.element_ty
    power_1 = tl.load(powers + 2 * program) * ADAM.beta_1
    power_2 = tl.load(powers + 2 * program + 1) * ADAM.beta_2
    # All threads must have read the powers before one of them writes.
    tl.debug_barrier()
    tl.store(powers + 2 * program, power_1, mask=first < size)
    tl.store(powers + 2 * program + 1, power_2, mask=first < size)
    rate = (ADAM.lr / (1.0 - power_1)).to(kind)
    spread = (1.0 / tl.sqrt(1.0 - power_2)).to(kind)
    g = tl.load(grad + inside, mask=valid, other=0.0)
    m = tl.load(mean + at, mask=valid, other=0.0)
    v = tl.load(square + at, mask=valid, other=0.0)
    m += (1.0 - ADAM.beta_1) * (g - m)
    v += (1.0 - ADAM.beta_2) * (g * g - v)
    tl.store(mean + at, m, mask=valid)
    tl.store(square + at, v, mask=valid)
    step = rate * m / (tl.sqrt(v) * spread + ADAM.epsilon)
    tl.store(parameter + inside, tl.load(parameter + inside, mask=valid, other=0.0) - step, mask=valid)


@triton.jit
def adam_step(
    p0, g0, p1, g1, p2, g2, p3, g3, p4, g4, p5, g5, p6, g6, p7, g7, p8, g8, p9, g9, mean, square, powers,
    end0, end1, end2, end3, end4, end5, end6, end7, end8, end9,
    size0, size1, size2, size3, size4, size5, size6, size7, size8, size9, ADAM: tl.constexpr
):  # fmt: skip
    """Update the moments and values of ten tensors p with gradients g, one program per ADAM.numbers elements.

    Tensor k is updated by the programs from end k − 1 to end k; a tensor without gradient has size 0. The moments are
    stored in the order of the programs. Each program has its own β₁ᵗ and β₂ᵗ in `powers` (P, 2), so no program changes
    what another one reads.
    """
    program = tl.program_id(0)
    if program < end0:
        _move(p0, g0, mean, square, powers, program, program, size0, ADAM)
    elif program < end1:
        _move(p1, g1, mean, square, powers, program, program - end0, size1, ADAM)
    elif program < end2:
        _move(p2, g2, mean, square, powers, program, program - end1, size2, ADAM)
    elif program < end3:
        _move(p3, g3, mean, square, powers, program, program - end2, size3, ADAM)
    elif program < end4:
        _move(p4, g4, mean, square, powers, program, program - end3, size4, ADAM)
    elif program < end5:
        _move(p5, g5, mean, square, powers, program, program - end4, size5, ADAM)
    elif program < end6:
        _move(p6, g6, mean, square, powers, program, program - end5, size6, ADAM)
    elif program < end7:
        _move(p7, g7, mean, square, powers, program, program - end6, size7, ADAM)
    elif program < end8:
        _move(p8, g8, mean, square, powers, program, program - end7, size8, ADAM)
    else:
        _move(p9, g9, mean, square, powers, program, program - end8, size9, ADAM)
