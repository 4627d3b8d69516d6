"""Eqs 1 to 12 as double loops over Python numbers, typed from the formulas: the first link of the chain of trust.

Numbers may be complex, so that a step of i·h in one coordinate gives the derivative to the last digit (no difference is
taken): ∂f/∂x = Im f(x + ih) / h.
"""

import cmath

STEP = 1e-30


def similarity(z, i, j):
    if i == j:
        return 0
    for row in (z[i], z[j]):
        if all(complex(x).real == 0 for x in row):
            return 0
    return dot(z[i], z[j]) / (cmath.sqrt(dot(z[i], z[i])) * cmath.sqrt(dot(z[j], z[j])))


def dot(x, y):
    total = 0
    for a, b in zip(x, y, strict=True):
        total += a * b
    return total


def positive_sum(z, gamma, i, tau, self_edges):
    total = 0
    for j in range(len(z)):
        if j != i or self_edges == "keep":
            total += gamma[i][j] * cmath.exp(tau * similarity(z, i, j))
    return total


def contrastive_loss(z, gamma, tau, self_edges="drop"):
    ones = [[1] * len(z)] * len(z)
    total = 0
    for i in range(len(z)):
        positives = positive_sum(z, gamma, i, tau, self_edges)
        if positives != 0:
            total -= cmath.log(positives / positive_sum(z, ones, i, tau, self_edges))
    return total / len(z)


def proxy(mu, tau, mass, kind="eq2"):
    clusters = [a for a in range(len(mu)) if mass[a] > 0]
    if len(clusters) < 2:
        return 0
    if kind == "eq2":
        total = 0
        for a in clusters:
            for b in clusters:
                if a != b:
                    total += cmath.exp(tau * similarity(mu, a, b))
        return cmath.log(total)
    mean = 0
    for a in clusters:
        inner = 0
        for b in clusters:
            inner += cmath.exp(tau * similarity(mu, a, b))
        mean += cmath.log(inner)
    return mean / len(clusters)


def meta_nodes(z, assignment):
    mu = [[0] * len(z[0]) for _ in assignment[0]]
    for i, row in enumerate(z):
        for c, share in enumerate(assignment[i]):
            for k, x in enumerate(row):
                mu[c][k] += share * x / len(z)
    return mu


def pamc_loss(z, gamma, assignment, tau, kind="eq2", self_edges="drop"):
    positive = 0
    for i in range(len(z)):
        inner = positive_sum(z, gamma, i, tau, self_edges)
        if inner != 0:
            positive -= cmath.log(inner) / len(z)
    mass = [sum(complex(row[c]).real for row in assignment) for c in range(len(assignment[0]))]
    return positive + proxy(meta_nodes(z, assignment), tau, mass, kind)


def loss_nn(z, tau):
    total = 0
    for i in range(len(z)):
        inner = 0
        for j in range(len(z)):
            inner += cmath.exp(tau * similarity(z, i, j))
        total += cmath.log(inner)
    return total / len(z)


def soft_assignment(z, mu, eta):
    q = []
    for row in z:
        kernel = []
        for center in mu:
            difference = [a - b for a, b in zip(row, center, strict=True)]
            kernel.append((1 + dot(difference, difference) / eta) ** (-(eta + 1) / 2))
        q.append([value / sum(kernel) for value in kernel])
    return q


def target_distribution(q):
    frequency = [sum(row[u] for row in q) for u in range(len(q[0]))]
    p = []
    for row in q:
        weight = [value**2 / f for value, f in zip(row, frequency, strict=True)]
        p.append([value / sum(weight) for value in weight])
    return p


def kl_divergence(p, q):
    total = 0
    for p_row, q_row in zip(p, q, strict=True):
        for p_iu, q_iu in zip(p_row, q_row, strict=True):
            if p_iu != 0:
                total += p_iu * cmath.log(p_iu / q_iu)
    return total


def objective(z, mu, gamma, *, alpha, beta, tau, eta, kind, self_edges, meta_assignment, kl_reduction):
    q = soft_assignment(z, mu, eta)
    fixed = [[complex(value).real for value in row] for row in q]
    hard = [[float(value == max(row)) for value in row] for row in fixed]
    assignment = {"hard": hard, "soft": q, "soft_detached": fixed}[meta_assignment]
    divergence = kl_divergence(target_distribution(fixed), q) / (len(z) if kl_reduction == "mean" else 1)
    return alpha * pamc_loss(z, gamma, assignment, tau, kind, self_edges) + beta * divergence


def value_and_gradients(function, *arrays):
    """Return f and its gradient in each array (nested lists of rows)."""
    gradients = []
    for k, array in enumerate(arrays):
        gradient = [[0.0] * len(row) for row in array]
        for i, row in enumerate(array):
            for j, x in enumerate(row):
                moved = [list(r) for r in array]
                moved[i][j] = x + 1j * STEP
                gradient[i][j] = complex(function(*arrays[:k], moved, *arrays[k + 1 :])).imag / STEP
        gradients.append(gradient)
    return complex(function(*arrays)).real, gradients
