// The model: its ONNX files run by onnxruntime-web, one file at a time and on one thread.

import * as ort from "onnxruntime-web/wasm";

ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";
// Small weights become float32 once, at the start of a session, in place of at each run.
const ONCE = { extra: { session: { disable_quant_qdq: "1" } } };

export class Model {
  static async load(address) {
    const answer = await fetch(new URL("model.json", address));
    if (!answer.ok) throw new Error(`model.json cannot be read: ${answer.status}`);
    return new Model(address, await answer.json());
  }

  constructor(address, about) {
    // The runtime lies beside the page.
    ort.env.wasm.wasmPaths = new URL(".", document.baseURI).href;
    Object.assign(this, about, { address });
    this.sessions = new Map();
    this.last = Promise.resolve();
  }

  has(name) {
    return name in this.files;
  }

  // A session starts when it is first needed.
  session(name) {
    if (!this.sessions.has(name)) {
      const file = new URL(this.files[name], this.address).href;
      this.sessions.set(name, ort.InferenceSession.create(file, ONCE));
    }
    return this.sessions.get(name);
  }

  // Run a file on one input of rows; returns {name: {data, dims}}.
  run(name, input, data, shape) {
    const job = this.last.then(async () => {
      const session = await this.session(name);
      return session.run({ [input]: new ort.Tensor("float32", data, shape) });
    });
    this.last = job.catch(() => {});
    return job;
  }

  // Images (list of Float32Array) of whole codes (list of Float32Array).
  async decode(codes) {
    const size = this.capsules * this.dim;
    const data = new Float32Array(codes.length * size);
    codes.forEach((code, k) => data.set(code, k * size));
    const shape = [codes.length, this.capsules, this.dim];
    const { images } = await this.run("decode", "capsules", data, shape);
    return rows(images.data, codes.length);
  }

  // {capsules, probabilities, free_energy} of one image (Float32Array).
  async encode(image) {
    return this.ask("encode", image);
  }

  async classify(image) {
    return this.ask(this.has("classify") ? "classify" : "encode", image);
  }

  // All outputs of a file for one image.
  async ask(name, image) {
    const found = await this.run(name, "images", image, [1, ...this.image]);
    return Object.fromEntries(
      Object.entries(found).map(([key, { data, dims }]) => [key, { data, dims }]),
    );
  }
}

function rows(data, count) {
  const size = data.length / count;
  return Array.from({ length: count }, (_, k) => data.subarray(k * size, (k + 1) * size));
}
