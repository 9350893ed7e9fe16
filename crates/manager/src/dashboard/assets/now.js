// Now: cohorts and queues as a tree with quota, usage, what is borrowed and lent; and what just happened.

import { get } from "./api.js";
import { number, queueLink, trouble, when, whose, word, workloadLink } from "./amounts.js";
import { draw, el, renew } from "./dom.js";
import { Rows } from "./rows.js";

const COLUMNS = [
  { title: "Cohort, queue, flavor", size: "minmax(150px, 3fr)" },
  { title: "Used of nominal", size: "minmax(90px, 1.5fr)" },
  { title: "Used", size: "minmax(110px, 2fr)", wide: 560 },
  { title: "Borrowed", size: "minmax(80px, 1fr)", wide: 700 },
  { title: "Lent, may lend", size: "minmax(120px, 1.6fr)", wide: 700 },
  { title: "Pending", n: true, size: "80px" },
  { title: "Admitted", n: true, size: "80px", wide: 480 },
  { title: "State", size: "minmax(64px, 0.8fr)", wide: 640 },
];

/** What is used, over nominal quota, as a bar: own quota, borrowed quota, a line at nominal. */
function bar({ nominal, used }, says) {
  const most = Math.max(number(nominal), number(used), 1e-9);
  const percent = (amount) => `${Math.max(Math.min(number(amount) / most * 100, 100), 0).toFixed(2)}%`;
  const own = Math.min(number(used), number(nominal));
  return el("span", { role: "gridcell", class: "bar-cell", "aria-label": says, "data-t": says }, draw("svg", { "aria-hidden": "true" },
    draw("rect", { class: "back", x: 0, y: 9, width: "100%", height: 10, rx: 3 }),
    own > 0 ? draw("rect", { class: "own", x: 0, y: 9, width: percent(own), height: 10 }) : null,
    used > nominal ? draw("rect", { class: "lent", x: percent(nominal), y: 9, width: percent(used - nominal), height: 10 }) : null,
    nominal > 0 && nominal < most ? draw("line", { class: "limit", x1: percent(nominal), x2: percent(nominal), y1: 5, y2: 23 }) : null));
}

function who(level, expanded, content) {
  const indent = el("span", { class: "indent", "aria-hidden": "true" });
  indent.style.width = `${(level - 1) * 16}px`;
  const turn = expanded === undefined ? "" : expanded ? "▾ " : "▸ ";
  return el("span", { role: "gridcell", class: "who" }, indent, el("span", { class: "turn", "aria-hidden": "true" }, turn), content);
}

/** The slots of a queue: one for each flavor and resource. */
function slots(queue) {
  return (queue.flavors ?? []).flatMap(({ flavor, resources }) => (resources ?? []).map((one) => ({ ...one, flavor })));
}

/** The slot of which the largest part is used. */
function fullest(all) {
  const part = (slot) => number(slot.used) / Math.max(number(slot.nominal), 1e-9);
  return all.reduce((most, slot) => (!most || part(slot) > part(most) ? slot : most), null);
}

/** Sums over queues and cohorts' own quota, for each flavor and resource. What is used of a cohort's own is used by queues. */
function sums(queues, cohorts) {
  const found = new Map();
  const own = cohorts.flatMap(slots).map((slot) => ({ ...slot, used: 0, borrowed: 0 }));
  for (const slot of [...queues.flatMap(slots), ...own]) {
    const name = `${slot.flavor}\n${slot.resource}`;
    const sum = found.get(name) ?? { flavor: slot.flavor, resource: slot.resource, nominal: 0, used: 0, borrowed: 0, lent: 0 };
    for (const part of ["nominal", "used", "borrowed", "lent"]) sum[part] += number(slot[part]);
    found.set(name, sum);
  }
  return [...found.values()];
}

const UNITS = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

/** A sum as people read it. */
function plain(resource, amount) {
  if (/memory|storage|hugepages/.test(resource)) {
    let unit = 0, rest = amount;
    while (rest >= 1024 && unit < UNITS.length - 1) { rest /= 1024; unit += 1; }
    return `${+rest.toFixed(1)}${UNITS[unit]}`;
  }
  return String(+amount.toFixed(3));
}

const PARTS = ["nominal", "used", "borrowed", "lent"];
const texts = (slot) => slot.shown ?? Object.fromEntries(PARTS.map((part) => [part, plain(slot.resource, number(slot[part]))]));
const says = (slot) => `${slot.resource} of ${slot.flavor}: ${texts(slot).used} used of ${texts(slot).nominal}${["borrowed", "lent"].filter((part) => number(slot[part]) > 0).map((part) => `, ${texts(slot)[part]} ${part}`).join("")}`;

/** What a slot's queue borrows. */
function borrowed(slot) {
  return number(slot.borrowed) > 0 ? `${texts(slot).borrowed} ${slot.resource}` : "";
}

/** What others use of a slot's quota, and how much more of it they may if it is in a cohort. */
function lent(slot, lends) {
  const now = number(slot.lent), given = now > 0 ? [`${texts(slot).lent} ${slot.resource} lent`] : [];
  // All that is used of a cohort's own quota is lent. Its limit is for others than its members.
  const idle = number(slot.nominal) - (slot.own ? 0 : number(slot.used));
  if (idle <= 0 || !lends) return given.join(", ");
  const more = (Number.isFinite(slot.lendingLimit) && !slot.own ? Math.min(idle, slot.lendingLimit) : idle) - now;
  if (more > 0) given.push(`may lend ${plain(slot.resource, more)} ${slot.resource}${now > 0 ? " more" : ""}`);
  else if (!given.length) given.push(`lends no ${slot.resource}`);
  return given.join(", ");
}

/** The queues, and as one more those that the user may not know. */
function everyone(now) {
  if (!now.others) return now.clusterQueues;
  const count = number(now.others.queues);
  return [...now.clusterQueues, { ...now.others, name: count === 1 ? "1 other queue" : `${count} other queues`, state: "", others: true }];
}

/** The tree as lines: those below what is closed are left out. */
export function lines(now, closed, search) {
  const wanted = search.toLowerCase();
  const queues = everyone(now).filter((queue) => !wanted || queue.name.toLowerCase().includes(wanted) || String(queue.cohort ?? "").toLowerCase().includes(wanted));
  const below = new Map();
  for (const queue of queues) {
    const name = queue.cohort ?? "";
    if (!below.has(name)) below.set(name, []);
    below.get(name).push(queue);
  }
  const known = new Map((now.cohorts ?? []).map((cohort) => [cohort.name, cohort]));
  for (const name of below.keys()) if (name && !known.has(name)) known.set(name, { name, parent: null });
  const children = new Map();
  for (const { name, parent } of known.values()) {
    const above = parent && known.has(parent) && parent !== name ? parent : "";
    if (!children.has(above)) children.set(above, []);
    children.get(above).push(name);
  }
  for (const names of [...children.values()]) names.sort();
  const found = [], visited = new Set();
  // All queues below, in order; a circle of cohorts ends at what was visited. `seen` has the cohorts then.
  const all = (name, seen) => {
    if (seen.has(name)) return [];
    seen.add(name);
    return [...(below.get(name) ?? []), ...(children.get(name) ?? []).flatMap((child) => all(child, seen))];
  };
  const queueLines = (queue, level) => {
    const lends = Boolean(queue.cohort);
    const open = closed.has(`open ${queue.name}`);
    found.push({ queue, lends, level, expanded: slots(queue).length > 0 ? open : undefined });
    if (open) for (const slot of slots(queue)) found.push({ slot, lends, level: level + 1 });
  };
  const walk = (name, level) => {
    if (visited.has(name)) return;
    visited.add(name);
    const seen = new Set(), inside = all(name, seen);
    if (!inside.length && wanted) return;
    const open = !closed.has(`cohort ${name}`);
    found.push({ cohort: name, level, queues: inside, cohorts: [...seen].map((one) => known.get(one)), expanded: open });
    if (!open) return;
    for (const slot of slots(known.get(name))) found.push({ slot: { ...slot, own: true }, lends: true, level: level + 1 });
    for (const child of children.get(name) ?? []) walk(child, level + 1);
    for (const queue of below.get(name) ?? []) queueLines(queue, level + 1);
  };
  for (const name of children.get("") ?? []) walk(name, 1);
  // Cohorts that are each other's parents have no top.
  for (const name of known.keys()) walk(name, 1);
  for (const queue of below.get("") ?? []) queueLines(queue, 1);
  return found;
}

function cells(line, columns) {
  const all = new Map();
  const put = (titles) => COLUMNS.forEach((column, i) => all.set(column, titles[i]));
  if (line.slot) {
    const name = `${line.slot.resource} of ${line.slot.flavor}${line.slot.own ? ", the cohort's own" : ""}`;
    put([who(line.level, undefined, el("span", { class: "text" }, name)), bar(line.slot, says(line.slot)),
      `${texts(line.slot).used} of ${texts(line.slot).nominal}`, borrowed(line.slot), lent(line.slot, line.lends), "", "", limits(line.slot)]);
  } else {
    const own = line.queue ? slots(line.queue) : sums(line.queues, line.cohorts);
    const top = fullest(own);
    const count = (field) => (line.queue ? number(line.queue[field]) : line.queues.reduce((sum, queue) => sum + number(queue[field]), 0));
    const name = line.queue && !line.queue.others ? el("a", { href: queueLink(line.queue.name), tabindex: "-1", class: "text" }, line.queue.name)
      : el("span", { class: "text" }, line.queue ? line.queue.name : `${line.cohort} (${line.queues.length})`);
    const state = line.queue ? line.queue.state : "";
    put([who(line.level, line.expanded, name), top ? bar(top, own.map(says).slice(0, 12).join("\n")) : "",
      top ? `${texts(top).used} of ${texts(top).nominal} ${top.resource}` : "no quota", ...[borrowed, (slot) => lent(slot, line.lends)].map((part) => own.map(part).filter(Boolean).join(", ")),
      count("pending"), count("admitted"), state === "active" ? "active" : [state, line.queue?.reason].filter(Boolean).join(": ")]);
  }
  const off = line.queue && !line.queue.others && line.queue.state !== "active";
  return { cells: columns.map((column) => all.get(column)), level: line.level, expanded: line.expanded, opens: line.expanded !== undefined,
    kind: line.cohort !== undefined ? "cohort" : line.slot ? "slot" : off ? "off" : "" };
}

function limits(slot) {
  const known = [slot.borrowingLimit !== null && slot.borrowingLimit !== undefined ? `borrows at most ${plain(slot.resource, number(slot.borrowingLimit))}` : "",
    slot.lendingLimit !== null && slot.lendingLimit !== undefined ? `lends at most ${plain(slot.resource, number(slot.lendingLimit))}` : ""];
  return known.filter(Boolean).join(", ");
}

function event(one) {
  const name = one.workload ? el("a", { href: workloadLink(one.namespace, one.workload) }, whose(one)) : whose(one);
  const queue = one.clusterQueue ? [" in ", el("a", { href: queueLink(one.clusterQueue) }, one.clusterQueue)] : [];
  return el("li", null, el("time", { datetime: one.at }, when(one.at)), " ", word(one.what), " ", name, queue, one.message || one.reason ? `: ${[one.reason, one.message].filter(Boolean).join(": ")}` : "");
}

const MOST_FLAVORS = 100;

/** Each flavor and resource over all queues and cohorts. */
function flavorTable(queues, cohorts) {
  const all = sums(queues, cohorts).sort((a, b) => (a.flavor + a.resource < b.flavor + b.resource ? -1 : 1));
  const row = (slot) => el("tr", null, el("th", { scope: "row" }, slot.flavor), el("td", null, slot.resource), el("td", { class: "n" }, plain(slot.resource, slot.used)),
    el("td", { class: "n" }, plain(slot.resource, slot.nominal)), el("td", { class: "n" }, slot.nominal > 0 ? `${(slot.used / slot.nominal * 100).toFixed(0)} %` : "–"), el("td", { class: "n" }, plain(slot.resource, slot.borrowed)));
  const head = ["Flavor", "Resource", "Used", "Nominal", "", "Borrowed and lent"].map((title, at) => el(title ? "th" : "td", { scope: title ? "col" : null, class: at > 1 ? "n" : null }, title));
  return [el("table", null, el("thead", null, el("tr", null, head)), el("tbody", null, all.slice(0, MOST_FLAVORS).map(row))), all.length > MOST_FLAVORS ? el("p", null, `and ${all.length - MOST_FLAVORS} more`) : ""];
}

/** The view. Gives what ends it and what makes it read again. */
export function view(host) {
  const closed = new Set();
  let now = { cohorts: [], clusterQueues: [], recent: [] }, shown = [];
  const search = el("input", { type: "search", "aria-label": "search queues and cohorts", placeholder: "queue or cohort", oninput: () => redraw() });
  const count = el("output", { class: "count-line" });
  const left = el("section", { "aria-label": "Cohorts and queues" }, el("div", { class: "tools" }, search, count));
  const recent = el("ol", { class: "events", tabindex: "0", "aria-label": "What just happened" });
  const note = el("div"), flavors = el("div", { class: "card" });
  host.append(note, el("div", { class: "split" }, left, el("section", { class: "card" }, el("h2", null, "What just happened"), recent)), el("h2", null, "Flavors, over all queues and cohorts"), flavors);
  const rows = new Rows(left, { label: "Cohorts and queues", role: "treegrid", columns: COLUMNS, count: () => shown.length, cells: (at, columns) => cells(shown[at], columns),
    open: (at) => {
      const line = shown[at];
      if (line.expanded === undefined) return;
      const name = line.queue ? `open ${line.queue.name}` : `cohort ${line.cohort}`;
      if (!closed.delete(name)) closed.add(name);
      redraw();
    } });
  const redraw = () => {
    shown = lines(now, closed, search.value.trim());
    const pending = everyone(now).reduce((sum, queue) => sum + number(queue.pending), 0);
    count.textContent = `${now.clusterQueues.length + number(now.others?.queues)} queues, ${pending} workloads pending`;
    rows.refresh();
  };
  const read = async (signal) => {
    try {
      now = { cohorts: [], clusterQueues: [], recent: [], ...await get("/api/now", {}, signal) };
      note.replaceChildren();
      renew(recent, el("ol", null, now.recent.length ? now.recent.slice(0, 200).map(event) : el("li", null, "Nothing has happened yet.")));
      renew(flavors, el("div", null, flavorTable(everyone(now), now.cohorts)));
      redraw();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.code === 401) throw error;
      note.replaceChildren(trouble(error));
    }
  };
  return { read, close: () => rows.close() };
}
