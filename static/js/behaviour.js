// Small behaviours that many pages share, all by data attributes and delegation, none needed to use the page.
import { showDialog } from "./dialogs.js";

function startMenus() {
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
}

// A link marked data-dialog leads to a confirmation page; with scripts its form opens in a dialog on this page.
async function openDialog(link) {
  const answer = await fetch(link.href, { headers: { "X-Requested-With": "fetch" }, credentials: "same-origin" });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const form = page.querySelector("[data-dialog-body]");
  if (!answer.ok || !form) {
    location.assign(link.href);
    return;
  }
  showDialog("", form.querySelector("#dialog-title").textContent, document.importNode(form, true));
}

function startDialogs() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-dialog]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    openDialog(link).catch(() => location.assign(link.href));
  });
}

// Groups of snippets show one at a time; without scripts all are shown below each other.
function choose(group, name) {
  for (const tab of group.querySelectorAll("[role=tab]")) {
    const chosen = tab.dataset.shows === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
  }
  for (const panel of group.querySelectorAll("[role=tabpanel]")) panel.hidden = panel.dataset.panel !== name;
}

function rememberedChoice(group) {
  try {
    return localStorage.getItem(`shoal-choice-${group.dataset.switch}`);
  } catch {
    return null;
  }
}

export function prepareSwitches(root) {
  for (const group of root.querySelectorAll("[data-switch]")) {
    const tabs = [...group.querySelectorAll("[role=tab]")];
    const remembered = rememberedChoice(group);
    const first = tabs.find((tab) => tab.dataset.shows === remembered) ?? tabs[0];
    group.querySelector("[role=tablist]").hidden = false;
    choose(group, first.dataset.shows);
  }
}

function pick(tab) {
  const group = tab.closest("[data-switch]");
  choose(group, tab.dataset.shows);
  try {
    localStorage.setItem(`shoal-choice-${group.dataset.switch}`, tab.dataset.shows);
  } catch {
    // the choice is a convenience
  }
}

function startSwitches() {
  prepareSwitches(document);
  document.addEventListener("htmx:load", (event) => prepareSwitches(event.detail.elt));
  document.addEventListener("click", (event) => {
    const tab = event.target.closest("[data-switch] [role=tab]");
    if (tab) pick(tab);
  });
  document.addEventListener("keydown", (event) => {
    const tab = event.target.closest?.("[data-switch] [role=tab]");
    if (!tab || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    const tabs = [...tab.closest("[role=tablist]").querySelectorAll("[role=tab]")];
    const step = event.key === "ArrowRight" ? 1 : -1;
    const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
    next.focus();
    pick(next);
  });
}

// "/" goes to the search field of the page, as in most tools.
function startShortcuts() {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    const field = document.querySelector("input[type=search]");
    if (!field) return;
    event.preventDefault();
    field.focus();
  });
}

// A choice that is the whole question is sent at once; without scripts the button beside it does.
function startChoices() {
  document.addEventListener("change", (event) => {
    if (event.target.dataset?.submitOnChange !== undefined) event.target.form.requestSubmit();
  });
}

export function startBehaviour() {
  startChoices();
  startMenus();
  startDialogs();
  startSwitches();
  startShortcuts();
}
