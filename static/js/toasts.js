// Short answers in the corner. Good news leaves by itself, errors stay until closed.
import { el, icon } from "./dom.js";

const ICONS = { success: "check-circle", info: "info", warning: "alert", error: "fail" };
const STAY_MS = 6000;

function dismissLater(toast) {
  if (toast.matches(".toast-error, .toast-warning")) return;
  let timer = setTimeout(() => toast.remove(), STAY_MS);
  toast.addEventListener("pointerenter", () => clearTimeout(timer));
  toast.addEventListener("pointerleave", () => {
    timer = setTimeout(() => toast.remove(), STAY_MS);
  });
}

export function showToast(kind, text) {
  const close = el("button", { type: "button", class: "btn btn-quiet btn-s btn-icon", "data-close-toast": "", "aria-label": "Close" }, icon("close"));
  const toast = el("li", { class: `toast toast-${kind}`, role: kind === "error" ? "alert" : "status" }, icon(ICONS[kind]), el("p", {}, text), close);
  document.getElementById("toasts").append(toast);
  dismissLater(toast);
}

export function startToasts() {
  for (const toast of document.querySelectorAll(".toast")) dismissLater(toast);
  document.addEventListener("click", (event) => {
    event.target.closest("[data-close-toast]")?.closest(".toast").remove();
  });
}
