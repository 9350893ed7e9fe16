// A schedule for gantt.js out of a report as `simulate --output json` prints it.

const MILLIS = 1000;
const MOST_TOPOLOGIES = 20;

/** Texts are kept once. */
class Texts {
  constructor() { this.list = []; this.known = new Map(); }

  at(text) {
    if (!text) return -1;
    if (!this.known.has(text)) { this.known.set(text, this.list.length); this.list.push(text); }
    return this.known.get(text);
  }
}

/** What a message of the scenario is about. */
function kindOf(message) {
  if (message.startsWith("nodes ") || message.startsWith("maintenance ")) return "nodes";
  const policy = /"stopPolicy":(?:"(\w*)"|null)/.exec(message);
  if (policy) return !policy[1] || policy[1] === "None" ? "resume" : "stop";
  return message.includes("Quota") ? "quota" : "scenario";
}

/** The ClusterQueue that a message like `patch ClusterQueue team-a: …` is about. */
function queueOf(message) {
  return /^(?:patch|delete) ClusterQueue[ /]([^\s:]+)/.exec(message)?.[1] ?? null;
}

/** When queues are stopped, up to the end of the schedule. */
function stopsOf(report, end) {
  const millis = (seconds) => Math.round(seconds * MILLIS);
  const until = (seconds) => (Number.isFinite(seconds) && millis(seconds) <= end ? millis(seconds) : null);
  const named = (Array.isArray(report.stops) ? report.stops : []).filter((one) => typeof one?.queue === "string" && Number.isFinite(one.from));
  const local = (name) => (typeof name === "string" ? name : undefined);
  return named.map(({ queue, localQueue, from, to }) => ({ queue, localQueue: local(localQueue), from: millis(from), to: until(to) })).filter((stop) => stop.from <= end);
}

/** The topologies for places.js, without what leads nowhere. */
function placesOf(report) {
  const found = [], list = Array.isArray;
  const numbers = (row, length) => list(row) && row.length === length && row.every(Number.isFinite);
  for (const one of list(report.places) ? report.places.slice(0, MOST_TOPOLOGIES) : []) {
    if (!one || ![one.levels, one.resources, one.leaves, one.nodes, one.sizes, one.jobs, one.pods].every(list)) continue;
    const [levels, resources] = [one.levels.map(String), one.resources.map(String)];
    const [leaves, sizes] = [one.leaves, one.sizes];
    if (!levels.length || !leaves.every((path) => list(path) && path.length === levels.length) || !sizes.every((size) => numbers(size, resources.length))) continue;
    found.push({ name: String(one.name), levels, resources, leaves: leaves.map((path) => path.map(String)), sizes, cut: Boolean(one.cut),
      jobs: one.jobs.map((name) => (typeof name === "string" ? name : null)),
      nodes: one.nodes.filter((row) => numbers(row, 4 + resources.length) && leaves[row[3]]),
      pods: one.pods.filter((row) => numbers(row, 6) && leaves[row[3]] && sizes[row[4]]) });
  }
  return found;
}

/** Throws an Error with a sentence for people when this is no report. */
export function fromReport(report) {
  if (!report || !Array.isArray(report.timeline) || !Number.isFinite(report.seconds)) throw new Error("This is not a simulation's report as JSON.");
  const start = Date.parse(report.start);
  const texts = new Texts(), jobs = new Map(), flavors = [], marks = [];
  const places = new Map();
  const flavorAt = (name) => {
    if (!places.has(name)) { places.set(name, flavors.length); flavors.push(name); }
    return places.get(name);
  };
  for (const one of report.flavors ?? []) flavorAt(String(one.flavor));
  const of = (name, at) => {
    if (!jobs.has(name)) jobs.set(name, { name, queue: null, priority: 0, submitted: at, until: null, ok: false, holds: [], waits: [] });
    return jobs.get(name);
  };
  const ends = (job, at, end, why) => {
    const hold = job.holds.at(-1);
    if (!hold || hold.to !== null) return;
    Object.assign(hold, { to: at, end, why: texts.at(why), evicted: end === "preempted" || end === "evicted" ? at : null });
  };
  const holds = (job, at, line, admitted) => {
    job.queue = line.queue ?? job.queue;
    const got = String(line.flavors ?? "");
    const flavor = /=(.+?) \(/.exec(got)?.[1];
    job.holds.push({ from: at, admitted, evicted: null, to: null, end: "open", flavor: flavor ? flavorAt(flavor) : -1, got: texts.at(got), why: -1 });
  };
  for (const line of report.timeline) {
    if (line === null || typeof line !== "object") continue;
    const at = Math.round(Number(line.at) * MILLIS) || 0;
    if (!line.job) {
      const message = String(line.message ?? "");
      const kind = line.event === "refused" ? "refused" : kindOf(message);
      marks.push({ at, kind, queue: queueOf(message), text: line.event === "refused" ? `refused: ${message}` : message });
      continue;
    }
    const job = of(String(line.job), at);
    if (line.event === "submitted") {
      // A job of the same name that comes again is another one.
      if (job.until !== null) { jobs.delete(job.name); jobs.set(`${job.name}\n${jobs.size}`, job); }
      Object.assign(of(String(line.job), at), { priority: Number(line.priority) || 0, queue: line.clusterQueue ?? null });
    } else if (line.event === "waiting") job.waits.push([at, texts.at(`${line.reason}: ${line.message}`)]);
    else if (line.event === "reserved") holds(job, at, line, null);
    else if (line.event === "admitted") {
      const hold = job.holds.at(-1);
      // It had quota, and waited for its checks.
      if (hold && hold.to === null && hold.admitted === null) hold.admitted = at;
      else holds(job, at, line, at);
    } else if (line.event === "preempted") ends(job, at, "preempted", `by ${line.by ?? "a workload that is not shown"}: ${line.reason}`);
    else if (line.event === "evicted") ends(job, at, "evicted", `${line.reason}: ${line.message}`);
    else if (line.event === "finished") { ends(job, at, line.success ? "finished" : "failed"); Object.assign(job, { until: at, ok: Boolean(line.success) }); }
    else if (line.event === "deleted") { ends(job, at, "evicted", "deleted"); job.until = at; }
  }
  // Of what comes after the lines that were left out nothing is known.
  const until = report.cut ? Number(report.timeline.at(-1)?.at) || 0 : report.seconds, end = Math.round(until * MILLIS);
  return { start, end, flavors, texts: texts.list, jobs: [...jobs.values()], marks, stops: stopsOf(report, end), places: placesOf(report) };
}
