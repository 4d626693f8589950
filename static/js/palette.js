// Ctrl/Cmd+K finds adapters, models, workers and pages; "?" lists the shortcuts. The list is the server's own HTML.
import { showDialog } from "./dialogs.js";
import { el, icon } from "./dom.js";

const WAIT_MS = 120;

class Palette {
  constructor(address) {
    this.address = address;
    this.list = el("div", { class: "palette-list", id: "palette-list", role: "listbox", "aria-label": "Found" });
    this.field = el("input", {
      class: "input", type: "text", role: "combobox", "aria-label": "Find an adapter, model, worker or page", "aria-expanded": "true",
      "aria-controls": "palette-list", "aria-autocomplete": "list", placeholder: "Adapter, model, worker, page", maxlength: "200", autocomplete: "off", spellcheck: "false",
    });
    this.dialog = showDialog("palette", "Find", el("div", { class: "search" }, icon("search"), this.field), this.list);
    this.dialog.addEventListener("keydown", (event) => this.onKey(event));
    this.field.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.load(), WAIT_MS);
    });
    this.list.addEventListener("pointermove", (event) => {
      const link = event.target.closest("a");
      if (link) this.choose(this.links.indexOf(link));
    });
    this.links = [];
    this.field.focus();
    this.load();
  }

  async load() {
    this.running?.abort();
    this.running = new AbortController();
    const { signal } = this.running;
    try {
      const wanted = this.field.value;
      const answer = await fetch(`${this.address}?q=${encodeURIComponent(wanted)}`, { headers: { "X-Requested-With": "fetch" }, signal });
      // a session that ended answers with the sign-in page
      if (!answer.ok || answer.redirected) throw new Error(`status ${answer.status}`);
      this.show(new DOMParser().parseFromString(await answer.text(), "text/html"), wanted);
    } catch {
      if (!signal.aborted) this.list.replaceChildren(el("p", { class: "muted places-none" }, "The server did not answer. Reload the page."));
    }
  }

  show(found, wanted) {
    this.loaded = wanted;
    this.list.replaceChildren(...[...found.body.children].map((node) => document.importNode(node, true)));
    this.links = [...this.list.querySelectorAll("a")];
    for (const node of this.list.querySelectorAll("ul, li")) node.setAttribute("role", "presentation");
    for (const link of this.links) {
      link.setAttribute("role", "option");
      link.tabIndex = -1;
    }
    this.choose(0);
    if (this.entered) this.go();
  }

  choose(number) {
    this.at = Math.max(0, Math.min(number, this.links.length - 1));
    this.links.forEach((link, place) => link.setAttribute("aria-selected", String(place === this.at)));
    const chosen = this.links[this.at];
    if (chosen) this.field.setAttribute("aria-activedescendant", chosen.id);
    else this.field.removeAttribute("aria-activedescendant");
    chosen?.scrollIntoView({ block: "nearest" });
  }

  go() {
    const chosen = this.links[this.at];
    if (chosen) location.assign(chosen.href);
  }

  onKey(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 5, PageUp: -5 };
    if (event.key in steps) {
      event.preventDefault();
      this.choose(this.at + steps[event.key]);
    } else if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      // what was typed last decides, not the list of the letters before
      this.entered = this.loaded !== this.field.value;
      if (this.entered) this.load();
      else this.go();
    }
  }
}

function showShortcuts() {
  const shortcuts = document.getElementById("shortcuts");
  if (!shortcuts) return;
  const close = el("button", { type: "button", class: "btn btn-quiet btn-s btn-icon", "data-dialog-cancel": true, "aria-label": "Close" }, icon("close"));
  const head = el("div", { class: "dialog-head" }, el("h2", {}, "Keyboard"), close);
  showDialog("", "Keyboard shortcuts", el("div", { class: "dialog-in" }, head, shortcuts.content.cloneNode(true)));
}

export function startPalette() {
  const opener = document.querySelector("[data-palette]");
  if (!opener) return;
  const address = new URL(opener.href).pathname;
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-palette]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    new Palette(address);
  });
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return;
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      event.preventDefault();
      new Palette(address);
    } else if (event.key === "?" && !event.target.closest("input, textarea, select, [contenteditable]")) {
      event.preventDefault();
      showShortcuts();
    }
  });
}
