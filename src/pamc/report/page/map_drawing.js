// Two ways to draw points: WebGL, or a 2D canvas without it. Both take places from 0 to 1, colors, and which points are dimmed.

const vertexSource = `
attribute vec2 a_place; attribute vec3 a_color; attribute float a_dim;
uniform vec2 u_scale, u_shift, u_alpha; uniform mediump float u_size;
varying vec4 v_color;
void main() {
  v_color = vec4(a_color, mix(u_alpha.x, u_alpha.y, a_dim));
  gl_PointSize = u_size;
  gl_Position = vec4(a_place * u_scale + u_shift, 0.0, 1.0);
}`;
const fragmentSource = `
precision mediump float;
uniform mediump float u_size;
varying vec4 v_color;
void main() {
  float away = length(gl_PointCoord - 0.5) * u_size;
  float alpha = v_color.a * clamp(0.5 * u_size - away + 0.5, 0.0, 1.0);
  gl_FragColor = vec4(v_color.rgb * alpha, alpha);
}`;

class GLPoints {
  // Throws an error without WebGL.
  constructor(canvas, places) {
    // The buffer is preserved for printing. WebGL without a GPU is slower than the 2D canvas and used only on request.
    const gl = canvas.getContext("webgl", {
      alpha: true, premultipliedAlpha: true, antialias: false, preserveDrawingBuffer: true,
      failIfMajorPerformanceCaveat: !location.search.includes("any-webgl"),
    });
    if (!gl) throw new Error("no WebGL");
    this.gl = gl;
    this.canvas = canvas;
    this.n = places.length / 2;
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, vertexSource], [gl.FRAGMENT_SHADER, fragmentSource]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error("WebGL cannot link");
    gl.useProgram(program);
    this.at = (name) => gl.getUniformLocation(program, name);
    this.buffers = {};
    const attribute = (name, size, kind, normalized, values) => {
      const where = gl.getAttribLocation(program, name), buffer = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.bufferData(gl.ARRAY_BUFFER, values, gl.DYNAMIC_DRAW);
      gl.enableVertexAttribArray(where);
      gl.vertexAttribPointer(where, size, kind, normalized, 0, 0);
      this.buffers[name] = buffer;
    };
    attribute("a_place", 2, gl.UNSIGNED_SHORT, true, places);
    attribute("a_color", 3, gl.UNSIGNED_BYTE, true, new Uint8Array(3 * this.n));
    attribute("a_dim", 1, gl.UNSIGNED_BYTE, true, new Uint8Array(this.n));
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  put(name, values) {
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.buffers[name]);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, values, this.gl.DYNAMIC_DRAW);
  }
  colors(values) { this.put("a_color", values); }
  dim(values) { this.put("a_dim", values); }

  // view: left and top of the unit square and its side, in pixels of the canvas.
  draw(view, size, alpha, dimAlpha) {
    const { gl, canvas } = this;
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.uniform2f(this.at("u_scale"), (2 * view.side) / canvas.width, (2 * view.side) / canvas.height);
    gl.uniform2f(this.at("u_shift"), (2 * view.left) / canvas.width - 1, 1 - (2 * (view.top + view.side)) / canvas.height);
    if (alpha === 0) return;
    gl.uniform1f(this.at("u_size"), size);
    gl.uniform2f(this.at("u_alpha"), alpha, dimAlpha);
    gl.drawArrays(gl.POINTS, 0, this.n);
  }
}

class CanvasPoints {
  constructor(canvas, places) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.places = places;
    this.n = places.length / 2;
    this.rgb = new Uint8Array(3 * this.n);
    this.dims = new Uint8Array(this.n);
  }
  colors(values) { this.rgb = values; }
  dim(values) { this.dims = values; }

  draw(view, size, alpha, dimAlpha) {
    const { width, height } = this.canvas;
    const image = this.context.createImageData(width, height), pixels = image.data;
    // The disk of one point: the offsets of its pixels, and how much of each it covers.
    const reach = Math.ceil(size / 2), disk = [];
    for (let y = -reach; y <= reach; y++) for (let x = -reach; x <= reach; x++) {
      const cover = Math.min(1, Math.max(0, size / 2 - Math.hypot(x, y) + 0.5));
      if (cover > 0.05) disk.push([x, y, cover]);
    }
    const step = view.side / 65535, bottom = view.top + view.side;
    for (const [pass, strength] of [[255, dimAlpha], [0, alpha]]) {
      if (strength === 0) continue;
      for (let i = 0; i < this.n; i++) {
        if (this.dims[i] !== pass) continue;
        const cx = Math.round(view.left + this.places[2 * i] * step), cy = Math.round(bottom - this.places[2 * i + 1] * step);
        if (cx < -reach || cy < -reach || cx > width + reach || cy > height + reach) continue;
        for (const [dx, dy, cover] of disk) {
          const x = cx + dx, y = cy + dy;
          if (x < 0 || y < 0 || x >= width || y >= height) continue;
          const at = 4 * (y * width + x), over = strength * cover, under = (pixels[at + 3] / 255) * (1 - over), all = over + under;
          for (let c = 0; c < 3; c++) pixels[at + c] = (this.rgb[3 * i + c] * over + pixels[at + c] * under) / all;
          pixels[at + 3] = 255 * all;
        }
      }
    }
    this.context.putImageData(image, 0, 0);
  }
}

class CanvasDensity {
  // cells: the number of rows of each cluster in each cell of a grid, and their mean confidence.
  constructor(canvas, cells) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.cells = cells;
    this.grid = document.createElement("canvas");
    this.grid.width = this.grid.height = cells.side;
  }

  // color(i) is the color of an entry, shown(i) whether it is drawn.
  paint(color, shown) {
    const { side, cell, count } = this.cells, size = side * side;
    const sum = new Float64Array(size), red = new Float64Array(size), green = new Float64Array(size), blue = new Float64Array(size);
    let most = 1;
    for (let i = 0; i < cell.length; i++) {
      if (!shown(i)) continue;
      const at = cell[i], weight = count[i], [r, g, b] = color(i);
      red[at] += r * weight; green[at] += g * weight; blue[at] += b * weight;
      sum[at] += weight;
      if (sum[at] > most) most = sum[at];
    }
    const context = this.grid.getContext("2d"), image = context.createImageData(side, side), top = Math.log1p(most);
    for (let y = 0; y < side; y++) for (let x = 0; x < side; x++) {
      const from = y * side + x, to = 4 * ((side - 1 - y) * side + x);
      if (!sum[from]) continue;
      image.data[to] = red[from] / sum[from];
      image.data[to + 1] = green[from] / sum[from];
      image.data[to + 2] = blue[from] / sum[from];
      image.data[to + 3] = 255 * (0.18 + 0.82 * (Math.log1p(sum[from]) / top));
    }
    context.putImageData(image, 0, 0);
  }

  draw(view) {
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.context.imageSmoothingEnabled = view.side < 4 * this.cells.side;
    this.context.drawImage(this.grid, view.left, view.top, view.side, view.side);
  }
}
pamc.drawings = { GLPoints, CanvasPoints, CanvasDensity };
