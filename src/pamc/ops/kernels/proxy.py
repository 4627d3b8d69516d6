"""Device code of :mod:`pamc.ops.triton.proxy`."""

import triton
import triton.language as tl


@triton.jit
def contrast(
    meta_nodes,
    present,
    gradient,
    n_clusters,
    TAU: tl.constexpr,
    EQ6: tl.constexpr,
    DIMS: tl.constexpr,
    WIDTH: tl.constexpr,
    CLUSTERS: tl.constexpr,
):
    """Return Eq 2 or Eq 6 of the non-empty (`present`, (CLUSTERS,)) meta-nodes (C, DIMS), and store its gradient."""
    cluster = tl.arange(0, CLUSTERS)
    exists = cluster < n_clusters
    kind = meta_nodes.dtype.element_ty

    squared = tl.zeros([CLUSTERS], kind)
    for dim in range(DIMS):
        column = tl.load(meta_nodes + cluster * DIMS + dim, mask=exists, other=0.0)
        squared += column * column
    inverse = over_root(squared)
    cosine = tl.zeros([CLUSTERS, CLUSTERS], kind)
    for dim in range(DIMS):
        column = tl.load(meta_nodes + cluster * DIMS + dim, mask=exists, other=0.0) * inverse
        cosine += column[:, None] * column[None, :]

    contrasted = present[:, None] & present[None, :] & (cluster[:, None] != cluster[None, :])
    score = tl.where(contrasted, TAU * cosine, float("-inf"))
    highest = tl.max(score, axis=1)
    n_present = tl.sum(present.to(kind), axis=0)
    if EQ6:
        # The e⁰ of the diagonal, which also keeps a row without other clusters finite.
        top = tl.maximum(highest, 0.0)
        share = tl.exp(score - top[:, None])
        total = tl.exp(-top) + tl.sum(share, axis=1)
        rows = tl.where(present, top + tl.log(total), 0.0)
        result = tl.sum(rows, axis=0) / tl.maximum(n_present, 1.0)
        share = tl.where(contrasted, share / total[:, None], 0.0) / tl.maximum(n_present, 1.0)
    else:
        top = tl.max(highest, axis=0)
        some = top > float("-inf")
        top = tl.where(some, top, 0.0)
        share = tl.exp(score - top)
        total = tl.sum(tl.sum(share, axis=1), axis=0)
        result = tl.where(some, top + tl.log(tl.where(some, total, 1.0)), 0.0)
        share = share / tl.where(some, total, 1.0)

    # The matrix contains each cosine twice: for (a, b) and for (b, a).
    share = TAU * (share + tl.trans(share))
    dims = tl.arange(0, WIDTH)
    inside = exists[:, None] & (dims < DIMS)[None, :]
    unit_nodes = (
        tl.load(meta_nodes + cluster[:, None] * DIMS + dims[None, :], mask=inside, other=0.0) * inverse[:, None]
    )
    grad = tl.zeros([CLUSTERS, WIDTH], kind)
    for other in range(n_clusters):
        weight = tl.sum(tl.where(cluster[None, :] == other, share, 0.0), axis=1)
        length = tl.sum(tl.where(cluster == other, inverse, 0.0), axis=0)
        row = tl.load(meta_nodes + other * DIMS + dims, mask=dims < DIMS, other=0.0) * length
        grad += weight[:, None] * row[None, :]
    along = tl.sum(grad * unit_nodes, axis=1)
    tl.store(
        gradient + cluster[:, None] * DIMS + dims[None, :],
        (grad - along[:, None] * unit_nodes) * inverse[:, None],
        mask=inside,
    )
    return result


@triton.jit
def contrast_clusters(
    meta_nodes,
    mass,
    value,
    gradient,
    n_clusters,
    TAU: tl.constexpr,
    EQ6: tl.constexpr,
    DIMS: tl.constexpr,
    WIDTH: tl.constexpr,
    CLUSTERS: tl.constexpr,
):
    """Compute Eq 2 or Eq 6 of the meta-nodes (C, DIMS), and its gradient, in one program."""
    cluster = tl.arange(0, CLUSTERS)
    exists = cluster < n_clusters
    present = exists & (tl.load(mass + cluster, mask=exists, other=0.0) > 0)
    tl.store(value, contrast(meta_nodes, present, gradient, n_clusters, TAU, EQ6, DIMS, WIDTH, CLUSTERS))


@triton.jit
def potential_parts(z, parts, n_rows, step, DIMS: tl.constexpr, ROWS: tl.constexpr):
    """Sum exp(4·u_i·u_j − 4) = exp(−2‖u_i − u_j‖²) over i ≠ j in one block of ROWS × ROWS pairs per program."""
    stride = tl.zeros([], tl.int64) + step
    kind = parts.dtype.element_ty
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    other = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    cosine = tl.zeros([ROWS, ROWS], kind)
    length = tl.zeros([ROWS], kind)
    other_length = tl.zeros([ROWS], kind)
    for dim in range(DIMS):
        value = tl.load(z + row * stride + dim, mask=row < n_rows, other=0.0).to(kind)
        other_value = tl.load(z + other * stride + dim, mask=other < n_rows, other=0.0).to(kind)
        cosine += value[:, None] * other_value[None, :]
        length += value * value
        other_length += other_value * other_value
    cosine = cosine * over_root(length)[:, None] * over_root(other_length)[None, :]
    pair = (row < n_rows)[:, None] & (other < n_rows)[None, :] & (row[:, None] != other[None, :])
    total = tl.sum(tl.sum(tl.where(pair, tl.exp(4.0 * cosine - 4.0), 0.0), axis=1), axis=0)
    tl.store(parts + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), total)


@triton.jit
def over_root(squared):
    """Return 1/√x, or 0 for x = 0."""
    return tl.where(squared == 0, 0.0, 1.0 / tl.sqrt(tl.where(squared == 0, 1.0, squared)))
