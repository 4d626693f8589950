// The card that shows an upload on its way: one bar in all, one a file, and words in a polite live region.
import { el, icon } from "../dom.js";
import { formatBytes, formatDuration } from "../format.js";
import { Speed, sentOfEach } from "./transfer.js";
import { fileRow } from "./preview.js";

const SPOKEN_EVERY_MS = 5000;

export class ProgressCard {
  constructor(place, { name, items, onCancel }) {
    this.items = items;
    this.totalBytes = items.reduce((sum, { file }) => sum + file.size, 0);
    this.speed = new Speed();
    this.spokenAt = 0;
    this.bar = el("progress", { max: "1", value: "0", "aria-label": `Upload of ${name}` });
    this.amount = el("span", {}, "Starting");
    this.rest = el("span", {}, "");
    this.spoken = el("p", { class: "visually-hidden", "aria-live": "polite" });
    this.fileBars = items.map(() => el("progress", { max: "1", value: "0", "aria-hidden": "true" }));
    this.cancel = el("button", { type: "button", class: "btn btn-s" }, icon("close"), "Cancel");
    this.cancel.addEventListener("click", onCancel);
    const files = items.map(({ path, file }, index) => {
      const row = fileRow(path, file.size);
      row.append(this.fileBars[index]);
      return row;
    });
    place.replaceChildren(
      el("div", { class: "card-head" }, el("h2", {}, `Uploading ${name}`), this.cancel),
      el("div", { class: "card-body stack-s" }, this.bar, el("div", { class: "progress-line" }, this.amount, this.rest),
        el("ul", { class: "file-list" }, ...files), this.spoken));
    place.hidden = false;
    this.place = place;
  }

  // loaded and total count the multipart frame too, so they are scaled to the files' own bytes
  update(loaded, total) {
    const sent = total > 0 ? Math.round((loaded / total) * this.totalBytes) : 0;
    const now = performance.now();
    this.speed.add(sent, now);
    this.bar.value = total > 0 ? loaded / total : 0;
    sentOfEach(this.items, sent).forEach((bytes, index) => {
      const size = this.items[index].file.size;
      this.fileBars[index].value = size > 0 ? bytes / size : 1;
    });
    this.amount.textContent = `${formatBytes(sent)} of ${formatBytes(this.totalBytes)}`;
    const rate = this.speed.bytesPerSecond;
    if (loaded >= total) {
      this.rest.textContent = "All bytes sent; the server is storing them";
      this.cancel.disabled = true;
    } else if (rate) {
      this.rest.textContent = `${formatBytes(rate)}/s · ${formatDuration((this.totalBytes - sent) / rate)} left`;
    }
    if (now - this.spokenAt > SPOKEN_EVERY_MS || loaded >= total) {
      this.spokenAt = now;
      this.spoken.textContent = `${Math.round(this.bar.value * 100)} percent sent. ${this.rest.textContent}`;
    }
  }

  fail(error) {
    const requestId = error.requestId ? el("p", { class: "small muted" }, "Request id ", el("code", {}, error.requestId)) : null;
    this.place.replaceChildren(el("div", { class: "notice notice-fail", role: "alert" }, icon("fail"),
      el("div", {}, el("p", { class: "strong" }, error.message), error.hint ? el("p", {}, error.hint) : null,
        error.code ? el("p", { class: "small muted" }, "Code ", el("code", {}, error.code)) : null, requestId)));
  }

  finish() {
    this.place.hidden = true;
    this.place.replaceChildren();
  }
}
