// The map: points or a density at the bottom, marks on top; it can be moved, zoomed, pointed at and clicked, also by keyboard.

class MapView {
  // options: places (from 0 to 65535), density, marks (draws on top), label, onHover(i, x, y), onPick(i).
  constructor(options) {
    this.options = options;
    this.n = options.places.length / 2;
    this.zoom = 1;
    this.shift = [0, 0];
    this.dims = new Uint8Array(this.n);
    this.lit = null;
    this.hovered = -1;
    this.box = pamc.el("div", { class: "map-box" });
    this.over = pamc.el("canvas", { class: "over", tabindex: 0, role: "img", "aria-label": options.label });
    this.box.append(this.over);
    this.layers = [];
    if (options.density) this.density = this.layer((canvas) => new pamc.drawings.CanvasDensity(canvas, options.density));
    this.points = this.layer((canvas) => new pamc.drawings.GLPoints(canvas, options.places))
      || this.layer((canvas) => new pamc.drawings.CanvasPoints(canvas, options.places));
    this.frame();
    this.index();
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.box);
  }

  layer(make) {
    const canvas = pamc.el("canvas", { "aria-hidden": "true" });
    try {
      const drawing = make(canvas);
      this.layers.push(canvas);
      this.over.before(canvas);
      canvas.addEventListener("webglcontextlost", () => {
        // The browser took WebGL away: go on without it.
        const other = pamc.el("canvas", { "aria-hidden": "true" });
        canvas.replaceWith(other);
        this.layers[this.layers.indexOf(canvas)] = other;
        this.points = new pamc.drawings.CanvasPoints(other, this.options.places);
        this.points.colors(this.rgb);
        this.points.dim(this.dims);
        this.resize();
      });
      return drawing;
    } catch (missing) {
      return null;
    }
  }

  // The part of the unit square that contains points.
  frame() {
    const { places } = this.options;
    let [left, bottom, right, top] = [65535, 65535, 0, 0];
    for (let i = 0; i < places.length; i += 2) {
      if (places[i] < left) left = places[i];
      if (places[i] > right) right = places[i];
      if (places[i + 1] < bottom) bottom = places[i + 1];
      if (places[i + 1] > top) top = places[i + 1];
    }
    if (this.options.density || right < left) [left, bottom, right, top] = [0, 0, 65535, 65535];
    this.held = { x: (left + right) / 131070, y: (bottom + top) / 131070, w: Math.max(right - left, 600) / 65535, h: Math.max(top - bottom, 600) / 65535 };
  }

  // Points by cell, to find the nearest one.
  index() {
    const cells = 256, { places } = this.options, at = (i) => (places[2 * i + 1] >> 8) * cells + (places[2 * i] >> 8);
    const starts = new Uint32Array(cells * cells + 1);
    for (let i = 0; i < this.n; i++) starts[at(i) + 1]++;
    for (let c = 0; c < cells * cells; c++) starts[c + 1] += starts[c];
    const next = starts.slice(), order = new Uint32Array(this.n);
    for (let i = 0; i < this.n; i++) order[next[at(i)]++] = i;
    this.cells = { starts, order };
  }

  nearest(x, y, reach) {
    const { places } = this.options, { starts, order } = this.cells, view = this.view();
    const px = ((x * this.ratio - view.left) / view.side) * 65535, py = ((view.top + view.side - y * this.ratio) / view.side) * 65535;
    const radius = ((reach * this.ratio) / view.side) * 65535;
    let best = -1, least = radius * radius;
    const from = (v) => Math.max(0, (v - radius) >> 8), to = (v) => Math.min(255, (v + radius) >> 8);
    for (let cy = from(py); cy <= to(py); cy++) for (let cx = from(px); cx <= to(px); cx++) {
      for (let k = starts[cy * 256 + cx]; k < starts[cy * 256 + cx + 1]; k++) {
        const i = order[k];
        if (this.dims[i]) continue;
        const away = (places[2 * i] - px) ** 2 + (places[2 * i + 1] - py) ** 2;
        if (away < least) { least = away; best = i; }
      }
    }
    return best;
  }

  view() {
    const { width, height } = this.over, pad = 26 * this.ratio;
    const fit = Math.min((width - 2 * pad) / this.held.w, (height - 2 * pad) / this.held.h), side = fit * this.zoom;
    return {
      side,
      left: width / 2 - this.held.x * side + this.shift[0] * this.ratio,
      top: height / 2 - (1 - this.held.y) * side + this.shift[1] * this.ratio,
    };
  }
  // The position of a place of the unit square, in CSS pixels.
  screen(x, y) {
    const view = this.view();
    return [(view.left + x * view.side) / this.ratio, (view.top + (1 - y) * view.side) / this.ratio];
  }
  spot(i) { return this.screen(this.options.places[2 * i] / 65535, this.options.places[2 * i + 1] / 65535); }

  resize() {
    const { clientWidth, clientHeight } = this.box;
    if (!clientWidth) return;
    this.ratio = Math.min(devicePixelRatio || 1, 2);
    for (const canvas of [...this.layers, this.over]) {
      canvas.width = Math.round(clientWidth * this.ratio);
      canvas.height = Math.round(clientHeight * this.ratio);
    }
    this.draw();
  }

  colors(rgb) { this.rgb = rgb; this.points.colors(rgb); this.later(); }
  dim(dims) { this.dims = dims; this.points.dim(dims); this.later(); }
  cellsBy(color, shown) { this.density.paint(color, shown); this.later(); }
  light(i) { this.lit = i; this.later(); }
  later() { this.waiting ||= requestAnimationFrame(() => { this.waiting = 0; this.draw(); }); }

  draw() {
    if (!this.ratio) return;
    const view = this.view(), spread = Math.min(1, Math.max(0, (Math.log10(Math.max(this.n, 10)) - 2.7) / 2.6));
    const size = (7.5 - 5.4 * spread) * Math.min(2.2, Math.sqrt(this.zoom)) * this.ratio;
    const alpha = 0.92 - 0.55 * spread;
    const hidden = this.density && !this.showPoints;
    if (this.density) this.density.draw(this.showPoints ? { left: 0, top: 0, side: 0 } : view);
    this.points.draw(view, size, hidden ? 0 : alpha, hidden ? 0 : 0.09 * alpha);
    const context = this.over.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.box.clientWidth, this.box.clientHeight);
    this.options.marks?.(context, this);
    for (const [i, width] of [[this.hovered, 2], [this.lit ?? -1, 3]]) {
      if (i < 0) continue;
      const [x, y] = this.spot(i);
      for (const [color, line] of [[pamc.variable("--halo"), width + 3], [pamc.variable("--mark"), width]]) {
        context.strokeStyle = color;
        context.lineWidth = line;
        context.beginPath();
        context.arc(x, y, 7 + width, 0, 2 * Math.PI);
        context.stroke();
      }
    }
    this.drawn = performance.now();
  }

  scale(by, x = this.box.clientWidth / 2, y = this.box.clientHeight / 2) {
    const zoom = Math.min(60, Math.max(0.5, this.zoom * by)), real = zoom / this.zoom;
    const center = [this.box.clientWidth / 2, this.box.clientHeight / 2];
    this.shift = [x, y].map((v, axis) => v - center[axis] - (v - center[axis] - this.shift[axis]) * real);
    this.zoom = zoom;
    this.later();
  }
  reset() { this.zoom = 1; this.shift = [0, 0]; this.later(); }
  // Bring a point into view.
  show(i) {
    const [x, y] = this.spot(i), { clientWidth, clientHeight } = this.box;
    if (x < 20 || y < 20 || x > clientWidth - 20 || y > clientHeight - 20) {
      this.shift = [this.shift[0] + clientWidth / 2 - x, this.shift[1] + clientHeight / 2 - y];
    }
    this.light(i);
  }

  listen() {
    const { over } = this, held = new Map();
    let moved = 0, apart = 0;
    const place = (event) => { const box = over.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    over.addEventListener("pointerdown", (event) => { held.set(event.pointerId, place(event)); moved = 0; over.setPointerCapture(event.pointerId); });
    over.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (!held.size) return this.hover(this.nearest(x, y, 12), x, y);
      const [ox, oy] = held.get(event.pointerId) || [x, y];
      held.set(event.pointerId, [x, y]);
      if (held.size === 2) {
        const [a, b] = [...held.values()], now = Math.hypot(a[0] - b[0], a[1] - b[1]);
        if (apart) this.scale(now / apart, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
        apart = now;
        moved = 99;
        return null;
      }
      moved += Math.abs(x - ox) + Math.abs(y - oy);
      if (moved > 4 && event.pointerType !== "touch") { this.shift = [this.shift[0] + x - ox, this.shift[1] + y - oy]; this.later(); }
      return null;
    });
    const up = (event) => {
      held.delete(event.pointerId);
      apart = 0;
      if (event.type === "pointerup" && moved <= 4) this.options.onPick?.(this.nearest(...place(event), event.pointerType === "touch" ? 22 : 12));
    };
    over.addEventListener("pointerup", up);
    over.addEventListener("pointercancel", up);
    over.addEventListener("pointerleave", () => { if (!held.size) this.hover(-1); });
    // The wheel scrolls the page, unless the map has the focus or Ctrl is pressed.
    over.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== over) return;
      event.preventDefault();
      this.scale(Math.exp(-event.deltaY / 400), ...place(event));
    }, { passive: false });
    over.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
      if (moves[event.key]) { this.shift = this.shift.map((v, axis) => v + moves[event.key][axis]); this.later(); }
      else if (event.key === "+" || event.key === "=") this.scale(1.4);
      else if (event.key === "-") this.scale(1 / 1.4);
      else if (event.key === "0") this.reset();
      else if (event.key === "Escape") this.options.onPick?.(-1);
      else return;
      event.preventDefault();
    });
  }

  hover(i, x, y) {
    if (i === this.hovered && i < 0) return;
    const changed = i !== this.hovered;
    this.hovered = i;
    this.options.onHover?.(i, x, y);
    if (changed) this.later();
  }

  buttons() {
    const button = (text, label, act) => pamc.el("button", { class: "button", type: "button", text, "aria-label": label, title: label, onclick: act });
    return pamc.el("div", { class: "map-buttons", role: "group", "aria-label": "Zoom of the map" },
      button("+", "Zoom in", () => this.scale(1.5)), button("−", "Zoom out", () => this.scale(1 / 1.5)), button("⤢", "Show all", () => this.reset()));
  }
}
pamc.MapView = MapView;

// The numbers of the clusters, each above the most central row of its cluster; one that would cover another is left out.
pamc.drawMarks = (context, view, { centers, colors, order, selected }) => {
  const halo = pamc.variable("--halo"), boxes = [];
  context.font = `650 12px ${pamc.variable("--sans")}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const cluster of order) {
    const center = centers[cluster];
    if (!center || center[0] === null) continue;
    const text = String(cluster), [x, y] = view.screen(...center), width = Math.max(22, context.measureText(text).width + 12);
    const box = { x: x - width / 2, y: y - 9, w: width, h: 18 };
    if (boxes.some((b) => b.x < box.x + box.w && box.x < b.x + b.w && b.y < box.y + box.h && box.y < b.y + b.h)) continue;
    boxes.push(box);
    context.globalAlpha = selected.size && !selected.has(cluster) ? 0.25 : 1;
    context.beginPath();
    context.roundRect(box.x, box.y, box.w, box.h, 9);
    context.fillStyle = pamc.css(colors[cluster]);
    context.strokeStyle = halo;
    context.lineWidth = 3;
    context.stroke();
    context.fill();
    context.fillStyle = pamc.on(colors[cluster]);
    context.fillText(text, x, y + 0.5);
  }
  context.globalAlpha = 1;
};
