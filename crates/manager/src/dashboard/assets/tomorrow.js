// Tomorrow: the future played from the present state, also with changes, both schedules side by side; and reports out of files.

import { get, post } from "./api.js";
import { number, trouble } from "./amounts.js";
import { el, fresh } from "./dom.js";
import { Gantt, together } from "./gantt.js";
import { Places, alike } from "./places.js";
import { fromJournal, isJournal } from "./journal.js";
import { fromReport } from "./schedule.js";
import { show, stamp } from "./time.js";

const MOST_CHANGES = 20;
const MOST_BYTES = 200_000_000;
const MOST_OF_JOURNAL = 64_000_000;

/** Schedules beside each other, and figures; gives what ends them. */
function reports(host, sides) {
  const gantts = [], places = [];
  const sections = sides.map(({ title, report }) => {
    const schedule = fromReport(report);
    const space = el("div");
    const totals = report.totals ?? {};
    const figures = ["submitted", "finished", "running", "waiting", "preemptions"].map((name) => `${number(totals[name])} ${name}`).join(", ");
    const used = (report.flavors ?? []).slice(0, 20).filter((flavor) => Number.isFinite(flavor.utilisation)).map((flavor) => `${flavor.resource} of ${flavor.flavor}: ${flavor.utilisation} % used`);
    return { space, schedule, title, section: el("section", { class: "card" }, el("h2", null, title), el("p", null, `${show(schedule.end)} from ${stamp(schedule.start)}: ${figures}`), used.length ? el("p", null, used.join("; ")) : "",
      report.cut ? el("p", null, `There are too many events: the schedule is shown for the first ${show(schedule.end)}.`) : "",
      report.partial ? el("p", null, `The simulation stopped early, because its time was over or another user waits. Shown: the first ${show(schedule.end)}. kubectl kueue simulate --from-cluster has no such limit.`) : "",
      report.hidden ? el("p", null, "Workloads of namespaces that you may not see are left out.") : "", space) };
  });
  host.replaceChildren(el("div", { class: sections.length > 1 ? "sides" : "" }, sections.map(({ section }) => section)));
  for (const { space, schedule, title, section } of sections) {
    gantts.push(new Gantt(space, schedule, { label: `jobs ${title.toLowerCase()}` }));
    for (const topology of schedule.places) {
      const below = el("div", { class: "places" });
      section.append(below);
      places.push(new Places(below, topology, schedule, sections.length > 1 ? title : ""));
    }
  }
  if (gantts.length > 1) together(gantts);
  alike(places);
  return () => { for (const gantt of gantts) gantt.close(); };
}

const words = (change) => ({
  quota: () => `nominal quota of ${change.clusterQueue}: ${change.value} ${change.resource} of ${change.flavor}`,
  priority: () => `priority of ${change.namespace}/${change.workload}: ${change.value}`,
  nodes: () => `${change.count} more nodes like ${change.like}`,
  pool: () => `${change.count} new nodes of ${change.flavor}, each with ${Object.entries(change.capacity).map(([name, value]) => `${value} ${name}`).join(", ")}${change.clusterQueue ? `, and quota for them in ${change.clusterQueue}` : ""}`,
})[change.kind]();

export function view(host) {
  const changes = [];
  let end = () => {}, signal, busy = false;
  const field = (label, attributes) => {
    const input = el("input", { autocomplete: "off", required: true, ...attributes });
    return [el("label", null, label, input), input];
  };
  const queues = el("datalist", { id: fresh("queues") });
  const [queueField, queue] = field("ClusterQueue", { list: queues.id });
  const [flavorField, flavor] = field("Flavor");
  const [resourceField, resource] = field("Resource", { value: "cpu" });
  const [valueField, value] = field("New nominal quota", { class: "short" });
  const [spaceField, namespace] = field("Namespace");
  const [nameField, workload] = field("Workload");
  const [priorityField, priority] = field("New priority", { class: "short", type: "number", step: "1", min: "-2147483648", max: "2147483647" });
  const [likeField, like] = field("Like this node");
  const [countField, count] = field("How many", { class: "short", type: "number", min: "1", max: "1000", step: "1", value: "1" });
  const [poolField, pool] = field("Flavor of the pool");
  const [sizeField, size] = field("How many nodes", { class: "short", type: "number", min: "1", max: "1000", step: "1", value: "1" });
  const [hasField, has] = field("Each has", { placeholder: "cpu=8, nvidia.com/gpu=4", pattern: "\\s*[^=,\\s]+\\s*=\\s*[^=,\\s]+\\s*(,\\s*[^=,\\s]+\\s*=\\s*[^=,\\s]+\\s*)*", title: "resource=amount, and more after commas" });
  const [getsField, gets] = field("Quota for them to (ClusterQueue, if any)", { list: queues.id, required: false });
  const listed = el("ul", { class: "changes", "aria-label": "Changes to try" });
  const showChanges = () => listed.replaceChildren(...changes.map((change, at) => el("li", null, words(change), " ",
    el("button", { type: "button", "aria-label": `remove: ${words(change)}`, onclick: () => { changes.splice(at, 1); showChanges(); play.focus(); } }, "remove"))));
  const adding = (title, fields, make) => el("form", { class: "fields", "aria-label": title, onsubmit: (event) => {
    event.preventDefault();
    if (changes.length < MOST_CHANGES) changes.push(make());
    else note.replaceChildren(el("p", { class: "error", role: "alert" }, `At most ${MOST_CHANGES} changes are tried at once.`));
    showChanges();
  } }, fields, el("button", null, title));
  const horizon = el("select", { "aria-label": "How far to look" }, ["1h", "8h", "24h", "72h", "168h"].map((time) => el("option", { value: time }, time)));
  horizon.value = "24h";
  const play = el("button", { type: "button", onclick: () => run() }, "Simulate");
  const note = el("div", { "aria-live": "polite" }), below = el("div");
  host.append(el("p", null, "The scheduler's own algorithm is simulated from the present state. It changes nothing in the cluster."),
    el("details", { class: "card" }, el("summary", null, "What if: changes to try"), queues,
      adding("Change a quota", [queueField, flavorField, resourceField, valueField],
        () => ({ kind: "quota", clusterQueue: queue.value.trim(), flavor: flavor.value.trim(), resource: resource.value.trim(), value: value.value.trim() })),
      adding("Change a priority", [spaceField, nameField, priorityField], () => ({ kind: "priority", namespace: namespace.value.trim(), workload: workload.value.trim(), value: Number(priority.value) })),
      adding("Add nodes", [likeField, countField], () => ({ kind: "nodes", like: like.value.trim(), count: Number(count.value) })),
      adding("Add a node pool", [poolField, sizeField, hasField, getsField], () => ({ kind: "pool", flavor: pool.value.trim(), count: Number(size.value), capacity: Object.fromEntries(has.value.split(",").map((one) => one.split("=").map((part) => part.trim()))), ...(gets.value.trim() && { clusterQueue: gets.value.trim() }) })),
      el("p", { class: "plain" }, "More nodes have the labels, taints and capacity of one that is there, and bring no quota: jobs start sooner only where nodes are short (flavors with a topology, and Hotswap). A new pool has the labels and taints of its flavor, is a domain of its own in its topology, and brings quota to the ClusterQueue that you name."), listed),
    el("div", { class: "tools" }, el("label", null, "for ", horizon), play), note, below);
  const run = async () => {
    if (busy) return;
    busy = true;
    play.disabled = true;
    note.replaceChildren(el("p", { class: "busy" }, "Simulating…"));
    try {
      const answer = await post("/api/tomorrow", { for: horizon.value, changes }, signal);
      end();
      const sides = [{ title: answer.changed ? "Without the changes" : "As things are", report: answer.base }];
      if (answer.changed) sides.push({ title: "With the changes", report: answer.changed });
      const sentences = answer.difference ?? [];
      const left = answer.refused?.count > 0 ? [el("p", { class: "plain" }, `${number(answer.refused.count)} workloads are left out: the manager refuses them for reasons that cannot be simulated, see Explain. ${(answer.refused.names ?? []).join(", ")}`)] : [];
      if (answer.notPlayed > 0) left.push(el("p", { class: "plain" }, `${number(answer.notPlayed)} objects that cannot be simulated are left out.`));
      if (answer.defaultConfiguration) left.push(el("p", { class: "plain" }, "The manager's configuration is not known here: this is simulated with the default one. With sluice dashboard --config FILE it is the manager's."));
      note.replaceChildren(...left, ...(answer.changed ? [el("h2", null, "What the changes bring"), el("ul", { class: "words" }, sentences.slice(0, 200).map((text) => el("li", null, String(text))))] : []));
      end = reports(below, sides);
    } catch (error) {
      if (error.name !== "AbortError") note.replaceChildren(error.code === 404 ? el("p", { class: "plain" }, "This server does not simulate the future.") : trouble(error));
    }
    busy = false;
    play.disabled = false;
  };
  const read = async (next) => {
    signal ??= next;
    if (queues.childElementCount) return;
    try {
      const now = await get("/api/now", {}, next);
      queues.replaceChildren(...(now.clusterQueues ?? []).slice(0, 5000).map((one) => el("option", { value: one.name })));
    } catch (error) {
      if (error.code === 401) throw error;
      if (error.name !== "AbortError") note.replaceChildren(trouble(error));
    }
  };
  return { read, once: true, close: () => end() };
}

/** Report: a simulation's or a recorded day's JSON out of a file of this computer. */
export function reportView(host) {
  let end = () => {};
  const note = el("div", { "aria-live": "polite" }), below = el("div");
  const open = async (files) => {
    try {
      const sides = [];
      for (const file of [...files].slice(0, 2)) {
        const journal = isJournal(file.name, await file.slice(0, 4096).text()), most = journal ? MOST_OF_JOURNAL : MOST_BYTES;
        if (file.size > most) throw new Error(`${file.name} is too large: ${Math.round(file.size / 1e6)} MB of at most ${most / 1e6} MB.`);
        let report;
        const content = await file.text();
        if (journal) {
          sides.push({ title: file.name, report: fromJournal(content) });
          continue;
        }
        try {
          report = JSON.parse(content);
        } catch {
          throw new Error(`${file.name} is not JSON.`);
        }
        sides.push({ title: file.name, report });
      }
      if (!sides.length) return;
      end();
      end = reports(below, sides);
      note.replaceChildren();
    } catch (error) {
      note.replaceChildren(trouble(error));
    }
  };
  const input = el("input", { type: "file", accept: ".json,.jsonl,application/json", multiple: true, onchange: () => open(input.files) });
  const drop = el("div", { class: "drop", ondragover: (event) => { event.preventDefault(); drop.classList.add("over"); }, ondragleave: () => drop.classList.remove("over"),
    ondrop: (event) => { event.preventDefault(); drop.classList.remove("over"); open(event.dataTransfer.files); } },
    el("label", null, "A report, or two to see side by side: the output of ", el("code", null, "kubectl kueue simulate --output json"), " or ", el("code", null, "kubectl kueue report --output json"), ", or a file of the journal (.jsonl) ", input), el("p", null, "The file stays in this browser."));
  host.append(drop, note, below);
  return { read: async () => {}, once: true, close: () => end() };
}
