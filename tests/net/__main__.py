"""The net under a refactoring: records what a fixed list of small fits gives, to the bit on a CPU, and compares.

    python -m tests.net record before.json     # every case, or those whose names contain a word: record out.json store
    python -m tests.net compare before.json after.json

A record has a digest of the labels, the embedding, the history and every saved tensor of each case. Steps that move,
rename or merge code must leave all of them equal; what is renamed goes through `RENAMED`. Digests hold for one machine
and one version of torch: record before and after on the same one.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from tests.net.cases import CASES

# Names of saved tensors that have changed: the new prefix → the old one.
RENAMED = {"preprocessing.": "preparation."}


def digest(content):
    return hashlib.sha256(content).hexdigest()[:16]


def fingerprint(run):
    """Return a digest of everything in a run folder that a fit decides."""
    run = Path(run)
    record = json.loads((run / "run.json").read_text())
    found = {"labels.csv": digest((run / "labels.csv").read_bytes())}
    z = np.load(run / "embedding.npy")
    found["embedding"] = digest(f"{z.dtype} {z.shape}".encode() + z.tobytes())
    for name in ("history", "scores", "cluster_sizes", "n_epochs_run"):
        found[name] = digest(json.dumps(record[name], sort_keys=True).encode())
    for name, tensor in load_file(run / "model.safetensors").items():
        old = next((old + name.removeprefix(new) for new, old in RENAMED.items() if name.startswith(new)), name)
        found[f"tensor {old}"] = digest(f"{tensor.dtype} {tensor.shape}".encode() + tensor.tobytes())
    return found


def record(out, word=""):
    found = {}
    for name, case in CASES.items():
        if word not in name:
            continue
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found[name] = fingerprint(case(Path(folder)))
            except Exception as error:
                traceback.print_exc()
                found[name] = {"error": str(error)}
        print(f"{time.perf_counter() - began:6.1f} s  {name}", flush=True)  # noqa: T201
    Path(out).write_text(json.dumps(found, indent=1, sort_keys=True))


def compare(before, after):
    old, new = (json.loads(Path(path).read_text()) for path in (before, after))
    n_different = 0
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name), new.get(name)
        if a == b:
            continue
        n_different += 1
        parts = (
            "missing" if a is None or b is None else [key for key in a.keys() | b.keys() if a.get(key) != b.get(key)]
        )
        print(f"{name}: {parts}")  # noqa: T201
    print(f"{len(old)} fits before, {len(new)} after, {n_different} differ")  # noqa: T201
    sys.exit(n_different > 0)


if __name__ == "__main__":
    if os.environ.get("OMP_NUM_THREADS") != "1":
        # Bits do not depend on the threads, time does: many small fits.
        sys.exit(
            subprocess.call(
                [sys.executable, "-m", "tests.net", *sys.argv[1:]], env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
        )
    {"record": record, "compare": compare}[sys.argv[1]](*sys.argv[2:])
