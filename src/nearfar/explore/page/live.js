// A run in training: a small chart for each metric of its log, and its health verdicts.

import { make } from "./lists.js";

const SHOWN = { loss: "loss", knn: "k-NN accuracy", validation_loss: "validation loss", effective_rank: "effective rank",
  positive_similarity: "similarity of positives", accuracy: "right view found", lr: "learning rate", temperature: "temperature", samples_per_second: "samples per second" };
const STATES = { training: ", in training", stopped: ", stopped before its end", finished: ", finished", lost: ", no connection to the server, trying again" };
const SHARES = new Set(["knn", "accuracy"]); // go from 0 to 1
const MOST = 400; // points of a curve
const WIDTH = 240, HEIGHT = 130, LEFT = 44, RIGHT = 8, TOP = 8, BOTTOM = 30; // of a chart, and its margins

function piece(svg, kind, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  svg.append(element);
}

// A curve with its axes: three values at the left, first and last step below.
function chart(xs, ys, share, words) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const [left, right] = [xs[0], xs[xs.length - 1]];
  let [low, high] = share ? [0, 1] : [Math.min(...ys), Math.max(...ys)];
  if (low === high) { const pad = Math.abs(low) / 6 || 0.5; low -= pad; high += pad; }
  const px = (x) => (right > left ? LEFT + ((x - left) / (right - left)) * (WIDTH - LEFT - RIGHT) : (LEFT + WIDTH - RIGHT) / 2);
  const py = (y) => HEIGHT - BOTTOM - ((y - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`); svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${words}, from ${short(ys[0])} to ${short(ys[ys.length - 1])}`);
  for (const value of [low, (low + high) / 2, high]) {
    piece(svg, "line", { x1: LEFT, x2: WIDTH - RIGHT, y1: py(value), y2: py(value) });
    piece(svg, "text", { x: LEFT - 4, y: py(value) + 3.5, "text-anchor": "end" }, short(value));
  }
  for (const [value, anchor] of right > left ? [[left, "start"], [right, "end"]] : [[left, "middle"]]) piece(svg, "text", { x: px(value), y: HEIGHT - BOTTOM + 13, "text-anchor": anchor }, value.toLocaleString("en"));
  piece(svg, "text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, "step");
  if (ys.length > 1) piece(svg, "polyline", { points: xs.map((x, i) => `${px(x).toFixed(1)},${py(ys[i]).toFixed(1)}`).join(" ") });
  else piece(svg, "circle", { cx: px(xs[0]), cy: py(ys[0]), r: 3 });
  return svg;
}

export class Live {
  constructor(details, { state, charts, verdicts, finish }) {
    this.details = details; this.state = state; this.charts = charts; this.verdicts = verdicts; this.finish = finish; this.source = null;
    details.addEventListener("toggle", () => (details.open ? this.open() : this.close()));
  }
  show(run, training) {
    this.close(); this.run = run; this.details.hidden = run === null;
    if (run !== null && (training || this.details.open)) { this.details.open = true; this.open(); }
  }
  open() {
    if (this.source || this.run === null) return;
    this.begin();
    this.source = new EventSource(`/api/live?run=${this.run}`);
    const on = (name, act) => this.source.addEventListener(name, (event) => act(JSON.parse(event.data)));
    this.source.addEventListener("open", () => this.begin()); // after a reconnect everything is sent again
    on("reset", () => this.begin());
    on("metrics", (line) => { this.lines.push(line); this.later(); });
    on("verdicts", (list) => this.showVerdicts(list));
    on("state", ({ state }) => { this.now = state; this.later(); if (state === "finished") this.finish(this.run); });
    this.source.addEventListener("error", () => { this.now = "lost"; this.later(); });
  }
  close() { if (this.source) { this.source.close(); this.source = null; } }
  begin() { this.lines = []; this.now = null; this.charts.replaceChildren(); this.verdicts.replaceChildren(); this.later(); }
  later() { if (!this.due) { this.due = true; requestAnimationFrame(() => { this.due = false; this.paint(); }); } }

  paint() {
    const last = this.lines[this.lines.length - 1];
    this.state.textContent = `${last ? `step ${last.step}` : "nothing logged yet"}${STATES[this.now] ?? ""}`;
    const charts = [];
    for (const [key, words] of Object.entries(SHOWN)) {
      const all = this.lines.filter((line) => key in line);
      if (!all.length) continue;
      const stride = Math.ceil(all.length / MOST), some = all.filter((_, i) => i % stride === 0 || i === all.length - 1);
      const xs = some.map((line) => line.step), ys = some.map((line) => line[key]);
      const range = ys.length > 1 ? ` (${short(Math.min(...ys))} to ${short(Math.max(...ys))}, steps ${xs[0]} to ${xs[xs.length - 1]})` : "";
      charts.push(make("figure", {}, [chart(xs, ys, SHARES.has(key), words),
        make("figcaption", { textContent: `${words}: ${short(ys[ys.length - 1])}` }, range ? [make("span", { className: "quiet", textContent: range })] : [])]));
    }
    this.charts.replaceChildren(...charts);
  }
  showVerdicts(list) {
    this.verdicts.replaceChildren(...list.map((v) => make("li", {}, [
      make("span", { className: `level ${["good", "warning", "error"].includes(v.level) ? v.level : ""}`, textContent: v.level }), ` step ${v.step}: ${v.text}`])));
  }
}

function short(v) { return Math.abs(v) >= 100 ? v.toFixed(0) : Number(v.toPrecision(3)).toString(); }
