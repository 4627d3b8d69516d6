"""A run described in paragraphs, and the Python code that repeats it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pamc.data.store import has_manifest
from pamc.errors import UnknownNameError, counted
from pamc.estimator.advanced import EXPERT
from pamc.initialize.consensus import GRAPH_ALONE
from pamc.models.method import METHODS
from pamc.report.page_file import plain
from pamc.training.fallback import INITIAL_RETURNED, TRAINING_UNDONE
from pamc.training.pipeline import chosen

_PREPROCESSED = {
    "none": "used unchanged",
    "scale": "divided by one number, because all columns have the same order of magnitude",
    "standardize": "standardized column by column, because the columns have different orders of magnitude",
    "unit": "scaled to length 1 row by row",
    "rms": "scaled to root mean square 1 row by row",
    "tfidf": "weighted by tf-idf, because they look like word counts",
    "variables": "encoded column by column and scaled so that each column of the table counts as one variable",
}
_INPUTS = {
    "features and graph": "Features and graph were used together, because rows joined by an edge are similar.",
    "features": "The graph was not used: rows joined by an edge are no more similar than other rows, and the features "
    "alone give more stable clusters.",
    "graph": "The features were not used to find clusters: rows joined by an edge are no more similar than other rows, "
    "and the graph alone gives more stable clusters.",
}
_INPUTS[GRAPH_ALONE] = (
    "The rows have no features. The leading directions of the graph were used in their place, and initial clusters "
    "were found along its edges."
)
_CLUSTERED_BY = {
    "Gaussian mixture": "a mixture of Gaussians",
    "k-means": "K-means",
    "layout": "Gaussian mixtures of a low-dimensional layout",
    "merged groups": "merging small groups along the edges",
    "merged neighbors": "merging small groups along the kNN graph",
    "smoothed k-means": "K-means of features smoothed along the edges",
    "spectral": "spectral clustering of the kNN graph",
}
_FITTED_TO = {
    "smoothed features": "The encoder was fitted to features smoothed along the edges, which keep the clusters apart.",
    "initial clusters": "The encoder was fitted to these clusters directly, because few columns or smoothed features "
    "would not keep them apart.",
}


def narrative(record: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the decisions of a fit and their reasons as titled paragraphs, from its record (`run.json`).

    Examples
    --------
    >>> narrative({"facts": {"preprocessing": "scale"}, "config": {}, "data": {}})[0]["title"]
    'Features'
    """
    facts, config = record.get("facts") or {}, record.get("config") or {}
    kind = facts.get("preprocessing")
    paragraphs = {
        "Features": f"The features were {_PREPROCESSED.get(kind, f'preprocessed by {kind}')}." if kind else "",
        "Graph": _graph(facts, config, (record.get("data") or {}).get("n_nodes")),
        "Relations": _relations(facts),
        "Inputs": _INPUTS.get(str(facts.get("inputs")), "") if facts.get("graph") == "given" else "",
        "Initialization": _initialization(facts, config),
        "Training": _training(record, facts),
        "Confidence": _confidence(facts),
    }
    return [{"title": title, "text": text} for title, text in paragraphs.items() if text]


def _graph(facts: Mapping[str, Any], config: Mapping[str, Any], n_nodes: int | None) -> str:
    edges = counted(facts.get("n_edges", 0), "edge", grouped=True)
    if facts.get("graph") == "given":
        text = f"The graph was given: {edges} between different rows."
    elif facts.get("graph") == "knn":
        wanted = config.get("n_neighbors")
        # A row has at most as many neighbors as there are other rows.
        n_neighbors = wanted if wanted is None or n_nodes is None else min(wanted, n_nodes - 1)
        nearest = "nearest neighbor" if n_neighbors == 1 else f"{n_neighbors} nearest neighbors"
        text = f"No graph was given, so each row was joined to its {nearest}: {edges}."
        recall = facts.get("neighbors_recall")
        if facts.get("neighbors_by") == "tangent distance":
            text += " Images were compared by tangent distance, which hardly changes when they are shifted or turned."
        if recall is not None and facts.get("neighbors_by") != "exact":
            text += f" The search was approximate and found {100 * recall:.1f} % of the nearest neighbors."
    else:
        return "This method does not use a graph." if facts.get("graph") == "not used" else ""
    n_pairs, n_hops = facts.get("n_positive_pairs"), config.get("n_hops")
    if n_pairs and n_hops:
        steps = "one step" if n_hops == 1 else f"up to {n_hops} steps"
        text += f" Rows {steps} apart on it are positive pairs: {counted(n_pairs, 'pair', grouped=True)}."
    if facts.get("inputs") == GRAPH_ALONE:
        text += f" The weight of the contrastive loss is {config['alpha']:g}."
    elif "graph_trust" in facts:
        text += (
            f" The trust in the graph is {100 * facts['graph_trust']:.0f} %: it measures how well the edges predict "
            "the initial cluster of a row, compared with the nearest neighbors by features. The weight of the "
            f"contrastive loss is {config['alpha']:g}."
        )
    return text


def _relations(facts: Mapping[str, Any]) -> str:
    """Return a sentence on the weight of each relation, and one on the clusters that it holds together."""
    edges = facts.get("relation_edges") or {}
    if len(edges) < 2:
        return ""
    lines = []
    for name, weight in facts["relation_weights"].items():
        kept, text = edges[name], f"“{name}” has the weight {weight:.2f} ({facts['relation_reasons'][name]})"
        shares = {number: share for number, share in enumerate(kept["of_cluster"]) if share is not None}
        best = max(shares, key=lambda number: shares[number])
        lines.append(
            f"{text}; {100 * kept['inside']:.0f} % of its edges are inside the final clusters, most in cluster {best} "
            f"({100 * shares[best]:.0f} %)."
        )
    text = f"The graph consists of {len(edges)} relations. " + " ".join(lines)
    if facts.get("share_assigned_by_edges"):
        share = 100 * facts["share_assigned_by_edges"]
        text += f" {share:.1f} % of the rows would be in another cluster by their features alone."
    return text


def relation_rows(model: Any) -> list[dict[str, Any]]:
    """Return the weight, the reason and the share of edges inside clusters of each relation and cluster of a fit."""
    facts: Mapping[str, Any] = getattr(getattr(model, "_fit_result", None), "facts", {})
    return [
        {
            "relation": name,
            "weight": facts["relation_weights"][name],
            "reason": facts["relation_reasons"][name],
            "cluster": cluster,
            "edges_inside": math.nan if share is None else share,
            "by_chance": kept["by_chance"],
        }
        for name, kept in (facts.get("relation_edges") or {}).items()
        for cluster, share in enumerate(kept["of_cluster"])
    ]


def _initialization(facts: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    name = config.get("init")
    if facts.get("clusters_by") is None:
        return "" if name is None else f"The settings chose the initializer {name!r}."
    rows = "The rows"
    if "clustered_rows" in facts:
        rows = f"{counted(facts['clustered_rows'], 'row', grouped=True)} of a sample of {facts['sampled_rows']:,}"
    families = [_CLUSTERED_BY.get(name, name) for name in str(facts["clusters_by"]).split(", ")]
    how = families[0]
    encoder = _FITTED_TO.get(str(facts.get("encoder_fitted_to")), "")
    if "initial_modularity" in facts:
        return (
            f"{rows} were clustered by {how}, and then moved to the cluster of a neighbor while this increased the "
            f"modularity, which is {facts['initial_modularity']:.3f}. The encoder was fitted to these clusters."
        )
    if "support" not in facts:
        return f"{rows} were clustered by {how}. {encoder}".rstrip()
    if len(families) > 1:
        return (
            f"{rows} were clustered in {len(_CLUSTERED_BY)} ways, of which {len(families)} are nearly equally good, by "
            "their agreement with the others and by the share of edges that they cut. The initial clusters are a "
            f"consensus of them: {'; '.join(families)}. {encoder}"
        ).rstrip()
    return (
        f"{rows} were clustered in {len(_CLUSTERED_BY)} ways, and the initial clusters are those of {how}: among all, "
        f"they agree best with the others (adjusted Rand index {facts['support']:.2f} with the two most similar; 1 is "
        f"complete agreement) and cut few edges ({100 * facts['conductance']:.0f} % of a cluster's edges). {encoder}"
    ).rstrip()


def _training(record: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    if facts.get("fallback") == INITIAL_RETURNED:
        return (
            "Training nearly emptied a cluster, even at a tenth of the learning rate, so the initial clusters are the "
            "result."
        )
    if facts.get("fallback") == TRAINING_UNDONE:
        return (
            f"Training was undone: it lowered the label-free score of the clusters from {facts['score_before']:.2f} to "
            f"{facts['score_after']:.2f}, so the initial clusters are the result."
        )
    n_epochs = record.get("n_epochs_run")
    if not n_epochs:
        return ""
    text = f"Training ran {counted(n_epochs, 'epoch', grouped=True)} over all rows; {record.get('stopped', '')}."
    if facts.get("fallback"):
        text += f" It first nearly emptied a cluster and was repeated with {facts['fallback']}."
    if "score_before" in facts:
        text += (
            f" The label-free score of the clusters was {facts['score_before']:.2f} before and "
            f"{facts['score_after']:.2f} after training."
        )
    if "views" in (record.get("history") or {}):
        text += " Each row and a random copy of it, drawn anew in every epoch, were a positive pair as well."
    if (facts.get("n_processes") or 1) > 1:
        text += f" {facts['n_processes']} processes took part."
    return text


def _confidence(facts: Mapping[str, Any]) -> str:
    kind = facts.get("confidence")
    if kind == "agreement of half fits":
        return (
            "Random halves of the rows were clustered separately. The confidence of a row is how often two halves "
            "agree on the cluster of rows like it: rows with the same margin between their own and the next cluster "
            f"before training. Its mean error on held-out rows is {100 * facts['confidence_error']:.1f} percentage "
            "points. No label was used."
        )
    if kind == "largest q":
        return (
            "The confidence of a row is its largest soft assignment q. It shows which cluster is nearest, not how "
            "often that is correct."
        )
    return ""


def stability(record: Mapping[str, Any], mean_confidence: float) -> list[dict[str, Any]]:
    """Return the agreement of repeated runs, if any: what was repeated, its value, error and interpretation.

    Examples
    --------
    >>> stability({"facts": {"support": 0.9}}, 0.5)[0]["value"]
    0.9
    """
    facts = record.get("facts") or {}
    lines: list[dict[str, Any]] = []
    if isinstance(facts.get("support"), float):
        meaning = "mean ARI with the two most similar results of other methods; 1 is complete agreement"
        lines.append({"what": "Other clustering methods", "value": facts["support"], "meaning": meaning})
    if facts.get("confidence") == "agreement of half fits":
        meaning = (
            "share of rows that keep their cluster when only half of the rows are clustered: the mean confidence, ± "
            "its expected calibration error on held-out rows"
        )
        error = facts["confidence_error"]
        lines.append({"what": "Fits of half of the rows", "value": mean_confidence, "error": error, "meaning": meaning})
    if isinstance((record.get("scores") or {}).get("stability"), float):
        meaning = "mean ARI of two fits; 1 is complete agreement"
        lines.append({"what": "Whole fits", "value": record["scores"]["stability"], "meaning": meaning})
    return lines


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
    is_pamcgc = method == "pamcgc"
    imports, reading, fitting = _data_lines(data, facts)
    changed = _changed(method, record.get("config") or {}, data, facts)
    # `PamCGC` takes expert settings in one dict.
    expert = {name: changed.pop(name) for name in list(changed) if is_pamcgc and name in EXPERT}
    settings = [f"{name}={value!r}" for name, value in (changed | ({"advanced": expert} if expert else {})).items()]
    settings.append(f"random_state={record.get('seed')}")
    if str(record.get("device", "")).startswith("cpu"):
        settings.append('device="cpu"')
    call = f"PamCGC({', '.join(settings)})" if is_pamcgc else f"clusterer({method!r}, {', '.join(settings)})"
    names = sorted([*imports.get("pamc", []), "PamCGC" if is_pamcgc else "clusterer"])
    lines = [f"from pamc import {', '.join(names)}"]
    lines += [f"from {module} import {', '.join(of)}" for module, of in imports.items() if module != "pamc"]
    return "\n".join([*lines, "", *reading, f"model = {call}{fitting}"])


def _data_lines(data: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[dict[str, list[str]], list[str], str]:
    """Return imports by module, the lines that read the data, and the fit call."""
    features, name = data.get("features"), data.get("name")
    large = "planned_bytes" in facts
    if features is not None and (large or has_manifest(features)):
        fit = ".fit_store(store)" if large else ".fit_graph(store.to_graph())"
        if weights := data.get("relation_weights"):
            fit = f".fit_store(store, relation_weights={weights!r})"
        return {"pamc.data.store": ["open_store"]}, [f"store = open_store({features!r})"], fit
    if features is None and data.get("edges") is not None:
        reading = [f"graph = read_graph(edges={data['edges']!r})"]
        return {"pamc.data.readers": ["read_graph"]}, reading, ".fit_graph(graph)"
    if features is not None:
        relations = {name: data.get(name) for name in ("edges", "members", "directed", "relation_weights")}
        options = {**relations, **(data.get("read") or {})}
        arguments = "".join([repr(features), *(f", {key}={value!r}" for key, value in options.items() if value)])
        return {"pamc.data.readers": ["read_graph"]}, [f"graph = read_graph({arguments})"], ".fit_graph(graph)"
    if name is not None and "read" in data:
        without = ".without_edges()" if facts.get("graph") == "knn" else ""
        return {"pamc": ["load_dataset"]}, [f"graph = load_dataset({name!r}){without}"], ".fit_graph(graph)"
    if facts.get("inputs") == GRAPH_ALONE:
        return {}, [], ".fit(adjacency=A)  # A: your graph"
    fit = ".fit(X, adjacency=A)  # X, A: your rows, their graph"
    return {}, [], fit if facts.get("graph") == "given" else ".fit(X)  # X: your rows"


def _changed(
    method: str, config: Mapping[str, Any], data: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return n_clusters and the settings that differ from the method's defaults."""
    try:
        defaults = METHODS[method].config()
    except UnknownNameError:
        return dict(config)
    n_clusters = config.get("n_clusters", defaults.n_clusters)
    n_nodes, n_features = (int(data.get(name, 0)) for name in ("n_nodes", "n_features"))
    usual = plain(chosen(defaults.with_(n_clusters=n_clusters), n_nodes, n_features, facts).to_dict())
    changed = {name: value for name, value in plain(config).items() if usual.get(name) != value}
    # The plan of a store chooses the chunk size.
    for name in ("n_clusters", "chunk_size"):
        changed.pop(name, None)
    return {"n_clusters": n_clusters, **{k: tuple(v) if isinstance(v, list) else v for k, v in changed.items()}}
