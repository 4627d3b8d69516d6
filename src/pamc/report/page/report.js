// The page of one run.

class Report {
  constructor(data) {
    this.data = data;
    this.clusters = pamc.records(data.clusters);
    this.palette = pamc.palette(data.n_clusters);
    this.selected = new Set();
    const { points } = data;
    this.n = points.n;
    this.id = pamc.ids(points.ids);
    this.rows = points.rows && pamc.unpack(points.rows);
    this.cluster = pamc.unpack(points.cluster);
    this.confidence = this.steps(points.confidence);
    this.columns = data.columns.map((column) => ({ ...column, values: pamc.unpack(column.values) }));
    if (this.rows) this.position = new Map(Array.from(this.rows, (row, i) => [row, i]));
    this.coloring = "cluster";
    this.shown = { centers: true, metaNodes: true };
  }

  steps(packed) {
    const values = pamc.unpack(packed.values), { min, max } = packed;
    return { values, min, max, at: (i) => min + (values[i] / 255) * (max - min) };
  }
  pointOf(row) { return this.rows ? this.position.get(row) ?? -1 : row; }

  build() {
    const { data } = this;
    pamc.heading(data, this.headline(), this.tiles());
    const main = document.getElementById("content");
    const sections = [
      pamc.section("map", "Map", null, this.mapArea()),
      pamc.section("clusters", "Clusters", "What each cluster is made of. A cluster's number filters the page to it; with Shift, to several.", pamc.cards(this)),
      pamc.section("relations", "How clusters relate", data.flows ? "Edges that leave a cluster say whom it borders on; meta-nodes stand for all rows of a cluster in the loss." : "Meta-nodes stand for all rows of a cluster in the loss.", pamc.relations(this)),
      pamc.section("truth", "Against the true classes", "The classes were used here and nowhere else: training, settings and confidence did not see them.", pamc.truth(this)),
      pamc.section("odd", "Odd rows", "Rows to look at: hardly belonging to their cluster, far from every center, with a value far beyond the others, or without an edge.", pamc.odd(this)),
      pamc.section("count", "How many clusters", "For each number, clusters were sought in two halves of the rows apart; stability is how far both agree, beside what rows without clusters would give.", pamc.chosenCount(data)),
      pamc.section("start", "What was decided, and why", null, this.stories()),
      pamc.section("training", "Training", "Every epoch, term by term.", this.curves()),
      pamc.section("stability", "Stability over re-runs", "How well repeats of the clustering agree, without any label.", this.stability()),
      pamc.section("repeat", "Run it again", null, pamc.el("div", { class: "panel padded" }, pamc.repeat(data))),
      pamc.section("stamp", "Data, settings, machine", null, pamc.stamp(data)),
    ].filter(Boolean);
    main.append(pamc.filterBar(this), ...sections);
    pamc.contents(sections);
    this.paint();
    this.apply();
    pamc.onTheme.push(() => { this.paint(); this.legend(); });
  }

  headline() {
    const { record, n_rows: n, n_clusters: c } = this.data, filled = this.clusters.filter((k) => k.n_rows).length;
    return [pamc.counted(n, "row"), record.data.n_features ? pamc.counted(record.data.n_features, "feature") : null,
      filled === c ? pamc.counted(c, "cluster") : `${filled} of ${c} clusters filled`, record.method, `seed ${record.seed}`, this.data.written];
  }

  meanConfidence() { return this.clusters.reduce((sum, c) => sum + (c.confidence || 0) * c.n_rows, 0) / this.data.n_rows; }

  tiles() {
    const { record } = this.data, { scores, facts, metrics } = record, mean = this.meanConfidence();
    const worth = facts.confidence_error === undefined ? `chance would be ${pamc.number(1 / this.data.n_clusters, 2)}` : `agreement of half fits, ± ${pamc.number(facts.confidence_error, 2)}`;
    const tiles = [["Mean confidence", pamc.number(mean), worth]];
    if (scores.modularity !== undefined) tiles.push(["Modularity", pamc.number(scores.modularity), "edges stay inside; −½ to 1"]);
    if (scores.silhouette !== undefined) tiles.push(["Silhouette", pamc.number(scores.silhouette), "clusters are apart; −1 to 1"]);
    if (typeof facts.agreement === "number") tiles.push(["Agreement", pamc.number(facts.agreement), "between quick clusterings; 0 to 1"]);
    if (metrics?.acc !== undefined) tiles.push(["Accuracy", pamc.percent(metrics.acc), "against the true classes"]);
    return tiles;
  }

  mapArea() {
    const { data } = this, { points } = data;
    const density = data.density && { ...data.density, cell: pamc.unpack(data.density.cell), cluster: pamc.unpack(data.density.cluster), count: pamc.unpack(data.density.count), confidence: this.steps(data.density.confidence) };
    this.density = density;
    const order = [...this.clusters].sort((a, b) => b.n_rows - a.n_rows).map((c) => c.cluster);
    this.tip = pamc.el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.map = new pamc.MapView({
      places: pamc.unpack(points.xy), density,
      label: `Map of ${pamc.counted(data.n_rows, "row")} in ${pamc.counted(data.n_clusters, "cluster")} by ${data.map.method}. Arrow keys move it, plus and minus zoom, 0 shows all. The clusters' places are in the table below the map.`,
      marks: (context, view) => pamc.drawMarks(context, view, { centers: data.map.centers, metaNodes: data.map.meta_nodes, colors: this.palette, order, shown: this.shown, selected: this.selected }),
      onHover: (i, x, y) => this.hover(i, x, y),
      onPick: (i) => (i < 0 ? this.select(null) : (this.select(this.cluster[i], false, true), this.find(i, { scroll: false }))),
    });
    const host = pamc.el("div", { class: "map-host" }, this.map.box, this.map.buttons(), this.tip);
    return [pamc.el("div", { class: "panel map-area" }, host, this.side()), pamc.el("p", { class: "map-note", text: `${data.map.note} + marks a center, ◇ a meta-node.` }), this.mapTable()];
  }

  side() {
    const side = pamc.el("div", { class: "side" });
    const input = pamc.el("input", { type: "search", id: "search", autocomplete: "off", spellcheck: "false", placeholder: "Part of an id", "aria-controls": "found" });
    this.found = pamc.el("div", { id: "found", class: "found", "aria-live": "polite" });
    input.addEventListener("input", () => this.search(input.value));
    side.append(pamc.el("div", { class: "field search", role: "search" }, pamc.el("label", { for: "search", text: "Find a row" }), input, this.found));
    const select = pamc.el("select", { id: "coloring" }, pamc.el("option", { value: "cluster", text: "cluster" }), pamc.el("option", { value: "confidence", text: "confidence" }),
      this.columns.map((column, i) => pamc.el("option", { value: i, text: pamc.cut(column.name, 60) })));
    select.addEventListener("change", () => { this.coloring = select.value; this.paint(); this.apply(); this.legend(); });
    this.key = pamc.el("div", { class: "legend" });
    side.append(pamc.el("div", { class: "field" }, pamc.el("label", { for: "coloring", text: "Color by" }), select), this.key);
    const mark = (name, text) => {
      const box = pamc.el("input", { type: "checkbox", checked: true });
      box.addEventListener("change", () => { this.shown[name] = box.checked; this.map.later(); });
      return pamc.el("label", {}, box, text);
    };
    side.append(pamc.el("div", { class: "marks" }, mark("centers", "+ centers"), mark("metaNodes", "◇ meta-nodes")));
    this.facts = pamc.el("div", { class: "row-facts", "aria-live": "polite" });
    this.forget();
    side.append(this.facts);
    this.legend();
    return side;
  }

  mapTable() {
    const { centers } = this.data.map, heads = [{ text: "cluster" }, { text: "rows", number: true }, { text: "across", number: true }, { text: "up", number: true }, { text: "nearest on the map" }];
    const there = (c) => centers[c] && centers[c][0] !== null, away = (a, b) => Math.hypot(centers[a][0] - centers[b][0], centers[a][1] - centers[b][1]);
    const all = this.clusters.map((c) => c.cluster).filter(there);
    const lines = this.clusters.filter((c) => there(c.cluster)).map(({ cluster, n_rows: rows }) => {
      const near = all.filter((other) => other !== cluster).sort((a, b) => away(cluster, a) - away(cluster, b)).slice(0, 2);
      return { cluster, cells: [pamc.dot(cluster, this.palette[cluster]), pamc.count(rows), centers[cluster][0].toFixed(2), centers[cluster][1].toFixed(2), near.join(", ") || "–"] };
    });
    return pamc.el("details", { class: "map-table" }, pamc.el("summary", { text: "The map as a table" }), pamc.lines("Centers of the clusters on the map, 0 to 1 from left and from below", heads, lines));
  }

  // The color of each point, as the reader chose.
  paint() {
    const rgb = new Uint8Array(3 * this.n), ramp = pamc.ramp(), grey = pamc.rgb(pamc.variable("--muted"));
    let of = (i) => this.palette[this.cluster[i]];
    if (this.coloring === "confidence") {
      const steps = Array.from({ length: 256 }, (_, i) => ramp(i / 255));
      of = (i) => steps[this.confidence.values[i]];
    } else if (this.coloring !== "cluster") {
      const { kind, values, names } = this.columns[this.coloring];
      if (kind === "class") { const colors = pamc.palette(names.length); of = (i) => colors[values[i]]; }
      else { const steps = Array.from({ length: 256 }, (_, i) => ramp(i / 255)); of = (i) => (values[i] === 65535 ? grey : steps[values[i] >> 8]); }
    }
    for (let i = 0; i < this.n; i++) { const color = of(i); rgb[3 * i] = color[0]; rgb[3 * i + 1] = color[1]; rgb[3 * i + 2] = color[2]; }
    this.map.showPoints = this.density && this.coloring !== "cluster" && this.coloring !== "confidence";
    this.map.colors(rgb);
  }

  legend() {
    const ends = (low, high) => [pamc.el("div", { class: "ramp", "aria-hidden": "true" }), pamc.el("div", { class: "ends" }, pamc.el("span", { text: pamc.number(low) }), pamc.el("span", { text: pamc.number(high) }))];
    if (this.coloring === "cluster") this.key.replaceChildren(pamc.el("p", { class: "quiet", text: "Colors and numbers are those of the clusters in the bar above." }));
    else if (this.coloring === "confidence") this.key.replaceChildren(...ends(this.confidence.min, this.confidence.max));
    else {
      const column = this.columns[this.coloring], sample = this.density ? [pamc.el("p", { class: "quiet", text: `By a column the map shows ${pamc.count(this.n)} rows drawn at random.` })] : [];
      if (column.kind === "number") this.key.replaceChildren(...ends(column.min, column.max), ...sample);
      else {
        const colors = pamc.palette(column.names.length);
        this.key.replaceChildren(pamc.el("ul", { class: "swatches", tabindex: 0, "aria-label": "Colors" }, column.names.map((name, i) => pamc.el("li", {}, pamc.el("span", { class: "swatch", style: { background: pamc.css(colors[i]) } }), pamc.name(name, 40)))), ...sample);
      }
    }
  }

  // Filter the page to a cluster, to several, or to none with null.
  select(cluster, add = false, keep = false) {
    const { selected } = this, alone = selected.size === 1 && selected.has(cluster);
    if (cluster === null) selected.clear();
    else if (add) selected.has(cluster) ? selected.delete(cluster) : selected.add(cluster);
    else if (!(keep && alone)) { selected.clear(); if (!alone) selected.add(cluster); }
    this.apply();
  }

  apply() {
    const { selected } = this, on = (cluster) => !selected.size || selected.has(cluster);
    const dims = new Uint8Array(this.n);
    if (selected.size) for (let i = 0; i < this.n; i++) dims[i] = selected.has(this.cluster[i]) ? 0 : 255;
    this.map.dim(dims);
    if (this.density) {
      const { cluster, confidence } = this.density, ramp = pamc.ramp();
      this.map.cellsBy(this.coloring === "confidence" ? (i) => ramp(confidence.values[i] / 255) : (i) => this.palette[cluster[i]], (i) => on(cluster[i]));
    }
    document.querySelectorAll("[data-filter]").forEach((button) => {
      const { filter } = button.dataset;
      button.setAttribute("aria-pressed", String(filter === "all" ? !selected.size : selected.has(Number(filter))));
    });
    document.querySelectorAll("[data-cluster]").forEach((part) => { part.hidden = !on(Number(part.dataset.cluster)); });
    document.querySelectorAll("#relations [data-of]").forEach((line) => line.classList.toggle("off", !line.dataset.of.split(" ").some((cluster) => on(Number(cluster)))));
    if (this.oddTable) {
      const none = !this.data.odd.cluster.some(on);
      this.oddTable.hidden = none;
      this.noneOdd.hidden = !none;
      this.noneOdd.textContent = none ? `None of them is in ${selected.size > 1 ? "the chosen clusters" : `cluster ${[...selected][0]}`}.` : "";
    }
    if (this.found && this.searched) this.search(this.searched);
  }

  value(column, i) {
    if (column.kind === "class") return column.names[column.values[i]];
    return column.values[i] === 65535 ? "–" : pamc.number(column.min + (column.values[i] / 65534) * (column.max - column.min), 4);
  }

  hover(i, x, y) {
    this.tip.hidden = i < 0;
    if (i < 0) return;
    const column = this.columns[this.coloring];
    this.tip.replaceChildren(pamc.el("strong", {}, pamc.name(this.id(i), 60)), `cluster ${this.cluster[i]} · confidence ${pamc.number(this.confidence.at(i), 2)}`,
      ...(column ? [pamc.el("br"), pamc.name(`${column.name}: ${this.value(column, i)}`, 80)] : []));
    const { clientWidth } = this.map.box;
    this.tip.style.transform = `translate(${Math.round(x > clientWidth / 2 ? x - this.tip.offsetWidth - 14 : x + 14)}px, ${Math.round(Math.max(4, y - this.tip.offsetHeight - 10))}px)`;
  }

  // No row is shown on the map or beside it.
  forget() {
    this.kept = null;
    this.map.light(null);
    this.facts.replaceChildren(pamc.el("p", { class: "quiet", text: "Point at a row to see its name, click it to keep it here." }));
  }

  // Show a row on the map and beside it. One that was searched for goes with the search, others are kept.
  find(i, { scroll = true, searched = false } = {}) {
    this.kept = searched ? null : i;
    const parts = [["cluster", pamc.dot(this.cluster[i], this.palette[this.cluster[i]])], ["confidence", pamc.number(this.confidence.at(i))]];
    if (this.rows || this.id(i) !== String(i)) parts.push(["row", pamc.count(this.rows ? this.rows[i] : i)]);
    for (const column of this.columns) parts.push([pamc.name(column.name, 40), pamc.name(this.value(column, i), 60)]);
    const whole = this.id(i);
    this.facts.replaceChildren(pamc.el("p", { class: "id", tabindex: whole.length > 120 ? 0 : null }, pamc.el("bdi", { dir: "auto", text: pamc.cut(whole, 600) })),
      pamc.el("dl", {}, parts.flatMap(([term, value]) => [pamc.el("dt", {}, term), pamc.el("dd", {}, value)])));
    if (this.selected.size && !this.selected.has(this.cluster[i])) this.select(null);
    this.map.show(i);
    if (scroll) this.map.box.scrollIntoView({ block: "nearest" });
  }

  search(text) {
    const most = 30, wanted = text.trim().toLocaleLowerCase(), hits = [], typed = text !== this.searched;
    this.searched = text;
    let count = 0;
    if (!wanted) {
      this.found.replaceChildren();
      if (this.kept === null) this.forget();
      else this.map.light(this.kept);
      return;
    }
    const exact = [];
    for (let i = 0; i < this.n; i++) {
      if (this.selected.size && !this.selected.has(this.cluster[i])) continue;
      const id = this.id(i).toLocaleLowerCase();
      if (!id.includes(wanted)) continue;
      count++;
      if (id === wanted) exact.push(i);
      else if (hits.length < most) hits.push(i);
    }
    const shown = [...exact, ...hits].slice(0, most);
    const within = this.selected.size ? " in the chosen clusters" : "";
    this.found.replaceChildren(pamc.el("p", { class: "quiet", text: count ? `${pamc.counted(count, "row")}${within}${count > most ? `, the first ${most}` : ""}` : `No row${within}${this.density ? " among those of this page" : ""}` }),
      pamc.el("ul", {}, shown.map((i) => pamc.el("li", {}, pamc.dot(this.cluster[i], this.palette[this.cluster[i]]), pamc.el("button", { type: "button", class: "link", onclick: () => this.find(i, { searched: true }) }, pamc.name(this.id(i), 60))))));
    if (exact.length === 1) this.map.light(exact[0]);
    else if (typed) this.map.light(this.kept);
  }

  stories() {
    const { story } = this.data;
    return story.length ? pamc.el("div", { class: "panel story" }, story.map(({ title, text }) => pamc.el("div", {}, pamc.el("h3", { text: title }), pamc.el("p", { text })))) : null;
  }
  curves() {
    const terms = Object.entries(this.data.history).filter(([name, values]) => values.length > pamc.firstEpoch(name));
    return terms.length ? pamc.el("div", { class: "curves" }, terms.map(([name, values]) => pamc.curve(name, values))) : null;
  }
  stability() {
    const { stability } = this.data, heads = [{ text: "what was repeated" }, { text: "agreement", number: true }, { text: "what it means" }];
    if (!stability?.length) return null;
    return pamc.el("div", { class: "panel padded" }, pamc.lines("How well repeats agree", heads, stability.map(({ what, value, error, meaning }) => [what, typeof error === "number" ? `${pamc.number(value)} ± ${pamc.number(error, 2)}` : pamc.number(value), meaning]), { hidden: true }));
  }
}
pamc.Report = Report;
