// The page of one run.

class Report {
  constructor(data) {
    this.data = data;
    this.clusters = pamc.records(data.clusters);
    this.palette = pamc.palette(data.n_clusters);
    pamc.noise = data.noise ?? null;
    if (pamc.noise !== null) this.palette[pamc.noise] = [128, 128, 128];
    this.selected = new Set();
    const { points } = data;
    this.n = points.n;
    this.id = pamc.ids(points.ids);
    this.rows = points.rows && pamc.unpack(points.rows);
    this.cluster = pamc.unpack(points.cluster);
    this.confidence = this.steps(points.confidence);
    this.columns = data.columns.map((column) => ({ ...column, values: pamc.unpack(column.values) }));
    if (this.rows) this.position = new Map(Array.from(this.rows, (row, i) => [row, i]));
    this.names = pamc.clusterNames(data.features, data.n_clusters, data.clusters);
    pamc.keepNames(this);
    if (pamc.noise !== null) this.names[pamc.noise] = "In no cluster";
    this.cells = pamc.grouped(pamc.records(data.cells), "row");
    this.coloring = "cluster";
  }

  steps(packed) {
    const values = pamc.unpack(packed.values), { min, max } = packed;
    return { values, min, max, at: (i) => min + (values[i] / 255) * (max - min) };
  }
  pointOf(row) { return this.rows ? this.position.get(row) ?? -1 : row; }

  build() {
    const { data } = this, { facts } = data.record;
    this.clear = pamc.clearRows(this);
    this.blends = pamc.blends(this);
    pamc.heading(data, pamc.headline(this), [data.record.data.n_features ? pamc.counted(data.record.data.n_features, "column") : null, data.written]);
    const main = document.getElementById("content");
    const isBuilt = facts.graph === "knn", meta = "A meta-node represents all rows of a cluster in the loss.";
    const edges = data.flows ? `Edges that leave a cluster show which clusters it borders on. ${isBuilt ? "They are those of the nearest-neighbor graph that the fit built. " : ""}`
      : isBuilt ? "Edges are left out: the nearest-neighbor graph that the fit built is not saved. " : "";
    const parts = [
      pamc.part("scores", "Scores", null, pamc.scores(this)),
      pamc.part("truth", "Clusters and true classes", "The classes are used only here: training, settings and confidence did not use them.", pamc.truth(this)),
      pamc.part("count", "Number of clusters", "For each number, two halves of the rows were clustered separately. Stability is the agreement of the two; “by chance” is its value on data without clusters.", pamc.chosenCount(data)),
      pamc.part("relations", "Relations between clusters", edges + meta, pamc.relations(this)),
      pamc.part("start", "Decisions and their reasons", null, this.stories()),
      pamc.part("training", "Training curves", "The terms of the loss in every epoch.", this.curves()),
      pamc.part("stability", "Stability", "How well repetitions of the clustering agree; no label is used.", this.stability()),
      pamc.part("projection", "Embedding and map", null, pamc.el("p", { class: "about", text: data.map.note })),
      pamc.part("repeat", "Repeat this run", null, pamc.el("div", { class: "panel padded" }, pamc.repeat(data))),
      pamc.part("stamp", "Data, settings and versions", null, pamc.stamp(data)),
    ].filter(Boolean);
    const sections = [
      pamc.section("clusters", "Clusters", "Click a cluster to show only its rows on this page; hold Shift to add more clusters.", pamc.cards(this)),
      pamc.section("update", "Before and after", "This run continues a previous one: clusters keep their numbers, names and colors.", pamc.update(this)),
      pamc.section("profile", "Profile", "The median of each number and date, and the most frequent value of each other column, of the cells that are filled.", pamc.profile(this)),
      pamc.section("map", "Map", "Each point is a row, and similar rows are close together. Each number marks the most central row of its cluster.", this.mapArea()),
      pamc.section("levels", "Levels", "Clusters that are alike are merged first, in the preprocessed columns. Open a part to see the two from which it was merged.", pamc.levels(this)),
      pamc.section("sure", "How sure is this?", null, pamc.sureness(this)),
      pamc.section("odd", "Unusual rows", "Rows worth a look: they hardly belong to their cluster, are far from every cluster, have an extreme value, or have no edge.", pamc.odd(this)),
      pamc.technical("Scores, training, decisions, settings, versions, and the command that repeats this run.", parts),
    ].filter(Boolean);
    main.append(pamc.filterBar(this), ...sections);
    pamc.contents(sections);
    this.paint();
    this.apply();
    pamc.onTheme.push(() => { this.paint(); this.legend(); });
  }

  meanConfidence() { return this.clusters.reduce((sum, c) => sum + (c.confidence || 0) * c.n_rows, 0) / this.data.n_rows; }

  mapArea() {
    const { data } = this, { points } = data;
    const density = data.density && { ...data.density, cell: pamc.unpack(data.density.cell), cluster: pamc.unpack(data.density.cluster), count: pamc.unpack(data.density.count), confidence: this.steps(data.density.confidence) };
    this.density = density;
    const order = [...this.clusters].sort((a, b) => b.n_rows - a.n_rows).map((c) => c.cluster);
    this.tip = pamc.el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.map = new pamc.MapView({
      places: pamc.unpack(points.xy), density,
      label: `Map of ${pamc.counted(data.n_rows, "row")} in ${pamc.counted(data.n_clusters, "cluster")} by ${data.map.method}. Arrow keys move it, plus and minus zoom, 0 shows all. The table below the map lists the positions of the clusters.`,
      marks: (context, view) => pamc.drawMarks(context, view, { centers: data.map.centers, colors: this.palette, order, selected: this.selected }),
      onHover: (i, x, y) => this.hover(i, x, y),
      onPick: (i) => (i < 0 ? this.select(null) : (this.select(this.cluster[i], false, true), this.find(i, { scroll: false }))),
    });
    const host = pamc.el("div", { class: "map-host" }, this.map.box, this.map.buttons(), this.tip);
    return [pamc.el("div", { class: "panel map-area" }, host, this.side()), this.mapTable()];
  }

  side() {
    const side = pamc.el("div", { class: "side" });
    const input = pamc.el("input", { type: "search", id: "search", autocomplete: "off", spellcheck: "false", placeholder: "Part of an id", "aria-controls": "found" });
    this.matches = pamc.el("div", { id: "found", class: "found", "aria-live": "polite" });
    input.addEventListener("input", () => this.search(input.value));
    side.append(pamc.el("div", { class: "field search", role: "search" }, pamc.el("label", { for: "search", text: "Find a row" }), input, this.matches));
    const select = pamc.el("select", { id: "coloring" }, pamc.el("option", { value: "cluster", text: "cluster" }), pamc.el("option", { value: "confidence", text: "confidence" }),
      this.columns.map((column, i) => pamc.el("option", { value: i, text: pamc.cut(column.name, 60) })));
    select.addEventListener("change", () => { this.coloring = select.value; this.paint(); this.apply(); this.legend(); });
    this.key = pamc.el("div", { class: "legend" });
    side.append(pamc.el("div", { class: "field" }, pamc.el("label", { for: "coloring", text: "Color by" }), select), this.key);
    this.facts = pamc.el("div", { class: "row-facts", "aria-live": "polite" });
    this.forget();
    side.append(this.facts);
    this.legend();
    return side;
  }

  mapTable() {
    const { centers } = this.data.map, heads = [{ text: "cluster" }, { text: "rows", number: true }, { text: "across", number: true }, { text: "up", number: true }, { text: "nearest on the map" }];
    const isPlaced = (c) => centers[c] && centers[c][0] !== null, away = (a, b) => Math.hypot(centers[a][0] - centers[b][0], centers[a][1] - centers[b][1]);
    const all = this.clusters.map((c) => c.cluster).filter(isPlaced);
    const lines = this.clusters.filter((c) => isPlaced(c.cluster)).map(({ cluster, n_rows: rows }) => {
      const near = all.filter((other) => other !== cluster).sort((a, b) => away(cluster, a) - away(cluster, b)).slice(0, 2);
      return { cluster, cells: [pamc.dot(cluster, this.palette[cluster]), pamc.count(rows), centers[cluster][0].toFixed(2), centers[cluster][1].toFixed(2), near.join(", ") || "–"] };
    });
    return pamc.el("details", { class: "map-table" }, pamc.el("summary", { text: "The map as a table" }), pamc.lines("Position of the most central row of each cluster, 0 to 1 from the left and from the bottom", heads, lines));
  }

  // Color each point by what the reader chose.
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
    if (this.coloring === "cluster") this.key.replaceChildren(pamc.el("ul", { class: "swatches", tabindex: 0, "aria-label": "Colors" }, this.clusters.map(({ cluster }) => pamc.el("li", {}, pamc.clusterName(this, cluster)))));
    else if (this.coloring === "confidence") this.key.replaceChildren(...ends(this.confidence.min, this.confidence.max));
    else {
      const column = this.columns[this.coloring], sample = this.density ? [pamc.el("p", { class: "quiet", text: `Colored by a column, the map shows ${pamc.count(this.n)} rows drawn at random.` })] : [];
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
      this.noneOdd.textContent = none ? `None in ${selected.size > 1 ? "the selected clusters" : `cluster ${[...selected][0]}`}.` : "";
    }
    if (this.matches && this.searched) this.search(this.searched);
  }

  value(column, i) {
    if (column.kind === "class") return column.names[column.values[i]];
    return column.values[i] === 65535 ? "–" : pamc.number(column.min + (column.values[i] / 65534) * (column.max - column.min), 4);
  }

  hover(i, x, y) {
    this.tip.hidden = i < 0;
    if (i < 0) return;
    const column = this.columns[this.coloring];
    this.tip.replaceChildren(pamc.el("strong", {}, pamc.name(this.id(i), 60)), `${pamc.clusterText(this.cluster[i])} · confidence ${pamc.number(this.confidence.at(i), 2)}`,
      ...(column ? [pamc.el("br"), pamc.name(`${column.name}: ${this.value(column, i)}`, 80)] : []));
    const { clientWidth } = this.map.box;
    this.tip.style.transform = `translate(${Math.round(x > clientWidth / 2 ? x - this.tip.offsetWidth - 14 : x + 14)}px, ${Math.round(Math.max(4, y - this.tip.offsetHeight - 10))}px)`;
  }

  // Deselect the row that is marked on the map and described next to it.
  forget() {
    this.kept = null;
    this.map.light(null);
    this.facts.replaceChildren(pamc.el("p", { class: "quiet", text: "Point at a row to see its name; click it to see its values here." }));
  }

  // Mark a row on the map and describe it next to the map. A row that was searched for disappears with the search.
  find(i, { scroll = true, searched = false } = {}) {
    this.kept = searched ? null : i;
    const parts = [["cluster", pamc.dot(this.cluster[i], this.palette[this.cluster[i]])], ["confidence", pamc.number(this.confidence.at(i))]];
    if (this.rows || this.id(i) !== String(i)) parts.push(["row", pamc.count(this.rows ? this.rows[i] : i)]);
    const cells = this.cells.get(this.rows ? this.rows[i] : i) || [], isKnown = new Set(cells.map(({ column }) => column));
    for (const column of this.columns) if (!isKnown.has(column.name)) parts.push([pamc.name(column.name, 40), pamc.name(this.value(column, i), 60)]);
    for (const { column, cell } of cells) parts.push([pamc.name(column, 40), cell ? pamc.name(cell, 120) : "–"]);
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
      this.matches.replaceChildren();
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
    const listed = [...exact, ...hits].slice(0, most);
    const within = this.selected.size ? " in the selected clusters" : "";
    this.matches.replaceChildren(pamc.el("p", { class: "quiet", text: count ? `${pamc.counted(count, "row")}${within}${count > most ? `, the first ${most}` : ""}` : `No row${within}${this.density ? " among the rows listed on this page" : ""}` }),
      pamc.el("ul", {}, listed.map((i) => pamc.el("li", {}, pamc.dot(this.cluster[i], this.palette[this.cluster[i]]), pamc.el("button", { type: "button", class: "link", onclick: () => this.find(i, { searched: true }) }, pamc.name(this.id(i), 60))))));
    if (exact.length === 1) this.map.light(exact[0]);
    else if (typed) this.map.light(this.kept);
  }

  stories() {
    const { story } = this.data;
    return story.length ? pamc.el("div", { class: "panel story" }, story.map(({ title, text }) => pamc.el("div", {}, pamc.el("h4", { text: title }), pamc.el("p", { text })))) : null;
  }
  curves() {
    const terms = Object.entries(this.data.history).filter(([name, values]) => values.length > pamc.firstEpoch(name));
    return terms.length ? pamc.el("div", { class: "curves" }, terms.map(([name, values]) => pamc.curve(name, values))) : null;
  }
  stability() {
    const { stability } = this.data, heads = [{ text: "what was repeated" }, { text: "agreement", number: true }, { text: "meaning" }];
    if (!stability?.length) return null;
    return pamc.el("div", { class: "panel padded" }, pamc.lines("Agreement of repetitions", heads, stability.map(({ what, value, error, meaning }) => [what, typeof error === "number" ? `${pamc.number(value)} ± ${pamc.number(error, 2)}` : pamc.number(value), meaning]), { hidden: true }));
  }
}
pamc.Report = Report;
