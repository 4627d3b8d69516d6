// The update of a previous run: sizes before and after, changes of clusters, drift.

// Clusters keep the names that they got in the run in which they first appeared.
pamc.keepNames = (page) => {
  const { before } = page.data;
  for (const run of [...(before || [])].reverse()) {
    const names = pamc.clusterNames(run.features, run.n_clusters, run.clusters);
    for (let cluster = 0; cluster < run.n_clusters; cluster++) if (names[cluster]) page.names[cluster] = names[cluster];
  }
};

const changed = {
  appeared: ({ cluster, n_rows: rows }) => `Cluster ${cluster} appeared, with ${pamc.counted(rows, "row")}.`,
  split: ({ cluster, other, n_rows: rows }) => `Cluster ${other} split: ${pamc.counted(rows, "row")} of it ${rows === 1 ? "is" : "are"} cluster ${cluster}.`,
  merged: ({ cluster, other, n_rows: rows }) => `Cluster ${cluster}, with ${pamc.counted(rows, "row")}, merged into cluster ${other}.`,
  vanished: ({ cluster }) => `Cluster ${cluster} vanished.`,
};

pamc.update = (page) => {
  const { update } = page.data.record.facts;
  if (!update) return null;
  const sizes = page.clusters.filter((c) => c.cluster !== pamc.noise).map(({ cluster, n_rows: rows }) => {
    const old = update.sizes_before[cluster] ?? null;
    return { cluster, cells: [pamc.clusterName(page, cluster), old === null ? "–" : pamc.count(old), pamc.count(rows)] };
  });
  const drift = [
    ["old rows", pamc.count(update.n_old_rows)], ["new rows", pamc.count(update.n_new_rows)],
    ["old rows that moved to another cluster", update.moved === null ? "–" : pamc.percent(update.moved)],
    ["new rows unlike the previous rows", pamc.percent(update.unlike)],
    ["largest shift of a mean, in standard deviations", update.shift === null ? "–" : pamc.number(update.shift)],
  ];
  const shifts = update.shifts.map(({ cluster, feature, shift }) => ({ cluster, cells: [pamc.clusterName(page, cluster), pamc.name(feature, 40), pamc.number(shift)] }));
  return [
    pamc.el("ul", {}, (update.changes.length ? update.changes.map((change) => changed[change.kind](change)) : ["No cluster appeared, vanished, split or merged."]).map((text) => pamc.el("li", { text }))),
    pamc.el("div", { class: "panel padded" }, pamc.lines("Clusters before and after", [{ text: "cluster" }, { text: "rows before", number: true }, { text: "rows now", number: true }], sizes)),
    pamc.el("div", { class: "panel padded apart" }, pamc.lines("Drift", [{ text: "measure" }, { text: "value", number: true }], drift)),
    shifts.length ? pamc.el("div", { class: "panel padded apart" }, pamc.lines("Features whose mean shifted most in the new rows of a cluster", [{ text: "cluster" }, { text: "feature" }, { text: "shift", number: true }], shifts)) : null,
  ].filter(Boolean);
};
