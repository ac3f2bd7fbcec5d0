// Draws the charts with the Plotly that stands above, and again when light turns to dark. Without it, the captions remain.
(function () {
  "use strict";
  const charts = JSON.parse(document.getElementById("chart-data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  function draw() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    charts.forEach(function (chart, number) {
      let measured = 0;
      const traces = chart.lines.map(function (line) {
        const hue = line.dashed ? "--limit" : measured++ ? "--second" : "--first";
        return {
          type: "scatter", mode: line.x.length > 1 ? "lines" : "markers", name: line.name, x: line.x, y: line.y,
          line: { color: colour(hue), width: 2, dash: line.dashed ? "dash" : "solid" }, marker: { color: colour(hue) },
        };
      });
      const axis = { gridcolor: colour("--line"), zeroline: false, automargin: true, fixedrange: true };
      const layout = {
        margin: { l: 8, r: 8, t: 8, b: 8 }, showlegend: traces.length > 1, legend: { orientation: "h", y: 1.15 },
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("--ink"), size: 12 },
        xaxis: Object.assign({ title: { text: chart.along } }, axis), yaxis: Object.assign({}, axis), hovermode: "x unified",
        hoverlabel: { bgcolor: colour("--panel"), font: { color: colour("--ink") } },
      };
      const place = document.getElementById("chart-" + number);
      Plotly.react(place, traces, layout, { displayModeBar: false, responsive: true });
    });
  }
  draw();
  dark.addEventListener("change", draw);
})();
