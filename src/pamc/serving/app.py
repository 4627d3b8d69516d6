"""The web application: it receives rows and returns their clusters, with limits, health and metrics."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pamc
from pamc.errors import PamcError
from pamc.serving.model import ServedModel, missing_package, read_model, stamp_of
from pamc.serving.schema import RequestError

JSON, PARQUET = "application/json", "application/vnd.apache.parquet"

# Requests with more bytes are processed in another thread, so that short ones do not wait for them.
_SMALL_BYTES = 1 << 14

# Upper bounds of the buckets of response times, in seconds.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


@dataclass(frozen=True)
class Limits:
    """Limits of a request: bytes of its body, and rows."""

    max_bytes: int = 64 << 20
    max_rows: int = 200_000


class Served:
    """The model in service, which is replaced as a whole; a request is completed by the model that started it.

    Parameters
    ----------
    path
        Run folder, ONNX file, or a link to either.
    threads
        Number of threads that process a request.
    on_change
        Called with a message after the model was replaced or could not be replaced.
    """

    def __init__(self, path: Path, *, threads: int, on_change: Callable[[str], None] = lambda text: None) -> None:
        self.path, self.threads, self.on_change = path, threads, on_change
        self.stamp = stamp_of(path)
        self.model = read_model(path, threads=threads)
        self.problem: str | None = None
        self.n_swaps = 0
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Replace the model if another one was put at its path; if that one cannot be served, keep the old one."""
        stamp = stamp_of(self.path)
        if stamp is None or stamp == self.stamp:
            return
        with self._lock:
            self.stamp = stamp
            try:
                model = read_model(self.path, threads=self.threads)
                if model.schema != self.model.schema:
                    raise RequestError(
                        500, "its columns differ from those of the served model: start another server for it"
                    )
            except (PamcError, RequestError, OSError) as error:
                self.problem = f"the new model at {self.path} is not served: {error}"
                self.on_change(self.problem)
                return
            before, self.model, self.problem = self.model.version, model, None
            self.n_swaps += 1
            self.on_change(f"model {before} was replaced by {model.version}")


class Metrics:
    """Counters in the format of Prometheus, one registry per application."""

    def __init__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ImportError:
            raise missing_package() from None
        self.registry = CollectorRegistry()
        own: Any = {"registry": self.registry}
        self.requests = Counter("pamc_requests", "Requests by status.", ["status"], **own)
        self.rows = Counter("pamc_rows", "Rows by cluster; −1 is noise.", ["cluster"], **own)
        self.seconds = Histogram("pamc_request_seconds", "Time of a request.", buckets=_BUCKETS, **own)
        self.low = Counter("pamc_rows_low_confidence", "Rows with a confidence below 0.5.", **own)
        self.model = Gauge("pamc_model_info", "Model in service.", ["version", "pamc"], **own)
        self.swaps = Counter("pamc_model_swaps", "Times that the model was replaced.", **own)

    def text(self, served: Served) -> bytes:
        """Return all values as text."""
        from prometheus_client import generate_latest

        self.model.clear()
        self.model.labels(served.model.version, pamc.__version__).set(1)
        self.swaps.reset()
        self.swaps.inc(served.n_swaps)
        return bytes(generate_latest(self.registry))

    def count_rows(self, found: dict[str, Any]) -> None:
        """Count the rows of a response by cluster, and those with low confidence."""
        clusters, counts = np.unique(found["label"], return_counts=True)
        for cluster, count in zip(clusters.tolist(), counts.tolist(), strict=True):
            self.rows.labels(str(cluster)).inc(count)
        self.low.inc(int((found["confidence"] < 0.5).sum()))


def create_app(served: Served, limits: Limits) -> Any:
    """Return the FastAPI application that serves a model."""
    try:
        from fastapi import FastAPI, Request, Response
        from starlette.concurrency import run_in_threadpool
        from starlette.exceptions import HTTPException
        from starlette.routing import Route
    except ImportError:
        raise missing_package() from None
    metrics = Metrics()

    def answer(status: int, content: Any) -> Response:
        metrics.requests.labels(str(status)).inc()
        return Response(json.dumps(content, allow_nan=False), status, media_type=JSON)

    async def failed(request: Request, error: Exception) -> Response:
        status = int(getattr(error, "status", None) or getattr(error, "status_code", None) or 500)
        detail = str(error) if isinstance(error, RequestError) else getattr(error, "detail", "internal error")
        return answer(status, {"error": {"status": status, "message": detail}})

    async def health(request: Request) -> Response:
        model = served.model
        about = {"status": "ok", "model": model.version, "n_clusters": model.n_clusters, "problem": served.problem}
        return answer(200, {**about, "pamc": pamc.__version__})

    async def schema(request: Request) -> Response:
        return answer(200, served.model.schema.to_dict())

    async def measured(request: Request) -> Response:
        return Response(metrics.text(served), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def predict(request: Request) -> Response:
        started = time.perf_counter()
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (JSON, PARQUET, "application/x-parquet"):
            raise RequestError(415, f"the content type must be {JSON} or {PARQUET}")
        body = await _body_of(request, limits.max_bytes)
        wants = request.query_params.get("probabilities", "false").lower() in ("1", "true", "yes")
        in_parquet = PARQUET in request.headers.get("accept", "")
        model, options = served.model, {"is_json": kind == JSON, "wants": wants, "in_parquet": in_parquet}
        if len(body) <= _SMALL_BYTES and kind == JSON:
            content, found = _answered(model, body, limits, **options)
        else:
            content, found = await run_in_threadpool(_answered, model, body, limits, **options)
        metrics.count_rows(found)
        metrics.requests.labels("200").inc()
        metrics.seconds.observe(time.perf_counter() - started)
        return Response(content, media_type=PARQUET if in_parquet else JSON)

    paths = {"/health": health, "/schema": schema, "/metrics": measured}
    routes: list[Any] = [Route(path, handler) for path, handler in paths.items()]
    routes.append(Route("/predict", predict, methods=["POST"]))
    # The pages of FastAPI are left out, because they load scripts from other servers.
    about: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    app = FastAPI(title="pamc", version=pamc.__version__, routes=routes, **about)
    for kind in (RequestError, HTTPException, Exception):
        app.add_exception_handler(kind, failed)
    return app


async def _body_of(request: Any, max_bytes: int) -> bytes:
    """Return the body of a request; raise a RequestError at the limit."""
    declared = request.headers.get("content-length", "")
    message = f"the body has more bytes than the limit of {max_bytes}: send several requests"
    if declared.isdigit() and int(declared) > max_bytes:
        raise RequestError(413, message)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise RequestError(413, message)
        parts.append(part)
    return b"".join(parts)


def _answered(
    model: ServedModel, body: bytes, limits: Limits, *, is_json: bool, wants: bool, in_parquet: bool
) -> tuple[bytes, dict[str, Any]]:
    """Return the body of the response, and the outputs of the model."""
    read = model.schema.from_json if is_json else model.schema.from_parquet
    try:
        inputs = read(body, max_rows=limits.max_rows)
    except RequestError:
        raise
    except Exception as error:
        # A parser may raise anything for a body that was made to break it.
        raise RequestError(400, f"the body cannot be read: {type(error).__name__}") from error
    found = model.assign(inputs, probabilities=wants)
    return (_as_parquet if in_parquet else _as_json)(model, found), found


def _as_json(model: ServedModel, found: dict[str, Any]) -> bytes:
    names = {"label": "cluster", "confidence": "confidence", "noise": "noise", "probabilities": "probabilities"}
    values: dict[str, Any] = {"model": model.version}
    for name, output in found.items():
        is_float = output.dtype.kind == "f"
        values[names[name]] = np.round(output.astype(np.float64), 6).tolist() if is_float else output.tolist()
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode()


def _as_parquet(model: ServedModel, found: dict[str, Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"cluster": found["label"], "confidence": found["confidence"]}
    columns |= {"noise": found["noise"]} if "noise" in found else {}
    if "probabilities" in found:
        columns |= {f"probability {cluster}": column for cluster, column in enumerate(found["probabilities"].T)}
    file = io.BytesIO()
    table = pa.table(columns).replace_schema_metadata({"model": model.version})
    pq.write_table(table, file, compression="none", use_dictionary=False)
    return file.getvalue()
