// Uploads that were interrupted: the server keeps their bytes for a day, whatever became of the page.
import { ask, askJson } from "./requests.js";

export async function listUnfinished(api) {
  const found = [];
  let url = api;
  while (url) {
    const page = await askJson("GET", url);
    found.push(...page.results);
    url = page.next;
  }
  return found;
}

// The server drew the list; discarding ends the uploads of one row and takes the row away.
export function prepareUnfinished(card, api) {
  if (!card) return;
  card.addEventListener("click", async (event) => {
    const pressed = event.target.closest("[data-discard]");
    if (!pressed) return;
    pressed.disabled = true;
    const ids = pressed.dataset.discard.split(" ");
    await Promise.allSettled(ids.map((id) => ask("DELETE", `${api}${id}/`, { headers: { "Tus-Resumable": "1.0.0" } })));
    pressed.closest("li").remove();
    if (!card.querySelector("li")) card.hidden = true;
  });
}
