// Elements are made here, and texts only ever become text.

const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An element with attributes (`on…` are listeners) and children; a child that is a text stays one. */
export function el(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same of a drawing. */
export function draw(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

let last = 0;

/** An id that no other element has. */
export function fresh(prefix) {
  last += 1;
  return `${prefix}-${last}`;
}

/** Calls at most once per picture of the screen. */
export function soon(act) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; act(); });
  };
}

/** Shows the text of `data-t` beside the pointer, or beside what has the focus. One such box for the whole page. */
export function tips(box) {
  const show = (mark, left, top) => {
    box.style.display = mark ? "block" : "none";
    if (!mark) return;
    box.textContent = mark.dataset.t;
    box.style.left = Math.max(Math.min(left, innerWidth - box.offsetWidth - 8), 4) + "px";
    box.style.top = Math.max(Math.min(top, innerHeight - box.offsetHeight - 8), 4) + "px";
  };
  const explain = (event) => show(event.target.closest ? event.target.closest("[data-t]") : null, event.clientX + 14, event.clientY + 14);
  // A finger points too.
  document.addEventListener("pointermove", explain);
  document.addEventListener("pointerdown", explain);
  const hide = () => { box.style.display = "none"; };
  const tellFocused = () => {
    const mark = document.activeElement;
    if (!mark?.matches("[data-t]:focus-visible")) return hide();
    const { left, bottom } = mark.getBoundingClientRect();
    show(mark, left, bottom + 6);
  };
  document.addEventListener("focusin", tellFocused);
  document.addEventListener("focusout", hide);
  // What gets the focus may scroll to be seen.
  document.addEventListener("scroll", tellFocused, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
}

/** Gives an element the attributes and children of another one of its kind. */
function become(old, next) {
  if (!(old instanceof Element)) { old.data = next.data; return; }
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) === value) continue;
    // The policy of the page forbids styles that are texts.
    if (name === "style") old.style.cssText = value; else old.setAttribute(name, value);
  }
  renew(old, next);
}

/**
 * Gives `host` the children of `next`. What is the same as before stays the same element, and what is in the same place and of the same kind
 * only gets other texts: so the focus stays, and what is selected, scrolled or open. Children have no listeners of their own that matter.
 */
export function renew(host, next) {
  const before = [...host.childNodes], wanted = [...next.childNodes], free = new Set(before);
  let from = 0;
  const kept = wanted.map((node) => {
    for (let step = 0; step < before.length; step += 1) {
      const at = (from + step) % before.length;
      if (!free.has(before[at]) || !before[at].isEqualNode(node)) continue;
      free.delete(before[at]);
      from = at + 1;
      return before[at];
    }
    return null;
  });
  const last = kept.map((node, at) => {
    const old = before[at];
    if (node || !free.has(old) || old.nodeName !== wanted[at].nodeName) return node ?? wanted[at];
    free.delete(old);
    become(old, wanted[at]);
    return old;
  });
  for (const node of free) node.remove();
  let place = host.firstChild;
  for (const node of last) {
    if (node === place) place = place.nextSibling;
    else host.insertBefore(node, place);
  }
}
