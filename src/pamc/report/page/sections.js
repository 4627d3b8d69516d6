// The technical details of a run: scores, relations, true classes, candidates, settings.

const line = (name, value, meaning) => (value === null || value === undefined ? null : [name, value, meaning]);
pamc.scoreNames = { silhouette: "silhouette in the embedding", modularity: "modularity", objective: "objective" };
pamc.scores = (page) => {
  const { record, feature_silhouette: raw } = page.data, { scores, facts } = record, error = facts.confidence_error;
  const number = (value) => (value === null || value === undefined ? null : pamc.number(value));
  const known = ["silhouette", "modularity", "stability"], others = Object.keys(scores).filter((name) => !known.includes(name));
  const lines = [
    line("silhouette in the features", number(raw), "how far apart the clusters are in the input features, after preprocessing; −1 to 1"),
    line(pamc.scoreNames.silhouette, number(scores.silhouette), "the same in the embedding, which training arranged by cluster: this value is optimistic"),
    line("modularity", number(scores.modularity), "how many more edges stay inside clusters than by chance; −½ to 1"),
    line("mean confidence", error === undefined ? number(page.meanConfidence()) : `${pamc.number(page.meanConfidence())} ± ${pamc.number(error, 2)}`,
      pamc.isCalibrated(page.data) ? "agreement of fits of half of the rows, ± its error on held-out rows" : `largest soft assignment; by chance it would be ${pamc.number(1 / page.data.n_clusters, 2)}`),
    ...others.map((name) => line(name, number(scores[name]), name === "objective" ? "value of the objective after training; lower is better" : "")),
  ].filter(Boolean);
  const heads = [{ text: "cluster" }, { text: "rows", number: true }, { text: "mean confidence", number: true }, { text: "edges inside", number: true }];
  const clusters = page.clusters.map((c) => ({ cluster: c.cluster, cells: [pamc.dot(c.cluster, page.palette[c.cluster]), pamc.count(c.n_rows), pamc.number(c.confidence), pamc.percent(page.data.flows ? c.edges_inside : null)] }));
  return [pamc.el("div", { class: "panel padded" }, pamc.lines("Scores that use no labels", [{ text: "score" }, { text: "value", number: true }, { text: "meaning" }], lines)),
    pamc.el("div", { class: "panel padded apart" }, pamc.lines("Scores of each cluster", heads, clusters))];
};

// The tree over the clusters: each part opens to the two that were merged into it.
pamc.levels = (page) => {
  const { linkage } = page.data;
  if (!linkage || linkage.length < 2) return null;
  const n = linkage.length + 1, rows = page.clusters.map((c) => c.n_rows), count = [...rows.slice(0, n)], leaves = new Array(n).fill(1);
  for (const [a, b] of linkage) { count.push(count[a] + count[b]); leaves.push(leaves[a] + leaves[b]); }
  const node = (i, level) => {
    if (i < n) return pamc.el("li", {}, pamc.clusterButton(page, i, page.names[i] ? pamc.el("bdi", { dir: "auto", text: page.names[i] }) : pamc.el("span", { text: `Cluster ${i}` })), " ", pamc.el("span", { class: "quiet", text: pamc.counted(rows[i], "row") }));
    const [a, b] = linkage[i - n], large = count[a] >= count[b] ? [a, b] : [b, a];
    return pamc.el("li", {}, pamc.el("details", { open: level < 1 }, pamc.el("summary", { text: `${pamc.counted(leaves[i], "cluster")}, ${pamc.counted(count[i], "row")}` }), pamc.el("ul", {}, large.map((part) => node(part, level + 1)))));
  };
  return pamc.el("div", { class: "panel padded" }, pamc.el("ul", { class: "tree" }, node(2 * n - 2, 0)));
};

const MOST_IN_TABLE = 40;

pamc.relations = (page) => {
  const { flows, similarity } = page.data, clusters = page.clusters.map((c) => c.cluster);
  if (!similarity) return null;
  const heads = clusters.map((cluster) => ({ cluster, node: () => pamc.dot(cluster, page.palette[cluster]) }));
  const sums = flows?.map((row) => row.reduce((a, b) => a + b, 0));
  if (clusters.length > MOST_IN_TABLE) return pamc.el("div", { class: "panel padded" }, closest(page, flows, similarity, sums));
  const tables = [];
  if (flows) tables.push(pamc.heat("Where the edges of a cluster lead, in percent of its edge ends; each row sums to 100", heads, heads, {
    corner: "from",
    shade: (i, j) => (sums[i] ? flows[i][j] / sums[i] : 0),
    number: (i, j) => (!sums[i] || !flows[i][j] ? "·" : flows[i][j] / sums[i] < 0.005 ? "<1" : `${Math.round((100 * flows[i][j]) / sums[i])}`),
    about: (i, j) => `${sums[i] ? pamc.percent(flows[i][j] / sums[i]) : "no"} of the edge ends of cluster ${clusters[i]} lead to cluster ${clusters[j]}`,
  }));
  tables.push(pamc.heat("Cosine similarity of the meta-nodes, −1 to 1", heads, heads, {
    shade: (i, j) => (i === j ? 0 : (similarity[i][j] + 1) / 2),
    number: (i, j) => (i === j ? "·" : similarity[i][j].toFixed(2).replace("-", "−").replace("0.", ".")),
    about: (i, j) => `clusters ${clusters[i]} and ${clusters[j]}: ${similarity[i][j].toFixed(3)}`,
  }));
  return pamc.el("div", { class: "two" }, tables.map((table) => pamc.el("div", { class: "panel" }, table)));
};
const closest = (page, flows, similarity, sums) => {
  const pairs = [];
  for (let i = 0; i < similarity.length; i++) for (let j = i + 1; j < similarity.length; j++) pairs.push([i, j]);
  const size = flows ? ([i, j]) => flows[i][j] / (Math.min(sums[i], sums[j]) || Infinity) : ([i, j]) => similarity[i][j];
  pairs.sort((a, b) => size(b) - size(a));
  const heads = [{ text: "cluster" }, { text: "and" }, { text: "cosine of meta-nodes", number: true }];
  if (flows) heads.push({ text: "edges between, of the smaller one's edge ends", number: true });
  return pamc.lines(`The 40 closest pairs of ${similarity.length} clusters`, heads, pairs.slice(0, 40).map(([i, j]) => {
    const cells = [pamc.dot(i, page.palette[i]), pamc.dot(j, page.palette[j]), similarity[i][j].toFixed(3)];
    return { of: [i, j], cells: flows ? [...cells, pamc.percent(size([i, j]))] : cells };
  }));
};

pamc.truth = (page) => {
  const { truth, record } = page.data;
  if (!truth) return null;
  const rows = truth.names.map((name) => ({ node: () => pamc.name(name, 24) })), sums = truth.table.map((row) => row.reduce((a, b) => a + b, 0));
  const columns = truth.clusters.map((cluster) => ({ node: () => pamc.dot(cluster, page.palette[cluster]) }));
  const table = rows.length > 200 ? pamc.el("p", { class: "quiet", text: `${rows.length} classes are too many for a table.` }) : pamc.heat("Number of rows of each true class (down) in each cluster (across); matched clusters come first", rows, columns, {
    corner: "class",
    shade: (i, j) => (sums[i] ? truth.table[i][j] / sums[i] : 0),
    number: (i, j) => (truth.table[i][j] ? pamc.count(truth.table[i][j]) : "·"),
    about: (i, j) => `${pamc.counted(truth.table[i][j], "row")} of class ${pamc.cut(truth.names[i], 60)} in cluster ${truth.clusters[j]}`,
  });
  const { curve } = truth;
  const groups = pamc.el("details", {}, pamc.el("summary", { text: "Values" }), pamc.lines("Groups of equal size, the least confident first",
    [{ text: "mean confidence", number: true }, { text: "accuracy", number: true }, { text: "rows", number: true }],
    curve.confidence.map((value, i) => [pamc.number(value), pamc.percent(curve.accuracy[i]), pamc.count(curve.n[i])]), { hidden: true }));
  const scores = Object.entries(record.metrics || {}).map(([name, value]) => [name.toUpperCase(), pamc.percent(value, 2)]);
  return [
    pamc.el("dl", { class: "tiles" }, scores.map(([name, value]) => pamc.el("div", { class: "tile" }, pamc.el("dt", { text: name }), pamc.el("dd", { text: value })))),
    pamc.el("div", { class: "two", style: { "margin-top": "1rem" } }, pamc.el("div", { class: "panel" }, table),
      pamc.el("div", { class: "panel" }, pamc.el("h4", { text: "Are confident rows correct?" }),
        pamc.el("p", { class: "quiet", text: "Accuracy of ten groups of rows, ordered by confidence. On the dashed line, accuracy equals confidence." }), pamc.reliability(curve), groups)),
  ];
};

// The number of clusters, if pamc chose it: the decision and the candidates.
const marginText = ({ n_clusters: k, margin, margin_error: error, rival, also_stable: also }) => {
  const texts = [];
  if (typeof rival === "number") texts.push(`The margin by which k = ${k} is more stable than k = ${rival} is ${margin.toFixed(2)} ± ${error.toFixed(2)}.`);
  if (also?.length) texts.push(`Equally stable but coarser: ${also.map((other) => `k = ${other}`).join(", ")}.`);
  return texts.length ? pamc.el("p", { text: texts.join(" "), style: { "margin-bottom": "0.7rem" } }) : null;
};
pamc.chosenCount = (data) => {
  const chosen = data.record.facts.choose_k;
  if (!chosen?.table) return null;
  const lines = pamc.records(chosen.table), heads = [{ text: "clusters", number: true }, { text: "stability", number: true }, { text: "± error", number: true }, { text: "by chance", number: true }, { text: "modularity", number: true }, { text: "silhouette", number: true }];
  const most = Math.max(...lines.map((line) => line.stability || 0), 1e-9);
  const cells = (line) => [line.n_clusters, pamc.number(line.stability), pamc.number(line.error, 2), pamc.number(line.chance), pamc.number(line.modularity), pamc.number(line.silhouette),
    pamc.el("span", { class: "bar one wide", "aria-hidden": "true" }, pamc.el("i", { style: { width: `${(100 * Math.max(0, line.stability || 0)) / most}%` } }))];
  return pamc.el("div", { class: "panel padded" }, pamc.el("p", { text: chosen.why, style: { "margin-bottom": "0.7rem" } }), marginText(chosen),
    pamc.lines("Candidates", [...heads, { text: "" }], lines.map((line) => ({ class: line.n_clusters === chosen.n_clusters ? "differs" : null, cells: cells(line) })), { hidden: true }));
};

pamc.stamp = (data) => {
  const { record } = data, { choose_k: _, ...facts } = record.facts || {}, { packages, ...machine } = record.environment || {};
  const part = (title, object, open) => (object && Object.keys(object).length ? pamc.el("details", { open }, pamc.el("summary", { text: title }), pamc.pairs(object)) : null);
  const { read, ...source } = record.data || {};
  const seconds = Object.fromEntries(Object.entries(record.seconds || {}).map(([name, value]) => [name, `${pamc.number(value)} s`]));
  return pamc.el("div", { class: "panel padded" },
    part("Data", { ...source, ...Object.fromEntries(Object.entries(read || {}).filter(([, value]) => value)) }, true),
    part("Settings", { method: record.method, seed: record.seed, ...record.config }), part("Facts about the fit", facts),
    part("Time", { ...seconds, "this page": `${pamc.number(data.seconds)} s` }), part("Machine", { device: record.device, ...machine }), part("Packages", packages));
};
pamc.repeat = (data) => [
  data.record.command ? [pamc.el("h4", { text: "In the shell" }), pamc.copy("command", data.record.command)] : pamc.el("p", { class: "quiet", text: "This run was started from Python, so no command repeats it." }),
  pamc.el("h4", { text: "In Python" }), pamc.copy("Python lines", data.python),
].flat();
