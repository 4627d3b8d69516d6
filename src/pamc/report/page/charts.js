// Curves, heat maps and tables; the values of each are also there as text.

pamc.terms = {
  loss: "The whole objective.",
  positive: "Similarity of neighbors; lower means more similar.",
  proxy: "Similarity of the clusters' meta-nodes, which stand for all negative pairs; lower means less similar.",
  kl: "Divergence of the soft assignment from a sharper one.",
  reconstruction: "Error of the reconstructed features.",
  alignment: "Mean squared distance between neighbors.",
  uniformity: "How evenly the rows are spread; lower means more evenly.",
  center_distance: "Mean distance of a center from the mean of its cluster's rows.",
  n_nonempty: "Number of clusters with rows.",
  changed: "Share of rows whose cluster changed since the previous epoch.",
};

// The share of changed rows is not defined for the first epoch.
pamc.firstEpoch = (name) => (name === "changed" ? 2 : 1);

pamc.curve = (name, all) => {
  const first = pamc.firstEpoch(name), values = all.slice(first - 1);
  const defined = values.filter((v) => v !== null), low = Math.min(...defined), high = Math.max(...defined), last = values[values.length - 1];
  const width = 240, height = 84, x = (i) => (values.length > 1 ? (i / (values.length - 1)) * width : width / 2);
  const y = (v) => (high > low ? height - ((v - low) / (high - low)) * height : height / 2);
  let path = "";
  values.forEach((v, i) => { if (v !== null) path += `${path ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`; });
  const summary = `${name}: from ${pamc.number(values[0])} to ${pamc.number(last)} in epochs ${first} to ${all.length}, between ${pamc.number(low)} and ${pamc.number(high)}`;
  const drawing = pamc.svg("svg", { viewBox: `-2 -6 ${width + 50} ${height + 26}`, role: "img", "aria-label": summary });
  drawing.append(pamc.svg("line", { x1: 0, x2: width, y1: height, y2: height, class: "axis" }), pamc.svg("line", { x1: 0, x2: width, y1: 0, y2: 0, class: "axis" }),
    pamc.svg("path", { d: path, class: "line" }));
  const text = (at, to, anchor, what) => { const node = pamc.svg("text", { x: at, y: to, "text-anchor": anchor }); node.textContent = what; drawing.append(node); };
  text(0, height + 15, "start", `epoch ${first}`);
  text(width, height + 15, "end", String(all.length));
  text(width + 6, 4, "start", pamc.number(high, 2));
  if (high > low) text(width + 6, height + 4, "start", pamc.number(low, 2));
  return pamc.el("div", { class: "panel curve" }, pamc.el("span", { class: "now", text: pamc.number(last) }), pamc.el("h4", { text: name.replaceAll("_", " ") }), drawing,
    pamc.terms[name] ? pamc.el("p", { text: pamc.terms[name] }) : null);
};

// Accuracy of groups of rows against their confidence.
pamc.reliability = (curve) => {
  const size = 250, low = Math.min(...curve.confidence), high = Math.max(...curve.confidence), span = high - low || 1;
  const x = (v) => 30 + ((v - low) / span) * size, y = (v) => 10 + (1 - v) * 160;
  const drawing = pamc.svg("svg", { viewBox: "0 0 300 206", role: "img", "aria-label": "Accuracy of rows by their confidence; the table below has the values" });
  for (const v of [0, 0.5, 1]) {
    drawing.append(pamc.svg("line", { x1: 30, x2: 280, y1: y(v), y2: y(v), class: "axis" }));
    const text = pamc.svg("text", { x: 24, y: y(v) + 4, "text-anchor": "end" });
    text.textContent = v;
    drawing.append(text);
  }
  // The line on which accuracy equals confidence.
  const from = Math.max(0, low), to = Math.min(1, high);
  if (to > from) drawing.append(pamc.svg("line", { x1: x(from), y1: y(from), x2: x(to), y2: y(to), class: "even" }));
  drawing.append(pamc.svg("path", { class: "line", d: curve.confidence.map((v, i) => `${i ? "L" : "M"}${x(v).toFixed(1)} ${y(curve.accuracy[i]).toFixed(1)}`).join("") }));
  curve.confidence.forEach((v, i) => drawing.append(pamc.svg("circle", { cx: x(v), cy: y(curve.accuracy[i]), r: 3.5, class: "point" })));
  for (const [at, anchor, what] of [[30, "start", pamc.number(low, 2)], [155, "middle", "confidence"], [280, "end", pamc.number(high, 2)]]) {
    const text = pamc.svg("text", { x: at, y: 198, "text-anchor": anchor });
    text.textContent = what;
    drawing.append(text);
  }
  return pamc.el("div", { class: "chart" }, drawing);
};

// rows and columns: {node(), text, cluster}; shade: 0 to 1; number: the text of a cell.
pamc.heat = (caption, rows, columns, { shade, number, about, corner = "" }) => {
  const dense = columns.length > 16;
  const table = pamc.el("table", { class: dense ? "heat dense" : "heat" }, pamc.el("caption", { class: "visually-hidden", text: caption }));
  table.append(pamc.el("thead", {}, pamc.el("tr", {}, pamc.el("td", { text: corner, style: { background: "none" } }), columns.map((c) => pamc.el("th", { scope: "col" }, c.node())))));
  const body = pamc.el("tbody");
  rows.forEach((row, i) => {
    const line = pamc.el("tr", { "data-of": row.cluster }, pamc.el("th", { scope: "row" }, row.node()));
    columns.forEach((column, j) => {
      const cell = pamc.el("td", { title: about(i, j), style: { "--v": Math.min(1, Math.max(0, shade(i, j) || 0)).toFixed(3) } });
      if (dense) cell.append(pamc.el("span", { class: "visually-hidden", text: number(i, j) }));
      else cell.textContent = number(i, j);
      line.append(cell);
    });
    body.append(line);
  });
  table.append(body);
  return pamc.el("div", {}, pamc.el("p", { class: "caption", "aria-hidden": "true", text: caption }), pamc.scroll(caption, table));
};

// A table of lines: heads are {text, number}; cells are text or nodes. A filter hides lines of other clusters, and dims lines of pairs of other clusters.
pamc.lines = (caption, heads, lines, { hidden = false, kind = "" } = {}) => pamc.scroll(caption, pamc.el("table", { class: `lines ${kind}`.trim() },
  pamc.el("caption", { text: caption, class: hidden ? "visually-hidden" : null }),
  pamc.el("thead", {}, pamc.el("tr", {}, heads.map((head) => pamc.el("th", { scope: "col", text: head.text, class: head.number ? "n" : null })))),
  pamc.el("tbody", {}, lines.map((line) => pamc.el("tr", { class: line.class, "data-cluster": line.cluster, "data-of": line.of?.join(" ") }, (line.cells || line).map((cell, i) =>
    pamc.el("td", { class: heads[i].number ? "n" : null }, cell instanceof Node ? cell : String(cell))))))));

pamc.pairs = (object) => {
  const list = pamc.el("dl", { class: "pairs" });
  for (const [key, value] of Object.entries(object || {})) {
    const shown = value === null ? "–" : typeof value === "number" ? pamc.number(value, 5) : typeof value === "object" ? JSON.stringify(value) : String(value);
    list.append(pamc.el("dt", {}, pamc.name(key, 60)), pamc.el("dd", {}, pamc.name(shown, 400)));
  }
  return list;
};
