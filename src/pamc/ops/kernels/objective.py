"""Device code of :mod:`pamc.ops.triton.objective`: Eq 12 from z to its gradient.

In all kernels, `z` (N, DIMS) has rows with stride `z_stride`, and `centers` (C, DIMS) is contiguous. A tile is
(CLUSTERS, ROWS): a thread holds all clusters of its rows, loops over their dimensions, and recomputes distances that
are needed again, which is faster than loading them. A program processes n_tiles tiles sequentially and stores sums over
its rows in `parts` (P, …), one row per program. Sums have the type ACCUMULATOR. DIMS and ACCUMULATOR are fields of
SHAPE, a :class:`~pamc.ops.triton.rows.Shape`; WEIGHTS is a :class:`~pamc.ops.triton.objective.Weights`.
"""

import triton
import triton.language as tl

from pamc.ops.kernels.clustering import add, log_kernel
from pamc.ops.kernels.positives import gradient_of_unit, joined_pieces, rows_of_gradient
from pamc.ops.kernels.proxy import contrast, over_root
from pamc.ops.kernels.rows import dims_of_slots, packed_word


@triton.jit
def _distances(
    z, centers, row, valid, cluster, exists, stride, CLUSTERS: tl.constexpr, ROWS: tl.constexpr, SHAPE: tl.constexpr
):
    """Return d² (CLUSTERS, ROWS) of rows to centers, and the squared norms (ROWS,) of the rows."""
    distance = tl.zeros([CLUSTERS, ROWS], SHAPE.accumulator)
    length = tl.zeros([ROWS], SHAPE.accumulator)
    for dim in range(SHAPE.dims):
        value = tl.load(z + row * stride + dim, mask=valid, other=0.0).to(SHAPE.accumulator)
        center = tl.load(centers + cluster * SHAPE.dims + dim, mask=exists, other=0.0).to(SHAPE.accumulator)
        difference = value[None, :] - center[:, None]
        distance += difference * difference
        length += value * value
    return distance, length


@triton.jit
def _log_softmax(score):
    """Return score − log Σ e^score over the clusters (CLUSTERS, ROWS)."""
    top = tl.max(score, axis=0)
    total = tl.sum(tl.exp(score - top[None, :]), axis=0)
    return score - (top + tl.log(total))[None, :]


@triton.jit
def assign_rows(
    z,
    centers,
    known,
    labels,
    members,
    unit,
    inverse,
    parts,
    n_rows,
    n_clusters,
    n_tiles,
    z_stride,
    ETA: tl.constexpr,
    KNOWN: tl.constexpr,
    CLUSTERS: tl.constexpr,
    ROWS: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Compute labels, unit rows, sums for every cluster and, if some labels are known, the cluster members.

    A row of `parts` is the concatenation of Σ_i q (C), the number of members (C), and their sum (C, DIMS).
    """
    program = tl.program_id(0).to(tl.int64)
    stride = tl.zeros([], tl.int64) + z_stride
    cluster = tl.arange(0, CLUSTERS)
    exists = cluster < n_clusters
    place = parts + program * (n_clusters * (SHAPE.dims + 2))
    for tile in range(n_tiles):
        row = (program * n_tiles + tile) * ROWS + tl.arange(0, ROWS)
        valid = row < n_rows
        distance, length = _distances(z, centers, row, valid, cluster, exists, stride, CLUSTERS, ROWS, SHAPE)
        log_q = _log_softmax(tl.where(exists[:, None], log_kernel(distance, ETA), float("-inf")))
        q = tl.where(valid[None, :], tl.exp(log_q), 0.0)
        add(place + cluster, tl.sum(q, axis=1), exists, tile > 0)

        least, number = tl.min(tl.where(exists[:, None], distance, float("inf")), axis=0, return_indices=True)
        # A row with NaN is near no center, but still gets a valid label.
        label = tl.where(least < float("inf"), number, 0).to(tl.int64)
        tl.store(labels + row, label, mask=valid)
        if KNOWN:
            known_label = tl.load(known + row, mask=valid, other=-1)
            label = tl.where(known_label >= 0, known_label, label)
            tl.store(members + row, label, mask=valid)
        member = (label[None, :] == cluster[:, None]) & valid[None, :]
        add(place + n_clusters + cluster, tl.sum(member.to(SHAPE.accumulator), axis=1), exists, tile > 0)

        scale = over_root(length)
        whole = tl.zeros([ROWS], SHAPE.accumulator)
        for dim in range(SHAPE.dims):
            value = tl.load(z + row * stride + dim, mask=valid, other=0.0).to(SHAPE.accumulator)
            whole += value * scale
            if not SHAPE.packed:
                tl.store(unit + row * SHAPE.stride + dim, value * scale, mask=valid)
            total = tl.sum(tl.where(member, value[None, :], 0.0), axis=1)
            add(place + 2 * n_clusters + cluster * SHAPE.dims + dim, total, exists, tile > 0)
        # NaN stays NaN.
        tl.store(inverse + row, scale + whole * 0.0, mask=valid)
        if SHAPE.packed:
            for number in range(SHAPE.stride):
                word = tl.zeros([ROWS], tl.int32) + number
                value = tl.load(z + row * stride + word, mask=valid & (word < SHAPE.dims), other=0.0).to(
                    SHAPE.accumulator
                )
                last = SHAPE.stride + word // 4
                fifth = tl.load(z + row * stride + last, mask=valid & (last < SHAPE.dims), other=0.0)
                tl.store(unit + row * SHAPE.stride + word, packed_word(value * scale, fifth * scale, word), mask=valid)
        # The next tile adds to values stored by other threads of the program.
        tl.debug_barrier()


@triton.jit
def sharpen_rows(
    z,
    centers,
    frequency,
    log_mass,
    agreements,
    kl_grad,
    parts,
    n_rows,
    n_clusters,
    n_tiles,
    z_stride,
    ETA: tl.constexpr,
    CLUSTERS: tl.constexpr,
    ROWS: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Sharpen the assignment; `kl_grad` (N, DIMS) is the gradient of Eq 11 in z.

    A row of `parts` is the concatenation of the gradient of the centers (C, DIMS), Eq 11, the sum of the finite log
    masses, and the sum of the agreements.
    """
    program = tl.program_id(0).to(tl.int64)
    stride = tl.zeros([], tl.int64) + z_stride
    cluster = tl.arange(0, CLUSTERS)
    exists = cluster < n_clusters
    size = tl.load(frequency + cluster, mask=exists, other=1.0)
    # If f underflows, so does every q, and therefore q².
    log_size = tl.log(tl.where(size > 0, size, 1.0))
    place = parts + program * (n_clusters * SHAPE.dims + 3)
    for tile in range(n_tiles):
        row = (program * n_tiles + tile) * ROWS + tl.arange(0, ROWS)
        valid = row < n_rows
        distance, _ = _distances(z, centers, row, valid, cluster, exists, stride, CLUSTERS, ROWS, SHAPE)
        known = exists[:, None] & valid[None, :]
        log_q = _log_softmax(tl.where(exists[:, None], log_kernel(distance, ETA), float("-inf")))
        log_p = _log_softmax(tl.where(exists[:, None], 2.0 * log_q - log_size[:, None], float("-inf")))
        p, q = tl.exp(log_p), tl.exp(log_q)
        divergence = tl.sum(p * (tl.where(known, log_p, 0.0) - tl.where(known, log_q, 0.0)), axis=0)
        weight = tl.where(known, (p - q) * (ETA + 1.0) / (ETA + distance), 0.0)
        for dim in range(SHAPE.dims):
            value = tl.load(z + row * stride + dim, mask=valid, other=0.0).to(SHAPE.accumulator)
            center = tl.load(centers + cluster * SHAPE.dims + dim, mask=exists, other=0.0).to(SHAPE.accumulator)
            row_grad = weight * (value[None, :] - center[:, None])
            tl.store(kl_grad + row * SHAPE.dims + dim, tl.sum(row_grad, axis=0), mask=valid)
            add(place + cluster * SHAPE.dims + dim, -tl.sum(row_grad, axis=1), exists, tile > 0)

        mass = tl.load(log_mass + row, mask=valid, other=0.0)
        mass = tl.where(mass == float("-inf"), 0.0, mass)
        agreement = tl.load(agreements + row, mask=valid, other=0.0)
        values = place + n_clusters * SHAPE.dims
        add(values, tl.sum(divergence, axis=0), tile >= 0, tile > 0)
        add(values + 1, tl.sum(mass, axis=0), tile >= 0, tile > 0)
        add(values + 2, tl.sum(agreement, axis=0), tile >= 0, tile > 0)
        # The next tile adds to values stored by other threads of the program.
        tl.debug_barrier()


@triton.jit
def finish(
    centers,
    assigned,
    sharpened,
    potential,
    offset,
    scale,
    total,
    numbers,
    node_gradient,
    center_gradient,
    n_rows,
    n_clusters,
    n_potential,
    n_watched,
    TAU: tl.constexpr,
    WEIGHTS: tl.constexpr,
    EQ6: tl.constexpr,
    DIMS: tl.constexpr,
    WIDTH: tl.constexpr,
    CLUSTERS: tl.constexpr,
    POTENTIAL: tl.constexpr,
):
    """Compute all scalars from the sums over rows `assigned` and `sharpened`, in one program.

    `node_gradient` (C, DIMS) is the gradient of the proxy in any row of each cluster, and `center_gradient` (C, DIMS)
    the gradient of the total in the centers.
    """
    kind = numbers.dtype.element_ty
    n = tl.zeros([], kind) + n_rows
    share = tl.full([], 1.0, kind)
    if WEIGHTS.mean:
        share = 1.0 / n
    cluster = tl.arange(0, CLUSTERS)
    exists = cluster < n_clusters
    mass = tl.load(assigned + n_clusters + cluster, mask=exists, other=0.0)
    present = exists & (mass > 0)
    # The proxy depends on directions only: sums are equivalent to Eq 8's means over all rows.
    sums = assigned + 2 * n_clusters
    proxy = contrast(sums, present, node_gradient, n_clusters, TAU, EQ6, DIMS, WIDTH, CLUSTERS)

    squared = tl.zeros([CLUSTERS], kind)
    for dim in range(DIMS):
        mean = tl.load(sums + cluster * DIMS + dim, mask=exists, other=0.0) / tl.where(present, mass, 1.0)
        difference = tl.load(centers + cluster * DIMS + dim, mask=exists, other=0.0) - mean
        squared += difference * difference
    n_nonempty = tl.sum(present.to(kind), axis=0)
    distance = tl.sum(tl.where(present, tl.sqrt(squared), 0.0), axis=0) / n_nonempty

    block = tl.arange(0, POTENTIAL)
    together = tl.sum(tl.load(potential + block, mask=block < n_potential, other=0.0), axis=0)
    watched = tl.zeros([], kind) + n_watched
    n_pairs = watched * (watched - 1.0)
    some = n_pairs > 0
    uniformity = tl.where(some, tl.log(tl.where(some, together, 1.0) / tl.where(some, n_pairs, 1.0)), 0.0)

    values = sharpened + n_clusters * DIMS
    kl = tl.load(values) * share
    positive = -tl.load(values + 1) / n
    alignment = tl.load(offset) - tl.load(scale) * tl.load(values + 2)
    result = WEIGHTS.alpha * (positive + proxy) + WEIGHTS.beta * kl
    tl.store(total, result)
    tl.store(numbers, result)
    tl.store(numbers + 1, positive)
    tl.store(numbers + 2, proxy)
    tl.store(numbers + 3, kl)
    tl.store(numbers + 4, alignment)
    tl.store(numbers + 5, uniformity)
    tl.store(numbers + 6, distance)
    tl.store(numbers + 7, n_nonempty)

    for dim in range(DIMS):
        kl_grad = tl.load(sharpened + cluster * DIMS + dim, mask=exists, other=0.0)
        tl.store(center_gradient + cluster * DIMS + dim, WEIGHTS.beta * share * kl_grad, mask=exists)


@triton.jit
def _store_whole(
    grad_z,
    row,
    valid,
    across,
    kl_grad,
    members,
    node_gradient,
    grad,
    n_rows,
    WEIGHTS: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Store rows of the gradient of Eq 12: α times that of the positives and the proxy, plus β times that of Eq 11."""
    kind = across.dtype
    n = tl.zeros([], kind) + n_rows
    share = tl.full([], 1.0, kind)
    if WEIGHTS.mean:
        share = 1.0 / n
    dim, exists = dims_of_slots(SHAPE)
    inside = valid[:, None] & exists[None, :]
    place = row[:, None] * SHAPE.dims + dim[None, :]
    member = tl.load(members + row, mask=valid, other=0)
    of_proxy = tl.load(node_gradient + member[:, None] * SHAPE.dims + dim[None, :], mask=inside, other=0.0)
    of_kl = tl.load(kl_grad + place, mask=inside, other=0.0)
    whole = WEIGHTS.alpha * (of_proxy - across / n) + WEIGHTS.beta * share * of_kl
    tl.store(grad_z + place, tl.load(grad).to(kind) * whole, mask=inside)


@triton.jit
def backward_rows(
    unit,
    indptr,
    indices,
    weight,
    weight_t,
    over_mass,
    inverse,
    kl_grad,
    members,
    node_gradient,
    grad,
    grad_z,
    n_rows,
    WEIGHTS: tl.constexpr,
    TILES: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Compute ROWS rows of the gradient of Eq 12 per program; the following kernels process rows that are split."""
    row, valid, unit_row, total = rows_of_gradient(
        unit, indptr, indices, weight, weight_t, over_mass, inverse, n_rows, TILES, SHAPE
    )
    across = gradient_of_unit(row, valid, total, unit_row, inverse)
    _store_whole(grad_z, row, valid, across, kl_grad, members, node_gradient, grad, n_rows, WEIGHTS, SHAPE)


@triton.jit
def join_backward(
    unit,
    long_row,
    first_piece,
    parts,
    inverse,
    kl_grad,
    members,
    node_gradient,
    grad,
    grad_z,
    n_rows,
    WEIGHTS: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Sum the pieces of a long row in order, and compute its row of the gradient, one program per long row."""
    row, unit_row, total = joined_pieces(unit, long_row, first_piece, parts, inverse, SHAPE)
    across = gradient_of_unit(row, row >= 0, total, unit_row, inverse)
    _store_whole(grad_z, row, row >= 0, across, kl_grad, members, node_gradient, grad, n_rows, WEIGHTS, SHAPE)
