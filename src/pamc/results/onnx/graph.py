"""The ONNX graph of a fit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pamc.config import MethodConfig
from pamc.data.columns.encoding import TableEncoding
from pamc.errors import ConfigError
from pamc.initialize.calibration import Calibration
from pamc.initialize.noise import BETWEEN, IN_CLUSTER, NOISE_KINDS, UNLIKE, NoiseRule
from pamc.models.layers import MLP
from pamc.results.onnx.builder import GraphBuilder
from pamc.results.onnx.columns import described_columns, encode_table
from pamc.results.onnx.rows import preprocess
from pamc.runtime import resolve_dtype
from pamc.training.phases import Fit

INPUT = "X"
OUTPUTS = ("label", "confidence", "probabilities", "embedding")


def fit_graph(fit: Fit, *, n_features: int, encoding: TableEncoding | None, feature_names: Any = None) -> Any:
    """Return the ONNX model of a fit; raise a ConfigError for parts that have no ONNX counterpart.

    The input is `X` (n, d) for plain numbers, or one input per column of a table. The outputs are `label` (n,),
    `confidence` (n,), `probabilities` (n, C) and `embedding` (n, n_dims), and, if the fit labels noise, `noise` (n,).
    The names and types of the columns are part of its metadata.
    """
    if not isinstance(fit.encoder, MLP):
        raise ConfigError(
            "only models with pamc's own encoder can be exported; this one has "
            f"{type(fit.encoder).__name__}: export the module itself with torch.onnx"
        )
    graph = GraphBuilder(torch.empty(0, dtype=resolve_dtype(fit.config.precision)).numpy().dtype)
    if encoding is None:
        raw = graph.input(INPUT, graph.dtype, n_features)
    else:
        raw = graph.cast(encode_table(graph, encoding), graph.dtype)
    rows = preprocess(graph, fit.preprocessing, raw)
    z = _encoded(graph, fit.encoder, rows)
    log_q = _log_assignment(graph, z, fit.centers, fit.config)
    label = graph.add("ArgMax", log_q, axis=1, keepdims=0)
    probabilities = graph.add("Exp", log_q)
    confidence = graph.add("ReduceMax", probabilities, graph.constant([1], np.int64), keepdims=0)
    if fit.calibration is not None:
        confidence = _confidence(graph, fit.calibration, rows, label, fit.config)
    limit = getattr(fit.config, "min_confidence", None)
    if limit is not None and fit.noise_rule is not None:
        noise = _noise(graph, fit.noise_rule, rows, label, confidence, limit)
        label = graph.add("Where", graph.add("Equal", noise, _integer(graph, IN_CLUSTER)), label, _integer(graph, -1))
        graph.output(noise, "noise", np.int64)
    graph.output(label, "label", np.int64)
    graph.output(confidence, "confidence", graph.dtype)
    graph.output(probabilities, "probabilities", graph.dtype, fit.config.n_clusters)
    graph.output(z, "embedding", graph.dtype, fit.centers.shape[1])
    kinds = json.dumps({} if limit is None else dict(enumerate(NOISE_KINDS)))
    columns = json.dumps(described_columns(encoding, feature_names), ensure_ascii=False)
    return graph.model({"pamc": "model", "method": fit.method, "noise": kinds, "columns": columns})


def _encoded(graph: GraphBuilder, encoder: nn.Module, rows: str) -> str:
    """Return the embedding (n, n_dims) of rows."""
    layers: Any = list(encoder.layers)  # type: ignore[arg-type]
    for number, layer in enumerate(layers):
        rows = graph.linear(rows, *(_array(tensor) for tensor in (layer.weight, layer.bias)))
        rows = graph.add("Relu", rows) if number < len(layers) - 1 else rows
    return rows


def _log_assignment(graph: GraphBuilder, z: str, centers: Tensor, config: MethodConfig) -> str:
    """Return log q (n, C), Eq 9, with distances from which the mean of the centers was subtracted."""
    mu, eta = _array(centers), getattr(config, "eta", 1.0)
    origin = mu.mean(axis=0)
    z, mu = graph.add("Sub", z, graph.constant(origin)), mu - origin
    products = graph.add("MatMul", z, graph.constant(np.ascontiguousarray(-2 * mu.T)))
    squared = graph.add("Add", products, graph.sum(graph.add("Mul", z, z)))
    squared = graph.add("Relu", graph.add("Add", squared, graph.constant(np.square(mu).sum(axis=1))))
    kernel = graph.add("Log", graph.add("Add", graph.add("Div", squared, graph.constant(eta)), graph.constant(1.0)))
    return graph.add("LogSoftmax", graph.add("Mul", kernel, graph.constant(-(eta + 1) / 2)), axis=1)


def _confidence(graph: GraphBuilder, calibration: Calibration, rows: str, label: str, config: MethodConfig) -> str:
    """Return the calibrated confidence (n,) of rows and their labels."""
    before = calibration.before
    z = _encoded(graph, before.encoder, rows)
    log_q = _log_assignment(graph, z, before.centers, config)
    numbers = _integer(graph, np.arange(len(before.centers))[None])
    is_own = graph.add("Equal", graph.unsqueeze(label, 1), numbers)
    axis = graph.constant([1], np.int64)
    lowest = graph.constant(np.finfo(graph.dtype).min)
    own = graph.add("ReduceMax", graph.add("Where", is_own, log_q, lowest), axis, keepdims=1)
    other = graph.add("ReduceMax", graph.add("Where", is_own, lowest, log_q), axis, keepdims=1)
    margin = graph.cast(graph.add("Sub", own, other), np.float64)
    center = graph.add("Gather", graph.constant(_array(before.centers)), label)
    distance = graph.cast(_norm(graph, graph.add("Sub", z, center)), np.float64)
    reach = graph.constant(calibration.reach, np.float64)
    factor = graph.add("Div", reach, graph.add("Max", distance, reach))
    if calibration.reach == 0:
        factor = graph.cast(graph.add("LessOrEqual", distance, reach), np.float64)
    by_chance = graph.constant(1 / len(before.centers), np.float64)
    excess = graph.add("Sub", _interpolated(graph, margin, calibration.scores, calibration.values), by_chance)
    confidence = graph.add("Add", by_chance, graph.add("Mul", factor, excess))
    return graph.cast(graph.squeeze(confidence, 1), graph.dtype)


def _interpolated(graph: GraphBuilder, x: str, knots: NDArray[Any], values: NDArray[Any]) -> str:
    """Return the function (n, 1) that is linear between the knots and constant beyond."""
    first = graph.constant(np.full((1, 1), values[0]), np.float64)
    if len(knots) == 1:
        return graph.add("Add", graph.add("Mul", x, graph.constant(0.0, np.float64)), first)
    widths = np.diff(knots)
    slopes = np.divide(np.diff(values), widths, out=np.zeros(len(widths)), where=widths > 0)
    zero = graph.constant(0.0, np.float64)
    steps = graph.add("Max", graph.add("Sub", x, graph.constant(knots[:-1][None], np.float64)), zero)
    steps = graph.add("Min", steps, graph.constant(widths[None], np.float64))
    return graph.add("Add", graph.add("MatMul", steps, graph.constant(slopes[:, None], np.float64)), first)


def _noise(graph: GraphBuilder, rule: NoiseRule, rows: str, label: str, confidence: str, limit: float) -> str:
    """Return the noise code (n,) of each row."""
    mean = graph.add("Gather", graph.constant(rule.means), label)
    distance = graph.cast(graph.squeeze(_norm(graph, graph.add("Sub", rows, mean)), 1), np.float64)
    reach = graph.add("Gather", graph.constant(rule.reaches, np.float64), label)
    is_between = graph.add("Less", confidence, graph.constant(limit))
    codes = graph.add("Where", is_between, _integer(graph, BETWEEN), _integer(graph, IN_CLUSTER))
    return graph.add("Where", graph.add("Greater", distance, reach), _integer(graph, UNLIKE), codes)


def _norm(graph: GraphBuilder, values: str) -> str:
    return graph.add("Sqrt", graph.sum(graph.add("Mul", values, values)))


def _integer(graph: GraphBuilder, value: Any) -> str:
    return graph.constant(value, np.int64)


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().cpu().numpy()
