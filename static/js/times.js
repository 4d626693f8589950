// <time data-relative datetime="…"> shows an age that grows; the absolute time stays in its title.
import { formatAge } from "./format.js";

function refresh() {
  if (document.hidden) return;
  for (const node of document.querySelectorAll("time[data-relative]")) {
    const age = formatAge((Date.now() - Date.parse(node.dateTime)) / 1000);
    if (age !== null && node.textContent !== age) node.textContent = age;
  }
}

export function startTimes() {
  refresh();
  setInterval(refresh, 10_000);
  document.addEventListener("htmx:afterSettle", refresh);
  document.addEventListener("visibilitychange", refresh);
}
