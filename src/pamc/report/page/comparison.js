// The page that compares several runs. A cluster has the color of its matched cluster in the first run.

class Comparison {
  constructor(data) {
    this.data = data;
    this.n = data.n_rows;
    this.id = pamc.ids(data.ids);
    this.changed = new Set(pamc.unpack(data.changed));
    this.selected = new Set();
    this.onlyChanged = false;
    const n = data.runs[0].n_clusters, extra = data.runs.reduce((sum, run) => sum + run.match.to_first.filter((c) => c < 0).length, 0);
    const palette = pamc.palette(n + extra);
    let next = n;
    this.runs = data.runs.map((run) => ({
      ...run, labels: pamc.unpack(run.cluster), records: pamc.records(run.clusters),
      palette: run.match.to_first.map((c) => palette[c < 0 ? next++ : c]), names: pamc.clusterNames(run.features, run.n_clusters, run.clusters),
    }));
  }
  // The cluster of the first run that matches the cluster of a row; −1 for none.
  common(run, i) { return run.match.to_first[run.labels[i]]; }

  build() {
    const { data } = this, stayed = this.n - data.n_changed;
    const headline = `${this.runs.length} runs with ${pamc.counted(this.n, "row")} in common. ${pamc.share(stayed / this.n)} of the rows have the same cluster in ${this.runs.length === 2 ? "both" : "all"} runs; ${pamc.count(data.n_changed)} changed.`;
    pamc.heading(data, headline, [...this.runs.map((run) => run.name), data.written]);
    const main = document.getElementById("content");
    const parts = [
      pamc.part("scores", "Scores", null, this.scores()),
      pamc.part("agreement", "Agreement", "Adjusted Rand index (ARI) and normalized mutual information (NMI) of each pair of runs: 1 means the same clusters, 0 no agreement.", this.agreement()),
      pamc.part("settings", "Differences between the runs", "Settings, data, facts and versions that are not the same in all runs.", this.settings()),
    ];
    const sections = [
      pamc.section("map", "Maps", "The same rows in each run. Point at a row to see it in all runs. Click a cluster to see where its rows are in the other runs.", this.tools(), this.maps()),
      pamc.section("matched", "Matched clusters", "Each cluster of the first run is matched with the cluster of another run that shares the most rows; no cluster is matched twice.", this.matches()),
      pamc.section("changed", "Rows that changed cluster", data.n_changed > data.listed.length ? `The first ${pamc.count(data.listed.length)} of ${pamc.count(data.n_changed)}.` : null, this.moves()),
      pamc.technical("Scores, agreement, and the settings that differ.", parts),
    ].filter(Boolean);
    main.append(this.filters(), ...sections);
    pamc.contents(sections);
    this.apply();
    pamc.onTheme.push(() => this.runs.forEach((run) => run.view.later()));
  }

  filters() {
    const bar = pamc.el("div", { class: "chips", role: "group", "aria-label": "Filter by cluster of the first run" });
    bar.append(pamc.el("button", { type: "button", class: "chip all", "aria-pressed": "true", "data-filter": "all", text: "All clusters", onclick: () => this.select(null) }));
    for (const { cluster, n_rows: rows } of this.runs[0].records) {
      bar.append(pamc.el("button", { type: "button", class: "chip", "aria-pressed": "false", "data-filter": cluster, onclick: (event) => this.select(cluster, event.shiftKey || event.ctrlKey || event.metaKey) },
        pamc.dot(cluster, this.runs[0].palette[cluster]), pamc.el("span", { class: "count", text: pamc.count(rows) }), pamc.el("span", { class: "visually-hidden", text: "rows in the first run" })));
    }
    return pamc.el("div", { class: "filters" }, bar);
  }

  tools() {
    const box = pamc.el("input", { type: "checkbox", id: "only-changed" });
    box.addEventListener("change", () => { this.onlyChanged = box.checked; this.apply(); });
    const input = pamc.el("input", { type: "search", id: "search", placeholder: "Id of a row", autocomplete: "off", spellcheck: "false" });
    this.answer = pamc.el("span", { class: "quiet", "aria-live": "polite" });
    input.addEventListener("input", () => this.search(input.value));
    return pamc.el("div", { class: "tools" }, pamc.el("label", {}, box, "Only rows that changed"), pamc.el("label", {}, "Find a row", input), this.answer);
  }

  maps() {
    return pamc.el("div", { class: "maps" }, this.runs.map((run, number) => {
      const order = [...run.records].sort((a, b) => b.n_rows - a.n_rows).map((c) => c.cluster), tip = pamc.el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
      run.tip = tip;
      run.view = new pamc.MapView({
        places: pamc.unpack(run.xy), density: null,
        label: `Map of run ${number + 1} by ${run.map.method}: ${run.n_clusters} clusters. Arrow keys move it, plus and minus zoom. The clusters and their matches are in the tables below.`,
        marks: (context, view) => pamc.drawMarks(context, view, { centers: run.map.centers, colors: run.palette, order, selected: this.matching(run) }),
        onHover: (i) => this.hover(i),
        onPick: (i) => (i < 0 ? this.select(null) : this.select(this.runs[0].labels[i])),
      });
      const rgb = new Uint8Array(3 * this.n);
      for (let i = 0; i < this.n; i++) rgb.set(run.palette[run.labels[i]], 3 * i);
      run.view.colors(rgb);
      return pamc.el("div", { class: "panel" }, pamc.el("h3", {}, pamc.name(run.name, 60)), pamc.el("div", { class: "map-host" }, run.view.box, run.view.buttons(), tip));
    }));
  }
  // The clusters of a run that match the selected ones.
  matching(run) { return new Set([...this.selected].map((c) => run.match.to_first.indexOf(c)).filter((c) => c >= 0)); }

  hover(i) {
    for (const run of this.runs) {
      run.view.hovered = i;
      run.view.later();
      run.tip.hidden = i < 0;
      if (i < 0) continue;
      run.tip.replaceChildren(pamc.el("strong", {}, pamc.name(this.id(i), 48)), `cluster ${run.labels[i]}`);
      const [x, y] = run.view.spot(i), { clientWidth } = run.view.box;
      run.tip.style.transform = `translate(${Math.round(x > clientWidth / 2 ? x - run.tip.offsetWidth - 14 : x + 14)}px, ${Math.round(Math.max(4, y - run.tip.offsetHeight - 10))}px)`;
    }
  }
  light(i) { for (const run of this.runs) run.view.show(i); }

  search(text) {
    const wanted = text.trim().toLocaleLowerCase();
    let match = -1;
    for (let i = 0; i < this.n && wanted; i++) {
      const id = this.id(i).toLocaleLowerCase();
      if (id === wanted) { match = i; break; }
      if (match < 0 && id.includes(wanted)) match = i;
    }
    if (match >= 0) this.light(match);
    else this.runs.forEach((run) => run.view.light(null));
    this.answer.replaceChildren(...(!wanted ? [] : match < 0 ? ["No row"] : [pamc.name(this.id(match), 40), `: clusters ${this.runs.map((run) => run.labels[match]).join(", ")}`]));
  }

  select(cluster, add = false) {
    const { selected } = this, alone = selected.size === 1 && selected.has(cluster);
    if (cluster === null) selected.clear();
    else if (add) selected.has(cluster) ? selected.delete(cluster) : selected.add(cluster);
    else { selected.clear(); if (!alone) selected.add(cluster); }
    this.apply();
  }

  apply() {
    const { selected, onlyChanged } = this, first = this.runs[0].labels, dims = new Uint8Array(this.n);
    for (let i = 0; i < this.n; i++) dims[i] = (selected.size && !selected.has(first[i])) || (onlyChanged && !this.changed.has(i)) ? 255 : 0;
    this.runs.forEach((run) => run.view.dim(dims));
    document.querySelectorAll("[data-filter]").forEach((button) => {
      const { filter } = button.dataset;
      button.setAttribute("aria-pressed", String(filter === "all" ? !selected.size : selected.has(Number(filter))));
    });
    document.querySelectorAll("[data-cluster]").forEach((part) => { part.hidden = selected.size > 0 && !selected.has(Number(part.dataset.cluster)); });
  }

  heads() { return this.runs.map((run) => ({ text: pamc.cut(run.name, 40), number: true })); }
  scores() {
    const all = (part) => [...new Set(this.runs.flatMap((run) => Object.keys(run.record[part] || {})))];
    const lines = [["rows", ...this.runs.map((run) => pamc.count(run.n_rows))], ["clusters", ...this.runs.map((run) => pamc.count(run.n_clusters))],
      ["method", ...this.runs.map((run) => run.record.method)], ["seed", ...this.runs.map((run) => run.record.seed)],
      ["silhouette in the features", ...this.runs.map((run) => pamc.number(run.feature_silhouette))],
      ...all("scores").map((name) => [pamc.scoreNames[name] || name, ...this.runs.map((run) => pamc.number(run.record.scores?.[name]))]),
      ...all("metrics").map((name) => [`${name.toUpperCase()} with the true classes`, ...this.runs.map((run) => pamc.percent(run.record.metrics?.[name]))]),
      ["seconds", ...this.runs.map((run) => pamc.number(Object.values(run.record.seconds || {}).reduce((a, b) => a + b, 0)))]];
    return pamc.el("div", { class: "panel padded" }, pamc.lines("Scores of each run", [{ text: "score" }, ...this.heads()], lines, { hidden: true }));
  }
  agreement() {
    const nodes = this.runs.map((run) => ({ node: () => pamc.name(run.name, 24) })), at = (i, j) => this.data.agreement.find((a) => a.first === Math.min(i, j) && a.second === Math.max(i, j));
    const table = (name, title) => pamc.el("div", { class: "panel" }, pamc.heat(title, nodes, nodes, {
      shade: (i, j) => (i === j ? 0 : at(i, j)[name]), number: (i, j) => (i === j ? "·" : at(i, j)[name].toFixed(3)), about: (i, j) => (i === j ? "the same run" : `${at(i, j)[name]}`) }));
    return pamc.el("div", { class: "two" }, table("ari", "ARI"), table("nmi", "NMI"));
  }
  matches() {
    const first = this.runs[0], heads = [{ text: pamc.cut(first.name, 40) }, ...this.runs.slice(1).flatMap((run) => [{ text: pamc.cut(run.name, 40) }, { text: "rows in both", number: true }, { text: "of all rows in either", number: true }])];
    const lines = first.records.map(({ cluster }) => ({ cluster, cells: [pamc.clusterName(first, cluster), ...this.runs.slice(1).flatMap((run) => {
      const matched = run.match.to_first.indexOf(cluster), { overlap, union } = run.match;
      return matched < 0 ? ["none", "–", "–"] : [pamc.clusterName(run, matched), pamc.count(overlap[matched]), pamc.percent(overlap[matched] / union[matched])];
    })] }));
    const left = this.runs.slice(1).flatMap((run) => run.match.to_first.map((c, cluster) => (c < 0 && run.records[cluster].n_rows ? `cluster ${cluster} of ${pamc.cut(run.name, 40)}` : null)).filter(Boolean));
    return [pamc.el("div", { class: "panel padded" }, pamc.lines("Matched clusters", heads, lines, { hidden: true })), left.length ? pamc.el("p", { class: "map-note", text: `Without a match: ${left.join(", ")}.` }) : null];
  }
  moves() {
    const { listed } = this.data;
    if (!listed.length) return pamc.el("p", { class: "quiet", text: "None: the clusters of all runs have the same rows." });
    const lines = listed.map((i) => ({ cluster: this.runs[0].labels[i], cells: [pamc.el("button", { type: "button", class: "link", onclick: () => { this.light(i); this.runs[0].view.box.scrollIntoView({ block: "nearest" }); } }, pamc.name(this.id(i), 60)),
      ...this.runs.map((run) => pamc.dot(run.labels[i], run.palette[run.labels[i]]))] }));
    return pamc.el("div", { class: "panel padded moves" }, pamc.lines("Rows that changed cluster, and their clusters", [{ text: "row" }, ...this.runs.map((run) => ({ text: pamc.cut(run.name, 40) }))], lines, { hidden: true }));
  }
  settings() {
    const { settings } = this.data;
    if (!settings.length) return pamc.el("p", { class: "quiet", text: "Nothing." });
    const show = (value) => pamc.name(value === null ? "–" : typeof value === "number" ? pamc.number(value, 5) : typeof value === "object" ? JSON.stringify(value) : String(value), 80);
    return pamc.el("div", { class: "panel padded" }, pamc.lines("Differences between the runs", [{ text: "name" }, ...this.runs.map((run) => ({ text: pamc.cut(run.name, 40) }))], settings.map(({ name, values }) => [pamc.name(name, 60), ...values.map(show)]), { hidden: true }));
  }
}
pamc.Comparison = Comparison;
