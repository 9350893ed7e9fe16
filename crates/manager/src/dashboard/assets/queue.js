// Queue: what waits in which order, and why.

import { get, part } from "./api.js";
import { age, amounts, linkCell, queueLink, trouble, when, whose, workloadLink } from "./amounts.js";
import { el, fresh } from "./dom.js";
import { Paged, counted } from "./rows.js";

export const STATES = [["", "all states"], ["pending", "pending"], ["reserved", "has quota, waits for checks"], ["admitted", "admitted"], ["inactive", "deactivated"], ["finished", "finished"]];

const of = (namespace, workload) => `${namespace}/${workload}`;

/** When the workloads of an answer start, by namespace and name. */
export function expected(answer) {
  const starts = new Map();
  for (const item of Array.isArray(answer?.items) ? answer.items : []) if (item?.workload) starts.set(of(item.namespace, item.workload), item);
  return { starts, hours: answer?.hours ?? 0, futures: answer?.futures ?? 0 };
}

/** `about 14:20 (14:05–15:10)`, and what it preempts. */
export function startText(start, { hours, futures }) {
  if (start.whyNot) return `no estimate: ${start.whyNot}`;
  if (!start.expected) return start.starts ? `in ${start.starts} of ${futures} futures only` : `not within ${hours}h`;
  const [early, late] = [when(start.early ?? start.expected, true), start.late ? when(start.late, true) : "later"];
  const about = when(start.expected, true);
  const range = early === late ? "" : ` (${early}–${late})`;
  const others = (start.preempts ?? []).slice(0, 3), more = (start.preempts ?? []).length - others.length + (start.others ?? 0);
  const victims = [...others, ...(more > 0 ? [`${more} ${others.length ? "more" : "of others"}`] : [])];
  return `about ${about}${range}${victims.length ? `; preempts ${victims.join(", ")}` : ""}`;
}

/** What estimates rest on, in a sentence. */
export function startBasis(answer) {
  if (answer.whyNot) return `No estimate: ${answer.whyNot}.`;
  if (!answer.futures) return answer.items?.length ? "" : "No workload waits.";
  const first = answer.waiting > answer.first ? `; for the first ${answer.first} of ${answer.waiting}` : "";
  const cut = answer.complete ? "" : "; there was no time for more";
  return `Estimated at ${when(answer.at)} UTC from ${answer.futures} ${answer.futures === 1 ? "future" : "futures"}${answer.futures > 1 ? ", eight of ten within the range" : ""}${cut}${first}; ${answer.basis}; as if no other jobs came.`;
}

/** What a future says about a workload that waits. */
function start(item, future) {
  if (!future || item.state !== "pending" || !item.workload) return "";
  const found = future.starts.get(of(item.namespace, item.workload));
  return found ? startText(found, future) : "";
}

/** The cells of a workload in a list. */
export function workloadCells(item, columns, future) {
  const name = whose(item);
  const of = {
    position: item.position ?? "", workload: item.workload ? linkCell(workloadLink(item.namespace, item.workload), name) : name, state: item.state, priority: item.priority,
    age: age(item.created), requests: amounts(item.requests), queue: item.clusterQueue ?? "", why: [item.reason, item.message].filter(Boolean).join(": "), starts: start(item, future),
  };
  return { cells: columns.map((column) => of[column.of]), opens: Boolean(item.workload) };
}

const COLUMNS = [
  { of: "position", title: "Position", n: true, size: "74px" },
  { of: "workload", title: "Workload", size: "minmax(130px, 2fr)" },
  { of: "state", title: "State", size: "90px", wide: 420 },
  { of: "priority", title: "Priority", n: true, size: "80px", wide: 520 },
  { of: "age", title: "Age", n: true, size: "96px", wide: 620 },
  { of: "starts", title: "Expected start (UTC)", size: "minmax(120px, 2.4fr)", wide: 340 },
  { of: "requests", title: "Requests", size: "minmax(100px, 1.5fr)", wide: 760 },
  { of: "why", title: "Why", size: "minmax(100px, 3fr)", wide: 900 },
];

export function view(host, [name]) {
  const list = fresh("queues");
  const options = el("datalist", { id: list });
  const input = el("input", { list, "aria-label": "ClusterQueue", placeholder: "ClusterQueue", value: name ?? "", autocomplete: "off" });
  const choose = el("form", { class: "fields", onsubmit: (event) => { event.preventDefault(); if (input.value.trim()) location.hash = queueLink(input.value.trim()); } },
    el("label", null, "ClusterQueue", input), options, el("button", null, "Show"));
  const state = el("select", { "aria-label": "State", onchange: () => table?.again() }, STATES.slice(0, 5).map(([value, text]) => el("option", { value }, text)));
  const count = el("output", { class: "count-line" });
  const note = el("div"), space = el("div");
  let future = null;
  const estimate = el("button", { type: "button", onclick: async () => {
    estimate.disabled = true;
    said.textContent = "Simulating…";
    try {
      const answer = await get(`/api/queues/${part(name)}/starts`, {}, signal);
      future = expected(answer);
      said.textContent = startBasis(answer);
      table.rows.refresh();
    } catch (error) {
      said.textContent = error.name === "AbortError" ? "" : error.message;
    }
    estimate.disabled = false;
  } }, "Estimate starts");
  const said = el("output", { class: "count-line" });
  host.append(choose, note, name ? el("div", { class: "tools" }, state, estimate, count, said) : el("p", { class: "plain" }, "Choose a queue here or in the view Now."), space);
  let signal;
  const failed = (error) => { if (error.name !== "AbortError") note.replaceChildren(trouble(error)); };
  const table = name ? new Paged(space, {
    label: `Workloads of ${name}`, columns: COLUMNS, cells: (item, columns) => workloadCells(item, columns, future), open: (item) => { if (item.workload) location.hash = workloadLink(item.namespace, item.workload); },
    load: (offset, limit) => get(`/api/queues/${part(name)}`, { state: state.value, offset, limit }, signal),
    counted: (total) => { note.replaceChildren(); count.textContent = counted(total, "workloads"); }, failed,
  }) : null;
  let known = false;
  const read = async (next) => {
    signal = next;
    if (!known) {
      try {
        const now = await get("/api/now", {}, next);
        known = true;
        options.replaceChildren(...(now.clusterQueues ?? []).slice(0, 5000).map((queue) => el("option", { value: queue.name })));
      } catch (error) {
        if (error.code === 401) throw error;
        failed(error);
      }
    }
    await table?.reload();
  };
  return { read, close: () => table?.close() };
}
