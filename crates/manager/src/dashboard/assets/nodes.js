// Nodes: flavors with their health and topology, work that lost its nodes, and each node with what runs there.

import { get } from "./api.js";
import { age, linkCell, number, trouble, when, whose, workloadLink } from "./amounts.js";
import { el, renew } from "./dom.js";
import { Paged, counted } from "./rows.js";
import { topologySection } from "./topology.js";

const COLUMNS = [
  { title: "Node", size: "minmax(130px, 2fr)" },
  { title: "Health", size: "minmax(90px, 1.2fr)" },
  { title: "Flavors", size: "minmax(80px, 1fr)", wide: 480 },
  { title: "Place", size: "minmax(100px, 2fr)", wide: 640 },
  { title: "Used of capacity", size: "minmax(120px, 2fr)", wide: 420 },
];

const DISPLACED = [
  { title: "Workload", size: "minmax(130px, 2fr)" },
  { title: "Queue", size: "minmax(80px, 1fr)", wide: 420 },
  { title: "Priority", n: true, size: "80px", wide: 480 },
  { title: "State", size: "90px", wide: 560 },
  { title: "Since", size: "minmax(120px, 1.2fr)", wide: 640 },
  { title: "Lost nodes", size: "minmax(120px, 3fr)" },
];

const pairs = (object) => Object.entries(object ?? {}).map(([name, value]) => `${name}=${value}`).join(", ");

function cells(node, columns) {
  const amount = (resource, all) => (node.used ? `${node.used[resource] ?? "0"} of ${all} ${resource}` : `${all} ${resource}`);
  const used = Object.entries(node.capacity ?? {}).map(([resource, all]) => amount(resource, all)).join(", ");
  const levels = Object.entries(node.levels ?? {}).map(([label, value]) => `${label.split("/").pop()} ${value}`).join(", ");
  const all = [node.name, node.healthy ? "healthy" : `not healthy${node.why ? `: ${node.why}` : ""}`, (node.flavors ?? []).join(", "), levels, used];
  return { cells: columns.map((column) => all[COLUMNS.indexOf(column)]), kind: node.healthy ? "" : "off" };
}

/** The nodes that a workload lost: by name, or in the words of its eviction. */
function lostNodes({ nodes, count, message } = {}) {
  const named = nodes ?? [], more = number(count) - named.length;
  if (!named.length && message) return message;
  if (!named.length) return number(count) ? `${count} ${count === 1 ? "node" : "nodes"}` : "";
  return `${named.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

function displacedCells(item, columns) {
  const name = whose(item), since = item.since ? `${when(item.since)} (${age(item.since)})` : "–";
  const all = [item.workload ? linkCell(workloadLink(item.namespace, item.workload), name) : name, item.clusterQueue ?? "", item.priority, item.state, since, lostNodes(item.lost)];
  return { cells: columns.map((column) => all[DISPLACED.indexOf(column)]), opens: Boolean(item.workload) };
}

/** Work that lost its nodes and waits for others: gives what reads it and what ends it. */
function displacedSection(host) {
  const count = el("output", { class: "count-line" }), below = el("div", { hidden: true });
  host.append(el("h2", null, "Displaced work"), count, below);
  let signal;
  const table = new Paged(below, {
    label: "Displaced work", columns: DISPLACED, cells: displacedCells,
    load: (offset, limit) => get("/api/displaced", { offset, limit }, signal),
    open: (item) => { if (item.workload) location.hash = workloadLink(item.namespace, item.workload); },
    counted: (total) => {
      below.hidden = !total;
      count.textContent = total ? counted(total, total === 1 ? "workload lost its nodes and waits for others" : "workloads lost their nodes and wait for others") : "No workload has lost its nodes.";
    },
    failed: (error) => { if (error.name !== "AbortError") { below.hidden = true; count.textContent = error.message; } },
  });
  return { read: (next) => { signal = next; return table.reload(); }, close: () => table.close() };
}

export function view(host) {
  const note = el("div"), flavors = el("div", { class: "card" }), count = el("output", { class: "count-line" }), below = el("div");
  const domains = el("div"), lost = el("section", { "aria-label": "Displaced work" });
  host.append(note, el("h2", null, "Flavors"), flavors, lost, domains, el("h2", null, "Nodes"), count, below);
  const displaced = displacedSection(lost);
  const readTopology = topologySection(domains);
  let signal, hidden = false;
  const table = new Paged(below, {
    label: "Nodes", columns: COLUMNS, cells,
    load: async (offset, limit) => {
      const answer = await get("/api/nodes", { offset, limit }, signal);
      show(answer.flavors ?? []);
      hidden = Boolean(answer.hidden);
      return { total: answer.total, items: answer.nodes };
    },
    counted: (total) => { note.replaceChildren(); count.textContent = hidden ? "You may not see single nodes." : counted(total, "nodes"); },
    failed: (error) => {
      if (error.name === "AbortError") return;
      note.replaceChildren(error.code === 404 ? el("p", { class: "plain" }, `This server does not show nodes. It says: ${error.message}`) : trouble(error));
    },
  });
  const show = (all) => {
    const rows = all.slice(0, 500).map((flavor) => el("tr", null, el("th", { scope: "row" }, flavor.name), el("td", { class: "n" }, `${number(flavor.healthy)} of ${number(flavor.nodes)}`),
      el("td", null, flavor.topology ?? "–"), el("td", { class: "t" }, pairs(flavor.labels))));
    renew(flavors, el("div", null, all.length ? el("table", null, el("thead", null, el("tr", null, ["Flavor", "Healthy nodes", "Topology", "Node labels"].map((title, i) => el("th", { scope: "col", class: i === 1 ? "n" : null }, title)))),
      el("tbody", null, rows)) : el("p", null, "There are no flavors."), all.length > 500 ? el("p", null, `and ${all.length - 500} more`) : ""));
  };
  return { read: async (next) => { signal = next; await Promise.all([table.reload(), displaced.read(next), readTopology(next)]); }, close: () => { table.close(); displaced.close(); } };
}
