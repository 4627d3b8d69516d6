"""The parts of the page of speed, and what its rows hold."""

import pytest
import torch

from pamc.lab import rows as row_store
from pamc.lab.cases.epoch import TRAINERS, beginning, part_values, training_values
from pamc.lab.cell import CASES, Cell, Scope
from pamc.lab.pages import DOCS, filled
from pamc.lab.pages.contents import path_of
from pamc.lab.pages.speed import SPEED, Ceilings, Limit, ceilings_of, limits_of
from pamc.lab.rows import RowFile, make_row, stamp, stored
from pamc.lab.sweep import OUT_OF_MEMORY, run_case

pytestmark = pytest.mark.claims

CPU = torch.device("cpu")


def append(folder, name, rows):
    with RowFile(folder / f"{name}.jsonl") as file:
        for row in rows:
            file.append(row)


@pytest.mark.slow
def test_rows_of_a_gpu_make_all_tables_and_figures(tmp_path, monkeypatch):
    results = tmp_path / "results"
    monkeypatch.setattr(row_store, "RESULTS", results)
    origin = stamp("cuda")
    origin["environment"] = {**origin["environment"], "gpu": "some GPU"}
    for name in ("ceilings", "loss", "positive", "inference", "fit"):
        rows = run_case(CASES[name], Scope(device="cpu", quick=True), tmp_path / "quick")
        append(results, name, [{**row, **origin, "quick": False} for row in rows])
    start, parameters = beginning("blocks", True), {"precision": "float32"}
    # Triton's kernels need a GPU: here its epochs are those of plain torch.
    epochs = [
        (name, training_values("torch" if name == "triton" else name, start, CPU, "float32", n_epochs=2))
        for name in TRAINERS
        if name != "dense"
    ]
    epochs += [(part, part_values(part, start, CPU)) for part in ("positive term", "clustering term")]
    cells = {name: Cell("epoch", "epoch", name, "blocks", parameters=parameters) for name, _ in epochs}
    rows = [make_row(cells[name], origin, values=values) for name, values in epochs]
    dense = Cell("epoch", "epoch", "dense", "blocks", parameters=parameters)
    append(results, "epoch", [*rows, make_row(dense, origin, error=OUT_OF_MEMORY)])
    text = filled(path_of("speed").read_text(encoding="utf-8"), SPEED, tmp_path)
    for words in ("**triton**", "out of memory", "beyond the encoder", "some GPU", "share reached", "whole epoch"):
        assert words in text
    assert {path.name for path in tmp_path.glob("*.png")} == {"epoch.png", "loss-cuda.png"}


def test_the_time_that_the_ceilings_allow():
    ceilings = Ceilings(bytes_per_s=10.0, flop_per_s=100.0)
    assert Limit("a", 20, 50, None).allowed_s(ceilings) == 2.5
    copied = {"provider": "copy", "parameters": {}, "values": {"bytes_per_s": 10.0}, "error": None}
    fast = {"precision": "tf32"}
    product = {"provider": "matmul", "parameters": fast, "values": {"flop_per_s": 100.0}, "error": None}
    assert ceilings_of([copied, product], "tf32") == ceilings
    assert ceilings_of([copied, product], "float32") is None


def test_the_parts_of_an_epoch():
    values = {"n_nodes": 10, "n_dims": 2, "n_clusters": 3, "sizes": [4, 5, 2], "n_pairs": 7}
    rows = [
        {"provider": "triton", "values": {**values, "seconds": 8.0, "n_epochs": 4}, "error": None},
        {"provider": "encoder", "values": {"seconds": 4.0, "n_epochs": 4}, "error": None},
        {"provider": "matmul", "values": {"seconds": 2.0, "n_epochs": 4}, "error": None},
    ]
    products, activations, positive, clustering, whole = limits_of(rows)
    # Two products of the first layer, three of the second.
    assert products.n_operations == 2 * 10 * (2 * 4 * 5 + 3 * 5 * 2)
    assert products.seconds == 0.5
    assert activations.seconds == 0.5
    assert activations.n_bytes == 4 * (3 * 10 * 5 + 7 * (4 * 5 + 5 + 5 * 2 + 2))
    assert positive.n_bytes == 7 * (4 + 4 + 8 + 4 + 8 + 8)
    assert positive.seconds is None
    assert whole.n_bytes == activations.n_bytes + positive.n_bytes + clustering.n_bytes
    assert whole.seconds == 2.0
    assert limits_of(rows[1:]) == []


def test_what_was_aimed_at_is_reached_or_said_with_its_reason():
    seconds = {(row["provider"], row["data_set"]): row["values"]["seconds"] for row in stored("epoch", device="cuda")}
    memory = {
        (row["provider"], row["data_set"]): row["values"].get("peak_bytes") for row in stored("epoch", device="cuda")
    }
    assert seconds["triton", "usps"] <= 0.15
    for name in ("usps", "hhar"):
        assert seconds["triton", name] <= 2.5 * seconds["matmul", name]
        assert memory["dense", name] >= 8 * memory["triton", name]
    for name in ("usps", "hhar", "acm", "cite", "dblp"):
        assert memory["triton", name] < memory["released", name]
    (fit,) = [row for row in stored("fit", device="cuda") if row["data_set"] == "usps"]
    assert fit["values"]["seconds"] <= 3
    rates = [row["values"]["rows_per_s"] for row in stored("inference", device="cuda")]
    assert min(rates) >= 5e6
    text = (DOCS / "speed.md").read_text(encoding="utf-8")
    for provider, aim in (("dense", 12), ("released", 8)):
        times = [seconds[provider, name] / seconds["triton", name] for name in ("usps", "hhar")]
        assert min(times) >= aim or f"**{provider}**: the target was {aim} times its speed" in text


def test_the_positive_term_is_as_near_to_a_copy_as_was_aimed_at():
    rows = [row for row in stored("positive", device="cuda") if row["provider"] == "triton"]
    values = {(row["parameters"]["degrees"], row["parameters"]["n_dims"]): row["values"] for row in rows}
    for n_dims, share in ((64, 0.8), (10, 0.5)):
        even, uneven = values["uniform", n_dims], values["power law", n_dims]
        assert even["share_of_copy"] >= share
        assert uneven["seconds"] <= 1.5 * even["seconds"]
        assert uneven["max_degree"] > 90_000
        assert max(v[error] for v in (even, uneven) for error in ("value_error", "gradient_error")) <= 1e-5
