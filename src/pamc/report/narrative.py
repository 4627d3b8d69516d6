"""A run described in paragraphs, and the Python code that repeats it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pamc.data.store import has_manifest
from pamc.errors import UnknownNameError, counted
from pamc.estimator.advanced import EXPERT
from pamc.models.method import METHODS
from pamc.training.pipeline import settled

_PREPARED = {
    "none": "taken as they are",
    "scale": "divided by one scale, because the columns are of one magnitude",
    "standardize": "standardized column by column, because the columns differ in magnitude",
    "unit": "scaled to length 1 row by row",
    "rms": "scaled to root mean square 1 row by row",
    "tfidf": "weighted by tf-idf, because they look like counts of words",
}
_EVIDENCE = {
    "features and graph": "Features and graph were used together: rows that an edge joins are alike.",
    "features": "The graph was left out: rows that an edge joins are no more alike than others, and the features alone "
    "have the more stable clusters.",
    "graph": "The features were left out: rows that an edge joins are no more alike than others, and the graph alone "
    "has the more stable clusters.",
}
_MADE_BY = {
    "k-means": "by K-means. Merging small groups along the edges was not chosen: there were too few rows or too many "
    "clusters for it, its clusters held the edges together less well, or its repeats agreed less.",
    "merged groups": "by merging small groups along the edges, because those clusters held the edges together better "
    "than those of K-means, and the repeats agreed nearly as well.",
}


def narrative(record: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the decisions of a fit and their reasons as titled paragraphs, from its record (`run.json`).

    Examples
    --------
    >>> narrative({"facts": {"preprocessing": "scale"}, "config": {}, "data": {}})[0]["title"]
    'Features'
    """
    facts, config = record.get("facts") or {}, record.get("config") or {}
    told = [
        ("Features", _features(facts)),
        ("Graph", _graph(facts, config, (record.get("data") or {}).get("n_nodes"))),
        ("InputSource", _EVIDENCE.get(str(facts.get("inputs")), "") if facts.get("graph") == "given" else ""),
        ("Initializer", _start(facts, config)),
        ("Training", _training(record, facts)),
        ("Confidence", _confidence(facts)),
    ]
    return [{"title": title, "text": text} for title, text in told if text]


def _features(facts: Mapping[str, Any]) -> str:
    kind = facts.get("preprocessing")
    return "" if kind is None else f"They were {_PREPARED.get(str(kind), f'prepared by {kind}')}."


def _graph(facts: Mapping[str, Any], config: Mapping[str, Any], n_nodes: int | None) -> str:
    n_edges = facts.get("n_edges", 0)
    if facts.get("graph") == "given":
        text = f"The edges that were given: {n_edges:,} between different rows."
    elif facts.get("graph") == "knn":
        wanted = config.get("n_neighbors")
        # A row has at most as many neighbors as there are other rows.
        n_neighbors = wanted if wanted is None or n_nodes is None else min(wanted, n_nodes - 1)
        nearest = "nearest one" if n_neighbors == 1 else f"{n_neighbors} nearest"
        text = f"None was given, so each row was joined to its {nearest}: {counted(n_edges, 'edge', grouped=True)}."
        recall = facts.get("neighbors_recall")
        if recall is not None and facts.get("neighbors_by") != "exact":
            text += f" They were sought in an index, which found {100 * recall:.1f} % of the nearest rows."
    else:
        return "This method does not look at a graph." if facts.get("graph") == "not used" else ""
    n_pairs, n_hops = facts.get("n_positive_pairs"), config.get("n_hops")
    if n_pairs and n_hops:
        steps = "one step" if n_hops == 1 else f"up to {n_hops} steps"
        text += f" Rows {steps} apart on it are positives: {counted(n_pairs, 'pair', grouped=True)}."
    return text


def _start(facts: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    name = config.get("init")
    if facts.get("clusters_by") is None:
        return "" if name is None else f"The start named {name!r} was asked for by the settings."
    who = "The rows"
    if "clustered_rows" in facts:
        who = f"{counted(facts['clustered_rows'], 'row', grouped=True)} of a sample of {facts['sampled_rows']:,}"
    text = f"{who} were clustered many times, {_MADE_BY.get(str(facts['clusters_by']), str(facts['clusters_by']))} "
    return text + (
        f"The start is what these clusterings agree on; on average two of them share {100 * facts['agreement']:.0f} % "
        "of their information (NMI)."
    )


def _training(record: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    n_epochs = record.get("n_epochs_run")
    if not n_epochs:
        return ""
    text = f"{counted(n_epochs, 'epoch', grouped=True)} over all rows; {record.get('stopped', '')}."
    if facts.get("fallback") == "the clusters of the start":
        text += " Training lost a cluster, at a tenth of the learning rate too: the clusters are those of the start."
    elif facts.get("fallback"):
        text += f" Training first lost a cluster and was repeated with {facts['fallback']}."
    if (facts.get("n_processes") or 1) > 1:
        text += f" {facts['n_processes']} processes trained it together."
    return text


def _confidence(facts: Mapping[str, Any]) -> str:
    kind = facts.get("confidence")
    if kind == "agreement of half fits":
        return (
            "Random halves of the rows were clustered by themselves. The confidence of a row is how often such halves "
            "give the same cluster to rows that are as clear as it: as much nearer to their own cluster than to the "
            f"next one before training. On rows held out for it this is off by {100 * facts['confidence_error']:.1f} "
            "percentage points on average. No label was read."
        )
    if kind == "largest q":
        return "It is the largest soft assignment q of a row: which cluster is nearest, not how often that is right."
    return ""


def stability(record: Mapping[str, Any], mean_confidence: float) -> list[dict[str, Any]]:
    """Return the agreement of repeated runs, if any: what was repeated, its value, error and interpretation.

    Examples
    --------
    >>> stability({"facts": {"agreement": 0.9}}, 0.5)[0]["value"]
    0.9
    """
    facts = record.get("facts") or {}
    told: list[dict[str, Any]] = []
    if isinstance(facts.get("agreement"), float):
        meaning = "mean NMI between two of them; 1 is the same"
        told.append({"what": "Quick clusterings of the start", "value": facts["agreement"], "meaning": meaning})
    if facts.get("confidence") == "agreement of half fits":
        meaning = (
            "share of rows that keep their cluster when half of the rows are clustered alone: the mean confidence, "
            "± its expected calibration error on rows held out"
        )
        error = facts["confidence_error"]
        told.append({"what": "Fits of half of the rows", "value": mean_confidence, "error": error, "meaning": meaning})
    if isinstance((record.get("scores") or {}).get("stability"), float):
        meaning = "mean ARI between re-runs; 1 is the same"
        told.append({"what": "Whole fits", "value": record["scores"]["stability"], "meaning": meaning})
    return told


def python_lines(record: Mapping[str, Any]) -> str:
    """Return Python code that repeats a run; data passed from Python get a placeholder name.

    Examples
    --------
    >>> print(python_lines({"method": "pamcgc", "seed": 3, "config": {"n_clusters": 5}, "data": {}, "facts": {}}))
    from pamc import PamCGC
    <BLANKLINE>
    model = PamCGC(n_clusters=5, random_state=3).fit(X)  # X: your rows
    """
    method, data, facts = str(record.get("method")), record.get("data") or {}, record.get("facts") or {}
    own = method == "pamcgc"
    imports, reading, fitting = _data_lines(data, facts)
    changed = _changed(method, record.get("config") or {}, int(data.get("n_nodes", 0)))
    # `PamCGC` takes expert settings in one dict.
    expert = {name: changed.pop(name) for name in list(changed) if own and name in EXPERT}
    settings = [f"{name}={value!r}" for name, value in (changed | ({"advanced": expert} if expert else {})).items()]
    settings.append(f"random_state={record.get('seed')}")
    if str(record.get("device", "")).startswith("cpu"):
        settings.append('device="cpu"')
    call = f"PamCGC({', '.join(settings)})" if own else f"clusterer({method!r}, {', '.join(settings)})"
    names = sorted([*imports.get("pamc", []), "PamCGC" if own else "clusterer"])
    lines = [f"from pamc import {', '.join(names)}"]
    lines += [f"from {module} import {', '.join(of)}" for module, of in imports.items() if module != "pamc"]
    return "\n".join([*lines, "", *reading, f"model = {call}{fitting}"])


def _data_lines(data: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[dict[str, list[str]], list[str], str]:
    """Return imports by module, the lines that read the data, and the fit call."""
    features, name = data.get("features"), data.get("name")
    large = "planned_bytes" in facts
    if features is not None and (large or has_manifest(features)):
        fit = ".fit_store(store)" if large else ".fit_graph(store.to_graph())"
        return {"pamc.data.store": ["open_store"]}, [f"store = open_store({features!r})"], fit
    if features is not None:
        options = {"edges": data.get("edges"), **(data.get("read") or {})}
        given = "".join(f", {key}={value!r}" for key, value in options.items() if value)
        return {"pamc.data.readers": ["read_graph"]}, [f"graph = read_graph({features!r}{given})"], ".fit_graph(graph)"
    if name is not None and "read" in data:
        without = ".without_edges()" if facts.get("graph") == "knn" else ""
        return {"pamc": ["load_dataset"]}, [f"graph = load_dataset({name!r}){without}"], ".fit_graph(graph)"
    alone = facts.get("graph") != "given"
    return {}, [], ".fit(X)  # X: your rows" if alone else ".fit(X, adjacency=A)  # X, A: your rows, their graph"


def _changed(method: str, config: Mapping[str, Any], n_nodes: int) -> dict[str, Any]:
    """Return n_clusters and the settings that differ from the method's defaults."""
    try:
        defaults = METHODS[method].config()
    except UnknownNameError:
        return dict(config)
    n_clusters = config.get("n_clusters", defaults.n_clusters)
    usual = settled(defaults.with_(n_clusters=n_clusters), n_nodes).to_dict()
    changed = {name: value for name, value in config.items() if _as_list(usual.get(name)) != _as_list(value)}
    changed.pop("n_clusters", None)
    # The plan of a store chooses the chunk size.
    changed.pop("chunk_size", None)
    return {"n_clusters": n_clusters, **{k: tuple(v) if isinstance(v, list) else v for k, v in changed.items()}}


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
