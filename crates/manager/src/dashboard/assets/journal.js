// A report out of the journal of decisions: lines of JSON, as a manager writes them (docs/tasks/journal.md).

const MOST_LINES = 200_000;
const LONGEST = 1 << 20;
const FAILED = ["Failed", "FailedToStart"];

const SECOND = 1000;
const text = (value) => (typeof value === "string" ? value : "");
const time = (value) => Date.parse(text(value));

/** `cpu=spot (2)` of what a reservation takes. */
function got(usage) {
  const words = [];
  for (const [flavor, resources] of Object.entries(usage && typeof usage === "object" ? usage : {})) {
    for (const [resource, amount] of Object.entries(resources && typeof resources === "object" ? resources : {})) words.push(`${resource}=${flavor} (${amount})`);
  }
  return words.join(", ");
}

const jobOf = (line) => `${text(line.namespace)}/${text(line.workload)}`;

/** Whether a file is one: its name says it, or its first line is a line of one. */
export function isJournal(name, begin) {
  if (name.endsWith(".jsonl")) return true;
  const first = begin.split("\n", 1)[0];
  return /^\{\s*"at"\s*:/.test(first) && first.trimEnd().endsWith("}");
}

/** The lines that can be read, in the order of their times; and whether there are more than are taken. */
function linesOf(content) {
  const found = [];
  let at = 0, cut = false;
  while (at < content.length) {
    const next = content.indexOf("\n", at), end = next < 0 ? content.length : next;
    if (found.length >= MOST_LINES) { cut = true; break; }
    if (end - at > 1 && end - at <= LONGEST) {
      let line = null;
      // A line that was being written when a process ended is left out.
      try { line = JSON.parse(content.slice(at, end)); } catch { line = null; }
      const when = time(line?.at);
      if (Number.isFinite(when)) found.push({ line, when });
    }
    at = end + 1;
  }
  found.sort((a, b) => a.when - b.when);
  return { found, cut };
}

/** Events of the timeline of one Workload, as they come. */
class Story {
  /** `holds` is "reserved" or "admitted" while it has quota; `stopping`, while quota that it had to give up is still its own. */
  constructor(job) { Object.assign(this, { job, usage: "", holds: null, stopping: false, over: false, since: NaN }); }

  begin(line, when) {
    return { at: when, job: this.job, event: "submitted", priority: Number(line.priority) || 0, clusterQueue: text(line.clusterQueue) || null };
  }

  /** Quota is held since then; says whether that is another reservation than before. */
  isNew(since) {
    if (this.since === since) return false;
    Object.assign(this, { since, stopping: false });
    return true;
  }

  reserved(line, when) {
    if (this.holds || this.stopping || this.over) return [];
    this.holds = "reserved";
    return [{ at: when, job: this.job, event: "reserved", queue: text(line.clusterQueue) || null, flavors: this.usage }];
  }

  admitted(line, when) {
    if (this.holds === "admitted" || this.stopping || this.over) return [];
    this.holds = "admitted";
    return [{ at: when, job: this.job, event: "admitted", queue: text(line.clusterQueue) || null, flavors: this.usage }];
  }

  stopped(line, when, jobs) {
    if (!this.holds) return [];
    Object.assign(this, { holds: null, stopping: true });
    const [reason, message] = [text(line.reason), text(line.message)];
    const [first, finer] = reason.split("/", 2);
    if (first !== "Preempted") return [{ at: when, job: this.job, event: "evicted", reason, message }];
    const by = jobs.get(/\(UID: ([^,)]+)/.exec(message)?.[1]) ?? null;
    return [{ at: when, job: this.job, event: "preempted", reason: finer ?? first, message, by }];
  }

  end(when, event, more) {
    if (this.over) return [];
    Object.assign(this, { over: true, holds: null });
    return [{ at: when, job: this.job, event, ...more }];
  }

  take(line, when, jobs) {
    const usage = line.usage ? got(line.usage) : "";
    if (usage) this.usage = usage;
    switch (line.what) {
      case "Pending": return this.over ? [] : [{ at: when, job: this.job, event: "waiting", reason: text(line.reason), message: text(line.message) }];
      case "QuotaReserved": this.isNew(when); return this.reserved(line, when);
      case "Admitted": return this.admitted(line, when);
      case "Holding": {
        const since = time(line.since), admitted = time(line.admitted);
        this.isNew(since);
        const before = admitted === since ? [] : this.reserved(line, since);
        return Number.isFinite(admitted) ? [...before, ...this.admitted(line, admitted)] : before;
      }
      case "Resized": case "Released": {
        // A reservation of which nothing else is known: it is taken for admitted from its beginning on.
        const since = time(line.since), before = this.isNew(since) ? this.admitted(line, since) : [];
        return line.what === "Released" && line.outcome === "Evicted" ? [...before, ...this.stopped(line, when, jobs)] : before;
      }
      case "Evicted": return this.stopped(line, when, jobs);
      case "Finished": return this.end(when, "finished", { success: !FAILED.includes(text(line.reason)) });
      case "Deleted": return this.end(when, "deleted", {});
      default: return [];
    }
  }
}

/** A report of the form that `kubectl kueue report --output json` prints, of what a schedule needs. */
export function fromJournal(content) {
  const { found, cut } = linesOf(content);
  if (!found.length) throw new Error("This file has no line of a journal.");
  // Of each queue the stop that has not ended, if there is one.
  const nominal = new Map(), open = new Map(), stops = [], jobs = new Map(), stories = new Map(), timeline = [], totals = { submitted: 0, finished: 0, running: 0, waiting: 0, preemptions: 0 };
  for (const { line } of found) if (text(line.uid)) jobs.set(line.uid, jobOf(line));
  for (const { line, when } of found) {
    const quota = line.nominal ? got(line.nominal) : "", queue = text(line.clusterQueue);
    if (quota && nominal.has(queue) && nominal.get(queue) !== quota) timeline.push({ at: when, event: "scenario", message: `patch ClusterQueue ${queue}: nominalQuota ${quota}` });
    if (quota) nominal.set(queue, quota);
    // A line about a LocalQueue always has its stop policy, which no line about a Workload has.
    const localQueue = !line.nominal && text(line.stopPolicy) ? `${text(line.namespace)}/${text(line.localQueue)}` : undefined;
    if (localQueue || (line.nominal && queue)) {
      const key = localQueue ?? queue, named = localQueue ? `LocalQueue ${localQueue}` : `ClusterQueue ${queue}`;
      const policy = text(line.stopPolicy) || "None", isStopped = policy !== "None", isDeleted = line.deleted === true;
      const stopped = (from) => { const stop = { queue, localQueue, from, to: null }; stops.push(stop); return stop; };
      if (!open.has(key)) {
        // The first line of a queue says what it was before, since its creation, if that is known.
        const isKnown = localQueue ? text(line.stopPolicyBefore) : line.before;
        const before = isKnown ? !["", "None"].includes(text(line.stopPolicyBefore)) : isStopped;
        open.set(key, before ? stopped(time(line.created)) : null);
      }
      const stop = open.get(key);
      if (isDeleted ? stop || (!localQueue && nominal.has(queue)) : isStopped !== Boolean(stop)) {
        timeline.push({ at: when, event: "scenario", message: isDeleted ? `delete ${named}` : `patch ${named}: ${JSON.stringify({ spec: { stopPolicy: policy } })}` });
        if (stop) stop.to = when;
        open.set(key, isStopped ? stopped(when) : null);
      }
      // A later queue of this name is not a change of this one.
      if (isDeleted && !localQueue) nominal.delete(queue);
    }
    if (Number.isFinite(line.lost)) timeline.push({ at: when, event: "scenario", message: `the journal lacks ${line.lost} lines before this` });
    // What checks said and when pods were ready is no part of a schedule.
    if (!text(line.workload) || !text(line.what) || ["Checked", "PodsReady"].includes(line.what)) continue;
    const uid = text(line.uid) || jobOf(line);
    const since = Math.min(when, Number.isFinite(time(line.since)) ? time(line.since) : when);
    if (!stories.has(uid)) {
      const story = new Story(jobOf(line));
      stories.set(uid, story);
      timeline.push(story.begin(line, since));
    }
    timeline.push(...stories.get(uid).take(line, when, jobs));
  }
  timeline.forEach((event, at) => { event.order = at; });
  timeline.sort((a, b) => a.at - b.at || a.order - b.order);
  const start = Math.min(timeline[0]?.at ?? found[0].when, found[0].when), end = found.at(-1).when;
  for (const event of timeline) {
    event.at = (event.at - start) / SECOND;
    if (event.event === "preempted") totals.preemptions += 1;
    if (event.event === "finished" && event.success) totals.finished += 1;
  }
  for (const story of stories.values()) {
    totals.submitted += 1;
    // What waits for its checks holds quota: it counts as running, as in the report of the plugin.
    if (story.holds) totals.running += 1;
    else if (!story.over) totals.waiting += 1;
  }
  // A queue that was stopped before is stopped from the beginning on.
  const after = (at) => (at > start ? (at - start) / SECOND : 0);
  return { start: new Date(start).toISOString(), seconds: (end - start) / SECOND, timeline, stops: stops.map(({ queue, localQueue, from, to }) => ({ queue, localQueue, from: after(from), to: to === null ? null : after(to) })), totals, flavors: [], cut };
}
