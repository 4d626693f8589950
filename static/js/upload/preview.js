// Draws what was chosen: facts, findings, files.
import { badge, el, icon } from "../dom.js";
import { formatBytes, formatCount } from "../format.js";

function fact(name, value, wide = false) {
  const shown = value === null || value === undefined || value === "" ? el("span", { class: "faint" }, "–") : value;
  return el("div", { class: wide ? "wide" : null }, el("dt", {}, name), el("dd", {}, shown));
}

function factList(facts, sizeBytes) {
  const targets = facts.targets.length === 0 ? null
    : el("span", { class: "chips" }, ...facts.targets.map((name) => el("span", { class: "chip" }, name)));
  const ranks = facts.ranks.length > 1 ? `${facts.ranks[0]} to ${facts.ranks.at(-1)}` : facts.rank;
  return el("dl", { class: "facts" },
    fact("Base model", facts.base, true),
    fact("Rank", ranks === null ? null : String(ranks)),
    fact("Alpha", facts.alpha === null ? null : String(facts.alpha)),
    fact("Tensors", facts.tensors ? formatCount(facts.tensors) : null),
    fact("Type", facts.dtype),
    fact("Parameters", facts.parameters ? formatCount(facts.parameters) : null),
    fact("Size", formatBytes(sizeBytes)),
    fact("Targets", targets, true));
}

const WORDS = { fail: "Fail", note: "Note" };

function findingRow(row) {
  return el("li", { class: "finding" },
    badge(row.outcome, WORDS[row.outcome]),
    el("div", {},
      el("div", {}, el("code", {}, row.path), " ", row.found),
      row.todo ? el("p", { class: "todo" }, icon("right"), row.todo) : null));
}

export function fileRow(path, size, leftOut = false) {
  return el("li", {},
    icon("file"),
    el("span", { class: leftOut ? "mono left-out" : "mono" }, path),
    el("span", { class: "muted" }, leftOut ? "left out" : formatBytes(size)));
}

export function drawPreview(place, found) {
  place.replaceChildren();
  const head = el("div", { class: "row preview-head" }, el("h3", {}, `${found.kept.length} file${found.kept.length === 1 ? "" : "s"}, ${formatBytes(found.sizeBytes)}`), el("span", { class: "small muted", "data-reading": true }));
  place.append(head);
  if (found.facts) place.append(factList(found.facts, found.sizeBytes));
  else if (found.archive) place.append(el("p", { class: "muted" }, "An archive is opened on the server, in a sandbox: its verdict names what is inside."));
  if (found.findings.length > 0) {
    place.append(el("ul", { class: "stack-s plain-list", "aria-label": "Findings before sending" }, ...found.findings.map(findingRow)));
  }
  const rows = [
    ...found.kept.map(({ path, file }) => fileRow(path, file.size)),
    ...found.ignored.map(({ path, file }) => fileRow(path, file.size, true)),
  ];
  place.append(el("ul", { class: "file-list", tabindex: "0", "aria-label": "Files" }, ...rows));
  place.hidden = false;
}
