// A WebSocket that comes back by itself: 1 s, 2 s, … 30 s with jitter, closed while the tab is hidden.
// onMessage gets parsed JSON; onState gets "live", "connecting", "offline" or "paused".

const FIRST_MS = 1000;
const LAST_MS = 30_000;

export function openSocket(path, { onMessage, onState = () => {}, onRefused = () => {} }) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  let socket = null;
  let timer = null;
  let wait = FIRST_MS;
  let ended = false;

  function connect() {
    if (ended || document.hidden) return;
    onState("connecting");
    socket = new WebSocket(`${scheme}://${location.host}${path}`);
    socket.addEventListener("open", () => {
      wait = FIRST_MS;
      onState("live");
    });
    socket.addEventListener("message", (event) => onMessage(JSON.parse(event.data)));
    socket.addEventListener("close", (event) => {
      socket = null;
      if (ended) return;
      // codes from 4000 are the server's own: no permission, no such thing; trying again cannot help
      if (event.code >= 4000) {
        ended = true;
        onState("offline");
        onRefused(event.code);
        return;
      }
      if (document.hidden) {
        onState("paused");
        return;
      }
      onState("offline");
      timer = setTimeout(connect, wait * (0.75 + Math.random() / 2));
      wait = Math.min(wait * 2, LAST_MS);
    });
  }

  function onVisibility() {
    clearTimeout(timer);
    if (document.hidden) socket?.close();
    else if (!socket) connect();
  }

  document.addEventListener("visibilitychange", onVisibility);
  connect();
  return {
    close() {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisibility);
      socket?.close();
    },
  };
}
