// A schedule as a picture: each job has a row with its name, time goes from left to right. Only the rows that can be seen exist.
//
// A schedule is {start, end, flavors, texts, jobs, marks, stops}: `start` in milliseconds since 1970, all other times in milliseconds from
// it. A job is {name, queue, priority, submitted, until, ok, holds, waits}; a hold {from, admitted, evicted, to, end, flavor, got, why}
// with `flavor` an index of `flavors`, `got` and `why` of `texts`; a wait [at, text]; a mark {at, kind, queue, text}; a stop
// {queue, localQueue, from, to}, of the ClusterQueue if there is no `localQueue`.

import { clock, show, stamp, ticks } from "./time.js";
import { draw, el, fresh, soon } from "./dom.js";
import { ENDS, KINDS, SHAPES, shape } from "./signs.js";
import { scrollToRow, showVisible } from "./visible.js";

const ROW_HEIGHT = 20;
const MOST_SHARES = 8;
const COLOURS = 16;
const MOST_LISTED = 200;
// Browsers draw nothing beyond some seventeen million pixels.
const MOST_ROWS = 800_000;
const SHORTEST = 1000;
const TAIL = 12;

export class Gantt {
  /** Draws into an element. `options`: label (what it shows, in words), byPriority (or by flavor), onRange(from, to). */
  constructor(host, schedule, options = {}) {
    this.host = host;
    this.schedule = schedule;
    this.options = options;
    this.end = Math.max(schedule.end, 1);
    // What is still open lasts until the schedule ends, also beside a longer one.
    this.last = this.end;
    this.range = [0, this.end];
    this.byPriority = options.byPriority ?? true;
    this.closed = new Set();
    this.shown = new Map();
    this.active = 0;
    this.search = "";
    const priorities = [...new Set(schedule.jobs.map((job) => job.priority))].sort((a, b) => a - b);
    this.shares = new Map(priorities.map((priority, at) => [priority,
      priorities.length <= MOST_SHARES ? Math.round(at * (MOST_SHARES - 1) / Math.max(priorities.length - 1, 1)) : Math.floor(at * MOST_SHARES / priorities.length)]));
    this.queues = this.grouped();
    this.build();
    this.filter();
  }

  grouped() {
    const groups = new Map();
    for (const job of this.schedule.jobs) {
      const name = job.queue ?? "";
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(job);
    }
    for (const { queue } of [...this.schedule.stops, ...this.schedule.marks]) if (queue && !groups.has(queue)) groups.set(queue, []);
    for (const jobs of groups.values()) jobs.sort((a, b) => a.submitted - b.submitted);
    return [...groups].sort(([a], [b]) => (a < b ? -1 : 1));
  }

  build() {
    const label = this.options.label ?? "schedule";
    const button = (text, name, act) => el("button", { type: "button", "aria-label": name, title: name, onclick: act }, text);
    this.found = el("output", { class: "found" });
    this.input = el("input", { type: "search", placeholder: "job or queue", "aria-label": `search in ${label}`, spellcheck: "false", autocomplete: "off",
      oninput: () => { this.search = this.input.value.trim().toLowerCase(); this.filter(); } });
    this.colours = el("select", { "aria-label": `colours of ${label}`, onchange: () => { this.byPriority = this.colours.value === "priority"; this.key(); this.redraw(); } },
      el("option", { value: "priority" }, "colour: priority"), el("option", { value: "flavor" }, "colour: flavor"));
    this.colours.value = this.byPriority ? "priority" : "flavor";
    const span = () => this.range[1] - this.range[0];
    const tools = el("div", { class: "tools" }, this.input, this.found, this.colours,
      el("span", { class: "buttons", role: "group", "aria-label": `time of ${label}` },
        button("−", "zoom out", () => this.zoom(2)), button("+", "zoom in", () => this.zoom(0.5)),
        button("◀", "earlier", () => this.pan(-span() / 4)), button("▶", "later", () => this.pan(span() / 4)),
        button("all", "all: the whole time", () => this.setRange(0, this.end))),
      el("span", { class: "buttons", role: "group", "aria-label": `queues of ${label}` },
        button("fold", "fold all queues", () => this.fold(true)), button("unfold", "unfold all queues", () => this.fold(false))));
    this.window = el("p", { class: "window", "aria-live": "polite" });
    this.axis = draw("svg", { class: "axis", height: 58, "aria-hidden": "true" });
    this.over = draw("svg", { class: "over", "aria-hidden": "true" });
    this.space = el("div", { class: "space", role: "rowgroup" });
    const keys = fresh("keys");
    this.scroller = el("div", { class: "rows", role: "treegrid", "aria-label": label, "aria-colcount": 2, "aria-describedby": keys }, this.space);
    this.legend = el("div", { class: "key" });
    this.detail = el("div", { class: "detail", "aria-live": "polite" });
    const help = el("p", { id: keys, class: "help" }, "Keys on a row: up and down go from row to row, left and right move in time, + and − zoom, 0 shows all, Enter shows a job's story or folds a queue.");
    this.host.replaceChildren(el("div", { class: "gantt" }, tools, this.window, this.legend,
      el("div", { class: "frame" }, el("div", { class: "head" }, el("span", { class: "name" }, "job"), this.axis),
        el("div", { class: "body" }, this.over, this.scroller)), help, this.detail, this.marksList()));
    this.key();
    const later = soon(() => this.rows());
    this.scroller.addEventListener("scroll", later, { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.pressed(event));
    this.scroller.addEventListener("click", (event) => this.clicked(event));
    this.scroller.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.pointer();
    this.watcher = new ResizeObserver(soon(() => { this.ruler(); this.rows(); }));
    this.watcher.observe(this.scroller);
  }

  /** Ends what listens outside. */
  close() {
    this.watcher.disconnect();
  }

  marksList() {
    const { marks } = this.schedule;
    if (!marks.length) return null;
    const lines = marks.slice(0, MOST_LISTED).map((mark) => el("li", null, `${show(mark.at)} (${clock(this.schedule.start + mark.at)} UTC): ${mark.text}`));
    const more = marks.length - lines.length;
    return el("details", { class: "marks" }, el("summary", null, `${marks.length} changes of nodes, queues and quota`),
      el("ol", null, lines), more > 0 ? el("p", null, `and ${more} more`) : null);
  }

  key() {
    const of = (name, text) => el("span", null, el("i", { class: name }), text);
    const { jobs, marks, stops, flavors } = this.schedule;
    const named = [];
    if (this.byPriority) {
      const shares = new Map();
      for (const [priority, share] of this.shares) {
        const [low] = shares.get(share) ?? [priority];
        shares.set(share, [low, priority]);
      }
      for (const [share, [low, high]] of shares) named.push(of(`p${share}`, `priority ${low === high ? low : `${low} to ${high}`}`));
    } else {
      flavors.slice(0, 24).forEach((flavor, at) => named.push(of(`c${at % COLOURS}`, flavor)));
      if (flavors.length > 24) named.push(el("span", null, `and ${flavors.length - 24} more flavors`));
    }
    named.push(of("line", "waiting"), of("reserved", "has quota, waits for its checks"));
    const signs = new Map();
    for (const job of jobs) {
      for (const hold of job.holds) if (SHAPES[hold.end]) signs.set(hold.end, ENDS[hold.end]);
      if (signs.size === 3) break;
    }
    for (const { kind } of marks) if (!signs.has(kind)) signs.set(kind, KINDS[kind] ?? kind);
    for (const [kind, text] of signs) named.push(el("span", null, draw("svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true", class: `sign ${kind}` }, draw("path", { class: "mark", d: SHAPES[kind] })), text));
    if (stops.length) named.push(of("stopped", "stopped queue"));
    this.legend.replaceChildren(...named);
  }

  /** Which rows there are. */
  filter() {
    const wanted = this.search;
    this.list = [];
    let count = 0;
    for (const [queue, jobs] of this.queues) {
      const all = !wanted || queue.toLowerCase().includes(wanted);
      const kept = all ? jobs : jobs.filter((job) => job.name.toLowerCase().includes(wanted));
      if (!kept.length && wanted && !all) continue;
      count += kept.length;
      this.list.push({ queue, jobs, kept: kept.length });
      if (!this.closed.has(queue)) for (const job of kept) this.list.push({ queue, job });
    }
    const total = this.schedule.jobs.length;
    const cut = this.list.length > MOST_ROWS ? `, of which the first ${MOST_ROWS} rows are shown: search for others` : "";
    this.list.length = Math.min(this.list.length, MOST_ROWS);
    this.found.textContent = `${wanted ? `${count} of ${total} jobs` : `${total} jobs`}${cut}`;
    this.space.style.height = `${this.list.length * ROW_HEIGHT}px`;
    this.scroller.setAttribute("aria-rowcount", this.list.length);
    this.active = Math.min(this.active, Math.max(this.list.length - 1, 0));
    this.redraw();
  }

  fold(closed) {
    this.closed = new Set(closed ? this.queues.map(([queue]) => queue) : []);
    this.filter();
  }

  setRange(from, to) {
    if (!Number.isFinite(from) || !Number.isFinite(to)) return;
    const span = Math.min(Math.max(to - from, Math.min(SHORTEST, this.end)), this.end);
    const begin = Math.min(Math.max(from, 0), this.end - span);
    this.showRange(begin, begin + span);
    this.options.onRange?.(begin, begin + span);
  }

  /** The same without notifying others: they may be longer. */
  showRange(from, to) {
    this.range = [from, Math.max(to, from + 1)];
    this.redraw();
  }

  zoom(factor, at = (this.range[0] + this.range[1]) / 2) {
    const [from, to] = this.range;
    this.setRange(at - (at - from) * factor, at + (to - at) * factor);
  }

  pan(by) {
    this.setRange(this.range[0] + by, this.range[1] + by);
  }

  x(at) {
    const [from, to] = this.range;
    return (at - from) / (to - from) * 100;
  }

  redraw() {
    for (const row of this.shown.values()) row.remove();
    this.shown.clear();
    this.ruler();
    this.rows();
  }

  /** The axis of time, and what happens to all. */
  ruler() {
    const [from, to] = this.range;
    const { start, marks } = this.schedule;
    const bar = this.scroller.offsetWidth - this.scroller.clientWidth;
    this.scroller.parentElement.parentElement.style.setProperty("--bar", `${bar}px`);
    const wide = this.axis.clientWidth || 600;
    const times = ticks(from, to, Math.max(Math.floor(wide / 72), 2));
    const axis = [], over = [];
    for (const at of times) {
      const x = `${this.x(at).toFixed(3)}%`;
      over.push(draw("line", { class: "grid", x1: x, x2: x, y1: 0, y2: "100%" }));
      const near = this.x(at) / 100 * wide;
      const anchor = near < 24 ? "start" : near > wide - 24 ? "end" : "middle";
      axis.push(draw("text", { x, y: 14, "text-anchor": anchor }, show(at)), draw("text", { x, y: 29, class: "clock", "text-anchor": anchor }, clock(start + at)));
    }
    const places = new Map();
    for (const mark of marks) {
      if (mark.at < from || mark.at > to) continue;
      const place = Math.round(this.x(mark.at) * 3);
      const known = places.get(place);
      if (known) known.push(mark); else places.set(place, [mark]);
    }
    for (const here of places.values()) {
      const { kind, at } = here.find((mark) => mark.kind === "nodes") ?? here[0];
      const x = `${this.x(at).toFixed(3)}%`;
      const texts = here.slice(0, 5).map((mark) => `${show(mark.at)} (${clock(start + mark.at)} UTC): ${mark.text}`);
      if (here.length > 5) texts.push(`and ${here.length - 5} more`);
      over.push(draw("line", { class: `moment ${kind}`, x1: x, x2: x, y1: 0, y2: "100%" }));
      axis.push(shape(kind in SHAPES ? kind : "scenario", x, 46, texts.join("\n")));
    }
    this.axis.replaceChildren(...axis);
    this.over.replaceChildren(...over);
    this.window.textContent = `${show(from)} to ${show(to)}: ${stamp(Math.round(start + from))} to ${stamp(Math.round(start + to))}`;
  }

  /** The rows that can be seen. */
  rows() {
    showVisible(this.scroller, this.space, this.shown, { height: ROW_HEIGHT, count: this.list.length, make: (at) => this.row(this.list[at], at) });
    if (!this.shown.has(this.active)) this.space.firstElementChild?.setAttribute("tabindex", "0");
  }

  row(entry, at) {
    const text = entry.job ? entry.job.name : `${entry.queue || "no queue"}`;
    const name = entry.job
      ? el("span", { class: "name", role: "rowheader", "data-t": text }, el("span", { class: "front" }, text.slice(0, -TAIL)), el("span", { class: "tail" }, text.slice(-TAIL)))
      : el("span", { class: "name", role: "rowheader", "data-t": `${text}: ${entry.jobs.length} jobs` },
        el("span", { class: "turn", "aria-hidden": "true" }, this.closed.has(entry.queue) ? "▸" : "▾"), el("span", { class: "front" }, text), el("span", { class: "count" }, ` ${entry.kept}`));
    const lane = draw("svg", { class: "lane", height: ROW_HEIGHT, "aria-hidden": "true" });
    lane.append(...(entry.job ? this.job(entry.job) : this.queue(entry)));
    const says = entry.job ? this.says(entry.job) : `${entry.jobs.length} jobs${this.stopsOf(entry.queue).map((stop) => `, ${stop.localQueue ? `${stop.localQueue} ` : ""}stopped ${this.span(stop.from, stop.to ?? this.last)}`).join("")}`;
    const row = el("div", { class: entry.job ? "row" : "row queue", role: "row", tabindex: at === this.active ? "0" : "-1", "aria-rowindex": at + 1, "aria-level": entry.job ? 2 : 1,
      "aria-expanded": entry.job ? null : String(!this.closed.has(entry.queue)) }, name, el("span", { class: "cell", role: "gridcell", "aria-label": says }, lane));
    row.style.top = `${at * ROW_HEIGHT}px`;
    row.dataset.at = at;
    return row;
  }

  stopsOf(queue) {
    return this.schedule.stops.filter((stop) => stop.queue === queue);
  }

  /** A queue's own row: when it or one of its LocalQueues is stopped, and when its quota changes. */
  queue({ queue }) {
    const parts = [];
    for (const stop of this.stopsOf(queue)) {
      const to = stop.to ?? this.last;
      const box = this.box(stop.from, to);
      // A LocalQueue has only a part of the jobs of the row, and so of its height.
      const shown = stop.localQueue ? { class: "stopped some", y: ROW_HEIGHT - 7, height: 4 } : { class: "stopped", y: 3, height: ROW_HEIGHT - 6 };
      if (box) parts.push(draw("rect", { ...shown, ...box, "data-t": `${stop.localQueue ?? queue} is stopped\n${this.span(stop.from, to)}` }));
    }
    for (const mark of this.schedule.marks) {
      if (mark.queue !== queue || mark.kind !== "quota" || mark.at < this.range[0] || mark.at > this.range[1]) continue;
      parts.push(shape("quota", `${this.x(mark.at).toFixed(3)}%`, ROW_HEIGHT / 2, `${mark.text}\n${show(mark.at)} (${clock(this.schedule.start + mark.at)} UTC)`));
    }
    return parts;
  }

  /** Where a stretch of time is; nothing where it cannot be seen. */
  box(from, to) {
    const [begin, end] = this.range;
    if (to < begin || from > end) return null;
    const left = Math.max(this.x(from), 0), right = Math.min(this.x(to), 100);
    return { x: `${left.toFixed(3)}%`, width: `${Math.max(right - left, 0.15).toFixed(3)}%` };
  }

  span(from, to) {
    const { start } = this.schedule;
    return `${show(from)} – ${show(to)} (${clock(start + from)} – ${clock(start + to)} UTC)`;
  }

  /** A job: a line while it waits, a bar while it holds quota, a sign where it lost it. */
  job(job) {
    const parts = [], signs = [];
    const middle = ROW_HEIGHT / 2;
    const wait = (from, to) => {
      const box = to > from && this.box(from, to);
      if (!box) return;
      const tip = this.waitTip(job, from, to);
      parts.push(draw("rect", { class: "wait", y: middle - 1, height: 2, ...box }), draw("rect", { class: "hit", y: 2, height: ROW_HEIGHT - 4, ...box, "data-t": tip }));
    };
    let since = job.submitted;
    for (const hold of job.holds) {
      wait(since, hold.from);
      const to = hold.to ?? this.last;
      const tip = this.holdTip(job, hold, to);
      const paint = this.byPriority ? `p${this.shares.get(job.priority)}` : hold.flavor >= 0 ? `c${hold.flavor % COLOURS}` : "";
      const begins = hold.admitted ?? to;
      if (begins > hold.from) {
        const box = this.box(hold.from, begins);
        if (box) parts.push(draw("rect", { class: "reserved", y: 6, height: ROW_HEIGHT - 12, ...box, "data-t": tip }));
      }
      const box = (begins < to || begins === hold.from) && this.box(begins, to);
      if (box) parts.push(draw("rect", { class: `bar ${paint}`, y: 3, height: ROW_HEIGHT - 6, rx: 2, ...box, "data-t": tip }));
      const lost = hold.evicted ?? to;
      if (SHAPES[hold.end] && lost >= this.range[0] && lost <= this.range[1]) {
        const why = hold.why >= 0 ? ` ${this.schedule.texts[hold.why]}` : "";
        signs.push(shape(hold.end, `${this.x(lost).toFixed(3)}%`, middle, `${job.name}\n${ENDS[hold.end]} at ${show(lost)} (${clock(this.schedule.start + lost)} UTC)${why}`));
      }
      since = to;
    }
    const last = job.holds.at(-1);
    if (!last || (last.to !== null && last.end !== "finished" && last.end !== "failed")) wait(since, job.until ?? this.last);
    return [...parts, ...signs];
  }

  waitTip(job, from, to) {
    const lines = [`${job.name} (priority ${job.priority})`, `waits ${this.span(from, to)}`];
    for (const [at, text] of job.waits) {
      if (at >= from && at <= to && lines.length < 6) lines.push(`${show(at)}: ${this.schedule.texts[text]}`);
    }
    return lines.join("\n");
  }

  holdTip(job, hold, to) {
    const held = hold.admitted === null ? "only reserved, " : "";
    return `${job.name} (priority ${job.priority})\n${this.span(hold.from, to)}: ${held}${ENDS[hold.end]}\n${this.schedule.texts[hold.got] ?? ""}`;
  }

  /** A job's row in words. */
  says(job) {
    const parts = [`priority ${job.priority}`, `submitted at ${show(job.submitted)}`];
    for (const hold of job.holds.slice(0, 6)) parts.push(`${ENDS[hold.end]} after ${show(hold.from)} to ${show(hold.to ?? this.last)}`);
    if (job.holds.length > 6) parts.push(`and ${job.holds.length - 6} more times`);
    if (!job.holds.length) parts.push("never started");
    return parts.join(", ");
  }

  /** The whole story of a job, below the picture. */
  story(job) {
    const { texts, start } = this.schedule;
    const at = (time) => `${show(time)} (${stamp(start + time)})`;
    const lines = [[job.submitted, "submitted"]];
    for (const [time, text] of job.waits) lines.push([time, `waits: ${texts[text]}`]);
    for (const hold of job.holds) {
      lines.push([hold.from, `gets ${texts[hold.got] || "quota"}`]);
      if (hold.admitted !== null && hold.admitted > hold.from) lines.push([hold.admitted, "admitted, its checks are ready"]);
      if (hold.to !== null) lines.push([hold.evicted ?? hold.to, `${ENDS[hold.end]}${hold.why >= 0 ? ` ${texts[hold.why]}` : ""}`]);
    }
    lines.sort((a, b) => a[0] - b[0]);
    const kept = lines.slice(0, 60);
    this.detail.replaceChildren(el("h4", null, `${job.name} (priority ${job.priority}${job.queue ? `, ${job.queue}` : ""})`),
      el("ol", null, kept.map(([time, text]) => el("li", null, `${at(time)}: ${text}`))),
      ...(lines.length > kept.length ? [el("p", null, `and ${lines.length - kept.length} more`)] : []));
  }

  choose(at) {
    const entry = this.list[at];
    if (!entry) return;
    if (entry.job) return this.story(entry.job);
    if (this.closed.has(entry.queue)) this.closed.delete(entry.queue); else this.closed.add(entry.queue);
    this.active = at;
    this.filter();
    this.go(at);
  }

  /** Puts the focus on a row. */
  go(at) {
    const next = Math.min(Math.max(at, 0), this.list.length - 1);
    if (next < 0) return;
    this.shown.get(this.active)?.setAttribute("tabindex", "-1");
    this.active = next;
    scrollToRow(this.scroller, next, ROW_HEIGHT);
    this.rows();
    const row = this.shown.get(next);
    row?.setAttribute("tabindex", "0");
    row?.focus({ preventScroll: true });
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(Math.floor(this.scroller.clientHeight / ROW_HEIGHT) - 1, 1);
    const quarter = (this.range[1] - this.range[0]) / 4;
    const again = (act) => { act(); this.go(this.active); };
    const acts = {
      ArrowUp: () => this.go(this.active - 1), ArrowDown: () => this.go(this.active + 1),
      PageUp: () => this.go(this.active - page), PageDown: () => this.go(this.active + page),
      Home: () => this.go(0), End: () => this.go(this.list.length - 1),
      ArrowLeft: () => again(() => this.pan(-quarter)), ArrowRight: () => again(() => this.pan(quarter)),
      "+": () => again(() => this.zoom(0.5)), "=": () => again(() => this.zoom(0.5)), "-": () => again(() => this.zoom(2)),
      0: () => again(() => this.setRange(0, this.end)), Enter: () => this.choose(this.active), " ": () => this.choose(this.active),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    const row = event.target.closest(".row");
    if (row) this.active = Number(row.dataset.at);
    act();
  }

  clicked(event) {
    const row = event.target.closest(".row");
    if (!row || this.dragged) return;
    const at = Number(row.dataset.at);
    this.go(at);
    this.choose(at);
  }

  /** The time below a pointer. */
  timeAt(clientX) {
    const { left, width } = this.axis.getBoundingClientRect();
    const part = Math.min(Math.max((clientX - left) / Math.max(width, 1), 0), 1);
    return this.range[0] + part * (this.range[1] - this.range[0]);
  }

  wheel(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.timeAt(event.clientX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      const by = (event.deltaX || event.deltaY) / Math.max(this.axis.clientWidth, 1);
      this.pan(by * (this.range[1] - this.range[0]));
    }
  }

  /** Dragging moves in time; a double click zooms in. */
  pointer() {
    let from = null;
    this.scroller.addEventListener("pointerdown", (event) => {
      this.dragged = false;
      if (event.button === 0 && event.target.closest(".lane")) from = { x: event.clientX, range: [...this.range] };
    });
    const move = soon(() => {
      if (!from || from.now === undefined) return;
      const by = (from.x - from.now) / Math.max(this.axis.clientWidth, 1) * (from.range[1] - from.range[0]);
      this.setRange(from.range[0] + by, from.range[1] + by);
    });
    this.scroller.addEventListener("pointermove", (event) => {
      if (!from) return;
      if (!(event.buttons & 1)) { from = null; return; }
      if (Math.abs(event.clientX - from.x) < 4 && !this.dragged) return;
      this.dragged = true;
      from.now = event.clientX;
      move();
    });
    for (const end of ["pointerup", "pointerleave", "pointercancel"]) this.scroller.addEventListener(end, () => { from = null; });
    this.scroller.addEventListener("dblclick", (event) => { if (event.target.closest(".lane")) this.zoom(0.5, this.timeAt(event.clientX)); });
  }
}

/** Lets two schedules show the same time; each keeps its own rows. Both cover the time of the longer one. */
export function together(gantts) {
  const end = Math.max(...gantts.map((gantt) => gantt.end));
  for (const gantt of gantts) {
    gantt.end = end;
    gantt.options.onRange = (from, to) => { for (const other of gantts) if (other !== gantt) other.showRange(from, to); };
    gantt.showRange(0, end);
  }
}
