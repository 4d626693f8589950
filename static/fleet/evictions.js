// What left memory lately, over all workers of the page, newest first. It waits while somebody points at it.
import { el, icon } from "../js/dom.js";
import { formatAge } from "../js/format.js";

const ROWS = 30;

function eviction({ item, worker }) {
  const what = item.name ?? `another team’s ${item.kind} ${item.digest.slice(0, 8)}`;
  const at = new Date(item.at * 1000).toISOString();
  return el("li", {}, icon("archive"),
    el("div", {},
      el("div", {}, el("span", { class: "mono" }, what), ` left the ${item.tier}: ${item.reason}`),
      el("div", { class: "faint small mono" }, `${worker.machine}/${worker.worker}`)),
    el("time", { datetime: at, title: `${at.slice(0, 19).replace("T", " ")} UTC`, "data-relative": true }, formatAge(Date.now() / 1000 - item.at) ?? at.slice(0, 10)));
}

export class Evictions {
  constructor(root) {
    this.list = root.querySelector("[data-evictions]");
    this.none = root.querySelector("[data-no-evictions]");
    this.key = null;
  }

  show(workers) {
    if (!this.list || this.list.matches(":hover")) return;
    const found = workers.flatMap((worker) => (worker.evicted ?? []).map((item) => ({ item, worker })));
    const newest = found.sort((a, b) => b.item.at - a.item.at).slice(0, ROWS);
    const key = newest.map(({ item, worker }) => `${worker.id} ${item.digest} ${item.at}`).join();
    if (key === this.key) return;
    this.key = key;
    this.list.replaceChildren(...newest.map(eviction));
    this.list.hidden = newest.length === 0;
    this.none.hidden = newest.length > 0;
  }
}
