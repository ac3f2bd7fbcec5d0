// The map of the embeddings: points on a canvas, colored by label or cluster, with details of the selected sample.
(function () {
  "use strict";
  const { charts, byId, colour, piece, showTip, hideTip } = nearfar;
  const chart = charts.find((each) => each.kind === "map");
  if (!chart) return;
  const canvas = byId("map-canvas"), pen = canvas.getContext("2d");
  const by = byId("map-colour"), only = byId("map-only"), where = byId("map-place"), sample = byId("map-sample");
  const view = { scale: 1, x: 0, y: 0 };  // zoom, and offset in pixels
  let shades = [], places = [], chosen = -1, waiting = false, lit = null;

  function groups() {
    return by.value === "label" ? { of: chart.label, names: chart.classes }
      : { of: chart.cluster, names: chart.clusters.map((_, i) => "cluster " + (i + 1)) };
  }

  // As in the explorer: few groups differ in hue, more of them also in lightness and saturation.
  function hue(number, count) {
    if (count <= 8) return colour("--line-" + number);
    const rings = count <= 12 ? 1 : count <= 36 ? 2 : 4, each = Math.ceil(count / rings), ring = number % rings;
    const divisor = (a, b) => (b ? divisor(b, a % b) : a);
    let stride = Math.max(1, Math.round(each * 0.618));
    while (divisor(stride, each) > 1) stride++;
    const turn = (Math.floor(number / rings) * stride % each + ring * 0.76) / each % 1;
    const light = (colour("--scheme") === "dark" ? 64 : 42) + [0, 14, -11, -7][ring];
    return "hsl(" + (360 * turn).toFixed(1) + " " + [67, 85, 88, 51][ring] + "% " + light + "%)";
  }

  function title(i) {
    const label = chart.label[i];
    return [label < 0 ? "" : chart.classes[label], chart.texts[i] || chart.names[i]].filter(Boolean).join(": ");
  }

  function thumbnail(i, kind) {
    const span = document.createElement("span");
    span.className = "thumb " + kind;
    span.setAttribute("role", "img");
    span.setAttribute("aria-label", title(i));
    span.style.setProperty("--c", i % chart.columns);
    span.style.setProperty("--r", Math.floor(i / chart.columns));
    return span;
  }

  // Positions of all points in pixels.
  function locate() {
    const at = chart.places[where.value], room = 14;
    const wide = canvas.clientWidth - 2 * room, high = canvas.clientHeight - 2 * room;
    const bounds = (values) => values.reduce((b, v) => [Math.min(b[0], v), Math.max(b[1], v)], [Infinity, -Infinity]);
    const [left, right] = bounds(at.x), [low, top] = bounds(at.y);
    const unit = Math.min(wide / (right - left || 1), high / (top - low || 1)) * view.scale;
    const middle = [canvas.clientWidth / 2 + view.x, canvas.clientHeight / 2 + view.y];
    places = at.x.map((x, i) => [middle[0] + (x - (left + right) / 2) * unit, middle[1] - (at.y[i] - (low + top) / 2) * unit]);
  }

  function paint() {
    waiting = false;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(canvas.clientHeight * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    locate();
    const of = groups().of, wanted = lit !== null ? lit : only.value === "" ? null : Number(only.value);
    const size = chart.names.length > 500 ? 3 : 4.5, limit = colour("--limit");
    const dot = function (i) {
      pen.fillStyle = of[i] < 0 ? limit : shades[of[i]];
      pen.beginPath();
      pen.arc(places[i][0], places[i][1], size, 0, 2 * Math.PI);
      pen.fill();
    };
    pen.globalAlpha = wanted === null ? 0.8 : 0.08;
    of.forEach((group, i) => { if (group !== wanted) dot(i); });
    pen.globalAlpha = 1;
    of.forEach((group, i) => { if (group === wanted) dot(i); });
    if (chosen >= 0) {
      pen.strokeStyle = colour("--ink");
      pen.lineWidth = 2.5;
      pen.beginPath();
      pen.arc(places[chosen][0], places[chosen][1], 8, 0, 2 * Math.PI);
      pen.stroke();
    }
    if (canvas.matches(":focus-visible")) {  // a cross at the center: Enter selects the sample nearest to it
      const x = canvas.clientWidth / 2, y = canvas.clientHeight / 2;
      pen.strokeStyle = colour("--ink");
      pen.lineWidth = 2;
      pen.beginPath();
      pen.moveTo(x - 8, y);
      pen.lineTo(x + 8, y);
      pen.moveTo(x, y - 8);
      pen.lineTo(x, y + 8);
      pen.stroke();
    }
  }
  function repaint() { if (!waiting) { waiting = true; requestAnimationFrame(paint); } }

  function regroup() {
    const names = groups().names, legend = byId("map-legend");
    only.replaceChildren(new Option("all", ""), ...names.map((name, i) => new Option(name, i)));
    legend.replaceChildren();
    if (names.length <= 200) names.forEach(function (name, i) {
      const chip = piece(legend, "button", "chip");
      chip.type = "button";
      piece(chip, "span", "dot");
      piece(chip, "span", "called", name);
      chip.title = name;
      chip.addEventListener("click", function () { only.value = only.value === String(i) ? "" : String(i); refine(); });
      for (const come of ["pointerenter", "focus"]) chip.addEventListener(come, function () { lit = i; repaint(); });
      for (const go of ["pointerleave", "blur"]) chip.addEventListener(go, function () { lit = null; repaint(); });
    });
    recolour();
    refine();
  }

  function recolour() {
    const names = groups().names;
    shades = names.map((_, i) => hue(i, names.length));
    byId("map-legend").querySelectorAll(".dot").forEach((dot, i) => { dot.style.background = shades[i]; });
    repaint();
  }

  function refine() {
    const of = groups().of, shown = only.value === "" ? of.length : of.filter((g) => g === Number(only.value)).length;
    byId("map-legend").querySelectorAll("button").forEach(function (chip, i) {
      chip.setAttribute("aria-pressed", String(only.value === String(i)));
    });
    byId("map-count").textContent = shown.toLocaleString("en") + " of " + of.length.toLocaleString("en") + " shown";
    repaint();
  }

  function choose(i) {
    chosen = i;
    sample.value = i + 1;
    const panel = byId("map-detail");
    panel.replaceChildren();
    if (chart.columns) panel.appendChild(thumbnail(i, "large"));
    piece(panel, "p", "name", title(i));
    if (chart.texts[i]) piece(panel, "p", "quiet", chart.names[i]);
    piece(panel, "p", "quiet", "sample " + (i + 1) + ", cluster " + (chart.cluster[i] + 1) + "; nearest neighbors:");
    const list = piece(panel, "ul", chart.columns ? "near" : "near words");
    chart.nearest[i].forEach(function (j, rank) {
      const button = piece(piece(list, "li"), "button");
      button.type = "button";
      if (chart.columns) button.appendChild(thumbnail(j, ""));
      else piece(button, "span", "", title(j));
      const label = chart.label[j] < 0 || !chart.columns ? "" : chart.classes[chart.label[j]] + " ";
      piece(button, "small", "", label + chart.similarity[i][rank].toFixed(2));
      button.addEventListener("click", function () { choose(j); sample.focus(); });
    });
    repaint();
  }

  // The visible point nearest to the pointer, within a few pixels; -1 if there is none.
  function pointUnder(event) {
    const frame = canvas.getBoundingClientRect();
    return nearest(event.clientX - frame.left, event.clientY - frame.top, event.pointerType === "touch" ? 20 : 10);
  }

  function nearest(x, y, reach) {
    const of = groups().of, wanted = only.value === "" ? null : Number(only.value);
    let best = -1, least = reach ** 2;
    places.forEach(function (place, i) {
      const distance = (place[0] - x) ** 2 + (place[1] - y) ** 2;
      if (distance < least && (wanted === null || of[i] === wanted)) { best = i; least = distance; }
    });
    return best;
  }

  function zoom(factor, x, y) {  // around a point, by default the center
    const scale = Math.min(40, Math.max(1, view.scale * factor)), ratio = scale / view.scale;
    const ahead = (x === undefined ? 0 : x - canvas.clientWidth / 2), down = (y === undefined ? 0 : y - canvas.clientHeight / 2);
    view.x = scale === 1 ? 0 : ahead + (view.x - ahead) * ratio;
    view.y = scale === 1 ? 0 : down + (view.y - down) * ratio;
    view.scale = scale;
    repaint();
  }

  function move(x, y) {  // the center stays over the map
    const most = [canvas.clientWidth, canvas.clientHeight].map((side) => side * view.scale / 2);
    view.x = Math.max(-most[0], Math.min(most[0], view.x + x));
    view.y = Math.max(-most[1], Math.min(most[1], view.y + y));
    repaint();
  }
  function showAll() { view.scale = 1; view.x = view.y = 0; repaint(); }

  canvas.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = 60, act = {
      ArrowLeft: () => move(step, 0), ArrowRight: () => move(-step, 0), ArrowUp: () => move(0, step), ArrowDown: () => move(0, -step),
      "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: showAll,
      Enter: () => { locate(); const i = nearest(canvas.clientWidth / 2, canvas.clientHeight / 2, Infinity); if (i >= 0) choose(i); },
    }[event.key];
    if (act) { event.preventDefault(); hideTip(); act(); }
  });
  canvas.addEventListener("focus", repaint);
  canvas.addEventListener("blur", repaint);

  let drag = null;
  canvas.addEventListener("pointerdown", function (event) {
    drag = { x: event.clientX, y: event.clientY, from: [view.x, view.y], moved: false };
    if (event.pointerType !== "touch") canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", function (event) {
    if (drag && event.pointerType !== "touch") {
      const x = event.clientX - drag.x, y = event.clientY - drag.y;
      drag.moved = drag.moved || Math.abs(x) + Math.abs(y) > 4;
      if (drag.moved) { view.x = drag.from[0] + x; view.y = drag.from[1] + y; hideTip(); repaint(); return; }
    }
    const i = pointUnder(event);
    canvas.style.cursor = i < 0 ? "grab" : "pointer";
    if (i < 0) { hideTip(); return; }
    showTip(event, function (parent) {
      if (chart.columns) parent.appendChild(thumbnail(i, ""));
      piece(parent, "span", "", title(i));
    });
  });
  canvas.addEventListener("pointerup", function (event) {
    const i = drag && !drag.moved ? pointUnder(event) : -1;
    drag = null;
    if (i >= 0) choose(i);
  });
  canvas.addEventListener("pointercancel", function () { drag = null; });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("wheel", function (event) {  // with Ctrl: the wheel alone scrolls the page
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const frame = canvas.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });
  byId("map-in").addEventListener("click", () => zoom(1.5));
  byId("map-out").addEventListener("click", () => zoom(1 / 1.5));
  byId("map-whole").addEventListener("click", showAll);
  by.addEventListener("change", regroup);
  only.addEventListener("change", refine);
  where.addEventListener("change", repaint);
  sample.addEventListener("change", function () {
    const i = Number(sample.value) - 1;
    if (Number.isInteger(i) && i in chart.names) choose(i);
  });
  document.addEventListener("nearfar-colours", recolour);
  new ResizeObserver(repaint).observe(canvas);
  regroup();
  choose(chart.start);
})();
