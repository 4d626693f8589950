// Follows one adapter over its WebSocket and tells htmx: each message becomes "shoal:changed" on the body, and the
// parts of the page that listen fetch themselves again. The server's HTML is the only rendering.
import { openSocket } from "./socket.js";

const WORDS = { live: "Updates live", connecting: "Connecting", offline: "Offline, trying again", paused: "Paused" };
const DOTS = { live: "dot-ok", connecting: "dot-busy", offline: "dot-note", paused: "" };

function show(state) {
  const pill = document.getElementById("connection");
  if (!pill) return;
  pill.hidden = false;
  pill.querySelector(".dot").className = `dot ${DOTS[state]}`;
  pill.querySelector("[data-word]").textContent = WORDS[state];
}

export function followAdapter(path) {
  let first = true;
  return openSocket(path, {
    onState: show,
    onMessage(message) {
      // the snapshot of the first connection is what the page was rendered from; a later one ends a gap
      const known = first && message.type === "snapshot" && !document.querySelector("[data-waiting]");
      first = false;
      if (!known) document.body.dispatchEvent(new CustomEvent("shoal:changed", { detail: message }));
    },
  });
}
