"""A server on loopback: its answers are those of predict, and models are swapped without a lost request."""

import asyncio
import json
import os
import subprocess
import sys
import time
from urllib.request import urlopen

import numpy as np
import pandas as pd
import pytest

from pamc import PamCGC
from pamc.data.synthetic import blobs
from pamc.lab.cases.serving import Connection, malformed, running

pytestmark = pytest.mark.slow

JSON = "application/json"
SMALL = {"n_epochs": 3, "advanced": {"hidden": (16,)}, "device": "cpu"}


async def post_once(port, rows):
    connection = Connection(port)
    answer = await connection.post(json.dumps(rows.tolist()).encode(), JSON)
    connection.close()
    await asyncio.sleep(0)
    return answer


@pytest.fixture(scope="module")
def rows():
    return np.asarray(blobs(200, 3, n_features=64, random_state=0).features, dtype=np.float32)


@pytest.fixture(scope="module")
def models(rows, tmp_path_factory):
    """Return two runs, of which only the first was exported."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        PamCGC(3, random_state=seed, **SMALL).fit(rows).save(folder / f"run-{seed}")
    PamCGC.load(folder / "run-0").export(folder / "run-0" / "model.onnx")
    return folder


def test_answers_are_those_of_predict_and_malformed_bodies_get_4xx(models, rows):
    model = PamCGC.load(models / "run-1")

    async def talk(port):
        connection = Connection(port)
        status, answer = await connection.post(json.dumps(rows.tolist()).encode(), JSON, "/predict?probabilities=true")
        statuses = {(await connection.post(body, kind))[0] for body, kind in malformed(200)}
        big = (await connection.post(b"[" * 2_000_000, JSON))[0]
        connection.close()
        return status, json.loads(answer), statuses, big

    with running(models / "run-1", "--max-body", "1MB") as (port, _):
        status, answer, statuses, big = asyncio.run(talk(port))
        with urlopen(f"http://127.0.0.1:{port}/health") as health:
            assert json.load(health)["n_clusters"] == 3
        with urlopen(f"http://127.0.0.1:{port}/metrics") as metrics:
            assert "pamc_rows_total" in metrics.read().decode()
    assert (status, big) == (200, 413)
    assert answer["cluster"] == model.predict(rows).tolist()
    confidence = model.predict_with_confidence(rows)[1]
    np.testing.assert_allclose(answer["confidence"], confidence, atol=2e-5)
    assert np.array(answer["probabilities"]).shape == (200, 3)
    assert all(400 <= code < 500 for code in statuses), statuses


def test_a_new_model_is_swapped_in_without_a_lost_request_and_a_damaged_one_is_not(models, rows, tmp_path):
    link = tmp_path / "current"
    link.symlink_to(models / "run-0")
    body = json.dumps(rows[:5].tolist()).encode()

    def point_to(target):
        other = tmp_path / "other"
        other.symlink_to(target)
        os.replace(other, link)  # noqa: PTH105

    async def talk(port):
        connection, versions = Connection(port), []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(set(versions)) < 2:
            status, answer = await connection.post(body, JSON)
            assert status == 200
            versions.append(json.loads(answer)["model"])
            if len(versions) == 20:
                point_to(models / "run-1")
        assert len(set(versions)) == 2
        damaged = tmp_path / "damaged"
        damaged.mkdir()
        (damaged / "model.safetensors").write_bytes(b"nothing")
        point_to(damaged)
        problem = None
        while time.monotonic() < deadline and problem is None:
            status, answer = await connection.post(body, JSON)
            assert (status, json.loads(answer)["model"]) == (200, versions[-1])
            with urlopen(f"http://127.0.0.1:{port}/health") as health:
                problem = json.load(health)["problem"]
        assert "damaged" in problem
        connection.close()

    with running(link) as (port, _):
        asyncio.run(talk(port))


def test_an_onnx_file_is_served_without_torch(models, rows, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch')\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from pamc.__main__ import main; main()"
    command = [sys.executable, "-c", code, "serve", str(models / "run-0" / "model.onnx"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        try:
            assert "serving" in line, line + process.stderr.read()
            status, answer = asyncio.run(post_once(int(line.rstrip().rpartition(":")[2]), rows[:3]))
        finally:
            process.terminate()
    assert status == 200
    assert json.loads(answer)["cluster"] == PamCGC.load(models / "run-0").predict(rows[:3]).tolist()


def test_a_killed_update_leaves_the_old_run_whole(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 3)) + 8 * np.eye(3)[np.arange(400) % 3], columns=list("abc"))
    frame.insert(0, "id", [f"r{i}" for i in range(400)])
    frame[:300].to_csv(tmp_path / "old.csv", index=False)
    frame[300:].to_csv(tmp_path / "new.csv", index=False)
    pamc = [sys.executable, "-m", "pamc"]
    fit = ["fit", "old.csv", "--id", "id", "-k", "3", "--out", "run", "--quiet"]
    subprocess.run([*pamc, *fit], cwd=tmp_path, check=True, capture_output=True)
    files = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    update = [*pamc, "update", "run", "new.csv", "--out", "next", "--quiet"]
    process = subprocess.Popen(update, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (tmp_path / "next.partial").exists() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    assert process.wait() < 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == files
    assert not (tmp_path / "next").exists()
    # After the rest of the killed one is removed, the update runs.
    for path in (tmp_path / "next.partial").iterdir():
        path.unlink()
    (tmp_path / "next.partial").rmdir()
    done = subprocess.run([*update, "--json"], cwd=tmp_path, check=True, capture_output=True, text=True)
    facts = json.loads(done.stdout)
    assert (facts["update"]["n_old_rows"], facts["update"]["n_new_rows"], facts["update"]["changes"]) == (300, 100, [])
    assert (tmp_path / "next" / "comparison.html").is_file()
