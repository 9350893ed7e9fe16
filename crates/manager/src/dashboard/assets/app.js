// The dashboard: which view is shown, who asks, and when it reads again.

import { get, listen, setKey } from "./api.js";
import { number, trouble, when } from "./amounts.js";
import { el, tips } from "./dom.js";
import * as nodes from "./nodes.js";
import * as now from "./now.js";
import * as queue from "./queue.js";
import * as tomorrow from "./tomorrow.js";
import * as workload from "./workload.js";

const VIEWS = {
  now: { title: "Now", make: now.view, of: ["now"] },
  queue: { title: "Queue", make: queue.view, of: ["queue", "queues", "now"] },
  workload: { title: "Workload", make: workload.view, of: ["workload", "workloads", "now"] },
  nodes: { title: "Nodes", make: nodes.view, of: ["nodes", "workloads"] },
  tomorrow: { title: "Tomorrow", make: tomorrow.view, of: [] },
  report: { title: "Report", make: tomorrow.reportView, of: [] },
};
const MOST_PAUSE = 30_000;
const REST = 1500;

const main = document.getElementById("main");
const state = document.getElementById("state");
let shown = null;

/** Where the fragment leads: the view's name and what it is about. */
function place() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const decoded = rest.map((one) => {
    try {
      return decodeURIComponent(one);
    } catch {
      return one;
    }
  });
  return VIEWS[name] && Object.hasOwn(VIEWS, name) ? [name, decoded] : ["now", []];
}

function links(current) {
  document.getElementById("views").replaceChildren(...Object.entries(VIEWS).map(([name, { title }]) => el("a", { href: `#/${name}`, "aria-current": name === current ? "page" : null }, title)));
}

/** Asks for a token: it is kept until the page is closed. */
function askForToken(error) {
  leave();
  // What is being typed stays.
  if (main.querySelector("form.ask")) return;
  const input = el("textarea", { required: true, autocomplete: "off", spellcheck: "false" });
  const note = el("div", null, error ? trouble(error) : "");
  const form = el("form", { class: "ask card", onsubmit: async (event) => {
    event.preventDefault();
    setKey(input.value.trim());
    input.value = "";
    try {
      await get("/api/who");
      begin();
    } catch (refused) {
      note.replaceChildren(trouble(refused));
    }
  } }, el("h1", { tabindex: "-1" }, "Who are you?"), el("p", null, "This page shows what your account may see. It keeps the token until it is closed."), note,
    el("label", null, "A bearer token of the cluster", input), el("p", null, "For a service account: ", el("code", null, "kubectl create token NAME"), ". If ", el("code", null, "sluice dashboard"), " runs on this computer, open the page that it opens: its address has the key."), el("button", null, "Show me the cluster"));
  main.replaceChildren(form);
  input.focus();
}

function leave() {
  shown?.stop.abort();
  shown?.view.close();
  shown = null;
}

/** Reads what the view shows, never twice at a time. */
async function read(about) {
  const { view, stop } = about;
  if (about.reading) { about.again = true; return; }
  about.reading = true;
  try {
    await view.read(stop.signal);
  } catch (error) {
    if (error.code === 401) return askForToken(error);
    if (error.name !== "AbortError" && about === shown) main.prepend(trouble(error));
  }
  setTimeout(() => {
    about.reading = false;
    if (about.again && about === shown) { about.again = false; read(about); }
  }, REST);
}

function go(focus) {
  leave();
  const [name, about] = place();
  links(name);
  const { title, make } = VIEWS[name];
  document.title = `Sluice: ${title}`;
  const heading = el("h1", { tabindex: "-1" }, title);
  const space = el("div");
  main.replaceChildren(heading, space);
  shown = { name, view: make(space, about), stop: new AbortController() };
  if (focus) heading.focus({ preventScroll: true });
  read(shown);
}

/** Says how the page is kept up to date; what was said before is not said again. */
function say(text) {
  if (state.textContent !== text) state.textContent = text;
}

/** A page that cannot be seen gives its connection back after this time: a browser has few to one server, for all pages together. */
const HIDDEN = 5000;

/** Aborted when the page has been hidden for a while. */
function whileSeen() {
  const end = new AbortController();
  let waiting = 0;
  const turn = () => {
    clearTimeout(waiting);
    if (document.hidden) waiting = setTimeout(() => { document.removeEventListener("visibilitychange", turn); end.abort(); }, HIDDEN);
  };
  document.addEventListener("visibilitychange", turn);
  turn();
  return [end.signal, () => { clearTimeout(waiting); document.removeEventListener("visibilitychange", turn); }];
}

/** Waits until the page can be seen. */
async function seen() {
  while (document.hidden) await new Promise((done) => { document.addEventListener("visibilitychange", done, { once: true }); });
}

/** Waits for some time, and begins again at once when the page is seen after it was not. */
function rest(pause) {
  return new Promise((done) => {
    const over = () => { clearTimeout(waiting); document.removeEventListener("visibilitychange", over); done(); };
    const waiting = setTimeout(over, pause);
    document.addEventListener("visibilitychange", over);
  });
}

/** Follows the server's changes for as long as the page is open and seen. */
async function follow() {
  let pause = 1000;
  for (;;) {
    if (document.hidden) {
      say("not live while the page is hidden");
      await seen();
      // The first event of a stream has everything read again.
      pause = 1000;
    }
    const [signal, done] = whileSeen();
    try {
      await listen("/api/changes", (one) => {
        pause = 1000;
        if (one && one.event !== "changed") return;
        let views = null, old = null;
        try {
          if (one) ({ views, old = null } = JSON.parse(one.data));
        } catch {
          // What cannot be read means that something changed.
        }
        say(old ? `not live: the server cannot read the cluster; this is as of ${when(old)} UTC` : "live");
        const wanted = shown && VIEWS[shown.name].of.some((view) => !Array.isArray(views) || views.includes(view));
        if (wanted && !shown.view.once) { if (document.hidden) shown.late = true; else read(shown); }
      }, signal);
      say("the server ended the connection; it is made again");
    } catch (error) {
      if (error.code === 401) return askForToken(error);
      if (error.code === 404) { say("not live: this server does not report changes"); return; }
      if (signal.aborted) continue;
      // What is shown is read now and then, if no change of it is announced.
      if (error.code === 429 && shown && !shown.view.once) read(shown);
      say(error.code >= 400 ? `not live: ${error.message}` : "not live: the server cannot be reached");
    } finally {
      done();
    }
    await rest(pause);
    pause = Math.min(pause * 2, MOST_PAUSE);
  }
}

let following = false;

async function begin() {
  try {
    const who = await get("/api/who");
    const spaces = who.namespaces ?? [];
    const asked = number(who.unasked) ? `; ${who.unasked} namespaces are not asked about yet` : "";
    const more = spaces.length > 3 ? ` and ${spaces.length - 3} more` : "";
    document.getElementById("who").textContent = who.all ? `${who.user}, every namespace` : `${who.user}, namespaces ${spaces.slice(0, 3).join(", ") || "none"}${more}${asked}`;
  } catch (error) {
    links("");
    if (error.code === 401) return askForToken(null);
    main.replaceChildren(el("h1", null, "Sluice"), trouble(error), el("button", { type: "button", onclick: begin }, "Try again"));
    return;
  }
  go(false);
  if (!following) {
    following = true;
    follow().finally(() => { following = false; });
  }
}

// The key of a program on this computer comes in the fragment, and does not stay in the history.
const given = /^#key=([^&]+)/.exec(location.hash);
if (given) {
  setKey(decodeURIComponent(given[1]));
  history.replaceState(null, "", `${location.pathname}#/now`);
}
tips(document.getElementById("tip"));
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
document.addEventListener("refused", (event) => askForToken(event.detail));
addEventListener("hashchange", () => { if (shown) go(true); });
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && shown?.late) { shown.late = false; read(shown); }
});
begin();
