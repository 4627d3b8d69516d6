"""Rows of earlier schemas are rewritten without a loss."""

import json

from pamc.lab.cell import Cell
from pamc.lab.migrate import migrate_file, migrated
from pamc.lab.rows import FIELDS, RESULTS, key_of, read_rows

ENVIRONMENT = {"pamc": "0.1.0", "commit": "abc", "gpu": None}
MEASURED = {"date": "2024-05-01", "quick": False, "environment": ENVIRONMENT}


def test_a_row_of_an_experiment():
    settings = {"preparation": "rms", "start": "autoencoder", "tau": 0.5}
    seconds = {"preparation": 1.0, "start": 2.0}
    facts = {"evidence": "features", "remedy": None, "start_kept": True}
    old = {
        **{"key": "…", "experiment": "table2", "task": "fit", "method": "pamcgc", "data_set": "acm", "seed": 3},
        **{"settings": settings, "options": {"variant": "x"}, "device": "cuda", "error": None, **MEASURED},
        "values": {"seconds": seconds, "config": settings, "facts": facts},
    }
    new = migrated(old)
    assert tuple(new) == FIELDS
    renamed = {"preprocessing": "rms", "init": "autoencoder", "tau": 0.5}
    assert new["settings"] == new["values"]["config"] == renamed
    assert new["values"]["seconds"] == {"preprocessing": 1.0, "start": 2.0}
    assert new["values"]["facts"] == {"inputs": "features", "fallback": None, "init_kept": True}
    assert key_of(new) == Cell("table2", "fit", "pamcgc", "acm", 3, renamed, {"variant": "x"}).key
    assert migrated(new) is new


def test_a_row_of_a_case():
    old = {"case": "choose_k", "provider": "choose_k", "values": {"evidence": "graph", "cost": 2.0}, **MEASURED}
    new = migrated({**old, "parameters": {"data": "acm", "seed": 1, "n_nodes": 5, "n_candidates": 3}})
    assert (new["data_set"], new["seed"], new["parameters"], new["error"]) == ("acm", 1, {}, None)
    assert new["values"] == {"inputs": "graph", "cost": 2.0, "n_nodes": 5, "n_candidates": 3}
    assert new["device"] == "cpu"
    fit = migrated({**old, "case": "fit-time", "parameters": {"data_set": "acm", "device": "cuda"}})
    assert (fit["device"], fit["data_set"], fit["parameters"]) == ("cuda", "acm", {})


def test_a_file_is_rewritten_once(tmp_path):
    path = tmp_path / "loss.jsonl"
    old = {"case": "loss", "provider": "torch", "parameters": {"n_nodes": 2}, "values": {"seconds": 1.0}, **MEASURED}
    path.write_text(json.dumps(old) + "\n" + json.dumps({**old, "error": "out of memory"}) + "\n")
    assert migrate_file(path) == (2, 2)
    assert [row["error"] for row in read_rows(path)] == [None, "out of memory"]
    assert migrate_file(path) == (2, 0)


def test_every_stored_row_is_in_the_schema_and_has_a_key_of_its_case():
    paths = sorted(RESULTS.rglob("*.jsonl"))
    assert paths
    for path in paths:
        for row in read_rows(path):
            assert tuple(row) == FIELDS
            assert row["case"] == path.stem
            assert json.loads(key_of(row))[0] == path.stem
