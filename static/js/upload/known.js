// Content that the team has already: recognised by hash, said with a link, not sent.
import { el, icon } from "../dom.js";
import { askJson } from "./requests.js";
import { sha256OfFile } from "./sha256.js";

// Gives each item its sha256; onRead gets bytes read and bytes in all. Ends early when isStale() says so.
export async function hashItems(items, { onRead, isStale }) {
  const total = items.reduce((sum, { file }) => sum + file.size, 0);
  let before = 0;
  for (const item of items) {
    if (isStale()) return false;
    item.sha256 ??= await sha256OfFile(item.file, (bytes) => onRead(before + bytes, total));
    before += item.file.size;
    onRead(before, total);
  }
  return !isStale();
}

// The version of the team that consists of exactly these files, or null.
export async function findKnown(api, name, items) {
  const files = items.map(({ path, sha256, file }) => ({ path, sha256, size_bytes: file.size }));
  const { versions } = await askJson("POST", `${api}known/`, { name, files });
  return versions[0] ?? null;
}

export function drawKnown(place, version, address) {
  const [team, adapter] = version.name.split("/");
  const at = `/adapters/${encodeURIComponent(team)}/${encodeURIComponent(adapter)}/versions/#v${version.number}`;
  place.replaceChildren(el("div", { class: "notice notice-ok" }, icon("check-circle"),
    el("div", {}, el("p", { class: "strong" }, "Already ", el("a", { href: at }, `version ${version.number} of ${version.name}`), "."),
      el("p", {}, version.name === address
        ? "The same bytes are there; nothing needs to be sent."
        : "Under this name it becomes a version of its own, without sending the bytes again."))));
  place.hidden = false;
}
