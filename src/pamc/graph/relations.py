"""Several relations over the same rows as one weighted graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from pamc.graph.adjacency import Adjacency, symmetric_normalize, with_self_loops


def combined(relations: Sequence[Adjacency], weights: Sequence[float]) -> Adjacency:
    r"""Return one graph whose steps follow relation r with probability w_r.

    .. math:: S = \sum_r w_r D_r^{-1/2} (A_r + I) D_r^{-1/2}, \qquad A_{ij} = S_{ij} / \sqrt{S_{ii} S_{jj}}

    Normalization by the degrees gives each relation the influence of its weight, whatever its number of edges. The
    scale of A is that at which a self-loop of weight 1, which later steps add, is the diagonal of S. So a relation
    alone, or a relation given twice, is unchanged. O(E) time and memory for all relations together.

    Parameters
    ----------
    relations
        (N, N) symmetric weights of each relation, without self-loops.
    weights
        Weight w_r ≥ 0 of each relation, at least one of them positive.

    Examples
    --------
    >>> path = sp.csr_matrix([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    >>> combined([path, path], [0.5, 2.0]).toarray().round(3)
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    used = [(adjacency, weight) for adjacency, weight in zip(relations, weights, strict=True) if weight > 0]
    if len(used) == 1:
        return used[0][0]
    total = sum(weight for _, weight in used)
    steps = sum(symmetric_normalize(with_self_loops(adjacency)) * (weight / total) for adjacency, weight in used)
    scale = sp.diags_array(1 / np.sqrt(steps.diagonal()))
    graph = sp.csr_matrix(scale @ steps @ scale)
    graph.setdiag(0.0)
    graph.eliminate_zeros()
    graph.sort_indices()
    return graph
