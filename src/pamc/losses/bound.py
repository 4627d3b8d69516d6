"""When the negatives over clusters are certain to be bounded by those over nodes: Eq 7 and its correction."""

from __future__ import annotations

import math

from pamc.losses.arguments import check_choice

__all__ = ["bound_holds", "bound_ratio"]


def bound_ratio(n_nodes: int, n_clusters: int, tau: float) -> float:
    r"""Return the paper's lower bound of loss_NN / loss_CC, Eq 7; ∞ for one cluster.

    .. math:: \frac{loss_{NN}}{loss_{CC}} > \frac{\log N}{\log[1 + (C - 1)e^\tau]}

    As in the paper, which assumes that no cosine is negative. Cosines of embeddings are: :func:`bound_holds` is the
    condition that is certain.

    Examples
    --------
    >>> round(bound_ratio(9298, 10, 0.5), 3)
    3.308
    """
    if n_clusters == 1:
        return math.inf
    return math.log(n_nodes) / _log1p_exp(math.log(n_clusters - 1) + tau)


def bound_holds(n_nodes: int, n_clusters: int, tau: float, *, proxy: str = "eq2") -> bool:
    r"""Return whether the negatives over all nodes exceed the proxy for every embedding.

    By Jensen's inequality, with cosines between −1 and 1,

    .. math:: loss_{NN} \ge \log[1 + (N - 1)e^{-\tau/(N - 1)}],

    because the cosines of N unit vectors add up to at least −N. Eq 6 is at most log[1 + (C − 1)e^τ] and Eq 2 at most
    log[C(C − 1)e^τ]; the bound holds where the first exceeds the second. Departure from the paper: Eq 7 takes log N for
    the first, which needs cosines of at least 0. Computed in logarithms, for any tau.

    Parameters
    ----------
    proxy
        "eq2" or "eq6".

    Examples
    --------
    >>> bound_holds(9298, 10, 0.5), bound_holds(100, 10, 2.0)
    (True, False)
    """
    nodes, clusters = _log_sides(n_nodes, n_clusters, tau, proxy)
    return nodes > clusters


def _log_sides(n_nodes: int, n_clusters: int, tau: float, proxy: str) -> tuple[float, float]:
    """Return the logarithms of the two sides of the corrected bound."""
    check_choice("proxy", proxy)
    others = n_nodes - 1
    nodes = _log(others) - tau / others if others else -math.inf
    if proxy == "eq6":
        return nodes, _log(n_clusters - 1) + tau
    return _log1p_exp(nodes), _log(n_clusters * (n_clusters - 1)) + tau


def _log(count: int) -> float:
    return math.log(count) if count else -math.inf


def _log1p_exp(x: float) -> float:
    """Return log(1 + e^x) without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
