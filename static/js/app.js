// Loaded by every page.
import { startBehaviour } from "./behaviour.js";
import { startCopy } from "./copy.js";
import { startTheme } from "./theme.js";
import { startTimes } from "./times.js";
import { startToasts } from "./toasts.js";

startTheme();
startToasts();
startCopy();
startTimes();
startBehaviour();
