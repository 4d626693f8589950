// The card that shows an upload on its way: one bar in all, one a file with its own buttons, and words in a polite
// live region.
import { el, icon } from "../dom.js";
import { formatBytes, formatDuration } from "../format.js";
import { Speed } from "./speed.js";

const SPOKEN_EVERY_MS = 5000;

function button(symbol, word, act, label = word) {
  const made = el("button", { type: "button", class: "btn btn-s", "aria-label": label }, icon(symbol), el("span", {}, word));
  made.addEventListener("click", act);
  return made;
}

function relabel(made, symbol, word, label = word) {
  const text = made.querySelector("span");
  if (text.textContent === word) return;
  text.textContent = word;
  made.setAttribute("aria-label", label);
  made.querySelector("use").setAttribute("href", `${document.documentElement.dataset.icons}#${symbol}`);
}

function stateWords(transfer) {
  switch (transfer.state) {
    case "waiting": return "Waiting";
    case "paused": return "Paused";
    case "done": return transfer.resumedAt === transfer.size && transfer.size > 0 ? "Already there" : "Sent";
    case "cancelled": return "Cancelled";
    case "failed": return transfer.error.message;
    case "away": {
      const seconds = Math.max(0, Math.ceil((transfer.retryAt - performance.now()) / 1000));
      return `${transfer.error.message} Trying again in ${seconds} s`;
    }
    default: return `${formatBytes(transfer.sentBytes)} of ${formatBytes(transfer.size)}`;
  }
}

class FileRow {
  constructor(transfer) {
    this.transfer = transfer;
    const path = transfer.item.path;
    this.bar = el("progress", { max: "1", value: "0", "aria-label": `${path} sent` });
    this.words = el("span", { class: "muted" });
    this.toggle = button("pause", "Pause", () => this.press(), `Pause ${path}`);
    this.cancel = button("close", "Cancel", () => transfer.cancel(), `Cancel ${path}`);
    this.node = el("li", { class: "sending" }, icon("file"), el("span", { class: "mono" }, path), this.words,
      el("span", { class: "actions" }, this.toggle, this.cancel), this.bar);
  }

  press() {
    if (["paused", "failed", "away"].includes(this.transfer.state)) this.transfer.resume();
    else this.transfer.pause();
  }

  draw() {
    const { transfer } = this;
    this.bar.value = transfer.size > 0 ? transfer.sentBytes / transfer.size : Number(transfer.state === "done");
    this.words.textContent = stateWords(transfer);
    this.words.classList.toggle("failed", transfer.state === "failed");
    this.toggle.hidden = this.cancel.hidden = transfer.state === "done" || transfer.state === "cancelled";
    const path = transfer.item.path;
    if (transfer.state === "paused") relabel(this.toggle, "play", "Resume", `Resume ${path}`);
    else if (transfer.state === "failed" || transfer.state === "away") relabel(this.toggle, "redo", "Try now", `Try ${path} again`);
    else relabel(this.toggle, "pause", "Pause", `Pause ${path}`);
  }
}

export class ProgressCard {
  constructor(place, name) {
    this.place = place;
    this.name = name;
    this.speed = new Speed();
    this.spokenAt = 0;
  }

  follow(batch) {
    this.batch = batch;
    this.bar = el("progress", { max: "1", value: "0", "aria-label": `Upload of ${this.name}` });
    this.amount = el("span", {}, "Starting");
    this.rest = el("span", {}, "");
    this.spoken = el("p", { class: "visually-hidden", "aria-live": "polite" });
    this.refusal = el("div", { role: "alert" });
    this.rows = batch.transfers.map((transfer) => new FileRow(transfer));
    this.toggle = button("pause", "Pause all", () => (batch.paused ? batch.resume() : batch.pause()));
    const cancel = button("close", "Cancel all", () => batch.cancel());
    this.place.replaceChildren(
      el("div", { class: "card-head" }, el("h2", {}, `Uploading ${this.name}`), el("div", { class: "actions" }, this.toggle, cancel)),
      el("div", { class: "card-body stack-s" }, this.refusal, this.bar,
        el("div", { class: "progress-line" }, this.amount, this.rest),
        el("ul", { class: "file-list", "aria-label": "Files on their way" }, ...this.rows.map((row) => row.node)), this.spoken));
    this.place.hidden = false;
    // waiting for the line counts down although nothing happens
    this.ticking = setInterval(() => this.draw(), 1000);
    this.draw();
  }

  draw() {
    const { batch } = this;
    const sent = batch.sentBytes;
    const now = performance.now();
    if (batch.paused) this.speed.forget();
    else this.speed.add(sent, now);
    this.bar.value = batch.totalBytes > 0 ? sent / batch.totalBytes : 0;
    this.amount.textContent = `${formatBytes(sent)} of ${formatBytes(batch.totalBytes)}`;
    this.rest.textContent = this.restWords(sent);
    relabel(this.toggle, batch.paused ? "play" : "pause", batch.paused ? "Resume all" : "Pause all");
    for (const row of this.rows) row.draw();
    this.drawRefusal();
    if (now - this.spokenAt > SPOKEN_EVERY_MS) {
      this.spokenAt = now;
      this.spoken.textContent = `${Math.round(this.bar.value * 100)} percent sent. ${this.rest.textContent}`;
    }
  }

  restWords(sent) {
    const { batch } = this;
    if (batch.paused) return "Paused";
    if (sent >= batch.totalBytes) return "All bytes are there; the server puts them together";
    if (batch.transfers.some((transfer) => transfer.state === "away")) return "Waiting for the connection";
    const rate = this.speed.bytesPerSecond;
    if (!rate) return batch.resumedBytes > 0 ? `Goes on from ${formatBytes(batch.resumedBytes)}` : "";
    return `${formatBytes(rate)}/s · ${formatDuration((batch.totalBytes - sent) / rate)} left`;
  }

  drawRefusal() {
    const failed = this.batch.transfers.find((transfer) => transfer.state === "failed");
    const shown = this.refusal.firstChild !== null;
    if (!failed) this.refusal.replaceChildren();
    else if (!shown) this.refusal.replaceChildren(notice(failed.error));
  }

  fail(error) {
    clearInterval(this.ticking);
    this.place.replaceChildren(el("div", { role: "alert" }, notice(error)));
    this.place.hidden = false;
  }

  finish() {
    clearInterval(this.ticking);
    this.place.hidden = true;
    this.place.replaceChildren();
  }
}

function notice(error) {
  const small = (word, value) => (value ? el("p", { class: "small muted" }, `${word} `, el("code", {}, value)) : null);
  return el("div", { class: "notice notice-fail" }, icon("fail"),
    el("div", {}, el("p", { class: "strong" }, error.message), error.hint ? el("p", {}, error.hint) : null,
      small("Code", error.code), small("Request id", error.requestId)));
}
