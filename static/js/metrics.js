// The Metrics tab's charts: one line for each version, drawn from the figures that the page carries.
import { ceiling } from "../fleet/charts.js";
import { amount, percent } from "../fleet/figures.js";

const CHARTS = {
  requests_per_s: { least: 0.1, show: amount },
  p95_ms: { least: 10, show: amount },
  error_rate: { least: 0.05, show: (value) => (value === null ? percent(null) : `${percent(value)}%`) },
};

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let plots = [];

function clock(seconds, long) {
  const options = long ? { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false } : { hour: "2-digit", minute: "2-digit", hour12: false };
  return new Date(seconds * 1000).toLocaleString("en-GB", options);
}

function draw(figure, found) {
  const name = figure.dataset.metric;
  const spec = CHARTS[name];
  const place = figure.querySelector(".plot");
  place.replaceChildren();
  const long = found.step_s > 600;
  const axis = { stroke: color("--chart-axis"), grid: { stroke: color("--chart-grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const plot = new uPlot({
    width: Math.max(120, place.clientWidth),
    height: place.clientHeight || 140,
    padding: [8, 22, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, sync: { key: "metrics", setSeries: false, scales: ["x", null] } },
    scales: { x: { time: true }, y: { range: (_, low, high) => [0, ceiling(high ?? 0, spec.least)] } },
    axes: [
      { ...axis, size: 22, gap: 4, space: long ? 110 : 56, values: (_, splits) => splits.map((at) => clock(at, long)) },
      { ...axis, size: 52, gap: 4, space: 28, values: (_, splits) => splits.map((value) => spec.show(value)) },
    ],
    series: [{}, ...found.versions.map((_, index) => ({ stroke: color(`--chart-${(index % 6) + 1}`), width: 1.5, points: { size: 4 }, spanGaps: true }))],
    hooks: { setCursor: [(self) => read(figure, found, self.cursor.idx, spec, name)] },
  }, [found.at, ...found.versions.map((version) => version[name])], place);
  plots.push(plot);
  read(figure, found, null, spec, name);
}

// the hover line's values, or the newest known ones
function read(figure, found, hovered, spec, name) {
  const keys = figure.querySelector(".chart-keys");
  keys.replaceChildren(...found.versions.map((version, index) => {
    const values = version[name];
    const known = hovered === null || hovered === undefined ? values.findLast((value) => value !== null) : values[hovered];
    const node = document.createElement("span");
    node.className = "chart-key";
    node.style.setProperty("--key", `var(--chart-${(index % 6) + 1})`);
    const value = document.createElement("b");
    value.textContent = spec.show(known ?? null);
    node.append(`v${version.number} `, value);
    return node;
  }));
}

function start() {
  for (const plot of plots) plot.destroy();
  plots = [];
  const data = document.getElementById("metrics-data");
  if (!data) return;
  const found = JSON.parse(data.textContent);
  if (!found.versions.length) return;
  for (const figure of document.querySelectorAll("[data-metric]")) draw(figure, found);
}

start();
document.addEventListener("htmx:afterSettle", start);
window.addEventListener("resize", start);
new MutationObserver(start).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
