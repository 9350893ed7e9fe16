// What the server says. The key is kept in memory only.

let key = "";

/** Sets what proves who asks. */
export function setKey(text) {
  key = text;
}

/** The server's refusal, as a sentence; `code` is the HTTP status, 0 when there was no answer. */
export class Refused extends Error {
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

function headers(more) {
  return key ? { Authorization: `Bearer ${key}`, ...more } : { ...more };
}

// Longer than the server takes for its slowest answer.
const LONGEST = 120_000;
// The server says something every 15 seconds.
const SILENCE = 60_000;

async function reach(path, options) {
  try {
    return await fetch(path, { cache: "no-store", credentials: "omit", redirect: "error", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (error.name === "TimeoutError") throw new Refused("The server does not answer in time.", 0);
    throw new Refused("The server does not answer.", 0);
  }
}

async function refusal(answer) {
  let text = "";
  try {
    text = (await answer.json()).message ?? "";
  } catch {
    // An answer of a proxy, which is not JSON.
  }
  const plain = { 401: "The token is not accepted.", 403: "You may not see this.", 404: "The server does not offer this.", 429: "The server is busy." };
  return new Refused(text || plain[answer.status] || `The server answers with ${answer.status}.`, answer.status);
}

async function json(answer) {
  if (!answer.ok) throw await refusal(answer);
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server's answer is cut off or is not JSON.", answer.status);
  }
}

function bounded(signal) {
  const end = AbortSignal.timeout(LONGEST);
  return signal ? AbortSignal.any([signal, end]) : end;
}

/** Reads a document. `query` has values to be escaped; empty ones are left out. */
export async function get(path, query = {}, signal = undefined) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(given).toString();
  return json(await reach(text ? `${path}?${text}` : path, { headers: headers(), signal: bounded(signal) }));
}

/** Sends a question and reads the answer. */
export async function post(path, body, signal = undefined) {
  return json(await reach(path, { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body), signal: bounded(signal) }));
}

/** A part of a path with whatever a name may have. */
export const part = encodeURIComponent;

const MOST_BUFFERED = 1 << 20;

/** Splits a text/event-stream: gives the events that are complete, and the rest. */
export function events(buffer) {
  const blocks = buffer.replaceAll("\r\n", "\n").split("\n\n");
  const rest = blocks.pop();
  const found = [];
  for (const block of blocks) {
    let event = "message";
    const data = [];
    for (const line of block.split("\n")) {
      if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
    }
    if (data.length) found.push({ event, data: data.join("\n") });
  }
  return [found, rest];
}

/** Calls back for each event of a stream until it ends, is silent for too long or is not wanted any more; first with null, when it begins. */
export async function listen(path, heard, wanted) {
  const stop = new AbortController();
  const leave = () => stop.abort();
  wanted.addEventListener("abort", leave);
  if (wanted.aborted) leave();
  let silence = 0;
  const heardSomething = () => {
    clearTimeout(silence);
    silence = setTimeout(() => stop.abort(new DOMException("silent", "TimeoutError")), SILENCE);
  };
  heardSomething();
  try {
    const answer = await reach(path, { headers: headers({ Accept: "text/event-stream" }), signal: stop.signal });
    if (!answer.ok || !answer.body) throw await refusal(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    heard(null);
    let buffer = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heardSomething();
      const [found, rest] = events(buffer + value);
      if (rest.length > MOST_BUFFERED) throw new Refused("The stream of changes is broken.", 0);
      buffer = rest;
      for (const one of found) heard(one);
    }
  } finally {
    clearTimeout(silence);
    wanted.removeEventListener("abort", leave);
    stop.abort();
  }
}
