// Histograms of the last minute's batches: bars on every card, and the same as a list on the worker's page.
import { el } from "../js/dom.js";

// fleet/telemetry/histograms.py has the same
const LABELS = ["1", "2", "3–4", "5–8", "9–16", "17–32", "33–64", "65–128", "129+"];

const heightOf = (count, tallest) => (count ? Math.max(3, (100 * count) / tallest) : 0);

function bin(label) {
  return el("div", { class: "bin" }, el("i", { class: "bin-rows" }), el("i", { class: "bin-mix" }), el("span", {}, label));
}

export function showBins(place, worker) {
  if (place.childElementCount === 0) place.append(...LABELS.map(bin));
  const rows = worker.batch_rows ?? [];
  const mix = worker.batch_adapters ?? [];
  const tallest = Math.max(1, ...rows, ...mix);
  [...place.children].forEach((node, at) => {
    const [ofRows, ofMix] = node.children;
    ofRows.style.height = `${heightOf(rows[at], tallest)}%`;
    ofMix.style.height = `${heightOf(mix[at], tallest)}%`;
    node.title = `${LABELS[at]}: ${rows[at] ?? 0} by rows, ${mix[at] ?? 0} by adapters`;
  });
}

export function showBars(place, counts) {
  const tallest = Math.max(0, ...counts);
  const shown = place.querySelector("[data-none]");
  shown.hidden = tallest > 0;
  const list = place.querySelector("dl");
  list.hidden = tallest === 0;
  if (list.childElementCount === 0) {
    list.append(...LABELS.flatMap((label) => [el("dt", {}, label), el("dd", {}, el("span", { class: "meter" }, el("i")), el("span", { class: "num" }, "0"))]));
  }
  [...list.querySelectorAll("dd")].forEach((row, at) => {
    const count = counts[at] ?? 0;
    row.querySelector("i").style.width = `${tallest ? (100 * count) / tallest : 0}%`;
    const text = count.toLocaleString("en-US");
    if (row.lastChild.textContent !== text) row.lastChild.textContent = text;
  });
}
