// SHA-256 (FIPS 180-4) of a file, piece by piece: the browser's own digest wants the whole file in memory, and is
// there on secure pages only.

const K = new Uint32Array(64);
const START = new Uint32Array(8);
const BLOCK = 64;
const PIECE_BYTES = 2 * 1024 * 1024;
// up to here a file is read at once where the browser can digest it: five times as quick
const WHOLE_BYTES = 128 * 1024 * 1024;

// the constants are fractional parts of roots of the first primes
(function fillConstants() {
  let found = 0;
  for (let candidate = 2; found < 64; candidate += 1) {
    let prime = true;
    for (let factor = 2; factor * factor <= candidate; factor += 1) prime = prime && candidate % factor !== 0;
    if (!prime) continue;
    if (found < 8) START[found] = (Math.sqrt(candidate) % 1) * 0x100000000;
    K[found] = (Math.cbrt(candidate) % 1) * 0x100000000;
    found += 1;
  }
})();

export class Sha256 {
  constructor() {
    this.state = START.slice();
    this.words = new Uint32Array(64);
    this.rest = new Uint8Array(BLOCK);
    this.restBytes = 0;
    this.totalBytes = 0;
  }

  update(bytes) {
    this.totalBytes += bytes.length;
    let at = 0;
    if (this.restBytes > 0) {
      at = Math.min(BLOCK - this.restBytes, bytes.length);
      this.rest.set(bytes.subarray(0, at), this.restBytes);
      this.restBytes += at;
      if (this.restBytes < BLOCK) return this;
      this.mix(this.rest, 0);
      this.restBytes = 0;
    }
    for (; at + BLOCK <= bytes.length; at += BLOCK) this.mix(bytes, at);
    this.rest.set(bytes.subarray(at));
    this.restBytes = bytes.length - at;
    return this;
  }

  digest() {
    const padding = new Uint8Array((this.restBytes < 56 ? 56 : 120) - this.restBytes + 8);
    padding[0] = 0x80;
    const view = new DataView(padding.buffer);
    view.setUint32(padding.length - 8, Math.floor(this.totalBytes / 0x20000000));
    view.setUint32(padding.length - 4, (this.totalBytes * 8) >>> 0);
    this.update(padding);
    const found = new Uint8Array(32);
    this.state.forEach((word, index) => new DataView(found.buffer).setUint32(index * 4, word));
    return found;
  }

  mix(bytes, at) {
    const w = this.words;
    for (let i = 0, from = at; i < 16; i += 1, from += 4) {
      w[i] = (bytes[from] << 24) | (bytes[from + 1] << 16) | (bytes[from + 2] << 8) | bytes[from + 3];
    }
    for (let i = 16; i < 64; i += 1) {
      const x = w[i - 15];
      const y = w[i - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
    }
    const s = this.state;
    let a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
    for (let i = 0; i < 64; i += 1) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const one = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g; g = f; f = e; e = (d + one) | 0; d = c; c = b; b = a; a = (one + two) | 0;
    }
    s[0] += a; s[1] += b; s[2] += c; s[3] += d; s[4] += e; s[5] += f; s[6] += g; s[7] += h;
  }
}

export function hex(bytes) {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function base64(bytes) {
  return btoa(String.fromCharCode(...bytes));
}

// Of a chunk that is in memory anyway; the browser's own is quicker where it is there.
export async function digestOf(bytes) {
  if (globalThis.crypto?.subtle) return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return new Sha256().update(bytes).digest();
}

// onRead gets the bytes read so far; between two pieces the page stays alive.
export async function sha256OfFile(file, onRead = () => {}) {
  if (file.size <= (globalThis.crypto?.subtle ? WHOLE_BYTES : PIECE_BYTES)) return hex(await digestOf(new Uint8Array(await file.arrayBuffer())));
  const hash = new Sha256();
  for (let at = 0; at < file.size; at += PIECE_BYTES) {
    hash.update(new Uint8Array(await file.slice(at, at + PIECE_BYTES).arrayBuffer()));
    onRead(Math.min(at + PIECE_BYTES, file.size));
  }
  return hex(hash.digest());
}
