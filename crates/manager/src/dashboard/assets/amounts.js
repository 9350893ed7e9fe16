// Amounts, names and states as people read them.

import { el } from "./dom.js";
import { show } from "./time.js";

/** `4 cpu, 8Gi memory` of {"cpu": "4", …}. */
export function amounts(requests) {
  return Object.entries(requests ?? {}).map(([resource, amount]) => `${amount} ${resource}`).join(", ");
}

/** A finite number, or 0. */
export function number(value) {
  return Number.isFinite(value) ? value : 0;
}

/** How long ago that was: `3m10s`. */
export function age(text, now = Date.now()) {
  const at = Date.parse(text);
  return Number.isNaN(at) ? "–" : show(Math.max(Math.floor((now - at) / 1000), 0) * 1000);
}

/** A time of day (`short`: in minutes), with the date where it is another day. */
export function when(text, short = false) {
  const at = Date.parse(text);
  if (Number.isNaN(at)) return "–";
  const whole = new Date(at).toISOString();
  const time = whole.slice(11, short ? 16 : 19);
  return whole.slice(0, 10) === new Date().toISOString().slice(0, 10) ? time : `${whole.slice(0, 10)} ${time}`;
}

const GOOD = ["admitted", "finished", "started", "ready", "checkready"], BAD = ["preempted", "evicted", "failed", "refused", "checkretry", "checkrejected"];

/** A word with its colour; the word alone says it, too. */
export function word(what) {
  const text = String(what ?? "");
  const kind = GOOD.includes(text.toLowerCase()) ? "good" : BAD.includes(text.toLowerCase()) ? "bad" : "";
  return el("span", { class: `what ${kind}` }, text);
}

/** `namespace/name`, or a sentence where that is another tenant's. */
export function whose(item) {
  return item.workload ? `${item.namespace}/${item.workload}` : "a workload of others";
}

/** Where a workload's view is. */
export function workloadLink(namespace, name) {
  return `#/workload/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

/** Where a queue's view is. */
export function queueLink(name) {
  return `#/queue/${encodeURIComponent(name)}`;
}

/** A cell with a link. */
export function linkCell(href, text) {
  return el("span", { role: "gridcell", "data-t": text.length > 24 ? text : null }, el("a", { href, tabindex: "-1" }, text));
}

/** A sentence about what went wrong. */
export function trouble(error) {
  return el("p", { class: "error", role: "alert" }, error.message);
}
