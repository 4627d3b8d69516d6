"""Device code of :mod:`pamc.ops.triton.clustering`: the work of one program on some rows of z.

In all kernels, `z` (N, DIMS) and `centers` (C, DIMS) are contiguous; `squared` and `weights` are (C, N), so that ROWS
adjacent values belong to ROWS threads, each of which holds all CLUSTERS clusters of its rows and sums them without
communication; sums have the type ACCUMULATOR. ETA is η of Eq 9, a compile-time constant, which keeps full precision in
float64.
"""

import triton
import triton.language as tl


@triton.jit
def log_kernel(squared, ETA: tl.constexpr):
    """Return the log of (1 + d²/η)^(−(η + 1)/2), the numerator of Eq 9."""
    return tl.log(1.0 + squared / ETA) * (-(ETA + 1.0) / 2.0)


@triton.jit
def _with_scores(top, total, score):
    """Return the maximum score and Σ e^(score − maximum) of each row, updated by a tile (CLUSTERS, ROWS) of scores."""
    higher = tl.maximum(top, tl.max(score, axis=0))
    return higher, total * tl.exp(top - higher) + tl.sum(tl.exp(score - higher), axis=0)


@triton.jit
def add(place, value, mask, again):
    """Add to the value that this program has stored, or store its first value."""
    before = tl.load(place, mask=mask & again, other=0.0)
    tl.store(place, before + value, mask=mask)


@triton.jit
def assign_rows(
    z,
    centers,
    squared,
    log_total,
    labels,
    parts,
    n_rows,
    n_clusters,
    ETA: tl.constexpr,
    DIMS: tl.constexpr,
    CLUSTERS: tl.constexpr,
    ROWS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """Compute d² to all centers, labels, log denominators of Eq 9, and a part of Σ_i q, one program per ROWS rows."""
    program = tl.program_id(0).to(tl.int64)
    row = program * ROWS + tl.arange(0, ROWS)
    valid = row < n_rows
    top = tl.full([ROWS], float("-inf"), ACCUMULATOR)
    total = tl.zeros([ROWS], ACCUMULATOR)
    nearest = tl.full([ROWS], float("inf"), ACCUMULATOR)
    label = tl.zeros([ROWS], tl.int32)
    for first in range(0, n_clusters, CLUSTERS):
        cluster = first + tl.arange(0, CLUSTERS)
        exists = cluster < n_clusters
        distance = tl.zeros([CLUSTERS, ROWS], ACCUMULATOR)
        for dim in range(DIMS):
            values = tl.load(z + row * DIMS + dim, mask=valid, other=0.0).to(ACCUMULATOR)
            center = tl.load(centers + cluster * DIMS + dim, mask=exists, other=0.0).to(ACCUMULATOR)
            difference = values - center[:, None]
            distance += difference * difference
        place = squared + cluster.to(tl.int64)[:, None] * n_rows + row
        tl.store(place, distance, mask=exists[:, None] & valid)
        top, total = _with_scores(top, total, tl.where(exists[:, None], log_kernel(distance, ETA), float("-inf")))
        least, number = tl.min(tl.where(exists[:, None], distance, float("inf")), axis=0, return_indices=True)
        label = tl.where(least < nearest, first + number, label)
        nearest = tl.minimum(nearest, least)
    log_sum = top + tl.log(total)
    tl.store(log_total + row, log_sum, mask=valid)
    tl.store(labels + row, label, mask=valid)
    # The following loop reads distances stored by other threads of the program.
    tl.debug_barrier()
    for first in range(0, n_clusters, CLUSTERS):
        cluster = first + tl.arange(0, CLUSTERS)
        exists = cluster < n_clusters
        known = exists[:, None] & valid
        distance = tl.load(squared + cluster.to(tl.int64)[:, None] * n_rows + row, mask=known, other=0.0)
        q = tl.where(known, tl.exp(log_kernel(distance, ETA) - log_sum), 0.0)
        tl.store(parts + program * n_clusters + cluster, tl.sum(q, axis=1), mask=exists)


@triton.jit
def _log_assignments(
    squared, log_sum, frequency, first, row, n_rows, n_clusters, ETA: tl.constexpr, CLUSTERS: tl.constexpr
):
    """Return d², log q (Eq 9), log(q²/f) of Eq 10, and the mask of valid entries for CLUSTERS clusters."""
    cluster = first + tl.arange(0, CLUSTERS)
    exists = cluster < n_clusters
    known = exists[:, None] & (row < n_rows)
    distance = tl.load(squared + cluster.to(tl.int64)[:, None] * n_rows + row, mask=known, other=0.0)
    log_q = log_kernel(distance, ETA) - log_sum
    size = tl.load(frequency + cluster, mask=exists, other=1.0)
    # If f underflows, so does every q, and therefore q².
    log_size = tl.log(tl.where(size > 0, size, 1.0))
    return distance, log_q, tl.where(exists[:, None], 2.0 * log_q - log_size[:, None], float("-inf")), known


@triton.jit
def sharpen_rows(
    squared,
    log_total,
    frequency,
    parts,
    n_rows,
    n_clusters,
    ETA: tl.constexpr,
    CLUSTERS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Compute a part of Eq 11, and overwrite d² by (p − q)·(η + 1)/(η + d²), one program per ROWS rows."""
    program = tl.program_id(0).to(tl.int64)
    row = program * ROWS + tl.arange(0, ROWS)
    log_sum = tl.load(log_total + row, mask=row < n_rows, other=0.0)
    top = tl.full([ROWS], float("-inf"), log_sum.dtype)
    total = tl.zeros([ROWS], log_sum.dtype)
    for first in range(0, n_clusters, CLUSTERS):
        _, _, score, _ = _log_assignments(squared, log_sum, frequency, first, row, n_rows, n_clusters, ETA, CLUSTERS)
        top, total = _with_scores(top, total, score)
    log_norm = top + tl.log(total)
    divergence = tl.zeros([ROWS], log_sum.dtype)
    for first in range(0, n_clusters, CLUSTERS):
        distance, log_q, score, known = _log_assignments(
            squared, log_sum, frequency, first, row, n_rows, n_clusters, ETA, CLUSTERS
        )
        log_p = score - log_norm
        p, q = tl.exp(log_p), tl.exp(log_q)
        divergence += tl.sum(p * tl.where(known, log_p - log_q, 0.0), axis=0)
        cluster = first + tl.arange(0, CLUSTERS)
        place = squared + cluster.to(tl.int64)[:, None] * n_rows + row
        tl.store(place, (p - q) * (ETA + 1.0) / (ETA + distance), mask=known)
    tl.store(parts + program, tl.sum(divergence, axis=0))


@triton.jit
def gradient_rows(
    z,
    centers,
    weights,
    grad,
    grad_z,
    parts,
    n_rows,
    n_clusters,
    n_tiles,
    DIMS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """Compute Σ_u b_iu·(z_i − μ_u) of n_tiles·ROWS rows per program, and its part of −Σ_i b_iu·(z_i − μ_u)."""
    program = tl.program_id(0).to(tl.int64)
    stride = tl.zeros([], tl.int64) + n_rows
    dims = tl.arange(0, WIDTH)
    inside = dims < DIMS
    scale = tl.load(grad)
    for tile in range(n_tiles):
        row = (program * n_tiles + tile) * ROWS + tl.arange(0, ROWS)
        valid = row < n_rows
        values = tl.load(z + row[:, None] * DIMS + dims, mask=valid[:, None] & inside, other=0.0).to(ACCUMULATOR)
        total = tl.zeros([ROWS, WIDTH], ACCUMULATOR)
        for cluster in range(n_clusters):
            center = tl.load(centers + cluster * DIMS + dims, mask=inside, other=0.0).to(ACCUMULATOR)
            weight = scale * tl.load(weights + cluster * stride + row, mask=valid, other=0.0)
            row_grad = weight[:, None] * (values - center)
            total += row_grad
            place = parts + (program * n_clusters + cluster) * DIMS + dims
            add(place, -tl.sum(row_grad, axis=0), inside, tile > 0)
        tl.store(grad_z + row[:, None] * DIMS + dims, total, mask=valid[:, None] & inside)
        # The next tile adds to values stored by other threads of the program.
        tl.debug_barrier()


@triton.jit
def sum_rows(
    z,
    labels,
    parts,
    n_rows,
    n_clusters,
    n_tiles,
    DIMS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """Sum the rows of each cluster, and count them in column DIMS, over n_tiles·ROWS rows per program."""
    program = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, WIDTH)
    inside = dims < DIMS
    for tile in range(n_tiles):
        row = (program * n_tiles + tile) * ROWS + tl.arange(0, ROWS)
        valid = row < n_rows
        values = tl.load(z + row[:, None] * DIMS + dims, mask=valid[:, None] & inside, other=0.0).to(ACCUMULATOR)
        label = tl.load(labels + row, mask=valid, other=-1)
        for cluster in range(n_clusters):
            member = label == cluster
            place = parts + (program * n_clusters + cluster) * (DIMS + 1)
            add(place + dims, tl.sum(tl.where(member[:, None], values, 0.0), axis=0), inside, tile > 0)
            add(place + DIMS, tl.sum(member.to(ACCUMULATOR), axis=0), tile >= 0, tile > 0)
        # The next tile adds to values stored by other threads of the program.
        tl.debug_barrier()


@triton.jit
def count_changes(labels, previous, parts, n_rows, n_tiles, ROWS: tl.constexpr):
    """Count the labels that differ from `previous`, and overwrite it with them, over n_tiles·ROWS rows per program."""
    program = tl.program_id(0).to(tl.int64)
    count = tl.zeros([ROWS], tl.int64)
    for tile in range(n_tiles):
        row = (program * n_tiles + tile) * ROWS + tl.arange(0, ROWS)
        valid = row < n_rows
        label = tl.load(labels + row, mask=valid, other=0)
        before = tl.load(previous + row, mask=valid, other=0)
        tl.store(previous + row, label, mask=valid)
        count += (label != before).to(tl.int64)
    tl.store(parts + program, tl.sum(count, axis=0))


@triton.jit
def append_sum(numbers, parts, result, n_numbers, n_parts, NUMBERS: tl.constexpr, PARTS: tl.constexpr):
    """Copy the numbers and append the sum of the parts, in one program."""
    at = tl.arange(0, NUMBERS)
    number = tl.load(numbers + at, mask=at < n_numbers, other=0.0)
    tl.store(result + at, number.to(result.dtype.element_ty), mask=at < n_numbers)
    part = tl.arange(0, PARTS)
    count = tl.sum(tl.load(parts + part, mask=part < n_parts, other=0), axis=0)
    tl.store(result + n_numbers, count.to(result.dtype.element_ty))
