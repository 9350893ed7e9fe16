// Draws and uses schedules of reports that no simulation makes; what could not be done.
(async () => {
  const { fromReport } = await import("/schedule.js");
  const { Gantt, together } = await import("/gantt.js");
  const { lines } = await import("/now.js");
  const { events } = await import("/api.js");
  const { expected, startBasis, startText } = await import("/queue.js");
  const { Heat } = await import("/heat.js");
  const { Places } = await import("/places.js");
  const trouble = [];
  const host = document.createElement("div");
  document.getElementById("main").replaceChildren(host);
  const start = "2026-01-01T00:00:00Z";
  const many = (count, make) => Array.from({ length: count }, (_, at) => make(at));
  const reports = [
    { seconds: 0, start, timeline: [] },
    { seconds: 5, start, timeline: [null, 5, "x", {}, []] },
    { seconds: 10, start: "nonsense", timeline: [{ at: 1, event: "admitted", job: "a/b", queue: null, flavors: null }] },
    { seconds: -5, start, timeline: [{ at: -1, event: "submitted", job: "a/b" }, { at: 99999, event: "finished", job: "a/b" }] },
    { seconds: 1e15, start, timeline: [{ at: 1e14, event: "submitted", job: `\u202e<b>x</b>${"y".repeat(5000)}`, priority: -2147483648, clusterQueue: "q".repeat(300) }] },
    { seconds: 3600, start, flavors: [{ flavor: "__proto__" }], timeline: [{ at: "x", event: "toString", job: "constructor" }, { at: null, event: "scenario" }, { at: 5, event: "preempted", job: "z/z" }, { at: 6, event: "waiting", job: "z/z" }] },
    { seconds: 86400, start, timeline: many(5000, (at) => ({ at: at * 17, event: at % 2 ? "scenario" : "refused", message: `nodes fail: ${at}` })) },
    { seconds: 86400, start, timeline: many(40000, (at) => ({ at: at / 3, event: ["submitted", "admitted", "finished", "waiting"][at % 4], job: `n/${at >> 2}`, success: true, queue: "q", flavors: "cpu=f (1)", reason: "r", message: `m${at}` })) },
  ];
  for (const [number, report] of reports.entries()) {
    try {
      const schedule = fromReport(report);
      const one = new Gantt(host, schedule), two = new Gantt(document.createElement("div"), schedule);
      one.zoom(0.001);
      one.pan(1e18);
      one.setRange(-5, 5);
      one.setRange(NaN, NaN);
      one.setRange(0, 1e99);
      for (const key of ["ArrowDown", "Enter", "End", "Enter", "PageUp", "+", "-", "0", "ArrowLeft"]) one.scroller.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      together([one, two]);
      const [from, to] = one.range;
      if (!(from >= 0 && to > from)) trouble.push(`report ${number} shows ${from} to ${to}`);
      if (host.querySelectorAll("*").length > 3000) trouble.push(`report ${number} has ${host.querySelectorAll("*").length} elements`);
      if (host.querySelector("b")) trouble.push("a name became an element");
      one.close();
      two.close();
    } catch (error) {
      trouble.push(`report ${number}: ${error.stack}`);
    }
  }
  for (const wrong of [null, [], {}, 7, { timeline: {} }, { timeline: [], seconds: "5" }]) {
    try {
      fromReport(wrong);
      trouble.push(`${JSON.stringify(wrong)} is taken for a report`);
    } catch (error) {
      if (!error.message.startsWith("This is not")) trouble.push(error.message);
    }
  }
  for (const wrong of [null, {}, { items: 7 }, { items: [null, 7, {}, { namespace: "__proto__", workload: "x" }] }]) expected(wrong);
  const day = new Date().toISOString().slice(0, 10);
  const says = (start) => startText({ starts: 20, preempts: [], others: 0, ...start }, { hours: 72, futures: 20 });
  for (const [text, wanted] of [
    [says({ early: `${day}T14:05:00Z`, expected: `${day}T14:20:00Z`, late: `${day}T15:10:00Z` }), "about 14:20 (14:05–15:10)"],
    [says({ early: `${day}T14:20:00Z`, expected: `${day}T14:20:30Z`, late: `${day}T14:20:59Z`, preempts: ["a/b"], others: 2 }), "about 14:20; preempts a/b, 2 more"],
    [says({ early: `${day}T14:05:00Z`, expected: `${day}T14:20:00Z`, late: null, others: 1 }), "about 14:20 (14:05–later); preempts 1 of others"],
    [says({ expected: null, starts: 3 }), "in 3 of 20 futures only"], [says({ expected: null, starts: 0 }), "not within 72h"],
    [startBasis({ whyNot: "checks" }), "No estimate: checks."],
  ]) if (text !== wanted) trouble.push(`${text} is not ${wanted}`);
  const heat = new Heat(host, { label: "domains" });
  for (const domains of [[], many(5000, (at) => ({ name: `<b>${at}</b>`, used: at, capacity: at % 3 ? 10 : 0, nodes: 2, healthy: at % 2, jobs: ["<i>x</i>"] })), [{ name: "x", used: NaN, capacity: Infinity }]]) {
    heat.show(domains, { what: "gpu" });
    if (host.querySelector("b, i:not(.key i)") || heat.cells.childElementCount > 240) trouble.push(`a heat map of ${domains.length} domains`);
  }
  // Places that lead nowhere are left out; names stay texts.
  const topology = { name: "<b>t</b>", levels: ["l"], resources: ["x/gpu"], leaves: [["<b>a</b>"], ["__proto__"]], nodes: [[0, 9e99, 1, 0, 8], [0, 9, 1, 7, 8], [0, NaN, 1, 1, 8], [0, 9, 1, 0.5, 8], null],
    sizes: [[2]], jobs: ["<b>j</b>", 7], pods: [[0, 9e99, 0, 0, 0, 1], [0, 9e99, 1, 1, 0, 2], [0, 9, -1, 0, 0, 1], [0, 9, 0, 2, 0, 1], [0, 9, 0, 0, 3, 1], "x"] };
  for (const [places, topologies] of [[null, 0], [{}, 0], [[null, 7, {}, { ...topology, levels: [] }, { ...topology, leaves: [["a", "b"]] }, { ...topology, sizes: [[1, 2]] }], 0], [[topology, { ...topology, pods: [] }], 2], [many(50, () => topology), 20]]) {
    const schedule = fromReport({ seconds: 5, start, timeline: [], places });
    if (schedule.places.length !== topologies) trouble.push(`${schedule.places.length} topologies, not ${topologies}`);
    for (const one of schedule.places) {
      host.replaceChildren();
      const shown = new Places(host, one, schedule);
      for (const at of [NaN, -1, 1e99]) shown.show(at);
      shown.open("<b>a</b>");
      shown.open("none");
      if (one.nodes.length !== 1 || host.querySelector("b")) trouble.push(`a topology with ${one.nodes.length} nodes`);
    }
  }
  const again = fromReport({ seconds: 9, start, timeline: [0, 2, 4].flatMap((at) => [{ at, event: "submitted", job: "a/a" }, { at: at + 1, event: "finished", job: "a/a", success: true }]) });
  if (again.jobs.length !== 3) trouble.push(`${again.jobs.length} of three jobs of one name`);
  const cut = fromReport({ seconds: 9, start, cut: true, timeline: [{ at: 1, event: "submitted", job: "a/a" }, { at: 4, event: "admitted", job: "a/a", queue: "q", flavors: "" }] });
  if (cut.end !== 4000) trouble.push(`a report that is cut after 4 s is drawn for ${cut.end} ms`);
  // Quota that is held before the admission, and lost before it.
  const [checked] = fromReport({ seconds: 9, start, timeline: [["submitted", 0], ["reserved", 1], ["evicted", 3], ["reserved", 4], ["admitted", 6], ["finished", 8]].map(([event, at]) => ({ at, event, job: "a/a", success: true })) }).jobs;
  const held = checked.holds.map(({ from, admitted, to, end }) => [from, admitted ?? "never", to, end].join()).join("; ");
  if (held !== "1000,never,3000,evicted; 4000,6000,8000,finished") trouble.push(`quota is held ${held}`);
  // Cohorts in a circle, and one that is missing.
  const tree = lines({ cohorts: [{ name: "a", parent: "b" }, { name: "b", parent: "a" }, { name: "c", parent: "c" }], clusterQueues: [{ name: "q", cohort: "a" }, { name: "r", cohort: null }, { name: "s", cohort: "gone" }] }, new Set(), "");
  const queues = tree.map((line) => line.queue?.name).filter(Boolean).sort().join();
  if (queues !== "q,r,s") trouble.push(`the tree has the queues ${queues}`);
  // Queues that the user may not know.
  const [, sum] = lines({ cohorts: [], clusterQueues: [{ name: "q", cohort: null }], others: { queues: 2, pending: 3, flavors: [] } }, new Set(), "");
  if (sum?.queue.name !== "2 other queues") trouble.push(`the sum of other queues is ${JSON.stringify(sum)}`);
  const [found, rest] = events("event: a\r\ndata: 1\r\n\r\n: ping\n\ndata:2\ndata: 3\n\nevent: x");
  if (JSON.stringify([found, rest]) !== JSON.stringify([[{ event: "a", data: "1" }, { event: "message", data: "2\n3" }], "event: x"])) trouble.push(`events: ${JSON.stringify(found)}`);
  return trouble;
})()
