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
  const tell = (event) => show(event.target.closest ? event.target.closest("[data-t]") : null, event.clientX + 14, event.clientY + 14);
  // A finger points too.
  document.addEventListener("pointermove", tell);
  document.addEventListener("pointerdown", tell);
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
