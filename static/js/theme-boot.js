// Runs before the first paint, so that a stored theme never flashes. Not a module: modules are deferred.
(function () {
  "use strict";
  document.documentElement.classList.add("js");
  let chosen = "auto";
  try {
    chosen = localStorage.getItem("shoal-theme") || "auto";
  } catch {
    // storage may be forbidden; the system's theme is right then
  }
  const dark = document.getElementById("dark-tokens");
  if (dark && chosen === "dark") dark.media = "all";
  if (dark && chosen === "light") dark.media = "not all";
  document.documentElement.dataset.theme = chosen;
})();
