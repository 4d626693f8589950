// One worker's card: every value is replaced in place, so that nothing moves.
import { el, icon } from "../js/dom.js";
import { showBins } from "./bins.js";
import { age, amount, duration, percent, size, sizeOf, UNKNOWN } from "./figures.js";

const KINDS = { cpu: "CPU", cuda: "GPU", simulated: "Simulated device" };
// state → badge style, icon, word; controlplane/looks.py has the same words
const STATES = {
  starting: ["busy", "busy", "Starting"],
  ready: ["ok", "check-circle", "Ready"],
  draining: ["note", "pause", "Draining"],
  drained: ["idle", "pause", "Drained"],
};
const SLOTS_DRAWN = 256;
const RECENT_S = 10;
const STALE = ["idle", "clock", "Stale"];

export function write(node, text) {
  if (node && node.textContent !== text) node.textContent = text;
}

const shareOf = (part, whole) => (part === null || !whole ? null : part / whole);

export class Card {
  constructor(node) {
    this.node = node;
    this.fields = Object.fromEntries([...node.querySelectorAll("[data-f]")].map((field) => [field.dataset.f, field]));
    this.meters = Object.fromEntries([...node.querySelectorAll("[data-m]")].map((meter) => [meter.dataset.m, meter]));
    this.models = node.querySelector("[data-models]");
    this.adapters = node.querySelector("[data-adapters]");
    this.limit = Number(this.adapters.dataset.limit) || Infinity;
    this.bins = node.querySelector("[data-bins]");
    this.refused = node.querySelector("[data-refused]");
    this.shown = "";
  }

  // identity: once, when the script meets a card
  identify(worker) {
    this.node.dataset.worker = worker.id;
    this.node.setAttribute("aria-label", `Worker ${worker.machine}/${worker.worker}`);
    write(this.fields.title, `${worker.machine}/${worker.worker}`);
    for (const link of [this.fields.title, this.fields.more]) link.href = `/fleet/${encodeURIComponent(worker.id)}/`;
    write(this.fields.pool, worker.pool);
    write(this.fields.kind, KINDS[worker.device.kind] ?? worker.device.kind);
    write(this.fields.device, worker.device.name);
    this.fields.device.title = worker.device.note ?? "";
    this.node.classList.toggle("no-heat", (worker.figures.power_watts ?? worker.figures.temperature_c) === null);
  }

  show(worker) {
    const now = worker.figures;
    const total = worker.device.memory_total_bytes ?? null;
    const set = (name, text) => write(this.fields[name], text);
    this.identify(worker);
    set("uptime", duration(worker.uptime_s));
    set("utilization", percent(now.utilization));
    set("busy", percent(now.busy));
    set("memory", sizeOf(now.memory_used_bytes, total));
    set("reserved", `${size(now.reserved_bytes)} / ${size(worker.budget_bytes)}`);
    set("requests", amount(now.requests_per_s));
    set("tokens", amount(now.tokens_per_s));
    set("rows", amount(now.batch_rows));
    set("mix", amount(now.batch_adapters));
    set("queue", `${amount(now.queue_p50_ms)} / ${amount(now.queue_p95_ms)}`);
    set("waiting", String(now.waiting_jobs));
    set("heat", `${amount(now.power_watts)} W / ${amount(now.temperature_c)} °C`);
    this.meter("utilization", now.utilization);
    this.meter("busy", now.busy);
    this.meter("memory", shareOf(now.memory_used_bytes, total));
    this.meter("reserved", shareOf(now.reserved_bytes, worker.budget_bytes ?? null));
    this.showModels(worker.models);
    showBins(this.bins, worker);
  }

  meter(name, share) {
    this.meters[name].style.width = `${Math.min(1, Math.max(0, share ?? 0)) * 100}%`;
  }

  // state and age are drawn from the clock too: silence has no message
  showState(state, seen_s, stale) {
    const [style, symbol, word] = stale ? STALE : (STATES[state] ?? ["idle", "info", state]);
    this.node.classList.toggle("is-stale", stale);
    write(this.fields.seen, age(seen_s));
    if (this.badge === word) return;
    this.badge = word;
    this.fields.badge.className = `badge badge-${style} worker-badge`;
    this.fields.badge.replaceChildren(icon(symbol), el("span", {}, word));
  }

  showModels(models) {
    const key = JSON.stringify(models);
    if (key === this.shown) return;
    this.shown = key;
    const rows = models.map((model) => el("li", {},
      el("span", { class: "mono truncate", title: model.id }, model.id),
      model.pinned && pinned(),
      el("span", { class: "num muted" }, size(model.size_bytes)),
      el("span", { class: "meter" }, el("i", { style: `width:${model.slots ? (100 * model.slots_used) / model.slots : 0}%` })),
      el("span", { class: "num small muted" }, `${model.slots_used} / ${model.slots} slots`),
      el("div", { class: "slot-map", "data-model": model.id, "aria-hidden": "true" }, ...Array.from({ length: Math.min(model.slots, SLOTS_DRAWN) }, () => el("i"))),
    ));
    this.models.replaceChildren(...(rows.length ? rows : [el("li", { class: "faint none" }, "none resident")]));
  }

  // drawn from the clock too: a refusal ends without a message
  showRefused(refused, now) {
    const running = refused.filter((item) => item.until > now);
    this.refused.hidden = running.length === 0;
    const key = JSON.stringify(running);
    if (key === this.refused.dataset.key) return;
    this.refused.dataset.key = key;
    this.refused.replaceChildren(...running.map((item) => el("li", {}, icon("pause"), el("span", {},
      el("span", { class: "mono" }, item.version ?? "another team’s version"),
      ` is refused on this machine until ${clock(item.until)} UTC: its jobs ended workers. `,
      el("a", { href: "/dead-jobs/" }, "Dead jobs")))));
  }

  // the map of what is resident; the table beside it says the same in words
  showSlots(adapters, now) {
    for (const map of this.models.querySelectorAll(".slot-map")) {
      const used = new Map(adapters.filter((adapter) => adapter.model === map.dataset.model).map((adapter) => [adapter.slot, adapter]));
      [...map.children].forEach((cell, slot) => {
        const adapter = used.get(slot);
        const look = !adapter ? "" : `${adapter.pinned ? "pinned-slot " : ""}${now - adapter.last_used < RECENT_S ? "hot" : "warm"}`;
        if (cell.className !== look) cell.className = look;
        const title = adapter ? `slot ${slot}: ${adapter.version ?? "another team’s adapter"}` : "";
        if (cell.title !== title) cell.title = title;
      });
    }
  }

  // rows keep their place while their adapter stays: only figures change under the pointer
  showAdapters(adapters, now) {
    // most used first: an order that seldom changes
    const newest = [...adapters].sort((a, b) => b.hits - a.hits || a.slot - b.slot).slice(0, this.limit);
    const wanted = new Map(newest.map((adapter) => [adapter.digest, adapter]));
    const rows = new Map([...this.adapters.querySelectorAll("[data-digest]")].map((row) => [row.dataset.digest, row]));
    for (const [digest, row] of rows) if (!wanted.has(digest)) row.remove();
    for (const [digest, adapter] of wanted) {
      const row = rows.get(digest) ?? this.adapters.appendChild(adapterRow(adapter));
      fillRow(row, adapter, now);
    }
    this.showSlots(adapters, now);
    const none = this.adapters.querySelector(".none");
    if (wanted.size > 0) none?.remove();
    else if (!none) this.adapters.replaceChildren(el("tr", { class: "none" }, el("td", { colspan: "7", class: "faint" }, "none resident")));
    write(this.fields.adapters_in_all, String(adapters.length));
    this.node.querySelector("[data-more]").hidden = adapters.length <= wanted.size;
    write(this.fields.more, `All ${adapters.length} adapters`);
  }
}

const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);

function pinned() {
  return el("span", { class: "pinned", title: "Pinned: stays in memory" }, icon("pin"), el("span", { class: "visually-hidden" }, "pinned"));
}

function adapterRow(adapter) {
  const cell = (label, number = true) => el("td", { "data-label": label, class: number ? "num" : null });
  return el("tr", { "data-digest": adapter.digest },
    cell("Version", false), cell("Tier", false), cell("Slot"), cell("Hits"), cell("Last use"), cell("Size"), el("td", { class: "pinned" }));
}

function fillRow(row, adapter, now) {
  const [version, tier, slot, hits, used, bytes, pin] = row.children;
  const word = adapter.version ?? adapter.digest;
  if (row.dataset.named !== word) {
    row.dataset.named = word;
    version.replaceChildren(versionName(adapter));
  }
  write(tier, adapter.tier);
  write(slot, String(adapter.slot));
  write(hits, amount(adapter.hits));
  write(used, adapter.last_used ? age(now - adapter.last_used) : UNKNOWN);
  write(bytes, size(adapter.size_bytes));
  if (pin.childElementCount > 0 !== adapter.pinned) pin.replaceChildren(...(adapter.pinned ? [pinned()] : []));
}

function versionName(adapter) {
  if (!adapter.version) {
    return el("span", { class: "truncate muted", title: adapter.digest }, "another team’s adapter ",
      el("span", { class: "mono" }, adapter.digest.slice(0, 8)));
  }
  const [team, rest] = adapter.version.split("/");
  return el("a", { class: "mono truncate", href: `/adapters/${team}/${rest.split("@")[0]}/`, title: adapter.version }, adapter.version);
}
