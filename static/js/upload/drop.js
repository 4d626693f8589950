// The whole window takes drops. The cover shows where they go; leaving the window takes it away.
import { filesOfDrop } from "./walk.js";

function carriesFiles(event) {
  return event.dataTransfer !== null && [...event.dataTransfer.types].includes("Files");
}

export function acceptDrops(cover, onItems) {
  let depth = 0;
  const hide = () => {
    depth = 0;
    cover.hidden = true;
  };
  addEventListener("dragenter", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    depth += 1;
    cover.hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (!carriesFiles(event)) return;
    depth -= 1;
    if (depth <= 0) hide();
  });
  addEventListener("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "copy";
  });
  addEventListener("drop", async (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    hide();
    onItems(await filesOfDrop(event.dataTransfer));
  });
}
