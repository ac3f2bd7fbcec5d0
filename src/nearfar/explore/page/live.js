// A run in training: a small chart for each metric of its log, and its health verdicts.

import { make } from "./lists.js";

const SHOWN = { loss: "loss", knn: "k-NN accuracy", validation_loss: "validation loss", effective_rank: "effective rank",
  positive_similarity: "similarity of positives", accuracy: "contrastive accuracy", lr: "learning rate", temperature: "temperature", samples_per_second: "samples per second" };
const STATES = { training: ", in training", stopped: ", stopped before its end", finished: ", finished", lost: ", no connection to the server, trying again" };
const MOST = 400; // points of a curve

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
      const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
      const at = (x, y) => `${right > left ? (100 * (x - left)) / (right - left) : 50},${high > low ? 38 - (36 * (y - low)) / (high - low) : 20}`;
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
      svg.setAttribute("viewBox", "0 0 100 40"); svg.setAttribute("preserveAspectRatio", "none"); svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", `${words}, from ${short(ys[0])} to ${short(ys[ys.length - 1])}`);
      const points = xs.map((x, i) => at(x, ys[i]));
      line.setAttribute("points", (points.length > 1 ? points : ["0,20", "100,20"]).join(" ")); // one value: a flat line
      svg.append(line);
      charts.push(make("figure", {}, [svg, make("figcaption", { textContent: `${words}: ${short(ys[ys.length - 1])}` }, ys.length > 1 ? [make("span", { className: "quiet", textContent: ` (${short(low)} to ${short(high)}, steps ${left} to ${right})` })] : [])]));
    }
    this.charts.replaceChildren(...charts);
  }
  showVerdicts(list) {
    this.verdicts.replaceChildren(...list.map((v) => make("li", {}, [
      make("span", { className: `level ${["good", "warning", "error"].includes(v.level) ? v.level : ""}`, textContent: v.level }), ` step ${v.step}: ${v.text}`])));
  }
}

function short(v) { return Math.abs(v) >= 100 ? v.toFixed(0) : Number(v.toPrecision(3)).toString(); }
