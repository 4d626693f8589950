// Turns a drop or a file input into a flat list of {path, file}. A dropped folder is walked to its leaves.

const MOST_FILES = 500;

function readFile(entry) {
  return new Promise((resolve, reject) => entry.file(resolve, reject));
}

// A reader gives at most 100 entries a call, so it is asked until it gives none.
async function readEntries(directory) {
  const reader = directory.createReader();
  const found = [];
  for (;;) {
    const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (part.length === 0) return found;
    found.push(...part);
  }
}

async function walkEntry(entry, into) {
  if (into.length >= MOST_FILES) return;
  if (entry.isFile) {
    into.push({ path: entry.fullPath.replace(/^\//, ""), file: await readFile(entry) });
    return;
  }
  for (const child of await readEntries(entry)) await walkEntry(child, into);
}

// Entries must be taken before the first await: the browser empties the transfer after the event.
export async function filesOfDrop(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const plain = entries.length === 0 ? [...transfer.files] : [];
  const found = plain.map((file) => ({ path: file.name, file }));
  for (const entry of entries) await walkEntry(entry, found);
  return found;
}

export function filesOfInput(input) {
  return [...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}

export function nameOfChoice(items) {
  const top = new Set(items.map((item) => item.path.split("/")[0]));
  if (items.length > 0 && top.size === 1 && items[0].path.includes("/")) return [...top][0];
  if (items.length === 1) return items[0].path.replace(/\.(zip|tgz|tar\.gz|safetensors)$/i, "");
  return "";
}
