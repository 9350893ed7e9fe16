// The topologies of the view Nodes: a heat map of the domains of each level, opened one by one, and the largest jobs that fit.

import { get, part } from "./api.js";
import { trouble, workloadLink } from "./amounts.js";
import { el, renew } from "./dom.js";
import { CELLS, Heat } from "./heat.js";

const MOST_FITS = 40;

const short = (label) => String(label).split("/").pop();

/** A domain of the server's answer, as the heat map takes it. */
function forHeat(domain, resource) {
  const amount = (domain.resources ?? []).find((one) => one.resource === resource) ?? { used: 0, capacity: 0 };
  const jobs = (domain.jobs ?? []).map((job) => `${job.namespace}/${job.workload}: ${job.pods} ${job.pods === 1 ? "pod" : "pods"}`);
  if (domain.others) jobs.push(`${domain.others} of others`);
  return { name: domain.name, ...amount, nodes: domain.nodes, healthy: domain.healthy, jobs, more: domain.more };
}

/** How many pods fit into one domain of each level: rows by what each pod takes. */
function levelTable(caption, fits, levels, what) {
  const sizes = new Map();
  for (const fit of fits) {
    const size = `${what(fit)} of ${fit.flavor}`;
    if (!sizes.has(size)) sizes.set(size, new Map());
    sizes.get(size).set(fit.level, fit.pods);
  }
  const rows = [...sizes].slice(0, MOST_FITS).map(([size, pods]) => el("tr", null, el("th", { scope: "row" }, size), levels.map((level) => el("td", { class: "n" }, pods.get(level) ?? "–"))));
  return el("table", null, el("caption", null, caption), el("thead", null, el("tr", null, ["Each pod takes", ...levels.map(short)].map((title, at) => el("th", { scope: "col", class: at ? "n" : null }, title)))), el("tbody", null, rows));
}

/** The pods that wait, by their shape; nothing if none do, or if that is not known. */
function shapeTable(shapes, levels) {
  if (!Array.isArray(shapes) || !shapes.length) return null;
  return levelTable("Waiting pods that fit into one domain now", shapes, levels, (fit) => fit.shape);
}

/** How large a job fits, by extended resource; nothing where no node offers one and the shapes that wait are shown. */
function fitTable(fits, levels, hasShapes) {
  if (!Array.isArray(fits)) return el("p", null, "This page cannot show how large a job fits now: see the manager's dashboard or the metric sluice_topology_largest_fit.");
  if (!fits.length) return hasShapes ? null : el("p", null, "No node offers an extended resource, so it is not shown how large a job fits.");
  return levelTable("Pods that fit into one domain now", fits, levels, (fit) => `${fit.perPod} ${fit.resource}`);
}

/** Gives a choice these values. One that is open stays so where nothing is new. */
function options(select, values, chosen) {
  renew(select, el("select", null, values.map((value) => el("option", { value }, value))));
  if (select.value !== chosen) select.value = chosen;
}

/** The section of the view: gives what reads it. */
export function topologySection(host) {
  let all = [], chosen = null, path = [], offset = 0, resource = null, domains = [], total = 0, signal, opened = null;
  const note = el("div"), way = el("nav", { class: "way", "aria-label": "Path in the topology" }), fits = el("div"), detail = el("div", { "aria-live": "polite" }), space = el("div");
  const choose = el("select", { "aria-label": "topology", onchange: () => { chosen = choose.value; path = []; offset = 0; resource = null; load(); } });
  const what = el("select", { "aria-label": "resource of the heat map", onchange: () => { resource = what.value; draw(); } });
  const section = el("section", { class: "card", hidden: true, "aria-label": "Topology" }, el("div", { class: "tools" }, choose, what, way), note, space, detail, fits);
  host.append(section);
  const heat = new Heat(space, { label: "domains of the topology", choose: (name) => open(name), page: (next) => { offset = next; load(); } });
  const levels = () => all.find((one) => one.name === chosen)?.levels ?? [];
  const lowest = () => path.length === levels().length - 1;
  const open = (name) => {
    if (!lowest()) { path = [...path, name]; offset = 0; load(); return; }
    opened = name;
    showJobs();
  };
  /** The jobs of the domain that is opened. */
  const showJobs = () => {
    const domain = opened === null ? null : domains.find((one) => one.name === opened);
    if (!domain) { detail.replaceChildren(); return; }
    const jobs = (domain.jobs ?? []).map((job) => el("li", null, el("a", { href: workloadLink(job.namespace, job.workload) }, `${job.namespace}/${job.workload}`), `: ${job.pods} ${job.pods === 1 ? "pod" : "pods"}`));
    const rest = (domain.more ?? 0) + (domain.others ?? 0);
    renew(detail, el("div", null, el("h3", null, opened), jobs.length || rest ? el("ul", null, jobs, rest ? el("li", null, `and ${rest} more`) : "") : el("p", null, "No job of the topology is here.")));
  };
  const draw = () => {
    const names = [...new Set(domains.flatMap((domain) => (domain.resources ?? []).map((one) => one.resource)))];
    // Accelerators are what is short.
    if (!names.includes(resource)) resource = names.find((name) => name.includes("/")) ?? names[0] ?? "cpu";
    options(what, names.length ? names : [resource], resource);
    const steps = ["all", ...path].map((name, at) => (at === path.length ? el("span", { "aria-current": "location" }, name) : el("button", { type: "button", onclick: () => { path = path.slice(0, at); offset = 0; load(); } }, name)));
    renew(way, el("nav", null, steps.flatMap((step, at) => (at ? [" › ", step] : [step])), `, by ${short(levels()[path.length] ?? "")}`));
    heat.show(domains.map((domain) => forHeat(domain, resource)), { what: resource, total, offset, opens: !lowest() });
  };
  let place = "";
  const load = async () => {
    // Another place has other domains; the same one only other figures.
    const next = JSON.stringify([chosen, path, offset]);
    if (next !== place) { place = next; opened = null; detail.replaceChildren(); }
    try {
      const answer = await get(["/api/topologies", chosen, ...path].map((one, at) => (at ? part(one) : one)).join("/"), { offset, limit: CELLS }, signal);
      if (next !== place) return;
      ({ total } = answer);
      domains = answer.domains ?? [];
      note.replaceChildren(answer.hidden ? el("p", null, "You may not see single nodes.") : "");
      draw();
      showJobs();
    } catch (error) {
      if (error.name !== "AbortError") note.replaceChildren(trouble(error));
    }
  };
  return async (next) => {
    signal = next;
    try {
      const answer = await get("/api/topologies", {}, next);
      all = answer.topologies ?? [];
    } catch (error) {
      if (error.code === 401) throw error;
      all = [];
    }
    section.hidden = !all.length;
    if (!all.length) return;
    if (!all.some((one) => one.name === chosen)) { chosen = all[0].name; path = []; offset = 0; }
    options(choose, all.map((one) => one.name), chosen);
    const own = all.find((one) => one.name === chosen);
    const shapes = shapeTable(own.shapes, levels());
    renew(fits, el("div", null, fitTable(own.fits, levels(), Boolean(shapes)), shapes));
    await load();
  };
}
