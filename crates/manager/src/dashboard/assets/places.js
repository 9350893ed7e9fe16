// Topologies over time: a heat map of the domains at one moment, which a slider moves, opened level by level, and how large a job fits then.
//
// A topology is {name, levels, resources, leaves, nodes, sizes, jobs, pods, cut}: `leaves` has the values of each lowest domain; a node is
// [from, to, healthy, leaf, amount of each resource…]; `sizes` has what a pod takes of each resource; `jobs` has names, or null for one that is not
// shown; pods are [from, to, job, leaf, size, count]. Times in milliseconds from the beginning.

import { el } from "./dom.js";
import { CELLS, Heat } from "./heat.js";
import { show, stamp } from "./time.js";

const lastPart = (label) => String(label).split("/").pop();

/** An amount as people read it. */
const plainAmount = (resource, amount) => {
  if (resource === "cpu") return String(+(amount / 1000).toFixed(2));
  if (!/memory|storage|hugepages/.test(resource)) return String(amount);
  let unit = 0, rest = amount;
  while (rest >= 1024 && unit < 5) { rest /= 1024; unit += 1; }
  return `${+rest.toFixed(1)}${["", "Ki", "Mi", "Gi", "Ti", "Pi"][unit]}`;
};

export class Places {
  /** `of` says whose topology it is where there are several of that name. */
  constructor(host, topology, schedule, of = "") {
    Object.assign(this, { topology, schedule, path: [], at: 0, resource: 0, offset: 0 });
    const { name, resources } = topology;
    const full = of ? `${name} of ${of}` : name;
    const what = el("select", { "aria-label": `resource of ${full}`, onchange: () => { this.resource = Number(what.value); this.draw(); } }, resources.map((one, at) => el("option", { value: String(at) }, one)));
    this.slider = el("input", { type: "range", class: "time", min: "0", max: String(schedule.end), step: String(Math.max(Math.round(schedule.end / 1e6), 1) * 1000), "aria-label": `time of ${full}`, oninput: () => { this.at = Number(this.slider.value); this.draw(); this.onMove?.(this.at); } });
    this.slider.value = "0";
    this.moment = el("output", { class: "window" });
    this.way = el("nav", { class: "way", "aria-label": `path in ${full}` });
    this.fits = el("div", { class: "wide", role: "region", tabindex: "0", "aria-label": `pods that fit into ${full}` });
    this.detail = el("div", { "aria-live": "polite" });
    const space = el("div");
    host.append(el("h3", null, `Topology ${name}`), topology.cut ? el("p", null, "There are too many placements: the first are drawn.") : "",
      el("div", { class: "tools" }, el("label", null, "at ", this.slider), this.moment, what), this.way, space, this.detail, this.fits);
    this.heat = new Heat(space, { label: `domains of ${full}`, choose: (name) => this.open(name), page: (offset) => { this.offset = offset; this.draw(); } });
    this.show(Math.min(this.busiest(), schedule.end));
  }

  /** A moment at which most pods have a place: the first one of them. */
  busiest() {
    const moves = new Map();
    for (const [from, to, , , , count] of this.topology.pods) {
      moves.set(from, (moves.get(from) ?? 0) + count);
      moves.set(to, (moves.get(to) ?? 0) - count);
    }
    let now = 0, most = 0, best = 0;
    for (const [at, by] of [...moves].sort((a, b) => a[0] - b[0])) {
      now += by;
      if (now > most) [most, best] = [now, at];
    }
    return best;
  }

  show(at) {
    this.at = at;
    this.slider.value = String(at);
    // The slider has steps: what is drawn is the moment itself.
    this.draw();
  }

  lowest() {
    return this.path.length >= this.topology.levels.length - 1;
  }

  open(name) {
    if (!this.lowest()) { this.path = [...this.path, name]; this.offset = 0; this.detail.replaceChildren(); this.draw(); return; }
    const domain = this.domains.find((one) => one.name === name);
    this.detail.replaceChildren(el("h4", null, name), domain?.jobs.length ? el("ul", null, domain.jobs.map((job) => el("li", null, job))) : el("p", null, "No job is here at this time."));
  }

  /** What each leaf has and uses at the moment. */
  leaves() {
    const { leaves, nodes, pods, sizes, jobs, resources } = this.topology;
    const all = leaves.map((path) => ({ path, nodes: 0, healthy: 0, offers: resources.map(() => 0), free: resources.map(() => 0), used: resources.map(() => 0), jobs: new Map() }));
    for (const [from, to, healthy, leaf, ...amounts] of nodes) {
      if (from > this.at || (to <= this.at && to < this.schedule.end)) continue;
      const one = all[leaf];
      one.nodes += 1;
      one.healthy += healthy;
      amounts.forEach((amount, at) => { one.offers[at] += amount; if (healthy) one.free[at] += amount; });
    }
    for (const [from, to, job, leaf, size, count] of pods) {
      if (from > this.at || (to <= this.at && to < this.schedule.end)) continue;
      const one = all[leaf];
      sizes[size].forEach((amount, at) => { one.used[at] += amount * count; one.free[at] -= amount * count; });
      const name = jobs[job] ?? null;
      one.jobs.set(name, (one.jobs.get(name) ?? 0) + count);
    }
    return all;
  }

  draw() {
    const { name, levels, resources } = this.topology;
    const { start } = this.schedule;
    const says = `${show(this.at)} (${stamp(start + this.at)})`;
    this.moment.textContent = says;
    this.slider.setAttribute("aria-valuetext", says);
    const depth = this.path.length, resource = resources[this.resource] ?? "";
    const all = this.leaves();
    const found = new Map();
    for (const leaf of all) {
      if (this.path.some((value, at) => leaf.path[at] !== value)) continue;
      const child = leaf.path[depth];
      if (!found.has(child)) found.set(child, { name: child, used: 0, capacity: 0, nodes: 0, healthy: 0, pods: new Map() });
      const domain = found.get(child);
      domain.used += leaf.used[this.resource] ?? 0;
      domain.capacity += leaf.offers[this.resource] ?? 0;
      domain.nodes += leaf.nodes;
      domain.healthy += leaf.healthy;
      for (const [job, count] of leaf.jobs) domain.pods.set(job, (domain.pods.get(job) ?? 0) + count);
    }
    const order = new Intl.Collator("en", { numeric: true }).compare;
    this.domains = [...found.values()].sort((a, b) => order(a.name, b.name)).map((domain) => ({ ...domain, shown: { used: plainAmount(resource, domain.used), capacity: plainAmount(resource, domain.capacity) },
      jobs: [...domain.pods].sort((a, b) => b[1] - a[1]).map(([job, count]) => (job === null ? `${count} of others` : `${job}: ${count} ${count === 1 ? "pod" : "pods"}`)) }));
    this.offset = Math.min(this.offset, Math.max(this.domains.length - 1, 0));
    const step = (text, at) => (at === depth ? el("span", { "aria-current": "location" }, text) : el("button", { type: "button", onclick: () => { this.path = this.path.slice(0, at); this.offset = 0; this.detail.replaceChildren(); this.draw(); } }, text));
    this.way.replaceChildren(...[`all of ${name}`, ...this.path].flatMap((text, at) => (at ? [" › ", step(text, at)] : [step(text, at)])), `, by ${lastPart(levels[depth])}`);
    this.heat.show(this.domains.slice(this.offset, this.offset + CELLS), { what: resource, total: this.domains.length, offset: this.offset, opens: !this.lowest() });
    const table = this.table(all);
    this.fits.hidden = !table;
    this.fits.replaceChildren(table);
  }

  /** Shows the same moment as another one, as far as its schedule goes. */
  follow(at) {
    this.show(Math.min(at, this.schedule.end));
  }

  /** How many pods of each size fit into one domain of each level: as the metric sluice_topology_largest_fit counts them. */
  table(all) {
    const { levels, resources } = this.topology;
    const pods = resources.indexOf("pods");
    const rows = [];
    resources.forEach((resource, at) => {
      if (!resource.includes("/")) return;
      const largest = this.topology.nodes.reduce((most, node) => Math.max(most, node[4 + at]), 0);
      const sizes = [];
      for (let size = 1; size < largest && sizes.length < 7; size *= 2) sizes.push(size);
      if (largest > 0) sizes.push(largest);
      for (const size of sizes) {
        const counts = levels.map(() => new Map());
        for (const leaf of all) {
          const fit = Math.min(Math.max(Math.floor(leaf.free[at] / size), 0), pods < 0 ? Infinity : Math.max(leaf.free[pods], 0));
          counts.forEach((count, level) => { const key = leaf.path.slice(0, level + 1).join("\n"); count.set(key, (count.get(key) ?? 0) + fit); });
        }
        rows.push(el("tr", null, el("th", { scope: "row" }, `${size} ${resource}`), counts.map((count) => el("td", { class: "n" }, String(Math.max(...count.values(), 0))))));
      }
    });
    if (!rows.length) return "";
    return el("table", null, el("caption", null, "Pods that fit into one domain at this time"), el("thead", null, el("tr", null, ["Each pod takes", ...levels.map(lastPart)].map((title, at) => el("th", { scope: "col", class: at ? "n" : null }, title)))), el("tbody", null, rows));
  }
}

/** Those that show the same topology are at the same moment from then on when one of them is moved. */
export function alike(places) {
  for (const one of places) {
    const others = places.filter((other) => other !== one && other.topology.name === one.topology.name);
    one.onMove = (at) => others.forEach((other) => other.follow(at));
  }
}
