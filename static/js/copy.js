// Buttons that copy: data-copy holds the text itself, data-copy-from the id of the element that shows it.
import { showToast } from "./toasts.js";

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // plain http on another host has no clipboard interface
    const area = document.createElement("textarea");
    area.value = text;
    area.setAttribute("readonly", "");
    area.className = "visually-hidden";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export function startCopy() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-from]");
    if (!button) return;
    const source = button.dataset.copyFrom;
    const text = source ? document.getElementById(source).textContent : button.dataset.copy;
    const use = button.querySelector("use");
    const before = use.getAttribute("href");
    if (!(await copyText(text.trim()))) {
      showToast("warning", "The browser does not let this page copy. Select the text and press Ctrl+C.");
      return;
    }
    if (button.hasAttribute("data-copied")) return;
    button.setAttribute("data-copied", "");
    use.setAttribute("href", before.replace(/#.*/, "#check"));
    document.getElementById("announcer").textContent = "Copied";
    setTimeout(() => {
      button.removeAttribute("data-copied");
      use.setAttribute("href", before);
      document.getElementById("announcer").textContent = "";
    }, 1600);
  });
}
