// Reads the head of a safetensors file: 8 bytes little-endian length, then JSON. Only the head is read, whatever
// the file's size. Format: https://huggingface.co/docs/safetensors#format

const LENGTH_BYTES = 8;
const MOST_HEAD_BYTES = 25_000_000;
const WIDTHS = { F64: 8, F32: 4, F16: 2, BF16: 2, I64: 8, I32: 4, I16: 2, I8: 1, U8: 1, BOOL: 1, F8_E4M3: 1, F8_E5M2: 1 };

export class HeadError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

async function readHead(file) {
  if (file.size < LENGTH_BYTES) throw new HeadError("TRUNCATED", `${file.size} bytes, a safetensors file has at least 8`);
  const length = Number(new DataView(await file.slice(0, LENGTH_BYTES).arrayBuffer()).getBigUint64(0, true));
  if (length > file.size - LENGTH_BYTES) {
    throw new HeadError("TRUNCATED", `the header should have ${length} bytes, the file has ${file.size}`);
  }
  if (length > MOST_HEAD_BYTES) throw new HeadError("HEADER_INVALID", `a header of ${length} bytes is no adapter’s`);
  const text = await file.slice(LENGTH_BYTES, LENGTH_BYTES + length).text();
  try {
    return { head: JSON.parse(text), dataBytes: file.size - LENGTH_BYTES - length };
  } catch {
    throw new HeadError("HEADER_INVALID", "the header is not JSON");
  }
}

// Tensors as {name, dtype, shape, parameters}; throws HeadError with the code the server would give.
export async function readTensors(file) {
  const { head, dataBytes } = await readHead(file);
  const tensors = [];
  let end = 0;
  for (const [name, entry] of Object.entries(head)) {
    if (name === "__metadata__") continue;
    if (!Array.isArray(entry?.shape) || !Array.isArray(entry?.data_offsets)) {
      throw new HeadError("HEADER_INVALID", `tensor ${name} has no shape or no offsets`);
    }
    end = Math.max(end, entry.data_offsets[1]);
    const parameters = entry.shape.reduce((product, size) => product * size, 1);
    tensors.push({ name, dtype: entry.dtype, shape: entry.shape, parameters });
  }
  if (end > dataBytes) {
    throw new HeadError("TRUNCATED", `the header promises ${end} bytes of tensors, the file has ${dataBytes}`);
  }
  return tensors;
}

export function knownDtype(dtype) {
  return dtype in WIDTHS;
}
