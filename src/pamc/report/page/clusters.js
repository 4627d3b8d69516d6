// The plain part of a run's page: names of the clusters, their cards, and how sure they are.

pamc.records = (columns) => {
  const names = Object.keys(columns || {});
  return names.length ? columns[names[0]].map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]]))) : [];
};
pamc.grouped = (records, key) => {
  const groups = new Map();
  for (const record of records) (groups.get(record[key]) || groups.set(record[key], []).get(record[key])).push(record);
  return groups;
};

// Smallest difference, in standard deviations of the column, that a cluster is named for, and that its card lists first.
const NAMED = 0.5, LISTED = 0.3;
const adjective = ({ kind, difference, inside }) => {
  if (kind === "term") return "";
  if (kind === "share") return difference < 0 ? "rarely " : inside >= 0.5 ? "mostly " : "often ";
  return difference < 0 ? "low " : "high ";
};
// A readable name for each cluster, such as "high income, low age"; "" if the columns have no names. Clusters of a table
// of mixed types have one already.
pamc.clusterNames = (table, n, clusters) => {
  if (clusters?.name) return clusters.name;
  const groups = pamc.grouped(pamc.records(table), "cluster");
  const parts = Array.from({ length: n }, (_, cluster) => {
    const features = (groups.get(cluster) || []).filter(({ name, feature }) => name !== `feature ${feature}`);
    const distinct = features.filter(({ kind, difference }) => kind === "term" || Math.abs(difference) >= NAMED);
    // What a cluster rarely has is used only if nothing else is distinct.
    const has = distinct.filter(({ kind, difference }) => kind !== "share" || difference > 0);
    const texts = (has.length ? has : distinct).map((feature) => adjective(feature) + pamc.cut(feature.name, 24));
    return texts.length || !features.length ? texts : ["close to the average"];
  });
  const short = parts.map((texts) => texts.slice(0, 2).join(", "));
  return short.map((text, cluster) => (short.indexOf(text) === short.lastIndexOf(text) ? text : parts[cluster].slice(0, 3).join(", ")));
};
// The number of a cluster on its color, and its name.
pamc.clusterName = (page, cluster) => pamc.el("span", { class: "cluster-name" }, pamc.dot(cluster, page.palette[cluster]), " ",
  page.names[cluster] ? pamc.el("bdi", { dir: "auto", text: page.names[cluster] }) : pamc.el("span", { text: `Cluster ${cluster}` }));

// A cluster's number on its color, as a button that filters.
pamc.clusterButton = (page, cluster, ...more) => {
  const button = pamc.el("button", { type: "button", class: "cluster-button", "aria-pressed": "false", "data-filter": cluster, title: `Show only ${cluster === pamc.noise ? "rows in no cluster" : `cluster ${cluster}`}` },
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

// What a feature is like in a cluster and in all rows, in the units of the user.
const compared = ({ kind, inside, elsewhere, difference, text }, share) => {
  if (text) return text;
  const all = share * inside + (1 - share) * elsewhere;
  if (kind !== "difference") return `${pamc.share(inside)} of its rows, ${pamc.share(all)} of all rows`;
  const spread = Math.abs((inside - elsewhere) / difference);
  return `mean ${pamc.measured(inside, spread)} against ${pamc.measured(all, spread)} in all rows`;
};
const differences = (features, share, most) => pamc.el("ul", { class: "bars" }, features.map((feature) => {
  const isTerm = feature.kind === "term", width = `${((isTerm ? 100 : 50) * Math.abs(feature.difference)) / most}%`;
  return pamc.el("li", {}, pamc.name(feature.trait || feature.name, 60),
    pamc.el("span", { class: isTerm ? "bar one" : "bar", "aria-hidden": "true" }, pamc.el("i", { class: feature.difference < 0 ? "less" : null, style: { width } })),
    pamc.el("span", { class: "value", text: compared(feature, share) }));
}));

pamc.cards = (page) => {
  const { data } = page, features = pamc.grouped(pamc.records(data.features), "cluster"), rows = pamc.grouped(pamc.records(data.rows), "cluster");
  const cards = page.clusters.map(({ cluster, n_rows: size, share, edges_inside: inside }) => {
    const color = pamc.css(page.palette[cluster]), listed = features.get(cluster) || [], members = rows.get(cluster) || [], name = page.names[cluster];
    const title = name ? pamc.el("bdi", { dir: "auto", text: name }) : pamc.el("span", { text: `Cluster ${cluster}` });
    const card = pamc.el("article", { class: "panel card", "data-cluster": cluster, "aria-label": cluster === pamc.noise ? name : name ? `Cluster ${cluster}: ${name}` : `Cluster ${cluster}` });
    card.append(pamc.el("h3", { class: "head" }, pamc.clusterButton(page, cluster, title)),
      pamc.el("p", { class: "size" }, pamc.el("strong", { text: pamc.counted(size, "row") }), `, ${pamc.percent(share)} of all`),
      pamc.el("div", { class: "meter", "aria-hidden": "true" }, pamc.el("i", { style: { width: pamc.percent(share).replace(" ", ""), background: color } })));
    const sure = [page.clear && size ? `${pamc.share(page.clear.of[cluster] / page.clear.n[cluster])} of its rows are clear.` : null,
      data.flows && data.record.facts.graph === "given" && inside !== null ? `${pamc.share(inside)} of its edges stay inside.` : null].filter(Boolean);
    if (sure.length) card.append(pamc.el("p", { class: "quiet", text: sure.join(" ") }));
    if (!size) card.append(pamc.el("p", { class: "quiet", text: "This cluster has no rows." }));
    if (listed.length) {
      const strong = listed.filter(({ kind, difference }, i) => i < 5 && (!i || kind === "term" || Math.abs(difference) >= LISTED)), weak = listed.slice(strong.length);
      const most = Math.max(...listed.map((f) => Math.abs(f.difference)), 1e-9);
      card.append(pamc.el("h4", { text: "What makes it different" }), differences(strong, share, most));
      if (weak.length) card.append(pamc.el("details", { class: "more" }, pamc.el("summary", { text: `${weak.length} smaller ${weak.length === 1 ? "difference" : "differences"}` }), differences(weak, share, most)));
    }
    const list = (role, heading) => {
      const examples = members.filter((member) => member.role === role);
      if (!examples.length) return null;
      return pamc.el("div", {}, pamc.el("h4", { text: heading }), pamc.el("ul", {}, examples.map((member) => pamc.el("li", {}, pamc.rowButton(page, member.id, member.row),
        member.leans_to >= 0 ? pamc.el("span", { class: "to" }, "→ ", pamc.dot(member.leans_to, page.palette[member.leans_to])) : null))));
    };
    if (members.length) card.append(pamc.el("div", { class: "members" }, list("central", "Typical rows"), list("border", "Border rows, close to")));
    const values = pamc.cellTable(page, members, `Values of the typical and border rows of cluster ${cluster}`);
    if (values) card.append(pamc.el("details", { class: "more" }, pamc.el("summary", { text: "Values of these rows" }), values));
    return card;
  });
  return pamc.el("div", { class: "cards" }, cards);
};

// The cells of rows as they are in the table of the user, empty where they are missing; null if they are not known.
pamc.cellTable = (page, rows, caption) => {
  const known = rows.filter(({ row }) => page.cells.has(row));
  if (!known.length) return null;
  const names = page.cells.get(known[0].row).map(({ column }) => column);
  return pamc.lines(caption, [{ text: "row" }, ...names.map((name) => ({ text: pamc.cut(name, 40) }))], known.map(({ row, id, cluster }) => (
    { cluster, cells: [pamc.rowButton(page, id, row), ...page.cells.get(row).map(({ cell }) => (cell ? pamc.name(cell, 60) : ""))] })), { hidden: true, kind: "cells" });
};

// The typical value of each column in each cluster, as a table to copy.
const MOST_IN_PROFILE = 40, UNUSUALLY_MISSING = 0.1;
pamc.profile = (page) => {
  const lines = pamc.records(page.data.profile);
  if (!lines.length) return null;
  const clusters = [-1, ...page.clusters.filter((c) => c.n_rows).map((c) => c.cluster)].slice(0, MOST_IN_PROFILE + 1), by = pamc.grouped(lines, "column");
  const of = (cluster) => (cluster < 0 ? null : cluster);
  const head = (cluster) => pamc.el("th", { scope: "col", "data-cluster": of(cluster) }, cluster < 0 ? "All rows" : pamc.clusterName(page, cluster));
  // Missing cells are mentioned for all rows, and for a cluster where they are unusual.
  const missed = (cluster, missing, usual) => (cluster < 0 ? missing > 0 : Math.abs(missing - usual) >= UNUSUALLY_MISSING);
  const cell = ({ cluster, typical, share, missing }, usual) => pamc.el("td", { "data-cluster": of(cluster) }, pamc.el("bdi", { dir: "auto", text: typical ? pamc.cut(typical, 60) : "–" }),
    share === null ? null : [" ", pamc.el("span", { class: "whole", text: `(${pamc.share(share)})` })],
    missed(cluster, missing, usual) ? [", ", pamc.el("span", { class: "quiet whole", text: `${pamc.share(missing)} missing` })] : null);
  const rows = [...by].map(([name, values]) => {
    const of = new Map(values.map((value) => [value.cluster, value]));
    return pamc.el("tr", {}, pamc.el("th", { scope: "row" }, pamc.name(name, 40)), clusters.map((cluster) => cell(of.get(cluster), of.get(-1).missing)));
  });
  const sizes = pamc.el("tr", {}, pamc.el("th", { scope: "row", text: "rows" }), clusters.map((cluster) => pamc.el("td", { "data-cluster": of(cluster), text: pamc.count(cluster < 0 ? page.data.n_rows : page.clusters[cluster].n_rows) })));
  const table = pamc.el("table", { class: "lines profile" }, pamc.el("thead", {}, pamc.el("tr", {}, pamc.el("th", { scope: "col", text: "column" }), clusters.map(head))), pamc.el("tbody", {}, sizes, rows));
  return pamc.el("div", { class: "panel padded" }, pamc.copyTable(table), pamc.scroll("Profile of the clusters", table));
};

// Confidence from fits of half of the rows is a frequency; other kinds of confidence are not, so nothing is called clear.
const CLEAR = 0.8, LOW_CONFIDENCE = 0.7;
pamc.isCalibrated = (data) => data.record.facts.confidence === "agreement of half fits";
// The clear rows and all listed rows of each cluster; null if this is not known.
pamc.clearRows = (page) => {
  if (!pamc.isCalibrated(page.data)) return null;
  const of = new Array(page.clusters.length).fill(0), n = [...of], { min, max, at } = page.confidence, halfStep = (max - min) / 510;
  for (let i = 0; i < page.n; i++) {
    n[page.cluster[i]]++;
    if (page.cluster[i] !== pamc.noise && at(i) >= CLEAR - halfStep) of[page.cluster[i]]++;
  }
  // Sizes are those of all rows, also if only a sample is listed.
  const sum = page.clusters.reduce((total, { cluster, n_rows: size }) => total + (n[cluster] ? (size * of[cluster]) / n[cluster] : 0), 0);
  return { of, n, share: sum / page.data.n_rows };
};
// Pairs of clusters and the share of their rows that are unclear and lean to the other one, the largest first.
pamc.blends = (page) => {
  const { leaning } = page.data, pairs = [];
  if (!page.clear || !leaning) return pairs;
  const size = page.clusters.map((c) => c.n_rows);
  for (let i = 0; i < size.length; i++) for (let j = i + 1; j < size.length; j++) {
    if (j === pamc.noise) continue;
    const rows = leaning[i][j] * size[i] + leaning[j][i] * size[j];
    if (rows >= 2 && rows >= 0.01 * (size[i] + size[j])) pairs.push({ pair: [i, j], rows: Math.round(rows), share: rows / (size[i] + size[j]) });
  }
  return pairs.sort((a, b) => b.share - a.share);
};
// How many rows are in no cluster, and why; "" without noise.
pamc.noiseText = ({ n_between_clusters: between, n_unlike_training: unlike }) => {
  if (!between && !unlike) return "";
  const n = between + unlike, one = (count, singular, plural) => `${pamc.count(count)} ${count === 1 ? singular : plural}`;
  return ` ${pamc.counted(n, "row")} ${n === 1 ? "is" : "are"} in no cluster: ${one(between, "lies", "lie")} between clusters, and ${one(unlike, "is", "are")} unlike all others.`;
};
pamc.headline = (page) => {
  const { n_rows: n, n_clusters: c } = page.data, filled = page.clusters.filter((k) => k.n_rows && k.cluster !== pamc.noise).length, [most] = page.blends;
  const count = filled === c ? pamc.counted(c, "cluster") : `${filled} of ${c} clusters have rows:`;
  const sure = page.clear ? ` ${pamc.share(page.clear.share)} of the rows clearly belong to their cluster${most ? `; clusters ${most.pair.join(" and ")} blend the most` : ""}.` : " How sure this is was not measured.";
  return `${count}${filled === c ? " in" : ""} ${pamc.counted(n, "row")}.${sure}${pamc.noiseText(page.data.record.facts)}`;
};

pamc.sureness = (page) => {
  const { data, clear, blends } = page, { facts, metrics } = data.record, children = [];
  const say = (text) => children.push(pamc.el("p", { text }));
  if (clear) {
    say(`${pamc.share(clear.share)} of the ${pamc.counted(data.n_rows, "row")} are clear: if random halves of the rows are clustered separately, rows like these get the same cluster at least 8 times out of 10.`);
    children.push(pamc.el("ul", { class: "bars shares" }, page.clusters.filter((c) => c.n_rows).map(({ cluster }) => {
      const share = clear.of[cluster] / clear.n[cluster];
      return pamc.el("li", { "data-cluster": cluster }, pamc.clusterName(page, cluster), pamc.el("span", { class: "bar one", "aria-hidden": "true" }, pamc.el("i", { style: { width: `${100 * share}%`, background: pamc.css(page.palette[cluster]) } })),
        pamc.el("span", { class: "value", text: `${pamc.share(share)} clear` }));
    })));
    const mean = page.meanConfidence();
    if (mean < LOW_CONFIDENCE) say(`The mean confidence is low (${pamc.number(mean, 2)}): many rows get another cluster if half of the rows are clustered separately.`);
    if (data.leaning && !blends.length) say("No two clusters blend: hardly any row lies between two of them.");
    if (blends.length) children.push(pamc.el("h3", { text: "Clusters that blend" }), pamc.el("ul", { class: "blends" }, blends.slice(0, 5).map(({ pair: [a, b], rows, share }) =>
      pamc.el("li", {}, pamc.clusterName(page, a), " and ", pamc.clusterName(page, b), `: ${pamc.counted(rows, "row")}, ${pamc.share(share)} of the two, ${rows === 1 ? "is" : "are"} unclear and ${rows === 1 ? "lies" : "lie"} between them.`))));
  } else say("This fit did not measure how sure it is, so no row is called clear or unclear.");
  if (facts.choose_k?.why) children.push(pamc.el("p", {}, `Why ${pamc.counted(data.n_clusters, "cluster")}: ${facts.choose_k.why} `, pamc.el("a", { href: "#count", text: "All candidates" })));
  if (metrics?.acc !== undefined) children.push(pamc.el("p", {}, `${pamc.percent(metrics.acc)} of the rows are in the cluster that matches their true class. `, pamc.el("a", { href: "#truth", text: "Clusters and classes" })));
  return pamc.el("div", { class: "panel padded prose" }, children);
};

const why = {
  "low confidence": (v) => `its confidence is ${pamc.percent(v, 0)} of the median`,
  "far from all centers": (v) => `${pamc.number(v, 2)} times the median distance to the nearest center`,
  "extreme value": (v) => `${pamc.number(v, 2)} times as far from the median of the column as the other values`,
  isolated: () => "it has no edge",
};
// The reason why a row is unusual, with its cell if that is known.
const reason = (page, { row, feature, reason: text }) => {
  const cell = page.cells.get(row)?.find(({ column }) => column === feature)?.cell;
  return feature ? pamc.el("span", {}, `${text} of `, pamc.name(feature, 60), cell ? [": ", pamc.name(cell, 40)] : "") : text;
};
pamc.odd = (page) => {
  const odd = pamc.records(page.data.odd);
  if (!page.data.odd) return null;
  if (!odd.length) return pamc.el("p", { class: "quiet", text: "None: no row stands out from the others." });
  const lines = odd.map((row) => ({ cluster: row.cluster, cells: [pamc.rowButton(page, row.id, row.row, 60), pamc.dot(row.cluster, page.palette[row.cluster]), pamc.number(row.confidence), reason(page, row), why[row.reason] ? why[row.reason](row.value) : pamc.number(row.value)] }));
  page.noneOdd = pamc.el("p", { class: "quiet", hidden: true, "aria-live": "polite" });
  page.oddTable = pamc.el("div", { class: "panel padded moves" }, pamc.lines("Unusual rows", [{ text: "row" }, { text: "cluster" }, { text: "confidence", number: true }, { text: "reason" }, { text: "how unusual" }], lines, { hidden: true }));
  const values = pamc.cellTable(page, odd, "Values of the unusual rows");
  return [page.oddTable, page.noneOdd, values && pamc.el("details", { class: "more" }, pamc.el("summary", { text: "Values of these rows" }), values)];
};
