// The map: every sample is a point, drawn by WebGL in one call. Marks and the lasso are on a second canvas above,
// which also takes the input. The table holds x, y in [-1, 1] and the label number of each point.

import { colourOf, coprime, FRAGMENT, ringsOf, VERTEX } from "./colours.js";

const CELLS = 256; // of the grid on each side, to find the point under the pointer
const REACH = 14; // pixels around a point in which it is picked
const FRAME = 30; // milliseconds for a frame while the map moves; fewer points are drawn if it takes longer
const FEWEST = 5000; // points that are always drawn
const REST = 160; // milliseconds without movement before all points are drawn
const CLOSE = 2; // zoom from which points become pictures
const PICTURE = 44; // pixels of such a picture
const PICTURES = 150; // of them at a time; among close neighbours one stands for all
const KEPT = 400; // pictures in memory
const AT_ONCE = 8; // pictures that are asked for

export class PointMap {
  constructor(canvas, above, handlers) {
    this.canvas = canvas; this.above = above; this.handlers = handlers; // {pick, hover, select}
    this.count = 0; this.table = new Float32Array(0); this.flags = new Uint8Array(0);
    this.only = -2; this.lit = -2; this.labels = 0; this.address = null; this.pictures = new Map(); this.placed = []; this.asking = 0;
    this.chosen = 0; this.marks = []; this.own = -1; this.lassoing = false; this.path = null;
    this.x = 0; this.y = 0; this.zoom = 1; this.asked = false; this.before = 0; this.budget = 0; this.drawn = 0; this.moving = 0;
    this.dark = window.matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => this.draw());
    this.gl = canvas.getContext("webgl", { antialias: false, alpha: true, premultipliedAlpha: true, preserveDrawingBuffer: false });
    if (this.gl) this.prepare();
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.listen();
    this.resize();
  }

  prepare() {
    const gl = this.gl, program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text); gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program); gl.useProgram(program);
    this.at = {};
    for (const name of ["place", "label", "flag"]) this.at[name] = gl.getAttribLocation(program, name);
    for (const name of ["centre", "scale", "size", "only", "chosen", "dark", "rings"]) this.at[name] = gl.getUniformLocation(program, name);
    this.points = gl.createBuffer(); this.flagged = gl.createBuffer();
    gl.enable(gl.BLEND); gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA); gl.clearColor(0, 0, 0, 0);
    this.canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    this.canvas.addEventListener("webglcontextrestored", () => { this.prepare(); this.load(this.table, this.labels, this.address); });
  }

  // address: of the picture of a row; null where samples have none
  load(table, labels, address) {
    this.labels = labels; this.address = address; this.pictures.clear(); this.placed = []; this.lit = -2;
    this.table = table; this.count = table.length / 3; this.flags = new Uint8Array(this.count);
    this.chosen = 0; this.marks = []; this.own = -1;
    this.budget = this.count;
    this.sort(); this.shuffle();
    const gl = this.gl;
    if (gl) {
      const mixed = new Float32Array(table.length);
      for (let i = 0; i < this.count; i++) mixed.set(table.subarray(3 * this.mixed[i], 3 * this.mixed[i] + 3), 3 * i);
      gl.bindBuffer(gl.ARRAY_BUFFER, this.points); gl.bufferData(gl.ARRAY_BUFFER, mixed, gl.STATIC_DRAW);
      gl.enableVertexAttribArray(this.at.place); gl.vertexAttribPointer(this.at.place, 2, gl.FLOAT, false, 12, 0);
      gl.enableVertexAttribArray(this.at.label); gl.vertexAttribPointer(this.at.label, 1, gl.FLOAT, false, 12, 8);
      gl.bindBuffer(gl.ARRAY_BUFFER, this.flagged); gl.bufferData(gl.ARRAY_BUFFER, this.flags, gl.DYNAMIC_DRAW);
      gl.enableVertexAttribArray(this.at.flag); gl.vertexAttribPointer(this.at.flag, 1, gl.UNSIGNED_BYTE, false, 1, 0);
    }
    this.whole();
  }

  // Counting sort of the points into grid cells, so that finding the point under the pointer is fast.
  sort() {
    const first = new Uint32Array(CELLS * CELLS + 1), cells = new Uint32Array(this.count);
    for (let i = 0; i < this.count; i++) { cells[i] = this.cell(this.table[3 * i]) + CELLS * this.cell(this.table[3 * i + 1]); first[cells[i] + 1]++; }
    for (let c = 0; c < CELLS * CELLS; c++) first[c + 1] += first[c];
    const next = first.slice(), order = new Uint32Array(this.count);
    for (let i = 0; i < this.count; i++) order[next[cells[i]]++] = i;
    this.first = first; this.order = order;
  }
  // Points are drawn in a fixed random order, so that the first ones are a fair sample.
  shuffle() {
    const mixed = Uint32Array.from({ length: this.count }, (_, i) => i);
    for (let i = this.count - 1, seed = 1; i > 0; i--) {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      const j = Math.floor((seed / 4294967296) * (i + 1)), kept = mixed[i];
      mixed[i] = mixed[j]; mixed[j] = kept;
    }
    this.mixed = mixed;
  }
  cell(v) { return Math.min(CELLS - 1, Math.max(0, Math.floor((v + 1) / 2 * CELLS))); }

  resize() {
    this.ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.width = this.canvas.clientWidth; this.height = this.canvas.clientHeight;
    for (const canvas of [this.canvas, this.above]) {
      canvas.width = Math.max(1, Math.round(this.width * this.ratio)); canvas.height = Math.max(1, Math.round(this.height * this.ratio));
    }
    this.draw();
  }

  get unit() { return Math.max(1, Math.min(this.width, this.height)) / 2 * 0.94 * this.zoom; } // pixels for a distance of 1
  toScreen(x, y) { return [this.width / 2 + (x - this.x) * this.unit, this.height / 2 - (y - this.y) * this.unit]; }
  toData(px, py) { return [this.x + (px - this.width / 2) / this.unit, this.y - (py - this.height / 2) / this.unit]; }

  draw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame((now) => { this.asked = false; this.pace(now); this.paint(); });
  }

  // How many points a frame may have while the map moves: as many as keep it smooth.
  pace(now) {
    const took = now - this.before;
    this.before = now;
    if (this.moving && took < 2000) this.budget = clamp(this.budget * clamp(FRAME / took, 0.5, 1.15), Math.min(FEWEST, this.count), this.count);
  }
  moved() {
    clearTimeout(this.moving);
    this.moving = setTimeout(() => { this.moving = 0; this.draw(); }, REST);
    this.draw();
  }

  paint() {
    const gl = this.gl;
    if (gl && this.count) {
      const size = Math.max(2, Math.min(9, 3.2 * Math.pow(20000 / this.count, 0.18) * Math.pow(this.zoom, 0.35)));
      gl.viewport(0, 0, this.canvas.width, this.canvas.height); gl.clear(gl.COLOR_BUFFER_BIT);
      gl.uniform2f(this.at.centre, this.x, this.y);
      gl.uniform2f(this.at.scale, 2 * this.unit / Math.max(1, this.width), 2 * this.unit / Math.max(1, this.height));
      gl.uniform1f(this.at.size, size * this.ratio); gl.uniform1f(this.at.only, this.lit > -1.5 ? this.lit : this.only);
      gl.uniform3f(this.at.rings, ...ringsOf(this.labels));
      gl.uniform1f(this.at.chosen, this.chosen ? 1 : 0); gl.uniform1f(this.at.dark, this.dark.matches ? 1 : 0);
      this.drawn = this.moving ? Math.round(this.budget) : this.count;
      gl.drawArrays(gl.POINTS, 0, this.drawn);
    }
    this.paintAbove();
  }

  // The rows whose pictures are shown: in view, and not closer to each other than half a picture.
  place() {
    this.placed = []; this.empty = false;
    if (!this.address || this.zoom < CLOSE) return;
    const [left, high] = this.toData(0, 0), [right, low] = this.toData(this.width, this.height), taken = new Map();
    const cell = (x, y) => `${Math.floor(x / PICTURE)} ${Math.floor(y / PICTURE)}`, around = [-PICTURE, 0, PICTURE];
    const covered = (x, y) => around.some((dx) => around.some((dy) => { const other = taken.get(cell(x + dx, y + dy)); return other && Math.hypot(other[0] - x, other[1] - y) < 0.8 * PICTURE; }));
    const rows = [];
    for (let cy = this.cell(low); cy <= this.cell(high); cy++) {
      for (let k = this.first[this.cell(left) + CELLS * cy]; k < this.first[this.cell(right) + CELLS * cy + 1]; k++) rows.push(this.order[k]);
    }
    const stride = coprime(rows.length); // from everywhere, if not all find a place
    for (let i = 0; i < rows.length && this.placed.length < PICTURES; i++) {
      const row = rows[(i * stride) % rows.length], [x, y] = this.toScreen(this.table[3 * row], this.table[3 * row + 1]);
      if (x < 0 || y < 0 || x > this.width || y > this.height || !this.shown(row) || covered(x, y)) continue;
      taken.set(cell(x, y), [x, y]); this.placed.push(row);
    }
    this.empty = !this.placed.length;
  }
  picture(row) {
    const known = this.pictures.get(row);
    if (known || this.asking >= AT_ONCE) return known;
    const picture = new Image(), address = this.address;
    const done = (kept) => { this.asking--; if (!kept && this.address === address) this.pictures.delete(row); if (kept) this.draw(); };
    this.asking++;
    picture.onload = () => done(true); picture.onerror = () => done(false);
    picture.src = address(row);
    this.pictures.set(row, picture);
    if (this.pictures.size > KEPT) this.pictures.delete(this.pictures.keys().next().value);
    return picture;
  }
  paintPictures(pen) {
    const side = PICTURE - 6;
    for (const row of this.placed) {
      const picture = this.picture(row), [x, y] = this.toScreen(this.table[3 * row], this.table[3 * row + 1]);
      if (!picture || !picture.complete || !picture.naturalWidth) continue;
      pen.globalAlpha = this.lit > -1.5 && this.table[3 * row + 2] !== this.lit ? 0.12 : 1;
      pen.fillStyle = colourOf(this.table[3 * row + 2], this.dark.matches, this.labels);
      pen.fillRect(x - side / 2 - 2, y - side / 2 - 2, side + 4, side + 4);
      pen.imageSmoothingEnabled = picture.naturalWidth > side;
      pen.drawImage(picture, x - side / 2, y - side / 2, side, side);
    }
    pen.globalAlpha = 1;
  }

  paintAbove() {
    if (!this.moving) this.place();
    const focused = document.activeElement === this.above && this.above.matches(":focus-visible");
    const busy = this.marks.length > 0 || this.own >= 0 || this.path !== null || focused || this.placed.length > 0 || this.empty;
    if (!busy && !this.busy) return; // nothing to draw or to clear
    this.busy = busy;
    const pen = this.above.getContext("2d"), style = getComputedStyle(document.documentElement);
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0); pen.clearRect(0, 0, this.width, this.height);
    this.paintPictures(pen);
    if (this.empty) {
      pen.fillStyle = style.getPropertyValue("--ink"); pen.font = "14px system-ui, sans-serif"; pen.textAlign = "center";
      pen.fillText("No samples here: press 0 or “Whole map”.", this.width / 2, this.height / 2);
    }
    const ring = (row, radius, colour, wide) => {
      const [x, y] = this.toScreen(this.table[3 * row], this.table[3 * row + 1]);
      pen.beginPath(); pen.arc(x, y, radius, 0, 7); pen.lineWidth = wide; pen.strokeStyle = colour; pen.stroke();
    };
    for (const row of this.marks) ring(row, 6, style.getPropertyValue("--ink"), 1.5);
    if (this.own >= 0) ring(this.own, 9, style.getPropertyValue("--second"), 3);
    if (this.path && this.path.length > 1) {
      pen.beginPath(); this.path.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y))); pen.closePath();
      pen.globalAlpha = 0.15; pen.fillStyle = style.getPropertyValue("--first"); pen.fill();
      pen.globalAlpha = 1; pen.lineWidth = 2; pen.strokeStyle = style.getPropertyValue("--first"); pen.stroke();
    }
    if (focused) {
      const [x, y] = [this.width / 2, this.height / 2];
      pen.beginPath(); pen.moveTo(x - 8, y); pen.lineTo(x + 8, y); pen.moveTo(x, y - 8); pen.lineTo(x, y + 8);
      pen.lineWidth = 2; pen.strokeStyle = style.getPropertyValue("--ink"); pen.stroke();
    }
  }

  whole() { this.x = 0; this.y = 0; this.zoom = 1; this.draw(); }
  pan(dx, dy) { this.x = clamp(this.x - dx / this.unit, -1.2, 1.2); this.y = clamp(this.y + dy / this.unit, -1.2, 1.2); this.moved(); }
  zoomBy(factor, px = this.width / 2, py = this.height / 2) {
    const before = this.toData(px, py);
    this.zoom = clamp(this.zoom * factor, 0.5, Math.max(40, 4 * Math.sqrt(this.count))); // beyond, even close points are far apart
    const after = this.toData(px, py);
    this.x = clamp(this.x + before[0] - after[0], -1.2, 1.2); this.y = clamp(this.y + before[1] - after[1], -1.2, 1.2);
    this.moved();
  }

  // The row nearest to a position on the screen, or -1.
  nearest(px, py, reach = REACH) {
    const [x, y] = this.toData(px, py), r = reach / this.unit;
    let best = -1, least = r * r;
    for (let cy = this.cell(y - r); cy <= this.cell(y + r); cy++) {
      for (let cx = this.cell(x - r); cx <= this.cell(x + r); cx++) {
        const cell = cx + CELLS * cy;
        for (let k = this.first[cell]; k < this.first[cell + 1]; k++) {
          const row = this.order[k];
          if (!this.shown(row)) continue;
          const dx = this.table[3 * row] - x, dy = this.table[3 * row + 1] - y, d = dx * dx + dy * dy;
          if (d < least) { least = d; best = row; }
        }
      }
    }
    return best;
  }
  shown(row) { return this.only < -1.5 || this.table[3 * row + 2] === this.only; }

  // Rows inside a polygon of data coordinates, by counting the edges that a ray crosses.
  inside(polygon) {
    const xs = polygon.map((p) => p[0]), ys = polygon.map((p) => p[1]);
    const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const rows = [];
    for (let i = 0; i < this.count; i++) {
      const x = this.table[3 * i], y = this.table[3 * i + 1];
      if (x < left || x > right || y < low || y > high || !this.shown(i)) continue;
      let within = false;
      for (let a = 0, b = polygon.length - 1; a < polygon.length; b = a++) {
        const [ax, ay] = polygon[a], [bx, by] = polygon[b];
        if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) within = !within;
      }
      if (within) rows.push(i);
    }
    return rows;
  }
  selectView() {
    const corners = [[0, 0], [this.width, 0], [this.width, this.height], [0, this.height]];
    this.handlers.select(this.inside(corners.map(([x, y]) => this.toData(x, y))));
  }

  select(rows) {
    this.flags.fill(0);
    for (const row of rows) this.flags[row] = 1;
    this.chosen = rows.length;
    const mixed = new Uint8Array(this.count);
    for (let i = 0; i < this.count; i++) mixed[i] = this.flags[this.mixed[i]];
    const gl = this.gl;
    if (gl && this.count) { gl.bindBuffer(gl.ARRAY_BUFFER, this.flagged); gl.bufferSubData(gl.ARRAY_BUFFER, 0, mixed); }
    this.draw();
  }
  filter(label) { this.only = label; this.draw(); }
  highlight(label) { this.lit = label; this.draw(); }
  mark(rows, own = -1) { this.marks = rows; this.own = own; this.draw(); }
  lasso(on) { this.lassoing = on; this.above.classList.toggle("lasso", on); }

  listen() {
    const held = new Map(), above = this.above;
    let moved = 0, resting = 0;
    const place = (event) => { const box = above.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    above.addEventListener("pointerdown", (event) => {
      above.setPointerCapture(event.pointerId); held.set(event.pointerId, place(event)); moved = 0;
      if (this.lassoing && held.size === 1) this.path = [place(event)];
      this.handlers.hover(-1);
    });
    above.addEventListener("pointermove", (event) => {
      const now = place(event), before = held.get(event.pointerId);
      if (!before) { clearTimeout(resting); this.handlers.hover(-1); resting = setTimeout(() => this.handlers.hover(this.count ? this.nearest(...now) : -1, ...now), 90); return; }
      moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
      if (held.size === 2) {
        const other = [...held].find(([id]) => id !== event.pointerId)[1], gap = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]);
        this.path = null;
        this.zoomBy(gap(now) / Math.max(1, gap(before)), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
      } else if (this.path) { this.path.push(now); this.draw(); } else this.pan(now[0] - before[0], now[1] - before[1]);
      held.set(event.pointerId, now);
    });
    const released = (event) => {
      if (!held.delete(event.pointerId)) return;
      const path = this.path;
      this.path = null;
      if (path && path.length > 2 && moved > 8 && event.type === "pointerup") this.handlers.select(this.inside(path.map((p) => this.toData(...p))));
      else if (moved < 5 && event.type === "pointerup" && this.count) { const row = this.nearest(...place(event)); if (row >= 0) this.handlers.pick(row); }
      this.draw();
    };
    above.addEventListener("pointerup", released); above.addEventListener("pointercancel", released);
    above.addEventListener("pointerleave", () => { clearTimeout(resting); this.handlers.hover(-1); });
    above.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0016)), ...place(event));
    }, { passive: false });
    above.addEventListener("focus", () => this.draw()); above.addEventListener("blur", () => this.draw());
    above.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const step = 60, key = event.key;
      const act = {
        ArrowLeft: () => this.pan(step, 0), ArrowRight: () => this.pan(-step, 0), ArrowUp: () => this.pan(0, step), ArrowDown: () => this.pan(0, -step),
        "+": () => this.zoomBy(1.4), "=": () => this.zoomBy(1.4), "-": () => this.zoomBy(1 / 1.4), 0: () => this.whole(),
        s: () => this.selectView(), Escape: () => this.handlers.select([]),
        Enter: () => { const row = this.count ? this.nearest(this.width / 2, this.height / 2, Math.max(this.width, this.height)) : -1; if (row >= 0) this.handlers.pick(row); },
      }[key];
      if (act) { event.preventDefault(); clearTimeout(resting); this.handlers.hover(-1); act(); }
    });
  }
}

function clamp(v, low, high) { return Math.min(high, Math.max(low, v)); }
