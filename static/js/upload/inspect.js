// What the browser can say about an upload before it is sent: facts for the preview, and findings with the
// server's codes. The server decides; this only saves a person the wait.
import { formatBytes } from "../format.js";
import { HeadError, readTensors } from "./safetensors.js";

const CONFIG = "adapter_config.json";
const MOST_CONFIG_BYTES = 1_000_000;
const ARCHIVE = /\.(zip|tar\.gz|tgz)$/i;
const FOREIGN_ARCHIVE = /\.(rar|7z|tar\.bz2|tar\.xz|tar)$/i;
const PICKLE = /\.(bin|pt|pth|ckpt|pkl|pickle)$/i;
const JUNK = /(^|\/)(__MACOSX\/|\._|\.DS_Store$|\.git\/|Thumbs\.db$)/;
const TRAINING = /(^|\/)(optimizer\.pt|scheduler\.pt|rng_state.*\.pth|training_args\.bin|trainer_state\.json)$/;
const LFS_START = "version https://git-lfs.github.com/spec/";

function baseName(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}

async function isLfsPointer(file) {
  if (file.size > 1024 || file.size < LFS_START.length) return false;
  return (await file.slice(0, LFS_START.length).text()) === LFS_START;
}

function finding(outcome, code, path, found, todo) {
  return { outcome, code, path, found, todo };
}

async function checkFile({ path, file }) {
  if (file.size === 0) {
    return finding("fail", "TRUNCATED", path, "0 bytes.", "Export the adapter again, then choose it anew.");
  }
  if (await isLfsPointer(file)) {
    return finding("fail", "LFS_POINTER", path, "A git-lfs pointer of a few bytes, not the file itself.",
      "Run “git lfs pull” in that folder, then choose it again.");
  }
  if (FOREIGN_ARCHIVE.test(path)) {
    return finding("fail", "ARCHIVE_UNSUPPORTED", path, "This kind of archive is not read.", "Use .zip or .tar.gz, or drop the folder itself.");
  }
  return null;
}

function checkPickle(items) {
  const pickle = items.find(({ path }) => PICKLE.test(path) && !TRAINING.test(path));
  if (!pickle) return null;
  const todo = "Save with model.save_pretrained(folder, safe_serialization=True) and choose the .safetensors file.";
  if (items.some(({ path }) => path.endsWith(".safetensors"))) {
    return finding("note", "FILES_IGNORED", pickle.path, "A pickle file beside the safetensors file; it is ignored.", "");
  }
  return finding("fail", "PICKLE_UNSAFE", pickle.path, "A pickle file can run code when it is opened, so it is refused unless it holds tensors only.", todo);
}

async function readConfig(item) {
  if (item.file.size > MOST_CONFIG_BYTES) return { error: `${formatBytes(item.file.size)} is too much for a configuration.` };
  try {
    const config = JSON.parse(await item.file.text());
    if (config === null || typeof config !== "object" || Array.isArray(config)) return { error: "It is JSON, but no object." };
    return { config };
  } catch {
    return { error: "It is not JSON." };
  }
}

function shortTargets(tensors) {
  const names = tensors.map((tensor) => /\.([^.]+)\.lora_[AB]\b/.exec(tensor.name)?.[1]).filter(Boolean);
  return [...new Set(names)].sort();
}

function ranksOf(tensors) {
  return tensors.filter((tensor) => /\.lora_A\b/.test(tensor.name) && tensor.shape.length === 2).map((tensor) => tensor.shape[0]);
}

function factsOf(config, tensors) {
  const ranks = ranksOf(tensors);
  const dtypes = [...new Set(tensors.map((tensor) => tensor.dtype))];
  return {
    base: config?.base_model_name_or_path || null,
    rank: ranks.length > 0 ? Math.max(...ranks) : config?.r ?? null,
    ranks: [...new Set(ranks)].sort((a, b) => a - b),
    alpha: config?.lora_alpha ?? null,
    targets: shortTargets(tensors),
    tensors: tensors.length,
    parameters: tensors.reduce((sum, tensor) => sum + tensor.parameters, 0),
    dtype: dtypes.join(", "),
  };
}

async function inspectWeights(item, findings) {
  try {
    const tensors = await readTensors(item.file);
    if (!tensors.some((tensor) => /lora_[AB]/.test(tensor.name))) {
      const kohya = tensors.some((tensor) => /lora_(up|down)/.test(tensor.name));
      findings.push(kohya
        ? finding("fail", "FORMAT_UNSUPPORTED", item.path, "Tensors are named lora_up and lora_down, as kohya and diffusers write them.", "Export in PEFT’s format: lora_A and lora_B.")
        : finding("note", "FULL_MODEL", item.path, "No LoRA tensors are in this file.", "Check that this is the adapter and not the merged model."));
    }
    return tensors;
  } catch (error) {
    if (!(error instanceof HeadError)) throw error;
    findings.push(finding("fail", error.code, item.path, `The file cannot be whole: ${error.message}.`, "Copy or export it again."));
    return [];
  }
}

// knownBases are the ids of registered base models. Gives {facts or null, findings, archive, kept, ignored, sizeBytes}
export async function inspect(items, knownBases) {
  const kept = items.filter(({ path }) => !JUNK.test(path));
  const ignored = items.filter(({ path }) => JUNK.test(path));
  const findings = (await Promise.all(kept.map(checkFile))).filter(Boolean);
  const broken = new Set(findings.map((row) => row.path));
  const archive = kept.some(({ path }) => ARCHIVE.test(path));
  const pickle = checkPickle(kept);
  if (pickle && !broken.has(pickle.path)) findings.push(pickle);

  const configItem = kept.find(({ path }) => baseName(path) === CONFIG && !broken.has(path));
  const weightsItem = kept.find(({ path }) => path.endsWith(".safetensors") && !broken.has(path));
  let config = null;
  if (configItem) {
    const read = await readConfig(configItem);
    config = read.config ?? null;
    if (read.error) findings.push(finding("fail", "CONFIG_INVALID", configItem.path, read.error, "Copy the file from the training run again."));
  } else if (!archive && kept.length > 0 && !kept.some(({ path }) => baseName(path) === CONFIG)) {
    findings.push(finding("note", "CONFIG_MISSING", CONFIG, "No adapter_config.json was chosen.", "Add it, so that rank, alpha and base model are known."));
  }
  const base = config?.base_model_name_or_path;
  if (base && !knownBases.includes(base)) {
    findings.push(finding("note", "BASE_MODEL_UNKNOWN", CONFIG, `The base model ${base} is not registered here.`, "You will be asked which registered base model it was trained on."));
  }
  const tensors = weightsItem ? await inspectWeights(weightsItem, findings) : [];
  return {
    facts: config || tensors.length > 0 ? factsOf(config, tensors) : null,
    findings,
    archive,
    kept,
    ignored,
    sizeBytes: kept.reduce((sum, { file }) => sum + file.size, 0),
  };
}
