// Workload: a list to search in, and one workload's whole life with the answer to "why".

import { get, part } from "./api.js";
import { age, amounts, number, queueLink, trouble, when, word, workloadLink } from "./amounts.js";
import { draw, el, renew } from "./dom.js";
import { STATES, expected, startBasis, startText, workloadCells } from "./queue.js";
import { Paged, counted } from "./rows.js";
import { show, stamp } from "./time.js";

const COLUMNS = [
  { of: "workload", title: "Workload", size: "minmax(140px, 2fr)" },
  { of: "queue", title: "ClusterQueue", size: "minmax(100px, 1.2fr)", wide: 480 },
  { of: "state", title: "State", size: "90px" },
  { of: "position", title: "Position", n: true, size: "74px", wide: 560 },
  { of: "priority", title: "Priority", n: true, size: "80px", wide: 640 },
  { of: "age", title: "Age", n: true, size: "96px", wide: 720 },
  { of: "requests", title: "Requests", size: "minmax(100px, 1.5fr)", wide: 820 },
  { of: "why", title: "Why", size: "minmax(100px, 2fr)", wide: 960 },
];

export function view(host, [namespace, name]) {
  return namespace && name ? single(host, namespace, name) : search(host);
}

function search(host) {
  let waiting = 0, signal;
  const again = () => { clearTimeout(waiting); waiting = setTimeout(() => table.again(), 200); };
  const input = el("input", { type: "search", "aria-label": "search workloads", placeholder: "name", oninput: again });
  const space = el("input", { type: "search", "aria-label": "namespace", placeholder: "namespace", oninput: again });
  const state = el("select", { "aria-label": "state", onchange: again }, STATES.map(([value, text]) => el("option", { value }, text)));
  const count = el("output", { class: "count-line" });
  const note = el("div"), below = el("div");
  host.append(el("div", { class: "tools" }, input, space, state, count), note, below);
  const table = new Paged(below, {
    label: "Workloads", columns: COLUMNS, cells: (item, columns) => workloadCells(item, columns, null), open: (item) => { if (item.workload) location.hash = workloadLink(item.namespace, item.workload); },
    load: (offset, limit) => get("/api/workloads", { search: input.value.trim(), namespace: space.value.trim(), state: state.value, offset, limit }, signal),
    counted: (total) => { note.replaceChildren(); count.textContent = counted(total, "workloads"); },
    failed: (error) => { if (error.name !== "AbortError") note.replaceChildren(trouble(error)); },
  });
  return { read: (next) => { signal = next; return table.reload(); }, close: () => { clearTimeout(waiting); table.close(); } };
}

/** The life as a line: a dot for each moment, further apart the more time is between. */
function life(moments) {
  const times = moments.map((moment) => Date.parse(moment.at)).filter((at) => !Number.isNaN(at));
  if (times.length < 1) return null;
  const first = Math.min(...times), span = Math.max(Math.max(...times) - first, 1);
  const dots = moments.map((moment) => {
    const at = Date.parse(moment.at);
    if (Number.isNaN(at)) return null;
    const what = String(moment.what).toLowerCase();
    const kind = /evict|preempt|fail|lost|not|reject|retry|deactivat/.test(what) ? "bad" : /admitted|started|ready|finished/.test(what) ? "good" : "plain";
    const tip = `${moment.what}\n${stamp(at)}, ${show(at - first)} after the first\n${[moment.reason, moment.message].filter(Boolean).join(": ")}`;
    return draw("circle", { class: kind, cx: `${2 + (at - first) / span * 96}%`, cy: 20, r: 6, "data-t": tip });
  });
  return draw("svg", { class: "life", role: "img", "aria-label": `${moments.length} moments in ${show(span)}` }, draw("line", { class: "track", x1: "2%", x2: "98%", y1: 20, y2: 20 }), dots.filter(Boolean));
}

function podSet(set) {
  const flavors = Object.entries(set.flavors ?? {}).map(([resource, flavor]) => `${resource} from ${flavor}`).join(", ");
  const nodes = Array.isArray(set.nodes) ? `; nodes ${set.nodes.slice(0, 20).join(", ")}${set.nodes.length > 20 ? ` and ${set.nodes.length - 20} more` : ""}` : number(set.nodeCount) ? `; on ${number(set.nodeCount)} ${number(set.nodeCount) === 1 ? "node" : "nodes"}` : "";
  return el("li", null, `${set.name}: ${number(set.count)} pods${flavors ? `, ${flavors}` : ""}${nodes}`);
}

function single(host, namespace, name) {
  const path = `/api/workloads/${part(namespace)}/${part(name)}`;
  const facts = el("section", { class: "card" }, el("p", { class: "busy" }, "Reading…")), note = el("div");
  const answer = el("div", { "aria-live": "polite" });
  const ask = el("button", { type: "button", onclick: () => explain() }, "Explain: why, and what helps");
  const begin = el("button", { type: "button", hidden: true, onclick: () => estimate() }, "Estimate the start");
  const starts = el("output", { class: "count-line" });
  host.append(el("p", null, el("a", { href: "#/workload" }, "All workloads")), el("h2", null, `${namespace}/${name}`), note, facts,
    el("section", { class: "card" }, el("div", { class: "tools" }, ask, begin, starts), answer));
  let signal;
  const explain = async () => {
    ask.disabled = true;
    answer.replaceChildren(el("p", { class: "busy" }, "Simulating. This takes up to half a minute."));
    try {
      const { text } = await get(`${path}/explain`, {}, signal);
      answer.replaceChildren(el("pre", { tabindex: "0", "aria-label": "Explanation" }, String(text ?? "")));
    } catch (error) {
      if (error.name !== "AbortError") answer.replaceChildren(trouble(error));
    }
    ask.disabled = false;
  };
  const estimate = async () => {
    begin.disabled = true;
    starts.textContent = "Simulating…";
    try {
      const said = await get(`${path}/start`, {}, signal);
      const future = expected(said);
      const own = future.starts.get(`${namespace}/${name}`);
      starts.textContent = own && !said.whyNot ? `Expected start: ${startText(own, future)}. ${startBasis(said)}` : startBasis(said);
    } catch (error) {
      starts.textContent = error.name === "AbortError" ? "" : error.message;
    }
    begin.disabled = false;
  };
  const read = async (next) => {
    signal = next;
    let known;
    try {
      known = await get(path, {}, next);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.code === 401) throw error;
      note.replaceChildren(trouble(error));
      facts.hidden = true;
      return;
    }
    note.replaceChildren();
    facts.hidden = false;
    const { item = {}, job, podSets = [], checks = [], life: moments = [] } = known;
    begin.hidden = item.state !== "pending";
    const fact = (title, text) => (text === "" || text === null || text === undefined ? [] : [el("dt", null, title), el("dd", null, text)]);
    renew(facts, el("section", null, el("dl", null, fact("State", word(item.state)), fact("Position", item.position), fact("Why", [item.reason, item.message].filter(Boolean).join(": ")),
      fact("Job", job ? `${job.kind} ${job.name}` : null), fact("ClusterQueue", item.clusterQueue ? el("a", { href: queueLink(item.clusterQueue) }, item.clusterQueue) : null),
      fact("LocalQueue", item.localQueue), fact("Priority", item.priority), fact("Created", item.created ? `${when(item.created)} (${age(item.created)} ago)` : null), fact("Requests", amounts(item.requests))),
      podSets.length ? el("h3", null, "Pods") : "", el("ul", null, podSets.slice(0, 100).map(podSet)),
      checks.length ? el("h3", null, "Admission checks") : "", checks.length ? el("ul", null, checks.map((check) => el("li", null, `${check.name}: ${check.state}${check.message ? `: ${check.message}` : ""}`))) : "",
      el("h3", null, "Its life"), life(moments) ?? "", el("ol", { class: "events", tabindex: "0", "aria-label": "Its life" },
        moments.slice(0, 500).map((moment) => el("li", null, el("time", { datetime: moment.at }, when(moment.at)), " ", word(moment.what), ` ${[moment.reason, moment.message].filter(Boolean).join(": ")}`)))));
  };
  return { read, close: () => {} };
}
