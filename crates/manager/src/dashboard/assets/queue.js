// Queue: who waits in which order, and why.

import { get, part, post } from "./api.js";
import { age, amounts, linkCell, queueLink, trouble, whose, workloadLink } from "./amounts.js";
import { el, fresh } from "./dom.js";
import { Paged, counted } from "./rows.js";
import { show } from "./time.js";

export const STATES = [["", "all states"], ["pending", "pending"], ["reserved", "has quota, waits for checks"], ["admitted", "admitted"], ["finished", "finished"]];

const FAR = "72h";

/** When each job starts, and which jobs it displaces, in a future that was played. */
export function expected(report) {
  const starts = new Map(), displaced = new Map();
  for (const line of report.timeline ?? []) {
    if (!line?.job) continue;
    if (line.event === "admitted" && !starts.has(line.job)) starts.set(line.job, Number(line.at) * 1000);
    if (line.event === "preempted" && line.by) {
      if (!displaced.has(line.by)) displaced.set(line.by, []);
      displaced.get(line.by).push(line.job);
    }
  }
  return { starts, displaced };
}

/** What a future says about a workload that waits. */
function start(item, future) {
  if (!future || item.state !== "pending" || !item.job) return "";
  const job = `${item.namespace}/${item.job}`;
  const at = future.starts.get(job);
  if (at === undefined) return `not within ${FAR}`;
  const others = future.displaced.get(job) ?? [];
  const more = others.length > 3 ? ` and ${others.length - 3} more` : "";
  return `in ${show(at)}${others.length ? `; preempts ${others.slice(0, 3).join(", ")}${more}` : ""}`;
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
  { of: "starts", title: "Expected start", size: "minmax(110px, 1.2fr)", wide: 340 },
  { of: "requests", title: "Requests", size: "minmax(100px, 1.5fr)", wide: 760 },
  { of: "why", title: "Why", size: "minmax(100px, 3fr)", wide: 900 },
];

export function view(host, [name]) {
  const list = fresh("queues");
  const options = el("datalist", { id: list });
  const input = el("input", { list, "aria-label": "ClusterQueue", placeholder: "ClusterQueue", value: name ?? "", autocomplete: "off" });
  const choose = el("form", { class: "fields", onsubmit: (event) => { event.preventDefault(); if (input.value.trim()) location.hash = queueLink(input.value.trim()); } },
    el("label", null, "ClusterQueue", input), options, el("button", null, "Show"));
  const state = el("select", { "aria-label": "State", onchange: () => table?.reload() }, STATES.slice(0, 4).map(([value, text]) => el("option", { value }, text)));
  const count = el("output", { class: "count-line" });
  const note = el("div"), space = el("div");
  let future = null;
  const estimate = el("button", { type: "button", onclick: async () => {
    estimate.disabled = true;
    said.textContent = "The future is played…";
    try {
      const { base } = await post("/api/tomorrow", { for: FAR, changes: [] }, signal);
      future = expected(base ?? {});
      const known = [...table.pages.values()].flat().some((item) => item.job);
      said.textContent = known ? "Estimates: jobs run as long as they say, else a default time, and no other jobs come." : "No start is known: the server names no jobs.";
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
      known = true;
      try {
        const now = await get("/api/now", {}, next);
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
