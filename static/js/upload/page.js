// The upload page: choose or drop, look, send, watch the verdict. Without this script the plain form does the same.
import { formatBytes } from "../format.js";
import { followAdapter } from "../live.js";
import { showToast } from "../toasts.js";
import { prepareSwitches } from "../behaviour.js";
import { acceptDrops } from "./drop.js";
import { inspect } from "./inspect.js";
import { drawPreview } from "./preview.js";
import { ProgressCard } from "./progress.js";
import { Batch } from "./batch.js";
import { drawKnown, findKnown, hashItems } from "./known.js";
import { listUnfinished, prepareUnfinished } from "./unfinished.js";
import { filesOfInput, nameOfChoice } from "./walk.js";

const form = document.getElementById("upload-form");
const nameField = document.getElementById("adapter");
const sendButton = document.getElementById("send");
const clearButton = document.getElementById("clear");
const preview = document.getElementById("preview");
const zone = document.getElementById("drop-zone");
const knownPlace = document.getElementById("known");
const unfinishedCard = document.getElementById("unfinished");
const verdictPlace = document.getElementById("verdict-place");

let chosen = null;
// resolves when every chosen file has its hash
let hashed = Promise.resolve(false);
let socket = null;
let nameTouched = nameField !== null && nameField.value !== "";

function teamName() {
  return form.elements.team.value;
}

function fullName() {
  return `${teamName()}/${nameField.value.trim()}`;
}

function suggestName(items) {
  const suggestion = nameOfChoice(items).toLowerCase().replace(/[^a-z0-9._-]+/g, "-").replace(/^[^a-z0-9]+/, "").slice(0, 63);
  if (!nameTouched && suggestion && !/^(adapter_model|adapter|checkpoint.*)$/.test(suggestion)) nameField.value = suggestion;
}

// The commands beside the form name what the form names.
function fillSnippets() {
  const shown = nameField.value.trim() ? fullName() : `${teamName()}/my-adapter`;
  for (const panel of document.querySelectorAll("[data-names]")) {
    const text = panel.querySelector("pre");
    text.textContent = text.textContent.replaceAll(panel.dataset.names, shown);
    panel.dataset.names = shown;
  }
}

function setSendWord() {
  const doubtful = chosen?.findings.some((row) => row.outcome === "fail");
  sendButton.querySelector("[data-word]").textContent = doubtful ? "Upload anyway" : "Upload";
  sendButton.classList.toggle("btn-primary", !doubtful);
}

async function choose(items) {
  if (items.length === 0) {
    showToast("warning", "Nothing readable was in that drop. An empty folder?");
    return;
  }
  chosen = await inspect(items, form.dataset.bases.split(" "));
  suggestName(items);
  fillSnippets();
  drawPreview(preview, chosen);
  zone.classList.add("filled");
  clearButton.hidden = false;
  setSendWord();
  preview.scrollIntoView({ block: "nearest" });
  (nameField.value ? sendButton : nameField).focus();
  recognise();
}

// Hashes what was chosen while the person still reads, and says when it is known already.
function recognise() {
  const mine = chosen;
  const reading = preview.querySelector("[data-reading]");
  knownPlace.hidden = true;
  hashed = hashItems(mine.kept, {
    isStale: () => chosen !== mine,
    onRead: (bytes, total) => {
      reading.textContent = bytes < total ? `Reading ${formatBytes(bytes)} of ${formatBytes(total)}` : "";
    },
  });
  // a file that cannot be read is named when it is sent; a name that is not allowed is refused then too
  hashed.then((whole) => (whole ? showKnown(mine) : null)).catch(() => {});
}

async function showKnown(mine) {
  const version = await findKnown(form.dataset.api, nameField.value.trim() ? fullName() : "", mine.kept);
  if (chosen !== mine) return null;
  if (version) drawKnown(knownPlace, version, fullName());
  else knownPlace.hidden = true;
  return version;
}

function clear() {
  chosen = null;
  preview.hidden = knownPlace.hidden = true;
  preview.replaceChildren();
  zone.classList.remove("filled");
  clearButton.hidden = true;
  for (const input of form.querySelectorAll("input[type=file]")) input.value = "";
  setSendWord();
}

function verdictAddress(name, number) {
  return form.dataset.verdict.replace("team/adapter", name).replace("/0/", `/${number}/`);
}

// What the server renders replaces the place below the form; from there on htmx keeps it fresh.
async function showVerdict(name, number) {
  const answer = await fetch(verdictAddress(name, number), { credentials: "same-origin" });
  if (!answer.ok) throw new Error(`verdict answered ${answer.status}`);
  verdictPlace.innerHTML = await answer.text();
  verdictPlace.hidden = false;
  window.htmx.process(verdictPlace);
  prepareSwitches(verdictPlace);
  followVerdict();
}

function followVerdict() {
  const verdict = document.getElementById("verdict");
  socket?.close();
  socket = verdict?.hasAttribute("data-waiting") ? followAdapter(verdict.dataset.live) : null;
}

async function upload() {
  const name = fullName();
  const mine = chosen;
  const api = form.dataset.api;
  const card = new ProgressCard(document.getElementById("progress"), name);
  sendButton.disabled = true;
  verdictPlace.hidden = true;
  try {
    await hashed;
    const wishes = { message: form.elements.message.value.trim(), promote: promotion() };
    const rows = await evaluationItems();
    const known = await findKnown(api, name, mine.kept);
    if (known?.name === name && !wishes.promote && rows.length === 0) {
      drawKnown(knownPlace, known, name);
      knownPlace.scrollIntoView({ block: "nearest" });
      return;
    }
    const unfinished = await listUnfinished(api);
    const batch = new Batch({ api, name, items: [...mine.kept, ...rows], wishes, unfinished, onChange: () => card.draw() });
    card.follow(batch);
    form.hidden = true;
    if (unfinishedCard) unfinishedCard.hidden = true;
    scrollTo({ top: 0 });
    const version = await batch.run();
    card.finish();
    if (version) {
      history.replaceState(null, "", `${form.dataset.page}?watch=${encodeURIComponent(`${name}@${version.number}`)}`);
      clear();
      await showVerdict(name, version.number);
    }
  } catch (error) {
    card.fail(error);
  } finally {
    form.hidden = false;
    sendButton.disabled = false;
  }
}

function promotion() {
  if (form.elements.if_better.checked) return "if_better";
  return form.elements.promote.checked ? "true" : "";
}

// Rows to measure the version on travel beside its files and are none of them.
async function evaluationItems() {
  const items = [...form.elements.evaluation.files].map((file) => ({ path: file.name, file, role: "evaluation" }));
  await hashItems(items, { onRead: () => {}, isStale: () => false });
  return items;
}

function start() {
  zone.querySelector(".plain-inputs").classList.add("visually-hidden");
  zone.querySelector(".pick").hidden = false;
  for (const input of form.querySelectorAll(".plain-inputs input[type=file]")) {
    input.tabIndex = -1;
    const take = () => input.files.length > 0 && choose(filesOfInput(input));
    input.addEventListener("change", take);
    // chosen while this script was still on its way
    take();
  }
  for (const button of form.querySelectorAll("[data-pick]")) {
    button.addEventListener("click", () => document.getElementById(button.dataset.pick).click());
  }
  nameField.addEventListener("input", () => {
    nameTouched = nameField.value !== "";
    fillSnippets();
  });
  form.elements.team.addEventListener("change", fillSnippets);
  clearButton.addEventListener("click", clear);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (chosen === null) {
      showToast("warning", "Choose a folder, files or an archive first, or drop them here.");
      return;
    }
    upload();
  });
  prepareUnfinished(unfinishedCard, form.dataset.api);
  acceptDrops(document.getElementById("drop-cover"), choose);
  fillSnippets();
  followVerdict();
}

if (form) start();
