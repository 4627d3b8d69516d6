"""`pamc fit --dataset` fetches a public file once, with a bar, and finds it in the cache from then on."""

import functools
import hashlib
import threading
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from pamc.data.catalog import CATALOG
from pamc.data.synthetic import block_model
from tests.cli.conftest import FAST


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Offer a small data set named `planted` on a server of this machine."""
    graph = block_model(120, 3, n_features=6, random_state=0)
    folder = tmp_path / "served"
    folder.mkdir()
    np.savez(folder / "planted.npz", x=graph.features, y=graph.labels.astype(np.int8), edges=graph.edges.T)
    digest = hashlib.sha256((folder / "planted.npz").read_bytes()).hexdigest()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shape = {"n_nodes": 120, "n_features": 6, "n_classes": 3, "n_edges": graph.n_edges, "sparse": False}
    url = f"http://127.0.0.1:{server.server_port}/planted.npz"
    monkeypatch.setitem(CATALOG, "planted", replace(CATALOG["acm"], name="planted", url=url, sha256=digest, **shape))
    monkeypatch.setenv("PAMC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PAMC_DATA", raising=False)
    yield server
    server.shutdown()
    server.server_close()


def test_a_public_data_set_is_fetched_once_and_then_found(pamc, served, tmp_path):
    fast = [option for option in FAST if option != "--quiet"]
    first = pamc("fit", "--dataset", "planted", "-k", 3, "--out", "one", *fast)
    assert first.code == 0, first.err
    assert "download planted" in first.err
    assert (tmp_path / "cache" / "planted.npz").is_file()
    served.shutdown()
    second = pamc("fit", "--dataset", "planted", "-k", 3, "--out", "two", *fast)
    assert second.code == 0, second.err
    assert "download planted" not in second.err
    assert Path("one/labels.csv").read_text() == Path("two/labels.csv").read_text()
