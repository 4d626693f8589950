// The fleet pages: the server rendered what it knew, this keeps it current.
import { showBars } from "./bins.js";
import { Card, write } from "./card.js";
import { DAY_MINUTES, WorkerCharts } from "./charts.js";
import { Evictions } from "./evictions.js";
import { openFeed } from "./feed.js";
import { amount, percent, size, UNKNOWN } from "./figures.js";
import { minuteSeries, Series } from "./series.js";

const STALE_S = 5;
const DAY_EVERY_MS = 60_000;
const PILL = {
  live: ["dot-ok", "live"],
  connecting: ["dot-note", "connecting"],
  offline: ["dot-note", "reconnecting"],
  paused: ["dot", "paused"],
  silent: ["dot-note", "connected, but no telemetry arrives"],
};

const root = document.querySelector("[data-fleet]");
const place = root.querySelector("[data-workers]");
const blank = root.querySelector("[data-blank]");
const only = root.dataset.only;
const evictions = new Evictions(root);
const workers = new Map();
let minutes = Number(root.dataset.range);
let state = "connecting";
// server's clock minus ours: ages are right whatever this computer's clock says
let skew_s = 0;

const serverNow = () => Date.now() / 1000 + skew_s;

function entryOf(worker) {
  let entry = workers.get(worker.id);
  if (entry) return entry;
  let node = place.querySelector(`[data-worker="${CSS.escape(worker.id)}"]`);
  if (!node) {
    node = blank.content.firstElementChild.cloneNode(true);
    place.append(node);
  }
  entry = { card: new Card(node), charts: new WorkerCharts(node), series: new Series(), day: null, adapters: null, worker };
  entry.card.identify(worker);
  entry.charts.build(minutes);
  workers.set(worker.id, entry);
  if (minutes === DAY_MINUTES) loadDay(entry);
  return entry;
}

function take(worker) {
  const entry = entryOf(worker);
  entry.worker = worker;
  entry.series.addFigures(worker.figures);
  if (worker.adapters) entry.adapters = worker.adapters;
  entry.card.show(worker);
  if (only) {
    for (const place of root.querySelectorAll("[data-bars]")) showBars(place, worker[place.dataset.bars] ?? []);
    write(root.querySelector("[data-memory]"), memoryText(worker));
  }
}

function memoryText(worker) {
  const { reserved_bytes, process_bytes } = worker.figures;
  return `${size(reserved_bytes)} reserved of a budget of ${size(worker.budget_bytes)}; the process holds ${size(process_bytes)}`;
}

function onMessage(message) {
  skew_s = message.at - Date.now() / 1000;
  if (message.type === "heartbeat") return;
  const shown = message.workers.filter((worker) => !only || worker.id === only);
  if (message.type === "snapshot") {
    root.classList.add("is-scripted");
    const alive = new Set(shown.map((worker) => worker.id));
    for (const [id, entry] of workers) {
      if (alive.has(id) || only) continue;
      entry.card.node.remove();
      workers.delete(id);
    }
    for (const worker of shown) entryOf(worker).series = new Series(message.history[worker.id]);
  }
  shown.forEach(take);
  paint();
}

function paint() {
  const now = serverNow();
  for (const { card, charts, series, day, adapters, worker } of workers.values()) {
    const seen_s = Math.max(0, now - worker.last_seen);
    card.showState(worker.state, seen_s, seen_s > STALE_S);
    // unknown until a message lists them: what the server wrote stands
    if (adapters) card.showAdapters(adapters, now);
    card.showRefused(worker.refused ?? [], now);
    if (minutes === DAY_MINUTES) charts.draw(day ?? new Series(), now);
    else charts.draw(series, Math.floor(now));
  }
  evictions.show([...workers.values()].map(({ worker }) => worker));
  paintSummary(now);
  paintPill(now);
}

function paintSummary(now) {
  const entries = [...workers.values()];
  const fresh = entries.filter(({ worker }) => now - worker.last_seen <= STALE_S);
  const shares = fresh.map(({ worker }) => worker.figures.utilization).filter((share) => share !== null);
  const sum = (name) => (fresh.length ? fresh.reduce((total, { worker }) => total + worker.figures[name], 0) : null);
  const set = (name, text) => write(root.querySelector(`[data-s="${name}"]`), text);
  set("ready", String(fresh.filter(({ worker }) => worker.state === "ready").length));
  set("workers", String(entries.length));
  set("utilization", percent(shares.length ? shares.reduce((a, b) => a + b) / shares.length : null));
  set("requests", amount(sum("requests_per_s")));
  set("tokens", amount(sum("tokens_per_s")));
  const known = fresh.filter(({ adapters }) => adapters);
  set("adapters", known.length ? String(new Set(known.flatMap(({ adapters }) => adapters.map((a) => a.digest))).size) : UNKNOWN);
  const empty = root.querySelector("[data-empty]");
  if (empty) empty.hidden = entries.length > 0 || place.childElementCount > 0;
}

function paintPill(now) {
  const newest = Math.max(...[...workers.values()].map(({ worker }) => worker.last_seen));
  const silent = state === "live" && workers.size > 0 && now - newest > STALE_S;
  const [dot, word] = PILL[silent ? "silent" : state];
  root.querySelector("[data-pill] .dot").className = `dot ${dot}`;
  write(root.querySelector("[data-pill-word]"), word);
  root.dataset.state = state;
}

async function loadDay(entry) {
  const answer = await fetch(`/api/v1/workers/${encodeURIComponent(entry.worker.id)}/minutes/?hours=24`);
  if (!answer.ok) return;
  entry.day = minuteSeries(await answer.json());
  paint();
}

function chooseRange(wanted) {
  minutes = wanted;
  for (const button of root.querySelectorAll("[data-range]")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.range) === minutes));
  }
  const address = new URL(location);
  address.searchParams.set("range", minutes);
  history.replaceState(null, "", address);
  rebuild();
  if (minutes === DAY_MINUTES) workers.forEach(loadDay);
}

function rebuild() {
  for (const { charts } of workers.values()) charts.build(minutes);
  paint();
}

root.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-range]");
  if (button) chooseRange(Number(button.dataset.range));
});
document.addEventListener("shoal:theme", rebuild);
openFeed("/ws/fleet/", {
  onMessage,
  onState(next) {
    state = next;
    paintPill(serverNow());
  },
});
setInterval(() => {
  if (!document.hidden) paint();
}, 1000);
setInterval(() => {
  if (!document.hidden && minutes === DAY_MINUTES) workers.forEach(loadDay);
}, DAY_EVERY_MS);
