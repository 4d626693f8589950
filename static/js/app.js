// Loaded by every page.
import { startBehaviour } from "./behaviour.js";
import { startCopy } from "./copy.js";
import { startPalette } from "./palette.js";
import { startTheme } from "./theme.js";
import { startTimes } from "./times.js";
import { startToasts } from "./toasts.js";

startTheme();
startToasts();
startCopy();
startTimes();
startBehaviour();
startPalette();
