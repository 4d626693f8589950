// Bytes/s over the last seconds, so that the time left follows the line as it is now.

const WINDOW_MS = 4000;

export class Speed {
  constructor() {
    this.samples = [];
  }

  add(sentBytes, nowMs) {
    this.samples.push({ sentBytes, nowMs });
    while (this.samples.length > 2 && nowMs - this.samples[0].nowMs > WINDOW_MS) this.samples.shift();
  }

  forget() {
    this.samples = [];
  }

  get bytesPerSecond() {
    const first = this.samples[0];
    const last = this.samples.at(-1);
    if (!first || last.nowMs - first.nowMs < 200) return null;
    return Math.max(0, ((last.sentBytes - first.sentBytes) / (last.nowMs - first.nowMs)) * 1000);
  }
}
