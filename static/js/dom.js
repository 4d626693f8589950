// Elements without HTML strings, so that a file name can never become markup.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function icon(name) {
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(namespace, "use");
  use.setAttribute("href", `${document.documentElement.dataset.icons}#${name}`);
  svg.append(use);
  return svg;
}

// kind → colour, icon; a note informs and does not alarm
const BADGES = {
  ok: ["ok", "check-circle"], note: ["info", "info"], fail: ["fail", "fail"], busy: ["busy", "busy"], idle: ["idle", "info"],
};

export function badge(kind, word) {
  const [color, symbol] = BADGES[kind];
  return el("span", { class: `badge badge-${color}` }, icon(symbol), word);
}

export function csrfToken() {
  return document.querySelector('meta[name="csrf-token"]').content;
}
