// One-second points of one worker as columns, oldest first, never more than 15 minutes.

const KEPT_S = 900;
const GAP_S = 2;
const COLUMNS = [
  "utilization", "busy", "memory_used_bytes", "requests_per_s", "tokens_per_s",
  "batch_rows", "batch_adapters", "queue_p50_ms", "queue_p95_ms", "process_bytes", "reserved_bytes",
];

export class Series {
  constructor(history = null) {
    this.at = [];
    this.columns = Object.fromEntries(COLUMNS.map((name) => [name, []]));
    if (history) {
      history.at.forEach((at, row) => this.add(at, (name) => history[name]?.[row]));
    }
  }

  addFigures(figures) {
    this.add(figures.at, (name) => figures[name]);
  }

  add(at, read) {
    const last = this.at.at(-1);
    if (last !== undefined && at < last) return;
    if (at === last) {
      for (const name of COLUMNS) this.columns[name][this.at.length - 1] = read(name) ?? null;
      return;
    }
    // a hole in the data is a hole in the line
    if (last !== undefined && at - last > GAP_S) this.push(last + 1, () => null);
    this.push(at, read);
    while (this.at.length > 0 && this.at[0] <= at - KEPT_S) {
      this.at.shift();
      for (const name of COLUMNS) this.columns[name].shift();
    }
  }

  push(at, read) {
    this.at.push(at);
    for (const name of COLUMNS) this.columns[name].push(read(name) ?? null);
  }
}

export function minuteSeries(columns) {
  const at = [];
  const out = Object.fromEntries(Object.keys(columns).filter((name) => name !== "at").map((name) => [name, []]));
  columns.at.forEach((minute, row) => {
    if (at.length > 0 && minute - at.at(-1) > 60) {
      at.push(at.at(-1) + 60);
      for (const name of Object.keys(out)) out[name].push(null);
    }
    at.push(minute);
    for (const name of Object.keys(out)) out[name].push(columns[name][row]);
  });
  return { at, columns: out };
}
