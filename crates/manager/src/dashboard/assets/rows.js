// Tables of any length: only the rows that can be seen exist. One row has the focus; keys move it.

import { el, soon } from "./dom.js";
import { scrollToRow, showVisible } from "./visible.js";

const LINE = 28;
// Browsers draw nothing beyond some ten million pixels.
const MOST_LINES = 300_000;

/** How many there are, in words. */
export function counted(total, what) {
  return total > MOST_LINES ? `${total} ${what}, of which the first ${MOST_LINES} are listed: search for others` : `${total} ${what}`;
}

export class Rows {
  /**
   * `options`: label, role ("grid" or "treegrid"), columns [{title, n (a number), wide (only from this width on), size (of the CSS grid)}],
   * count(), cells(index, columns) → {cells, kind, level, expanded, opens}, open(index), seen(first, past).
   */
  constructor(host, options) {
    this.options = options;
    this.active = 0;
    this.shown = new Map();
    this.head = el("div", { class: "grid-head", role: "row" });
    this.space = el("div", { class: "grid-space", role: "rowgroup" });
    this.body = el("div", { class: "grid-body", role: "presentation" }, this.space);
    this.table = el("div", { class: "grid-rows", role: options.role ?? "grid", "aria-label": options.label }, el("div", { role: "rowgroup" }, this.head), this.body);
    host.append(this.table);
    const later = soon(() => this.draw());
    this.body.addEventListener("scroll", later, { passive: true });
    this.body.addEventListener("keydown", (event) => this.pressed(event));
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.watcher = new ResizeObserver(soon(() => this.measure()));
    this.watcher.observe(this.table);
    this.measure();
  }

  close() {
    this.watcher.disconnect();
  }

  /** Which columns there is room for. */
  measure() {
    const wide = this.table.clientWidth || innerWidth;
    this.columns = this.options.columns.filter((column) => !column.wide || wide >= column.wide);
    const template = this.columns.map((column) => column.size ?? "minmax(0, 1fr)").join(" ");
    this.table.setAttribute("aria-colcount", this.columns.length);
    this.template = template;
    this.head.style.gridTemplateColumns = template;
    this.head.replaceChildren(...this.columns.map((column) => el("span", { role: "columnheader", class: column.n ? "n" : null }, column.title)));
    this.refresh();
  }

  count() {
    return Math.min(this.options.count(), MOST_LINES);
  }

  /** Draws again what can be seen: the data is other. */
  refresh() {
    const count = this.count();
    this.table.setAttribute("aria-rowcount", count + 1);
    this.space.style.height = `${Math.max(count, 1) * LINE}px`;
    this.active = Math.min(this.active, Math.max(count - 1, 0));
    for (const [at, row] of this.shown) {
      if (at < count) this.renew(row, at);
      else { row.remove(); this.shown.delete(at); }
    }
    this.draw();
    this.table.style.setProperty("--bar", `${this.body.offsetWidth - this.body.clientWidth}px`);
  }

  /** A row with other cells. It stays the same element, so that the focus does, and a screen reader says nothing again. */
  renew(row, at) {
    const next = this.line(at);
    next.setAttribute("tabindex", row.getAttribute("tabindex"));
    if (row.isEqualNode(next)) return;
    row.style.gridTemplateColumns = this.template;
    for (const name of ["class", "aria-level", "aria-expanded"]) {
      if (next.hasAttribute(name)) row.setAttribute(name, next.getAttribute(name));
      else row.removeAttribute(name);
    }
    const inside = row !== document.activeElement && row.contains(document.activeElement);
    row.replaceChildren(...next.childNodes);
    if (inside) (row.querySelector("a") ?? row).focus({ preventScroll: true });
  }

  draw() {
    const [first, past] = showVisible(this.body, this.space, this.shown, { height: LINE, count: this.count(), make: (at) => this.line(at) });
    // One row can be reached by Tab, also when the active one is far away.
    if (!this.shown.has(this.active)) this.shown.get(first)?.setAttribute("tabindex", "0");
    this.options.seen?.(first, past);
  }

  line(at) {
    const { cells, kind, level, expanded, opens } = this.options.cells(at, this.columns);
    const row = el("div", { class: `line-row ${kind ?? ""}${opens ? " opens" : ""}`, role: "row", tabindex: at === this.active ? "0" : "-1", "aria-rowindex": at + 2,
      "aria-level": level, "aria-expanded": expanded === undefined ? null : String(expanded) },
      cells.map((cell, i) => cell instanceof Element ? cell
        : el("span", { role: "gridcell", class: this.columns[i]?.n ? "n" : null, "data-t": String(cell ?? "").length > 24 ? cell : null }, cell ?? "")));
    row.style.top = `${at * LINE}px`;
    row.style.gridTemplateColumns = this.template;
    row.dataset.at = at;
    return row;
  }

  /** Moves the focus to a row. */
  go(to) {
    const at = Math.min(Math.max(to, 0), this.count() - 1);
    if (at < 0) return;
    for (const row of this.shown.values()) row.setAttribute("tabindex", "-1");
    this.active = at;
    scrollToRow(this.body, at, LINE);
    this.draw();
    const row = this.shown.get(at);
    row?.setAttribute("tabindex", "0");
    row?.focus({ preventScroll: true });
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = event.target.closest(".line-row");
    if (row) this.active = Number(row.dataset.at);
    const page = Math.max(Math.floor(this.body.clientHeight / LINE) - 1, 1);
    const expanded = row?.getAttribute("aria-expanded");
    const open = () => this.options.open?.(this.active);
    const acts = {
      ArrowUp: () => this.go(this.active - 1), ArrowDown: () => this.go(this.active + 1), PageUp: () => this.go(this.active - page), PageDown: () => this.go(this.active + page),
      Home: () => this.go(0), End: () => this.go(this.count() - 1), Enter: open, " ": open,
      // To the right is what a row holds: its children, then its link.
      ArrowRight: () => { if (expanded === "false") open(); else row?.querySelector("a")?.focus({ preventScroll: true }); },
      ArrowLeft: () => { if (row && event.target !== row) row.focus({ preventScroll: true }); else if (expanded === "true") open(); },
    };
    const act = acts[event.key];
    if (!act || (event.target.closest("a, button") && (event.key === "Enter" || event.key === " "))) return;
    event.preventDefault();
    act();
  }

  clicked(event) {
    const row = event.target.closest(".line-row");
    if (!row || event.target.closest("a, button") || String(getSelection())) return;
    this.go(Number(row.dataset.at));
    this.options.open?.(Number(row.dataset.at));
  }
}

const PAGE = 200;

/** Announces that a token is not accepted, where no caller waits for the list. */
function refused(error) {
  if (error?.code === 401) document.dispatchEvent(new CustomEvent("refused", { detail: error }));
}

/** A table whose rows come from the server, page by page as they are seen. */
export class Paged {
  /** `options` as of [`Rows`], with `load(offset, limit)` → {total, items}, cells(item, columns), open(item), failed(error), counted(total). */
  constructor(host, options) {
    this.options = options;
    this.total = 0;
    this.pages = new Map();
    this.asked = new Set();
    this.generation = 0;
    const item = (at) => this.pages.get(Math.floor(at / PAGE))?.[at % PAGE];
    this.item = item;
    this.rows = new Rows(host, {
      ...options,
      count: () => this.total,
      cells: (at, columns) => {
        const known = item(at);
        return known ? options.cells(known, columns, at) : { cells: columns.map((_, i) => (i ? "" : "…")) };
      },
      open: (at) => { const known = item(at); if (known) options.open?.(known); },
      seen: (first, past) => this.want(first, past),
    });
    this.again();
  }

  close() {
    this.generation += 1;
    this.rows.close();
  }

  /** Reads again what can be seen, as [`reload`] does, where no caller waits for it. `failed` has said what is wrong. */
  again() {
    this.reload().catch(refused);
  }

  /** Reads again what can be seen. What was known stays until the answer is there. Throws if the token is not accepted. */
  async reload() {
    this.generation += 1;
    this.asked.clear();
    this.stale = new Set(this.pages.keys());
    const { body } = this.rows;
    const page = Math.floor(body.scrollTop / 28 / PAGE);
    const error = await this.fetch(page, true);
    if (error?.code === 401) throw error;
  }

  want(first, past) {
    for (let page = Math.floor(first / PAGE); page * PAGE < past; page += 1) {
      if ((!this.pages.has(page) || this.stale?.has(page)) && !this.asked.has(page)) this.fetch(page, false).then(refused);
    }
  }

  /** Reads a page; gives the error, if there is one. */
  async fetch(page, whole) {
    const generation = this.generation;
    this.asked.add(page);
    try {
      const { total, items } = await this.options.load(page * PAGE, PAGE);
      if (generation !== this.generation) return;
      this.pages.set(page, Array.isArray(items) ? items : []);
      this.stale?.delete(page);
      this.total = Number.isFinite(total) ? total : 0;
      for (const known of this.pages.keys()) if (known * PAGE >= this.total) this.pages.delete(known);
      // What is far from what is seen is forgotten.
      if (this.pages.size > 12) for (const known of this.pages.keys()) if (Math.abs(known - page) > 5) { this.pages.delete(known); this.asked.delete(known); }
      this.options.counted?.(this.total);
      this.rows.refresh();
    } catch (error) {
      if (generation !== this.generation) return;
      // It is read again when it is seen again.
      this.asked.delete(page);
      this.options.failed?.(error, whole);
      return error;
    }
  }
}
