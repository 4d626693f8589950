// uPlot charts of one worker. All charts of the page share one hover line and one time range, and read the page's colours.
import { amount, percent, size, UNKNOWN } from "./figures.js";

const UTILIZATION = {
  title: "Utilization", show: percent, ceiling: 1,
  lines: [["utilization", "device", "--chart-1"], ["busy", "busy", "--chart-2"]],
};
const MEMORY = {
  title: "Memory", show: size, least: 1e8,
  lines: [["reserved_bytes", "reserved", "--chart-3"], ["process_bytes", "measured", "--chart-1"]],
};
const REQUESTS = { title: "Requests/s", show: amount, least: 4, lines: [["requests_per_s", "requests", "--chart-1"]] };
const BATCH = {
  title: "Batch", show: amount, least: 4,
  lines: [["batch_rows", "rows", "--chart-3"], ["batch_adapters", "adapters", "--chart-4"]],
};
const QUEUE = {
  title: "Queue, ms", show: amount, least: 4,
  lines: [["queue_p50_ms", "p50", "--chart-1"], ["queue_p95_ms", "p95", "--chart-5"]],
};

const CHARTS = [UTILIZATION, MEMORY, REQUESTS, BATCH, QUEUE];
export const DAY_MINUTES = 1440;

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// 1, 2, 2.5, 5 × 10ⁿ: the axis changes in steps and not with every point
export function ceiling(value, least) {
  const wanted = Math.max(value * 1.05, least);
  const power = 10 ** Math.floor(Math.log10(wanted));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= wanted);
}

function clock(seconds, withSeconds) {
  const options = { hour: "2-digit", minute: "2-digit", hour12: false, ...(withSeconds && { second: "2-digit" }) };
  return new Date(seconds * 1000).toLocaleTimeString("en-GB", options);
}

class Chart {
  constructor(figure, spec, minutes) {
    this.spec = spec;
    this.minutes = minutes;
    this.place = figure.querySelector(".plot");
    this.values = [];
    figure.querySelector(".chart-title").textContent = spec.title;
    const keys = spec.lines.map(([, word, variable]) => this.key(word, variable));
    figure.querySelector(".chart-keys").replaceChildren(...keys);
    this.place.replaceChildren();
    this.plot = new uPlot(this.options(), [[], ...spec.lines.map(() => [])], this.place);
  }

  key(word, variable) {
    const node = document.createElement("span");
    node.className = "chart-key";
    node.style.setProperty("--key", `var(${variable})`);
    const value = document.createElement("b");
    value.textContent = UNKNOWN;
    this.values.push(value);
    node.append(`${word} `, value);
    return node;
  }

  options() {
    const { spec } = this;
    const axis = { stroke: color("--chart-axis"), grid: { stroke: color("--chart-grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    return {
      width: Math.max(120, this.place.clientWidth),
      height: this.place.clientHeight || 120,
      padding: [8, 8, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 }, sync: { key: "fleet", setSeries: false, scales: ["x", null] } },
      scales: {
        x: { time: true, range: () => this.window() },
        y: { range: (plot, low, high) => [0, spec.ceiling ? spec.ceiling * 1.04 : ceiling(high ?? 0, spec.least)] },
      },
      axes: [
        { ...axis, size: 22, gap: 4, space: this.minutes <= 1 ? 64 : 48, values: (plot, splits) => splits.map((at) => clock(at, this.minutes <= 1)) },
        { ...axis, size: this.spec.show === size ? 58 : 46, gap: 4, space: 28, values: (plot, splits) => splits.map((value) => this.tick(value)) },
      ],
      series: [
        {},
        ...spec.lines.map(([, , variable]) => ({ stroke: color(variable), width: 1.5, points: { show: false, size: 4, width: 0, fill: color(variable), filter: (plot, series) => this.dots(plot, series) }, spanGaps: false })),
      ],
      hooks: { setCursor: [() => this.read()] },
    };
  }

  tick(value) {
    if (this.spec.show === percent) return `${percent(value)}%`;
    return this.spec.show(value).replace(".0", "");
  }

  // a second between two silent ones has no line: it gets a dot
  dots(plot, series) {
    const values = plot.data[series];
    const alone = [];
    for (let at = 0; at < values.length; at += 1) {
      if (values[at] !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null) alone.push(at);
    }
    return alone.length > 0 ? alone : null;
  }

  window() {
    return [this.now - this.minutes * 60, this.now];
  }

  draw(series, now) {
    this.now = now;
    this.plot.setData([series.at, ...this.spec.lines.map(([name]) => series.columns[name] ?? series.at.map(() => null))]);
    this.read();
  }

  // the hover line's value, or the newest
  read() {
    if (!this.plot) return;
    const hovered = this.plot.cursor.idx;
    this.spec.lines.forEach((line, number) => {
      const values = this.plot.data[number + 1];
      const value = values[hovered ?? values.length - 1] ?? null;
      const text = this.spec.show(value);
      if (this.values[number].textContent !== text) this.values[number].textContent = text;
    });
  }

  resize() {
    const width = this.place.clientWidth;
    const height = this.place.clientHeight;
    if (width > 0 && (width !== this.plot.width || height !== this.plot.height)) this.plot.setSize({ width, height });
  }

  destroy() {
    this.plot.destroy();
  }
}

export class WorkerCharts {
  constructor(card) {
    this.figures = [...card.querySelectorAll("[data-chart]")];
    this.charts = [];
    this.visible = true;
    new IntersectionObserver((entries) => {
      this.visible = entries.at(-1).isIntersecting;
      if (this.visible) this.redraw?.();
    }, { rootMargin: "400px" }).observe(card);
    new ResizeObserver(() => this.charts.forEach((chart) => chart.resize())).observe(card);
  }

  // after a change of range or colours everything is made anew
  build(minutes) {
    this.charts.forEach((chart) => chart.destroy());
    this.charts = this.figures.map((figure, number) => new Chart(figure, CHARTS[number], minutes));
  }

  draw(series, now) {
    this.redraw = () => this.charts.forEach((chart) => chart.draw(series, now));
    if (this.visible) this.redraw();
  }
}
