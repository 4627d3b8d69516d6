// The page that compares several runs. Clusters have the color of the cluster of the first run that they are matched with.

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
      palette: run.match.to_first.map((c) => palette[c < 0 ? next++ : c]),
    }));
  }
  // The cluster of the first run that a row's cluster is matched with; −1 for none.
  common(run, i) { return run.match.to_first[run.labels[i]]; }

  build() {
    const { data } = this, [best] = data.agreement, two = this.runs.length === 2;
    const tiles = [["Rows compared", pamc.count(this.n), "named by every run"], ["Changed cluster", pamc.count(data.n_changed), `${pamc.percent(data.n_changed / this.n)} of them`]];
    if (two) tiles.push(["ARI", pamc.number(best.ari), "1 is the same clusters, 0 chance"], ["NMI", pamc.number(best.nmi), "shared information; 0 to 1"]);
    pamc.heading(data, [`${this.runs.length} runs`, ...this.runs.map((run) => run.name), data.written], tiles);
    const main = document.getElementById("content");
    const sections = [
      pamc.section("map", "Maps", "The same rows in each run. Pointing at a row shows where it is in the others; a cluster filters all maps to the rows that the first run put there.", this.tools(), this.maps()),
      pamc.section("scores", "Scores", null, this.scores()),
      pamc.section("agreement", "Agreement", "Adjusted Rand index and shared information (NMI) between runs: 1 is the same clusters.", two ? null : this.agreement()),
      pamc.section("matched", "Matched clusters", "Clusters are matched one to one with those of the first run, so that the most rows stay.", this.matches()),
      pamc.section("changed", "Rows that changed cluster", data.n_changed > data.listed.length ? `The first ${pamc.count(data.listed.length)} of ${pamc.count(data.n_changed)}.` : null, this.moves()),
      pamc.section("settings", "What differs", "Settings, data, findings and versions that are not the same in all runs.", this.settings()),
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
        marks: (context, view) => pamc.drawMarks(context, view, { centers: run.map.centers, metaNodes: run.map.meta_nodes, colors: run.palette, order, shown: { centers: false, metaNodes: false }, selected: this.own(run) }),
        onHover: (i) => this.hover(i),
        onPick: (i) => (i < 0 ? this.select(null) : this.select(this.runs[0].labels[i])),
      });
      const rgb = new Uint8Array(3 * this.n);
      for (let i = 0; i < this.n; i++) rgb.set(run.palette[run.labels[i]], 3 * i);
      run.view.colors(rgb);
      return pamc.el("div", { class: "panel" }, pamc.el("h3", {}, pamc.name(run.name, 60)), pamc.el("div", { class: "map-host" }, run.view.box, run.view.buttons(), tip));
    }));
  }
  // The clusters of a run that are matched with the chosen ones.
  own(run) { return new Set([...this.selected].map((c) => run.match.to_first.indexOf(c)).filter((c) => c >= 0)); }

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
    let found = -1;
    for (let i = 0; i < this.n && wanted; i++) {
      const id = this.id(i).toLocaleLowerCase();
      if (id === wanted) { found = i; break; }
      if (found < 0 && id.includes(wanted)) found = i;
    }
    if (found >= 0) this.light(found);
    else this.runs.forEach((run) => run.view.light(null));
    this.answer.replaceChildren(...(!wanted ? [] : found < 0 ? ["No row"] : [pamc.name(this.id(found), 40), `: clusters ${this.runs.map((run) => run.labels[found]).join(", ")}`]));
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
      ...all("scores").map((name) => [name, ...this.runs.map((run) => pamc.number(run.record.scores?.[name]))]),
      ...all("metrics").map((name) => [`${name.toUpperCase()} against the true classes`, ...this.runs.map((run) => pamc.percent(run.record.metrics?.[name]))]),
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
    const first = this.runs[0], heads = [{ text: pamc.cut(first.name, 40) }, ...this.runs.slice(1).flatMap((run) => [{ text: pamc.cut(run.name, 40) }, { text: "rows in both", number: true }, { text: "of either", number: true }])];
    const lines = first.records.map(({ cluster }) => ({ cluster, cells: [pamc.dot(cluster, first.palette[cluster]), ...this.runs.slice(1).flatMap((run) => {
      const own = run.match.to_first.indexOf(cluster);
      return own < 0 ? ["none", "–", "–"] : [pamc.dot(own, run.palette[own]), pamc.count(run.match.overlap[own]), pamc.percent(run.match.overlap[own] / run.match.union[own])];
    })] }));
    const left = this.runs.slice(1).flatMap((run) => run.match.to_first.map((c, own) => (c < 0 && run.records[own].n_rows ? `cluster ${own} of ${pamc.cut(run.name, 40)}` : null)).filter(Boolean));
    return [pamc.el("div", { class: "panel padded" }, pamc.lines("Matched clusters", heads, lines, { hidden: true })), left.length ? pamc.el("p", { class: "map-note", text: `Without a match: ${left.join(", ")}.` }) : null];
  }
  moves() {
    const { listed } = this.data;
    if (!listed.length) return pamc.el("p", { class: "quiet", text: "None: all runs have the same clusters." });
    const lines = listed.map((i) => ({ cluster: this.runs[0].labels[i], cells: [pamc.el("button", { type: "button", class: "link", onclick: () => { this.light(i); this.runs[0].view.box.scrollIntoView({ block: "nearest" }); } }, pamc.name(this.id(i), 60)),
      ...this.runs.map((run) => pamc.dot(run.labels[i], run.palette[run.labels[i]]))] }));
    return pamc.el("div", { class: "panel padded moves" }, pamc.lines("Rows that changed cluster, and their clusters", [{ text: "row" }, ...this.runs.map((run) => ({ text: pamc.cut(run.name, 40) }))], lines, { hidden: true }));
  }
  settings() {
    const { settings } = this.data;
    if (!settings.length) return pamc.el("p", { class: "quiet", text: "Nothing." });
    const show = (value) => pamc.name(value === null ? "–" : typeof value === "number" ? pamc.number(value, 5) : typeof value === "object" ? JSON.stringify(value) : String(value), 80);
    return pamc.el("div", { class: "panel padded" }, pamc.lines("What differs between the runs", [{ text: "what" }, ...this.runs.map((run) => ({ text: pamc.cut(run.name, 40) }))], settings.map(({ name, values }) => [pamc.name(name, 60), ...values.map(show)]), { hidden: true }));
  }
}
pamc.Comparison = Comparison;
