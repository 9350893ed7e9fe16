// A heat map: domains of a topology as cells, each with how much of it is used: as the height of a bar, as a shade, and as a number. One cell has
// the focus; keys move it.

import { el, fresh, renew } from "./dom.js";

/** Cells of one page. */
export const CELLS = 240;
const SHADES = 4;
const MOST_NAMED = 12;

const percent = (part) => `${Math.round(part * 100)} %`;

/** A domain in words: what is used, how it is, and which jobs are there. */
export function domainText(domain, what) {
  const { name, used, capacity, shown = {}, nodes = 0, healthy = nodes, jobs = [], more = 0 } = domain;
  const lines = [capacity > 0 ? `${name}: ${shown.used ?? used} of ${shown.capacity ?? capacity} ${what} used (${percent(used / capacity)})` : `${name}: no ${what}`];
  if (nodes) lines.push(nodes === healthy ? `${nodes} ${nodes === 1 ? "node" : "nodes"}` : `${nodes} ${nodes === 1 ? "node" : "nodes"}, ${nodes - healthy} not healthy`);
  lines.push(...jobs.slice(0, MOST_NAMED));
  const rest = Math.max(jobs.length - MOST_NAMED, 0) + more;
  if (rest > 0) lines.push(`and ${rest} more`);
  return lines.join("\n");
}

export class Heat {
  /** `options`: label, choose(name) when a cell is clicked or Enter is pressed, page(offset) when others are to be shown. */
  constructor(host, options) {
    this.options = options;
    this.active = 0;
    const help = fresh("heat");
    this.cells = el("ul", { class: "heat", "aria-label": options.label, "aria-describedby": help, onkeydown: (event) => this.pressed(event), onclick: (event) => this.clicked(event) });
    this.earlier = el("button", { type: "button", onclick: () => this.turn(-1) }, "earlier");
    this.later = el("button", { type: "button", onclick: () => this.turn(1) }, "later");
    this.count = el("output", { class: "count-line" });
    this.key = el("div", { class: "key", id: help });
    host.append(el("div", { class: "tools" }, this.count, this.earlier, this.later), this.key, this.cells);
  }

  /** Shows domains: {name, used, capacity, shown, nodes, healthy, jobs (in words), more}; all of them, or those from `offset` on of `total`. */
  show(domains, { what, total = domains.length, offset = 0, opens = false }) {
    const kept = domains.slice(0, CELLS);
    Object.assign(this, { total, offset, size: kept.length });
    const inside = this.cells.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    this.active = Math.min(this.active, Math.max(kept.length - 1, 0));
    renew(this.cells, el("ul", null, kept.map((domain, at) => this.cell(domain, at, what))));
    const last = offset + kept.length;
    this.count.textContent = kept.length < total ? `${offset + 1} to ${last} of ${total} domains` : `${total} ${total === 1 ? "domain" : "domains"}`;
    this.earlier.hidden = offset === 0;
    this.later.hidden = last >= total;
    this.key.replaceChildren(...Array.from({ length: SHADES + 1 }, (_, shade) => el("span", null, el("i", { class: `s${shade}` }), shade ? `up to ${percent(shade / SHADES)}` : "nothing")),
      el("span", null, el("i", { class: "down" }), "! with nodes that are not healthy"), el("span", null, opens ? "arrow keys go from one to the next, Enter opens" : "arrow keys go from one to the next, Enter names the jobs"));
    if (inside !== null && document.activeElement?.dataset.name !== inside) ([...this.cells.querySelectorAll("button")].find((one) => one.dataset.name === inside) ?? this.cells.querySelector("button"))?.focus({ preventScroll: true });
  }

  cell(domain, at, what) {
    const { name, used, capacity, nodes = 0, healthy = nodes } = domain;
    const part = capacity > 0 ? Math.min(Math.max(used / capacity, 0), 1) : 0;
    const text = domainText(domain, what);
    // What is read out begins with what is seen.
    const short = `${nodes > healthy ? "! " : ""}${capacity > 0 ? percent(used / capacity) : "–"}`;
    const fill = el("span", { class: `fill s${part > 0 ? Math.ceil(part * SHADES) : 0}` });
    fill.style.height = percent(part).replace(" ", "");
    const button = el("button", { type: "button", class: nodes > healthy ? "down" : null, tabindex: at === this.active ? "0" : "-1", "data-t": text, "aria-label": `${name} ${short}: ${text.slice(name.length + 2).replaceAll("\n", ", ")}` },
      el("span", { class: "gauge", "aria-hidden": "true" }, fill), el("span", { class: "label" }, name), " ", el("span", { class: "part" }, short));
    button.dataset.name = name;
    button.dataset.at = at;
    return el("li", null, button);
  }

  turn(by) {
    this.active = 0;
    this.options.page?.(Math.max(this.offset + by * CELLS, 0));
  }

  go(to) {
    const all = this.cells.querySelectorAll("button");
    if (!all.length) return;
    all[this.active]?.setAttribute("tabindex", "-1");
    this.active = Math.min(Math.max(to, 0), all.length - 1);
    all[this.active].setAttribute("tabindex", "0");
    all[this.active].focus();
  }

  /** How many cells are beside each other. */
  wide() {
    const all = [...this.cells.children];
    const next = all.findIndex((one) => one.offsetTop > (all[0]?.offsetTop ?? 0));
    return next < 0 ? all.length : next;
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = event.target.closest("button")?.dataset.at;
    if (at !== undefined) this.active = Number(at);
    const acts = { ArrowRight: () => this.go(this.active + 1), ArrowLeft: () => this.go(this.active - 1), ArrowDown: () => this.go(this.active + this.wide()), ArrowUp: () => this.go(this.active - this.wide()),
      Home: () => this.go(0), End: () => this.go(this.size - 1) };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  clicked(event) {
    const button = event.target.closest("button");
    if (!button) return;
    this.active = Number(button.dataset.at);
    this.options.choose?.(button.dataset.name);
  }
}
