// Adapter pages: keep the header and the open tab as the server has them.
import { followAdapter } from "./live.js";

const live = document.getElementById("live");
if (live) followAdapter(live.dataset.live);
