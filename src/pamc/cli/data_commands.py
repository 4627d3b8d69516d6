"""`pamc evaluate`, `pamc datasets`, `pamc methods` and `pamc doctor`."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from pamc.cli.launch import launched_group
from pamc.cli.ranks import own_rank
from pamc.cli.show import print_json, print_table, print_text
from pamc.data.catalog import CATALOG, available
from pamc.data.readers import read_label_pairs
from pamc.distributed.probe import probe_group
from pamc.estimator import METHODS
from pamc.ops.group import SINGLE_PROCESS
from pamc.results import metrics
from pamc.runtime import environment, resolve_device

__all__ = ["datasets", "doctor", "evaluate", "methods"]

_OPTIONAL = ("duckdb", "pandas", "networkx", "torch_geometric", "anndata", "faiss", "matplotlib", "umap")


def evaluate(
    *,
    truth: Path,
    labels: Path,
    as_json: bool,
) -> None:
    """Compare clusters with true classes: ACC, NMI, ARI and macro-F1."""
    scores = metrics.evaluate(*read_label_pairs(truth, labels))
    if as_json:
        print_json(scores)
    else:
        print_table(
            "against the true classes", ["metric", "%"], [[n.upper(), f"{100 * v:.2f}"] for n, v in scores.items()]
        )


def datasets(
    *,
    as_json: bool,
) -> None:
    """List the known data sets and where each was found."""
    found = {name: available(name) for name in CATALOG}
    if as_json:
        print_json([{"name": name, "available": found[name] is not None} for name in CATALOG])
        return
    rows = []
    for name in CATALOG:
        row = CATALOG[name]
        rows.append(
            [
                name,
                row.modality,
                f"{row.n_nodes}",
                f"{row.n_features}",
                f"{row.n_classes}",
                f"{row.n_edges}",
                found[name] or "–",
            ]
        )
    print_table("known data sets", ["name", "kind", "rows", "features", "classes", "edges", "found"], rows)
    print_text("a set that was not found goes into the folder named by PAMC_DATA, as NAME.npz")


def methods(
    *,
    as_json: bool,
) -> None:
    """List the methods of `pamc fit --method`: what each looks at, and whether it can label new rows."""
    found = [METHODS[name] for name in METHODS]
    if as_json:
        fields = ("name", "title", "reference", "uses_features", "uses_graph", "inductive")
        print_json([{field: getattr(method, field) for field in fields} for method in found])
        return
    rows = []
    for method in found:
        looks_at = ["features"] * method.uses_features + ["graph"] * method.uses_graph
        rows.append([method.name, ", ".join(looks_at), "yes" if method.inductive else "no", method.reference])
    print_table("methods", ["name", "looks at", "new rows", "paper"], rows)


def doctor(
    *,
    distributed: bool,
    device: str,
    as_json: bool,
) -> None:
    """Print what a bug report needs: versions, device, optional packages, data folder."""
    if distributed:
        _show_processes(device, as_json=as_json)
        return
    facts = environment()
    facts["device"] = str(resolve_device("auto"))
    facts["optional"] = {name: importlib.util.find_spec(name) is not None for name in _OPTIONAL}
    facts["data_folder_set"] = bool(os.environ.get("PAMC_DATA"))
    if as_json:
        print_json(facts)
        return
    packages = facts.pop("packages")
    optional = facts.pop("optional")
    rows = [[name, str(value)] for name, value in facts.items()]
    rows += [[f"package {name}", version] for name, version in packages.items()]
    rows += [[f"optional {name}", "yes" if there else "no"] for name, there in optional.items()]
    print_table("pamc doctor", ["what", "value"], rows)


def _show_processes(device: str, *, as_json: bool) -> None:
    """Show who the processes are, whether they add up right, and how fast; the first one speaks."""
    with launched_group(device) as group:
        found = probe_group(group or SINGLE_PROCESS, resolve_device(device) if group is None else group.device)
    if own_rank():
        return
    if as_json:
        print_json(found)
        return
    columns = ("rank", "host", "device", "backend")
    rows = [[str(process[name]) for name in columns] for process in found["processes"]]
    print_table(f"{found['n_processes']} processes", columns, rows)
    speed = found["bandwidth_bytes_per_s"]
    print_text(
        f"sums {found['sums']}   a sum of one number {1e3 * found['latency_s']:.3f} ms   each process sends "
        f"{'nothing: it is alone' if speed is None else f'{speed / 1e6:.0f} MB/s'}"
    )
