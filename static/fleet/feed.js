// The socket with a watchdog: a connection that says nothing for 7 s (a heartbeat comes every 2 s) is dead, whatever TCP thinks.
import { openSocket } from "../js/socket.js";

const SILENT_MS = 7000;

export function openFeed(path, { onMessage, onState }) {
  let socket = null;
  let heard = 0;

  function open() {
    heard = Date.now();
    socket = openSocket(path, {
      onState(state) {
        heard = Date.now();
        onState(state);
      },
      onMessage(message) {
        heard = Date.now();
        onMessage(message);
      },
      onRefused(code) {
        clearInterval(watch);
        if (code === 4401) location.reload();
      },
    });
  }

  let state = "connecting";
  const tell = onState;
  onState = (next) => {
    state = next;
    tell(next);
  };
  const watch = setInterval(() => {
    if (document.hidden || state !== "live" || Date.now() - heard < SILENT_MS) return;
    socket.close();
    onState("offline");
    open();
  }, 1000);
  open();
}
