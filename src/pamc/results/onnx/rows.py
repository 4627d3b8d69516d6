"""Preprocessing as nodes of an ONNX graph, in the arithmetic of :mod:`pamc.data.preprocessing`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pamc.data.completion import MOST_PER_ROW
from pamc.data.preprocessing import BY_ROW, LIMIT, Preprocessing
from pamc.results.onnx.builder import GraphBuilder


def preprocess(graph: GraphBuilder, preprocessing: Preprocessing, rows: str) -> str:
    """Return preprocessed rows (n, d), in which missing cells (NaN) are imputed."""
    arrays = preprocessing.arrays
    if preprocessing.kind in BY_ROW:
        known = graph.add("Where", graph.add("IsNaN", rows), graph.constant(0.0), rows)
        return _scaled_rows(graph, preprocessing, known)
    transformed = _transformed(graph, preprocessing, rows)
    is_missing = graph.add("IsNaN", transformed)
    if "hidden_factors" in arrays:
        imputed = graph.cast(_imputed(graph, arrays, graph.cast(transformed, np.float64)), graph.dtype)
    else:
        imputed = graph.constant(arrays["hidden_mean"]) if "hidden_mean" in arrays else graph.constant(0.0)
    return graph.add("Where", is_missing, imputed, transformed)


def _transformed(graph: GraphBuilder, preprocessing: Preprocessing, rows: str) -> str:
    """Return columns after scaling; NaN stays NaN."""
    kind, arrays = preprocessing.kind, preprocessing.arrays
    if kind == "scale":
        return graph.add("Mul", rows, graph.constant(1 / arrays["scale"][0]))
    if kind == "standardize":
        return graph.add("Div", graph.add("Sub", rows, graph.constant(arrays["mean"])), graph.constant(arrays["scale"]))
    return _variables(graph, arrays, rows) if kind == "variables" else rows


def _variables(graph: GraphBuilder, arrays: dict[str, Any], rows: str) -> str:
    """Return the columns of an encoded table, scaled by variable; the tails of numbers are compressed by asinh."""
    wide, is_number = graph.cast(rows, np.float64), arrays["spread"] > 0
    spread = _doubles(graph, np.where(is_number, arrays["spread"], 1.0))
    distance = graph.add("Div", graph.add("Sub", wide, _doubles(graph, arrays["center"])), spread)
    limited = graph.add("Clip", distance, _doubles(graph, -LIMIT), _doubles(graph, LIMIT))
    # asinh(x) = sign(x) log(|x| + √(x² + 1)): onnxruntime has no asinh of double precision.
    size = graph.add("Abs", limited)
    root = graph.add("Sqrt", graph.add("Add", graph.add("Mul", size, size), _doubles(graph, 1.0)))
    compressed = graph.add("Mul", graph.add("Sign", limited), graph.add("Log", graph.add("Add", size, root)))
    values = graph.add("Where", graph.constant(is_number, np.bool_), compressed, wide)
    # NaN has no sign in onnxruntime.
    values = graph.add("Where", graph.add("IsNaN", wide), _doubles(graph, np.nan), values)
    centered = graph.add("Sub", values, _doubles(graph, arrays["mean"]))
    return graph.cast(graph.add("Div", centered, _doubles(graph, arrays["scale"])), graph.dtype)


def _scaled_rows(graph: GraphBuilder, preprocessing: Preprocessing, rows: str) -> str:
    """Return rows of length 1 (or √d), after weighting bags of words."""
    if preprocessing.kind == "tfidf":
        rows = graph.add("Mul", rows, graph.constant(preprocessing.arrays["idf"]))
    largest = graph.add("ReduceMax", graph.add("Abs", rows), graph.constant([1], np.int64), keepdims=1)
    rows = graph.add("Div", rows, _or_one(graph, largest))
    norm = graph.add("Sqrt", graph.sum(graph.add("Mul", rows, rows)))
    unit = graph.add("Div", rows, _or_one(graph, norm))
    if preprocessing.kind != "rms":
        return unit
    n_columns = graph.cast(graph.add("Shape", rows, start=1), graph.dtype)
    return graph.add("Mul", unit, graph.add("Sqrt", n_columns))


def _or_one(graph: GraphBuilder, value: str) -> str:
    return graph.add("Where", graph.add("Greater", value, graph.constant(0.0)), value, graph.constant(1.0))


def _imputed(graph: GraphBuilder, arrays: dict[str, Any], rows: str) -> str:
    """Return the expected rows (n, d) of the mixture of factor models, given their known cells, in float64.

    Each row has G·r factors t = (Wᵀ_k W_k + σ² I)⁻¹ Wᵀ_k (x_k − μ_k) for its known cells k, where all G components are
    solved together.
    """
    weights, means, factors, noise = (arrays[f"hidden_{name}"] for name in ("weights", "means", "factors", "noise"))
    n_components, n_columns, n_factors = factors.shape
    is_missing = graph.add("IsNaN", rows)
    values = graph.add("Where", is_missing, _doubles(graph, 0.0), rows)
    known = graph.cast(graph.add("Not", is_missing), np.float64)
    flat = factors.transpose(1, 0, 2).reshape(n_columns, -1)
    products = (factors[:, :, :, None] * factors[:, :, None, :]).transpose(1, 0, 2, 3).reshape(n_columns, -1)
    offsets = (means[:, :, None] * factors).transpose(1, 0, 2).reshape(n_columns, -1)
    precision = graph.reshape(_product(graph, known, products), 0, n_components, n_factors, n_factors)
    precision = graph.add("Add", precision, _doubles(graph, noise[:, None, None] * np.eye(n_factors)))
    weighted = graph.add("Sub", _product(graph, values, flat), _product(graph, known, offsets))
    weighted = graph.reshape(weighted, 0, n_components, n_factors)
    scores, log_volume = _solved(graph, precision, weighted, n_factors)
    if n_components == 1:
        shares = _doubles(graph, np.ones((1, 1)))
    else:
        square = graph.add("Sub", graph.sum(graph.add("Mul", values, values)), _product(graph, values, 2 * means.T))
        square = graph.add("Add", square, _product(graph, known, np.square(means).T))
        fitted = graph.sum(graph.add("Mul", weighted, scores), axis=2, keep=False)
        distance = graph.add("Div", graph.add("Sub", square, fitted), _doubles(graph, noise))
        n_known = graph.sum(known)
        volume = graph.add("Mul", n_known, _doubles(graph, np.log(noise)))
        volume = graph.add("Add", volume, graph.add("Sub", log_volume, _doubles(graph, n_factors * np.log(noise))))
        likelihood = graph.add("Mul", graph.add("Add", distance, volume), _doubles(graph, -0.5))
        likelihood = graph.add("Add", likelihood, _doubles(graph, np.log(weights)))
        allowed = _likely(graph, values, known, arrays)
        masked = graph.add("Where", allowed, likelihood, _doubles(graph, -np.inf))
        shares = graph.add("Softmax", masked, axis=1)
    shared = graph.add("Mul", scores, graph.unsqueeze(shares, 2))
    shared = graph.reshape(shared, 0, n_components * n_factors)
    return graph.add("Add", _product(graph, shares, means), _product(graph, shared, flat.T))


def _likely(graph: GraphBuilder, values: str, known: str, arrays: dict[str, Any]) -> str:
    """Return (n, G) whether a component is among those that a row may belong to."""
    means, factors = arrays["hidden_means"], arrays["hidden_factors"]
    variance = np.square(factors).sum(axis=2) + arrays["hidden_noise"][:, None]
    inverse = 1 / variance
    distance = _product(graph, graph.add("Mul", values, values), inverse.T)
    distance = graph.add("Sub", distance, _product(graph, values, 2 * (means * inverse).T))
    distance = graph.add("Add", distance, _product(graph, known, (np.square(means) * inverse + np.log(variance)).T))
    distance = graph.add("Sub", distance, _doubles(graph, 2 * np.log(arrays["hidden_weights"])))
    most = min(MOST_PER_ROW, len(means))
    farthest = graph.slice(graph.top_k(distance, most, largest=False), most - 1, most, axis=1)
    return graph.add("LessOrEqual", distance, farthest)


def _solved(graph: GraphBuilder, matrices: str, vectors: str, n: int) -> tuple[str, str]:
    """Return A⁻¹b (n, G, r) and log det A (n, G) of positive definite matrices, by Gauss-Jordan elimination.

    Positive definite matrices need no pivoting.
    """
    augmented = graph.add("Concat", matrices, graph.unsqueeze(vectors, 3), axis=3)
    logs = []
    for step in range(n):
        row = graph.slice(augmented, step, step + 1, axis=2)
        pivot = graph.slice(row, step, step + 1, axis=3)
        logs.append(graph.add("Log", pivot))
        column = graph.slice(augmented, step, step + 1, axis=3)
        column = graph.add("Sub", column, _doubles(graph, np.eye(n)[:, step].reshape(1, 1, n, 1)))
        augmented = graph.add("Sub", augmented, graph.add("Mul", column, graph.add("Div", row, pivot)))
    total = graph.squeeze(graph.squeeze(graph.add("Sum", *logs), 3), 2)
    return graph.squeeze(graph.slice(augmented, n, n + 1, axis=3), 3), total


def _product(graph: GraphBuilder, values: str, matrix: Any) -> str:
    return graph.add("MatMul", values, _doubles(graph, np.ascontiguousarray(matrix)))


def _doubles(graph: GraphBuilder, values: Any) -> str:
    return graph.constant(values, np.float64)
