// Tooltips of the charts and the slider over time. Text from the data is set as text, never as markup. Without this
// script the charts and their captions are still there.
const nearfar = (function () {
  "use strict";
  const charts = JSON.parse(document.getElementById("chart-data").textContent);
  const byId = (id) => document.getElementById(id);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function piece(parent, tag, kind, text) {
    const element = document.createElement(tag);
    if (kind) element.className = kind;
    if (text !== undefined) element.textContent = text;
    return parent.appendChild(element);
  }

  const tip = piece(document.body, "div", "tip");
  tip.setAttribute("aria-hidden", "true");
  tip.hidden = true;
  function showTip(event, fill) {
    tip.replaceChildren();
    fill(tip);
    tip.hidden = false;
    const width = document.documentElement.clientWidth;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, width - tip.offsetWidth - 4)) + "px";
    tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 12) + "px";
  }
  const hideTip = () => { tip.hidden = true; };

  // Position of the pointer in the box of a chart, x and y from 0 to 1; null outside.
  function within(svg, box, event) {
    const frame = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / frame.width;
    const x = ((event.clientX - frame.left) * scale - box[0]) / (box[2] - box[0]);
    const y = ((event.clientY - frame.top) * scale - box[1]) / (box[3] - box[1]);
    return x >= 0 && x <= 1 && y >= 0 && y <= 1 ? { x: x, y: y } : null;
  }

  const number = (value) => (Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3)
    ? value.toExponential(2) : String(Number(value.toPrecision(4))));

  function lines(place, chart) {
    const svg = place.querySelector("svg");
    const mark = document.createElementNS("http://www.w3.org/2000/svg", "line");
    mark.setAttribute("class", "mark");
    mark.setAttribute("y1", chart.box[1]);
    mark.setAttribute("y2", chart.box[3]);
    mark.style.display = "none";
    svg.appendChild(mark);
    svg.addEventListener("pointermove", function (event) {
      const at = within(svg, chart.box, event);
      if (!at) { hideTip(); mark.style.display = "none"; return; }
      const x = chart.across[0] + at.x * (chart.across[1] - chart.across[0]);
      const found = chart.lines.map(function (line) {
        let best = 0;
        line.x.forEach((value, i) => { if (Math.abs(value - x) < Math.abs(line.x[best] - x)) best = i; });
        return { line: line, x: line.x[best], y: line.y[best] };
      });
      const first = found.find((each) => !each.line.dashed) || found[0];
      const across = chart.box[0] + (first.x - chart.across[0]) / (chart.across[1] - chart.across[0]) * (chart.box[2] - chart.box[0]);
      mark.setAttribute("x1", across);
      mark.setAttribute("x2", across);
      mark.style.display = "";
      showTip(event, function (parent) {
        const list = piece(parent, "ul", "values");
        piece(list, "li", "", "at " + number(first.x));
        found.forEach(function (each) {
          const item = piece(list, "li");
          piece(item, "span", "swatch " + (each.line.colour === null ? "limit" : "l" + (each.line.colour % 8)));
          piece(item, "span", "", each.line.name + " " + number(each.y));
        });
      });
    });
    svg.addEventListener("pointerleave", function () { hideTip(); mark.style.display = "none"; });
  }

  function heat(place, chart) {
    const svg = place.querySelector("svg");
    svg.addEventListener("pointermove", function (event) {
      const at = within(svg, chart.box, event);
      if (!at) { hideTip(); return; }
      const row = Math.min(Math.floor(at.y * chart.z.length), chart.z.length - 1);
      const column = Math.min(Math.floor(at.x * chart.z[0].length), chart.z[0].length - 1);
      const share = (100 * chart.z[row][column]).toFixed(1) + " %";
      const words = chart.names
        ? chart.names[row] + " taken for " + chart.names[column] + ": " + share
        : "step " + chart.columns[column] + ", similarity " + chart.rows[row].toFixed(2) + ": " + share;
      showTip(event, (parent) => piece(parent, "span", "", row === column && chart.names ? chart.names[row] + " right: " + share : words));
    });
    svg.addEventListener("pointerleave", hideTip);
  }

  function histograms(place, chart) {
    const slider = byId(chart.slider), bottom = chart.box[3], height = chart.box[3] - chart.box[1];
    function show() {
      const at = Number(slider.value), words = "step " + chart.steps[at].toLocaleString("en");
      byId(chart.slider + "-step").textContent = words;
      slider.setAttribute("aria-valuetext", words);
      Object.entries(chart.values).forEach(function ([kind, looks]) {
        place.querySelectorAll(".bars." + kind + " rect").forEach(function (bar, i) {
          const tall = looks[at][i] / chart.most * height;
          bar.setAttribute("y", bottom - tall);
          bar.setAttribute("height", tall);
        });
      });
    }
    slider.addEventListener("input", show);
    show();
  }

  const kinds = { lines: lines, heat: heat, histograms: histograms };
  charts.forEach(function (chart, i) { if (kinds[chart.kind]) kinds[chart.kind](byId("chart-" + i), chart); });
  return { charts: charts, byId: byId, colour: colour, piece: piece, showTip: showTip, hideTip: hideTip };
})();
