"""The server on loopback, with the client on the same cores: requests, rows and memory, and malformed bodies."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pamc.estimator import PamCGC
from pamc.lab.cell import Cell, register_case
from pamc.lab.settings import bench_cells, load_unlinked

_JSON, _PARQUET = "application/json", "application/vnd.apache.parquet"

# Connections at a time, requests of one row, rows and number of batches, and malformed bodies; in a quick run, fewer.
_SIZES = {"n_connections": 4, "n_requests": 200_000, "n_rows": 20_000, "n_batches": 60, "n_malformed": 1000}
_QUICK = {"n_connections": 2, "n_requests": 200, "n_rows": 500, "n_batches": 2, "n_malformed": 50}

# Share of the requests after which memory is measured for the first time.
_WARM_UP = 0.1


@register_case(
    "serving",
    "requests and rows per second of pamc serve, its memory, and its answers to malformed bodies",
    cells=partial(
        bench_cells, case="serving", measured=[("pamc serve", {})], data_sets=("digits",), quick_sets=("digits",)
    ),
    in_all=False,
)
def serving(cell: Cell, device: str) -> dict[str, Any]:
    """Return the rates of single rows and of batches, the growth of memory, and the statuses of malformed bodies."""
    sizes = _QUICK if cell.quick else _SIZES
    graph = load_unlinked(cell.data_set)
    rows = np.asarray(graph.features, dtype=np.float32)
    model = PamCGC(10, random_state=cell.seed, device="cpu").fit(rows)
    with tempfile.TemporaryDirectory() as folder:
        file = model.export(Path(folder) / "model.onnx")
        with running(file) as (port, process):
            values = asyncio.run(_measured(port, process.pid, rows, sizes))
    return {**sizes, **values}


@contextmanager
def running(model: Path, *options: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Yield the port and the process of a server that serves a model, and stop it at the end."""
    command = [sys.executable, "-m", "pamc", "serve", str(model), "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline() if process.stderr else ""
        if "serving" not in line:
            raise RuntimeError(f"the server did not start: {line.strip()}")
        yield int(line.rstrip().rpartition(":")[2]), process
    finally:
        process.terminate()
        process.wait(60)
        if process.stderr:
            process.stderr.close()


class Connection:
    """A connection to a server that sends one request at a time; a minimal client that takes hardly any time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes, kind: str, path: str = "/predict") -> tuple[int, bytes]:
        """Return the status and the body of the answer to a POST request."""
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        head = f"POST {path} HTTP/1.1\r\nHost: pamc\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
        content = await reader.readexactly(length)
        if "connection: close" in lines:
            self.close()
        return int(lines[0].split()[1]), content

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def _measured(port: int, process: int, rows: Any, sizes: dict[str, int]) -> dict[str, Any]:
    connections = [Connection(port) for _ in range(sizes["n_connections"])]
    bodies = [json.dumps([row]).encode() for row in rows[:200].tolist()]
    warm_up = round(_WARM_UP * sizes["n_requests"])
    await _single_rows(connections, bodies, warm_up)
    before = resident_bytes(process)
    seconds, times = await _single_rows(connections, bodies, sizes["n_requests"])
    after = resident_bytes(process)
    p50, p99 = np.quantile(times, (0.5, 0.99)).tolist()
    batches = await _batches(connections[:2], rows, sizes)
    statuses = [(await connections[0].post(body, kind))[0] for body, kind in malformed(sizes["n_malformed"])]
    for connection in connections:
        connection.close()
    return {
        "requests_per_s": sizes["n_requests"] / seconds,
        "p50_s": p50,
        "p99_s": p99,
        "resident_bytes_before": before,
        "resident_bytes_after": after,
        "rows_per_s": batches,
        "statuses_of_malformed": {str(status): statuses.count(status) for status in sorted(set(statuses))},
    }


async def _single_rows(connections: list[Connection], bodies: list[bytes], total: int) -> tuple[float, list[float]]:
    """Return the times of requests of one row: the total, and that of each request."""
    times: list[float] = []

    async def send(connection: Connection, count: int) -> None:
        for number in range(count):
            started = time.perf_counter()
            status, _ = await connection.post(bodies[number % len(bodies)], _JSON)
            times.append(time.perf_counter() - started)
            if status != 200:
                raise RuntimeError(f"a valid request was answered with status {status}")

    started = time.perf_counter()
    await asyncio.gather(*(send(connection, total // len(connections)) for connection in connections))
    return time.perf_counter() - started, times


async def _batches(connections: list[Connection], rows: Any, sizes: dict[str, int]) -> float:
    """Return the number of rows per second in Parquet files of many rows."""
    body = parquet(np.resize(rows, (sizes["n_rows"], rows.shape[1])))

    async def send(connection: Connection) -> None:
        for _ in range(sizes["n_batches"] // len(connections)):
            status, _ = await connection.post(body, _PARQUET)
            if status != 200:
                raise RuntimeError(f"a valid batch was answered with status {status}")

    await connections[0].post(body, _PARQUET)
    started = time.perf_counter()
    await asyncio.gather(*map(send, connections))
    return sizes["n_batches"] // len(connections) * len(connections) * sizes["n_rows"] / (time.perf_counter() - started)


def parquet(rows: Any) -> bytes:
    """Return rows as an uncompressed Parquet file whose columns are named by their numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pa.BufferOutputStream()
    table = pa.table({str(number): column for number, column in enumerate(rows.T)})
    pq.write_table(table, file, compression="none", use_dictionary=False)
    return bytes(file.getvalue().to_pybytes())


def malformed(count: int, *, seed: int = 0) -> Iterator[tuple[bytes, str]]:
    """Yield bodies that must be rejected, with content types: random, truncated, or of wrong types, shapes or sizes."""
    rng = np.random.default_rng(seed)
    good, table = json.dumps([[0.0] * 64]).encode(), parquet(np.zeros((3, 64), dtype=np.float32))
    kinds: list[Any] = [
        lambda: (rng.bytes(int(rng.integers(1, 400))), str(rng.choice([_JSON, _PARQUET]))),
        lambda: (good[: int(rng.integers(0, len(good)))], _JSON),
        lambda: (table[: int(rng.integers(0, len(table) - 8))], _PARQUET),
        lambda: (json.dumps([[0.0] * int(rng.choice([1, 63, 65, 200]))]).encode(), _JSON),
        lambda: (json.dumps([[*[0.0] * 63, _odd_value(rng)]]).encode(), _JSON),
        lambda: (json.dumps(_odd_value(rng)).encode(), _JSON),
        lambda: (json.dumps({"rows": _odd_value(rng), "path": "/etc/passwd"}).encode(), _JSON),
        lambda: (b"[" * int(rng.integers(1, 200_000)), _JSON),
        lambda: (good, str(rng.choice(["text/plain", "application/x-pickle", "", "multipart/form-data"]))),
        lambda: (parquet(np.full((2, int(rng.integers(1, 65))), np.inf, dtype=np.float32)), _PARQUET),
    ]
    for number in range(count):
        yield kinds[number % len(kinds)]()


def _odd_value(rng: np.random.Generator) -> Any:
    values: list[Any] = ["a", True, {}, [], [[]], {"0": 1}, "nan", 10**400, float("inf"), [None], -1e39]
    return values[int(rng.integers(len(values)))]


def resident_bytes(process: int) -> int:
    """Return the resident memory of a process, from Linux's /proc."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
