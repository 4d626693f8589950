// One file on its way, in checked chunks (tus 1.0): paused and resumed at will, patient with a line that breaks.
import { ask } from "./requests.js";
import { base64, digestOf } from "./sha256.js";

const CHUNK_BYTES = 4 * 1024 * 1024;
const CHUNK_TYPE = "application/offset+octet-stream";
const PAUSES_MS = [1000, 2000, 4000, 8000, 15000, 30000];
const DISCARD_TRIES = 6;
const TUS = { "Tus-Resumable": "1.0.0" };

function metadataHeader(pairs) {
  const encoder = new TextEncoder();
  return Object.entries(pairs).filter(([, value]) => value)
    .map(([key, value]) => `${key} ${base64(encoder.encode(value))}`).join(",");
}

// states: waiting, sending, away (the line is down, retryAt says until when), paused, done, failed, cancelled
export class FileTransfer {
  // metadata: what the upload says of itself; unfinished: {url, offset} of an earlier attempt, or null
  constructor({ item, api, metadata, unfinished, onChange }) {
    Object.assign(this, { item, api, metadata, onChange });
    this.url = unfinished?.url ?? null;
    this.id = unfinished?.id ?? null;
    this.offset = unfinished?.offset ?? 0;
    this.sentBytes = this.offset;
    this.resumedAt = this.offset;
    this.state = "waiting";
    this.failures = 0;
    this.error = null;
    this.retryAt = null;
    this.stop = new AbortController();
    this.wake = null;
  }

  get size() {
    return this.item.file.size;
  }

  get ended() {
    return ["done", "failed", "cancelled"].includes(this.state);
  }

  pause() {
    if (this.ended || this.state === "paused") return;
    this.move("paused");
    this.stop.abort();
    this.wake?.();
  }

  resume() {
    if (this.state !== "paused" && this.state !== "failed" && this.state !== "away") return;
    this.failures = 0;
    this.move("waiting");
    this.wake?.();
  }

  cancel() {
    if (this.state === "cancelled") return;
    this.move("cancelled");
    this.stop.abort();
    this.wake?.();
  }

  // Takes a cancelled file off the server; what cannot be reached now is given up there after a day.
  async discard() {
    for (let tries = 0; this.url && tries < DISCARD_TRIES; tries += 1) {
      try {
        await ask("DELETE", this.url, { headers: TUS });
        return;
      } catch (error) {
        // the request that was just stopped may still hold it
        if (error.status !== 423) return;
        await new Promise((resolve) => { setTimeout(resolve, 500); });
      }
    }
  }

  move(state, error = null) {
    this.state = state;
    this.error = error;
    this.onChange(this);
  }

  // Ends when the file is there or was cancelled; a refusal waits for resume().
  async run() {
    let sure = true;
    while (!["done", "cancelled"].includes(this.state)) {
      if (this.state === "paused" || this.state === "failed") {
        await new Promise((resolve) => { this.wake = resolve; });
        sure = false;
        continue;
      }
      this.stop = new AbortController();
      try {
        await this.advance(sure);
        if (this.state === "sending") this.move("done");
      } catch (error) {
        sure = false;
        await this.after(error);
      }
    }
  }

  async advance(sure) {
    this.move("sending");
    if (!this.url) await this.begin();
    else if (!sure) await this.askOffset();
    while (this.offset < this.size && this.state === "sending") await this.sendChunk();
  }

  async begin() {
    const described = { ...this.metadata, filename: this.item.path, sha256: this.item.sha256, role: this.item.role };
    const headers = { ...TUS, "Upload-Length": String(this.size), "Upload-Metadata": metadataHeader(described) };
    const answer = await ask("POST", this.api, { headers, signal: this.stop.signal });
    this.url = answer.getResponseHeader("Location");
    this.id = JSON.parse(answer.responseText).id;
    this.moveTo(Number(answer.getResponseHeader("Upload-Offset")));
    this.resumedAt = this.offset;
  }

  async askOffset() {
    try {
      const answer = await ask("HEAD", this.url, { headers: TUS, signal: this.stop.signal });
      this.moveTo(Number(answer.getResponseHeader("Upload-Offset")));
    } catch (error) {
      if (error.status !== 404 && error.status !== 410) throw error;
      // given up meanwhile: from the beginning
      this.moveTo(0);
      await this.begin();
    }
  }

  async sendChunk() {
    const at = this.offset;
    const chunk = await this.item.file.slice(at, at + CHUNK_BYTES).arrayBuffer();
    const digest = base64(await digestOf(new Uint8Array(chunk)));
    const headers = {
      ...TUS, "Content-Type": CHUNK_TYPE, "Upload-Offset": String(at), "Upload-Checksum": `sha256 ${digest}`,
    };
    const onProgress = (loaded) => {
      this.sentBytes = at + Math.min(loaded, chunk.byteLength);
      this.onChange(this);
    };
    const answer = await ask("PATCH", this.url, { headers, body: chunk, signal: this.stop.signal, onProgress });
    this.failures = 0;
    this.moveTo(Number(answer.getResponseHeader("Upload-Offset")));
  }

  moveTo(offset) {
    this.offset = offset;
    this.sentBytes = offset;
    this.onChange(this);
  }

  async after(error) {
    if (this.state !== "sending") return;
    this.sentBytes = this.offset;
    if (error instanceof DOMException) {
      error = Object.assign(new Error(`${this.item.path} cannot be read any more.`), { hint: "Was it moved or changed? Choose it again." });
    }
    if (!error.passing) {
      this.move("failed", error);
      return;
    }
    const pauseMs = PAUSES_MS[Math.min(this.failures, PAUSES_MS.length - 1)];
    this.failures += 1;
    this.retryAt = performance.now() + pauseMs;
    this.move("away", error);
    await this.rest(pauseMs);
    if (this.state === "away") this.move("waiting");
  }

  // A pause that ends early when the network is back or somebody presses a button.
  rest(pauseMs) {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        removeEventListener("online", end);
        resolve();
      };
      const timer = setTimeout(end, pauseMs);
      addEventListener("online", end);
      this.wake = end;
    });
  }
}
