// One way to show a dialog: Esc and a click beside it close it, and the focus goes back to where it was.
import { el } from "./dom.js";

export function showDialog(kind, label, ...children) {
  const before = document.activeElement;
  const dialog = el("dialog", { class: `dialog ${kind}`, "aria-label": label }, ...children);
  document.body.append(dialog);
  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.focus?.();
  });
  dialog.addEventListener("click", (event) => {
    const cancel = event.target.closest("[data-dialog-cancel]");
    // without scripts it is a link to the page before
    if (cancel) event.preventDefault();
    if (cancel || event.target === dialog) dialog.close();
  });
  dialog.showModal();
  return dialog;
}
