// What is wrong with what the page shows now, for people who cannot see it, has only keys, or a small window.
(() => {
  const wrong = [];
  const seen = (element) => element.getClientRects().length > 0 && getComputedStyle(element).visibility !== "hidden";
  const all = [...document.body.querySelectorAll("*")].filter(seen);
  const own = (element) => [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => node.data).join("").trim();
  const name = (element) => (element.getAttribute("aria-label") || [...element.labels ?? []].map((label) => own(label)).join(" ") || element.textContent || "").trim();
  const short = (element) => element.outerHTML.slice(0, 120);
  for (const element of all) {
    if (element.matches("a, button, input, select, textarea, summary, [role=grid], [role=treegrid], [role=gridcell].bar-cell, ol[tabindex], pre[tabindex]") && !name(element)) wrong.push(`no name: ${short(element)}`);
    if (element.tabIndex > 0) wrong.push(`an order of its own: ${short(element)}`);
    if (element.matches("[role=row]") && !element.closest("[role=grid], [role=treegrid]")) wrong.push(`a row outside of a table: ${short(element)}`);
    if (element.matches("[role=gridcell], [role=columnheader], [role=rowheader]") && !element.closest("[role=row]")) wrong.push(`a cell outside of a row: ${short(element)}`);
    if (element.matches("svg[role=img]") && !name(element)) wrong.push(`a picture without a name: ${short(element)}`);
    if (element.hasAttribute("style") && /expression|url\(/.test(element.getAttribute("style"))) wrong.push(`a style: ${short(element)}`);
  }
  const ids = all.map((element) => element.id).filter(Boolean);
  if (new Set(ids).size !== ids.length) wrong.push("an id is used twice");
  for (const element of document.querySelectorAll("[aria-describedby], [aria-labelledby], [list]")) {
    for (const attribute of ["aria-describedby", "aria-labelledby", "list"]) {
      const id = element.getAttribute(attribute);
      if (id && !document.getElementById(id)) wrong.push(`${attribute} leads nowhere: ${short(element)}`);
    }
  }
  const levels = all.filter((element) => /^H[1-6]$/.test(element.tagName)).map((element) => Number(element.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1) wrong.push(`headings: ${levels}`);
  levels.forEach((level, at) => { if (at && level > levels[at - 1] + 1) wrong.push(`a heading skips a level: ${levels}`); });
  for (const grid of document.querySelectorAll("[role=grid], [role=treegrid]")) {
    const focusable = [...grid.querySelectorAll("[role=row]")].filter((row) => row.tabIndex === 0);
    if (grid.querySelectorAll("[role=row][data-at]").length && focusable.length !== 1) wrong.push(`${focusable.length} rows of a table are reached by Tab`);
  }
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map((part) => part / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if ((colour[3] ?? 1) === 1) return colour;
    }
    return [255, 255, 255];
  };
  let texts = 0;
  for (const element of all) {
    if (!own(element) || element.matches("option, script, style")) continue;
    texts += 1;
    const style = getComputedStyle(element);
    const pair = [parts(style[element.closest("svg") ? "fill" : "color"]), behind(element)].map(luminance);
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (ratio < 4.5) wrong.push(`contrast ${ratio.toFixed(2)}: ${short(element)}`);
  }
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth > clientWidth) wrong.push(`the page is ${scrollWidth} wide in ${clientWidth}`);
  const hostile = document.querySelectorAll("main script, main img, main iframe, main style, main link").length;
  if (hostile) wrong.push(`${hostile} elements out of texts`);
  return { wrong: wrong.slice(0, 20), texts, elements: document.querySelectorAll("*").length, text: document.body.innerText };
})()
