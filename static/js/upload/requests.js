// Requests of an upload: with progress, with a way to stop them, and with refusals that say whether to try again.
import { csrfToken } from "../dom.js";

// another request holds the upload, the server restarts, it has no room this moment, a chunk broke on the way
const PASSING = new Set([0, 423, 429, 460, 500, 502, 503, 504]);

export class UploadError extends Error {
  constructor(message, { code = "", param = "", hint = "", requestId = "", status = 0, stopped = false } = {}) {
    super(message);
    Object.assign(this, { code, param, hint, requestId, status, stopped });
  }

  // whether the same again may succeed
  get passing() {
    return !this.stopped && (PASSING.has(this.status) || this.code === "offset_mismatch");
  }
}

function refusalOf(request) {
  const requestId = request.getResponseHeader("x-request-id") ?? "";
  const status = request.status;
  try {
    const { error } = JSON.parse(request.responseText);
    return new UploadError(error.message, { ...error, requestId, status });
  } catch {
    return new UploadError(`The server answered ${status}.`, { requestId, status });
  }
}

// Gives the finished XMLHttpRequest. signal stops it; onProgress gets the bytes of the body sent so far.
export function ask(method, url, { headers = {}, body = null, signal = null, onProgress = null } = {}) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const stop = () => request.abort();
    const end = (settle, value) => {
      signal?.removeEventListener("abort", stop);
      settle(value);
    };
    request.open(method, url);
    request.setRequestHeader("Accept", "application/json");
    if (method !== "GET" && method !== "HEAD") request.setRequestHeader("X-CSRFToken", csrfToken());
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    if (onProgress) request.upload.addEventListener("progress", (event) => onProgress(event.loaded));
    request.addEventListener("load", () => {
      if (request.status >= 200 && request.status < 300) end(resolve, request);
      else end(reject, refusalOf(request));
    });
    request.addEventListener("error", () => end(reject, new UploadError("The connection was lost.")));
    request.addEventListener("abort", () => end(reject, new UploadError("Stopped.", { stopped: true })));
    if (signal?.aborted) {
      end(reject, new UploadError("Stopped.", { stopped: true }));
      return;
    }
    signal?.addEventListener("abort", stop);
    request.send(body);
  });
}

export async function askJson(method, url, body = null, more = {}) {
  const headers = body === null ? {} : { "Content-Type": "application/json" };
  const request = await ask(method, url, { ...more, headers, body: body === null ? null : JSON.stringify(body) });
  return JSON.parse(request.responseText);
}
