// Queue: who waits in which order, and why.

import { get, part } from "./api.js";
import { age, amounts, linkCell, queueLink, trouble, whose, workloadLink } from "./amounts.js";
import { el, fresh } from "./dom.js";
import { Paged } from "./rows.js";

export const STATES = [["", "all states"], ["pending", "pending"], ["reserved", "has quota, waits for checks"], ["admitted", "admitted"], ["finished", "finished"]];

/** The cells of a workload in a list. */
export function workloadCells(item, columns) {
  const name = whose(item);
  const of = {
    position: item.position ?? "", workload: item.workload ? linkCell(workloadLink(item.namespace, item.workload), name) : name, state: item.state, priority: item.priority,
    age: age(item.created), requests: amounts(item.requests), queue: item.clusterQueue ?? "", why: [item.reason, item.message].filter(Boolean).join(": "), local: item.localQueue ?? "",
  };
  return { cells: columns.map((column) => of[column.of]), opens: Boolean(item.workload) };
}

const COLUMNS = [
  { of: "position", title: "Position", n: true, size: "74px" },
  { of: "workload", title: "Workload", size: "minmax(130px, 2fr)" },
  { of: "state", title: "State", size: "90px", wide: 420 },
  { of: "priority", title: "Priority", n: true, size: "80px", wide: 520 },
  { of: "age", title: "Age", n: true, size: "80px", wide: 620 },
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
  host.append(choose, note, name ? el("div", { class: "tools" }, state, count) : el("p", { class: "plain" }, "Choose a queue here or in the view Now."), space);
  let signal;
  const failed = (error) => { if (error.name !== "AbortError") note.replaceChildren(trouble(error)); };
  const table = name ? new Paged(space, {
    label: `Workloads of ${name}`, columns: COLUMNS, cells: workloadCells, open: (item) => { if (item.workload) location.hash = workloadLink(item.namespace, item.workload); },
    load: (offset, limit) => get(`/api/queues/${part(name)}`, { state: state.value, offset, limit }, signal),
    counted: (total) => { note.replaceChildren(); count.textContent = `${total} workloads`; }, failed,
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
