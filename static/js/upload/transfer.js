// One upload as one multipart request with progress. A file's own progress follows from the order in the body.

const WINDOW_MS = 4000;

export function buildBody({ name, promote, message, items }) {
  const body = new FormData();
  body.append("name", name);
  if (promote) body.append("promote", "true");
  if (message) body.append("message", message);
  // the path travels beside each file: a browser's multipart file name loses its folder on the way
  for (const { path } of items) body.append("paths[]", path);
  for (const { path, file } of items) body.append("files[]", file, path.slice(path.lastIndexOf("/") + 1));
  return body;
}

// Bytes/s over the last seconds, so that the time left follows the line as it is now.
export class Speed {
  constructor() {
    this.samples = [];
  }

  add(sentBytes, nowMs) {
    this.samples.push({ sentBytes, nowMs });
    while (this.samples.length > 2 && nowMs - this.samples[0].nowMs > WINDOW_MS) this.samples.shift();
  }

  get bytesPerSecond() {
    const first = this.samples[0];
    const last = this.samples.at(-1);
    if (!first || last.nowMs === first.nowMs) return null;
    return ((last.sentBytes - first.sentBytes) / (last.nowMs - first.nowMs)) * 1000;
  }
}

export function sentOfEach(items, sentBytes) {
  let before = 0;
  return items.map(({ file }) => {
    const sent = Math.min(Math.max(sentBytes - before, 0), file.size);
    before += file.size;
    return sent;
  });
}

export class UploadError extends Error {
  constructor(message, { code = "", param = "", hint = "", requestId = "" } = {}) {
    super(message);
    Object.assign(this, { code, param, hint, requestId });
  }
}

function errorOf(request) {
  const requestId = request.getResponseHeader("x-request-id") ?? "";
  try {
    const { error } = JSON.parse(request.responseText);
    return new UploadError(error.message, { ...error, requestId });
  } catch {
    return new UploadError(`The server answered ${request.status}.`, { requestId });
  }
}

// {done: Promise of the parsed answer, cancel()}
export function send(url, body, { csrf, onProgress }) {
  const request = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    request.open("POST", url);
    request.setRequestHeader("X-CSRFToken", csrf);
    request.setRequestHeader("Accept", "application/json");
    request.upload.addEventListener("progress", (event) => onProgress(event.loaded, event.total));
    request.addEventListener("load", () => {
      if (request.status >= 200 && request.status < 300) resolve(JSON.parse(request.responseText));
      else reject(errorOf(request));
    });
    request.addEventListener("error", () => reject(new UploadError("The connection was lost. Nothing was kept; send it again.")));
    request.addEventListener("abort", () => reject(new UploadError("Cancelled. Nothing was kept.", { code: "cancelled" })));
  });
  request.send(body);
  return { done, cancel: () => request.abort() };
}
