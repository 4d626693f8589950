// All files of one version: a few at a time, paused and cancelled together or each by itself, then completed.
import { askJson } from "./requests.js";
import { FileTransfer } from "./transfer.js";

const AT_ONCE = 3;
const COMPLETE_TRIES = 5;

export class Batch {
  // unfinished: what GET uploads/ listed, to go on from
  constructor({ api, name, items, wishes, unfinished, onChange }) {
    Object.assign(this, { api, name });
    const total = items.reduce((sum, { file }) => sum + file.size, 0);
    const metadata = { ...wishes, name, package_bytes: String(total) };
    this.totalBytes = total;
    this.transfers = items.map((item) => new FileTransfer({
      item, api, metadata, onChange: () => onChange(this),
      unfinished: unfinished.find((upload) => upload.name === name && upload.path === item.path
        && upload.role === (item.role ?? "adapter") && upload.sha256 === item.sha256 && upload.length === item.file.size && upload.offset !== null) ?? null,
    }));
  }

  get sentBytes() {
    return this.transfers.reduce((sum, transfer) => sum + transfer.sentBytes, 0);
  }

  get resumedBytes() {
    return this.transfers.reduce((sum, transfer) => sum + transfer.resumedAt, 0);
  }

  get paused() {
    const going = this.transfers.filter((transfer) => !transfer.ended);
    return going.length > 0 && going.every((transfer) => transfer.state === "paused");
  }

  get cancelled() {
    return this.transfers.every((transfer) => transfer.state === "cancelled");
  }

  pause() {
    for (const transfer of this.transfers) transfer.pause();
  }

  resume() {
    for (const transfer of this.transfers) transfer.resume();
  }

  cancel() {
    for (const transfer of this.transfers) transfer.cancel();
  }

  // The version as the server answers it; null when all was cancelled.
  async run() {
    const queue = [...this.transfers];
    const lanes = Array.from({ length: AT_ONCE }, async () => {
      while (queue.length > 0) await queue.shift().run();
    });
    await Promise.all(lanes);
    await Promise.all(this.transfers.filter((transfer) => transfer.state === "cancelled").map((transfer) => transfer.discard()));
    const done = this.transfers.filter((transfer) => transfer.state === "done");
    return done.length === 0 ? null : this.complete(done.map((transfer) => transfer.id));
  }

  async complete([first, ...others]) {
    for (let tries = 1; ; tries += 1) {
      try {
        return await askJson("POST", `${this.api}${first}/complete/`, { name: this.name, uploads: others });
      } catch (error) {
        if (!error.passing || error.code === "checksum_mismatch" || tries === COMPLETE_TRIES) throw error;
        await new Promise((resolve) => { setTimeout(resolve, 1000 * tries); });
      }
    }
  }
}
