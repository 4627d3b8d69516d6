// The parts of a run's page that are made of tables: cards, relations, truth, odd rows, settings.

pamc.records = (columns) => {
  const names = Object.keys(columns || {});
  return names.length ? columns[names[0]].map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]]))) : [];
};
pamc.grouped = (records, key) => {
  const groups = new Map();
  for (const record of records) (groups.get(record[key]) || groups.set(record[key], []).get(record[key])).push(record);
  return groups;
};

// A cluster's number on its color, as a button that filters.
pamc.clusterButton = (page, cluster, ...more) => {
  const button = pamc.el("button", { type: "button", class: "cluster-button", "aria-pressed": "false", "data-filter": cluster, title: `Show cluster ${cluster} alone` },
    pamc.dot(cluster, page.palette[cluster]), ...more);
  button.addEventListener("click", (event) => page.select(cluster, event.shiftKey || event.ctrlKey || event.metaKey));
  return button;
};
pamc.rowButton = (page, id, row, most = 28) => {
  const point = page.pointOf(row);
  if (point < 0) return pamc.name(id, most);
  return pamc.el("button", { type: "button", class: "link", onclick: () => page.find(point) }, pamc.name(id, most));
};

pamc.filterBar = (page) => {
  const bar = pamc.el("div", { class: "chips", role: "group", "aria-label": "Filter by cluster" });
  bar.append(pamc.el("button", { type: "button", class: "chip all", "aria-pressed": "true", "data-filter": "all", text: "All clusters", onclick: () => page.select(null) }));
  for (const { cluster, n_rows: rows } of page.clusters) {
    const chip = pamc.clusterButton(page, cluster, pamc.el("span", { class: "count", text: pamc.count(rows) }), pamc.el("span", { class: "visually-hidden", text: "rows" }));
    chip.classList.add("chip");
    bar.append(chip);
  }
  return pamc.el("div", { class: "filters" }, bar);
};

const bars = (features) => {
  const most = Math.max(...features.map((f) => Math.abs(f.difference)), 1e-9), terms = features[0].kind === "term";
  return pamc.el("ul", { class: "bars" }, features.map((feature) => {
    const part = `${((terms ? 100 : 50) * Math.abs(feature.difference)) / most}%`, less = feature.difference < 0;
    const show = terms ? (v) => pamc.percent(v) : (v) => pamc.number(v);
    const said = terms ? `in ${show(feature.inside)} of its rows, in ${show(feature.elsewhere)} of the others` : `mean ${show(feature.inside)} here, ${show(feature.elsewhere)} elsewhere`;
    const name = pamc.name(feature.name, 60);
    return pamc.el("li", { title: `${pamc.cut(feature.name, 200)}: ${said}` }, pamc.el("span", { class: "name" }, name, pamc.el("span", { class: "visually-hidden", text: `: ${said}` })),
      pamc.el("span", { class: terms ? "bar one" : "bar", "aria-hidden": "true" }, pamc.el("i", { class: less ? "less" : null, style: { width: part } })),
      pamc.el("span", { class: "value", text: pamc.signed(feature.difference) }));
  }));
};

pamc.cards = (page) => {
  const { data } = page, features = pamc.grouped(pamc.records(data.features), "cluster"), rows = pamc.grouped(pamc.records(data.rows), "cluster");
  const cards = page.clusters.map(({ cluster, n_rows: size, share, confidence, edges_inside: inside }) => {
    const color = pamc.css(page.palette[cluster]), own = features.get(cluster) || [], members = rows.get(cluster) || [];
    const card = pamc.el("article", { class: "panel card", "data-cluster": cluster, "aria-label": `Cluster ${cluster}` });
    card.append(pamc.el("div", { class: "head" }, pamc.el("h3", {}, pamc.clusterButton(page, cluster, pamc.el("span", { text: `Cluster ${cluster}` }))), pamc.el("span", { class: "share", text: `${pamc.percent(share)} of all rows` })),
      pamc.el("div", { class: "meter", "aria-hidden": "true" }, pamc.el("i", { style: { width: pamc.percent(share).replace(" ", ""), background: color } })));
    const figures = [["rows", pamc.count(size)], ["confidence", pamc.number(confidence)]];
    if (data.flows) figures.push(["edges inside", pamc.percent(inside)]);
    card.append(pamc.el("dl", { class: "figures" }, figures.map(([term, value]) => pamc.el("div", {}, pamc.el("dt", { text: term }), pamc.el("dd", { text: value })))));
    if (!size) card.append(pamc.el("p", { class: "quiet", text: "No row is in this cluster." }));
    if (own.length) card.append(pamc.el("h4", { text: own[0].kind === "term" ? "Its own terms, in standard errors" : "What is different, in standard deviations" }), bars(own));
    const list = (role, title) => {
      const found = members.filter((member) => member.role === role);
      if (!found.length) return null;
      return pamc.el("div", {}, pamc.el("h4", { text: title }), pamc.el("ul", {}, found.map((member) => pamc.el("li", {}, pamc.rowButton(page, member.id, member.row),
        member.leans_to >= 0 ? pamc.el("span", { class: "to" }, "→ ", pamc.dot(member.leans_to, page.palette[member.leans_to])) : pamc.el("span", { class: "to", text: pamc.number(member.confidence, 2) })))));
    };
    if (members.length) card.append(pamc.el("div", { class: "members" }, list("central", "Central rows"), list("border", "Border rows, leaning to")));
    return card;
  });
  return pamc.el("div", { class: "cards" }, cards);
};

const MOST_IN_TABLE = 40;

pamc.relations = (page) => {
  const { flows, similarity } = page.data, clusters = page.clusters.map((c) => c.cluster);
  if (!similarity) return null;
  const heads = clusters.map((cluster) => ({ cluster, node: () => pamc.dot(cluster, page.palette[cluster]) }));
  const sums = flows?.map((row) => row.reduce((a, b) => a + b, 0));
  if (clusters.length > MOST_IN_TABLE) return pamc.el("div", { class: "panel padded" }, closest(page, flows, similarity, sums));
  const tables = [];
  if (flows) tables.push(pamc.heat("Where the edges of a cluster lead: percent of its edge ends, by row", heads, heads, {
    corner: "from",
    shade: (i, j) => (sums[i] ? flows[i][j] / sums[i] : 0),
    number: (i, j) => (!sums[i] || !flows[i][j] ? "·" : flows[i][j] / sums[i] < 0.005 ? "<1" : `${Math.round((100 * flows[i][j]) / sums[i])}`),
    about: (i, j) => `${sums[i] ? pamc.percent(flows[i][j] / sums[i]) : "no"} of the edge ends of cluster ${clusters[i]} lead to cluster ${clusters[j]}`,
  }));
  tables.push(pamc.heat("How alike the meta-nodes are: cosine, from −1 to 1", heads, heads, {
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
  if (flows) heads.push({ text: "edges between, of the smaller's ends", number: true });
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
  const table = rows.length > 200 ? pamc.el("p", { class: "quiet", text: `${rows.length} classes are too many for a table.` }) : pamc.heat("Rows of each true class (down) in each cluster (across); matched ones come first", rows, columns, {
    corner: "class",
    shade: (i, j) => (sums[i] ? truth.table[i][j] / sums[i] : 0),
    number: (i, j) => (truth.table[i][j] ? pamc.count(truth.table[i][j]) : "·"),
    about: (i, j) => `${pamc.counted(truth.table[i][j], "row")} of class ${pamc.cut(truth.names[i], 60)} in cluster ${truth.clusters[j]}`,
  });
  const { curve } = truth;
  const groups = pamc.el("details", {}, pamc.el("summary", { text: "The numbers" }), pamc.lines("Groups of equally many rows, the least confident first",
    [{ text: "mean confidence", number: true }, { text: "accuracy", number: true }, { text: "rows", number: true }],
    curve.confidence.map((value, i) => [pamc.number(value), pamc.percent(curve.accuracy[i]), pamc.count(curve.n[i])]), { hidden: true }));
  const scores = Object.entries(record.metrics || {}).map(([name, value]) => [name.toUpperCase(), pamc.percent(value, 2)]);
  return [
    pamc.el("dl", { class: "tiles" }, scores.map(([name, value]) => pamc.el("div", { class: "tile" }, pamc.el("dt", { text: name }), pamc.el("dd", { text: value })))),
    pamc.el("div", { class: "two", style: { "margin-top": "1rem" } }, pamc.el("div", { class: "panel" }, table),
      pamc.el("div", { class: "panel" }, pamc.el("h3", { text: "Are sure rows right?" }),
        pamc.el("p", { class: "quiet", text: "Accuracy of ten groups of rows, by their confidence. On the dashed line, where it is in sight, confidence is accuracy." }), pamc.reliability(curve), groups)),
  ];
};

const why = {
  "low confidence": (v) => `${pamc.percent(v, 0)} of the usual confidence`,
  "far from all centers": (v) => `${pamc.number(v, 2)} times the usual distance to the nearest center`,
  "extreme value": (v) => `${pamc.number(v, 2)} times as far from the median of the column as the others`,
  isolated: () => "no edge leads to it",
};
const reason = (row) => (row.feature ? pamc.el("span", {}, `${row.reason} of `, pamc.name(row.feature, 60)) : row.reason);

// Confidence that halves of the rows gave says by itself whether it is low; the largest q does not.
const LOW_CONFIDENCE = 0.7;
pamc.odd = (page) => {
  const odd = pamc.records(page.data.odd);
  if (!page.data.odd) return null;
  const mean = page.meanConfidence(), low = page.data.record.facts.confidence === "agreement of half fits" && mean < LOW_CONFIDENCE;
  const overall = low ? pamc.el("p", { class: "quiet apart", text: `The mean confidence is low (${pamc.number(mean, 2)}): clustered by themselves, halves of the rows put many of them elsewhere. Low confidence is usual here, so rows are not listed for it unless theirs is far lower still.` }) : null;
  if (!odd.length) return [pamc.el("p", { class: "quiet", text: "None: no row stands out from the others." }), overall];
  const lines = odd.map((row) => ({ cluster: row.cluster, cells: [pamc.rowButton(page, row.id, row.row, 60), pamc.dot(row.cluster, page.palette[row.cluster]), pamc.number(row.confidence), reason(row), why[row.reason] ? why[row.reason](row.value) : pamc.number(row.value)] }));
  page.noneOdd = pamc.el("p", { class: "quiet", hidden: true, "aria-live": "polite" });
  page.oddTable = pamc.el("div", { class: "panel padded" }, pamc.lines("Rows to look at", [{ text: "row" }, { text: "cluster" }, { text: "confidence", number: true }, { text: "reason" }, { text: "how odd" }], lines, { hidden: true }));
  return [page.oddTable, page.noneOdd, overall];
};

// How many clusters, where that was asked: the answer and what was compared.
const sureness = ({ n_clusters: k, margin, margin_error: error, rival, also_stable: also }) => {
  const said = [];
  if (typeof rival === "number") said.push(`The margin, by which k = ${k} is more stable than k = ${rival}, is ${margin.toFixed(2)} ± ${error.toFixed(2)}.`);
  if (also?.length) said.push(`As stable, but coarser: ${also.map((other) => `k = ${other}`).join(", ")}.`);
  return said.length ? pamc.el("p", { text: said.join(" "), style: { "margin-bottom": "0.7rem" } }) : null;
};
pamc.chosenCount = (data) => {
  const chosen = data.record.facts.choose_k;
  if (!chosen?.table) return null;
  const lines = pamc.records(chosen.table), heads = [{ text: "clusters", number: true }, { text: "stability", number: true }, { text: "± error", number: true }, { text: "by chance", number: true }, { text: "modularity", number: true }, { text: "silhouette", number: true }];
  const most = Math.max(...lines.map((line) => line.stability || 0), 1e-9);
  const cells = (line) => [line.n_clusters, pamc.number(line.stability), pamc.number(line.error, 2), pamc.number(line.chance), pamc.number(line.modularity), pamc.number(line.silhouette),
    pamc.el("span", { class: "bar one wide", "aria-hidden": "true" }, pamc.el("i", { style: { width: `${(100 * Math.max(0, line.stability || 0)) / most}%` } }))];
  return pamc.el("div", { class: "panel padded" }, pamc.el("p", { text: chosen.why, style: { "margin-bottom": "0.7rem" } }), sureness(chosen),
    pamc.lines("Candidates", [...heads, { text: "" }], lines.map((line) => ({ class: line.n_clusters === chosen.n_clusters ? "differs" : null, cells: cells(line) })), { hidden: true }));
};

pamc.stamp = (data) => {
  const { record } = data, { choose_k: _, ...facts } = record.facts || {}, { packages, ...machine } = record.environment || {};
  const part = (title, object, open) => (object && Object.keys(object).length ? pamc.el("details", { open }, pamc.el("summary", { text: title }), pamc.pairs(object)) : null);
  const { read, ...source } = record.data || {};
  const seconds = Object.fromEntries(Object.entries(record.seconds || {}).map(([name, value]) => [name, `${pamc.number(value)} s`]));
  return pamc.el("div", { class: "panel padded" },
    part("Data", { ...source, ...Object.fromEntries(Object.entries(read || {}).filter(([, value]) => value)) }, true),
    part("Settings", { method: record.method, seed: record.seed, ...record.config }), part("What was found on the way", facts), part("Scores without labels", record.scores),
    part("Time", { ...seconds, "this page": `${pamc.number(data.seconds)} s` }), part("Machine", { device: record.device, ...machine }), part("Packages", packages));
};
pamc.repeat = (data) => [
  data.record.command ? [pamc.el("h3", { text: "In the shell" }), pamc.copy("command", data.record.command)] : pamc.el("p", { class: "quiet", text: "This run was made from Python; there is no command that repeats it." }),
  pamc.el("h3", { text: "In Python", style: { "margin-top": "1rem" } }), pamc.copy("Python lines", data.python),
].flat();
