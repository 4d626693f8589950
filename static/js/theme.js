// Automatic, light or dark. The dark set of variables is one style sheet whose media decides whether it applies.
// Dispatches "shoal:theme" on the document after each change, so that charts can read the variables again.

const MEDIA = { auto: "(prefers-color-scheme: dark)", light: "not all", dark: "all" };

function apply(choice) {
  document.getElementById("dark-tokens").media = MEDIA[choice];
  document.documentElement.dataset.theme = choice;
  for (const button of document.querySelectorAll("[data-theme-choice]")) {
    button.setAttribute("aria-pressed", String(button.dataset.themeChoice === choice));
  }
  // a new media is applied with the next style pass
  requestAnimationFrame(() => document.dispatchEvent(new CustomEvent("shoal:theme", { detail: choice })));
}

export function startTheme() {
  apply(document.documentElement.dataset.theme in MEDIA ? document.documentElement.dataset.theme : "auto");
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-theme-choice]");
    if (!button) return;
    try {
      localStorage.setItem("shoal-theme", button.dataset.themeChoice);
    } catch {
      // without storage the choice lasts as long as the page
    }
    apply(button.dataset.themeChoice);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    document.dispatchEvent(new CustomEvent("shoal:theme", { detail: document.documentElement.dataset.theme }));
  });
}
