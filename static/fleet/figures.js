// Figures as people read them: the same texts as fleet/figures.py. Unknown is a dash, never 0.

export const UNKNOWN = "–";
const UNITS = ["B", "kB", "MB", "GB", "TB"];
const STEPS = [[999.5, 1, ""], [999_500, 1e3, "k"], [Infinity, 1e6, "M"]];

const missing = (value) => value === null || value === undefined || Number.isNaN(value);

export function percent(share) {
  return missing(share) ? UNKNOWN : (share * 100).toFixed(0);
}

export function amount(value) {
  if (missing(value)) return UNKNOWN;
  const [, divisor, suffix] = STEPS.find(([limit]) => value < limit) ?? STEPS[2];
  const scaled = value / divisor;
  const whole = scaled >= 99.95 || (!suffix && (scaled >= 9.95 || scaled === 0));
  return scaled.toFixed(whole ? 0 : 1) + suffix;
}

export function size(count) {
  if (missing(count)) return UNKNOWN;
  let value = count;
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value.toFixed(unit === 0 || value >= 100 ? 0 : 1)} ${UNITS[unit]}`;
}

export function sizeOf(part, whole) {
  if (missing(part) || missing(whole)) return `${size(part)} / ${size(whole)}`;
  const found = UNITS.findIndex((unit, at) => whole < 999.5 * 1000 ** at);
  const unit = found < 0 ? UNITS.length - 1 : found;
  const digits = unit === 0 || whole >= 100 * 1000 ** unit ? 0 : 1;
  return `${(part / 1000 ** unit).toFixed(digits)} / ${size(whole)}`;
}

export function duration(seconds) {
  if (missing(seconds)) return UNKNOWN;
  const whole = Math.trunc(Math.max(0, seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.trunc(whole / 60)} min ${whole % 60} s`;
  if (whole < 86_400) return `${Math.trunc(whole / 3600)} h ${Math.trunc((whole % 3600) / 60)} min`;
  return `${Math.trunc(whole / 86_400)} d ${Math.trunc((whole % 86_400) / 3600)} h`;
}

export function age(seconds) {
  return duration(seconds).split(" ").slice(0, 2).join(" ");
}
