// What a person would see on the page, as data.
(() => {
  const box = (element) => {
    const { left, right, top, bottom, width, height } = element.getBoundingClientRect();
    return { left, right, top, bottom, width, height };
  };
  const own = (element) =>
    [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => node.data).join("").trim();
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = parts(colour).map((part) => {
      const c = part / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if ((parts(colour)[3] ?? 1) === 1) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const written = [...document.body.querySelectorAll("*")].filter((e) => !e.matches("script, style") && own(e));
  const contrast = written.map((element) => {
    const style = getComputedStyle(element);
    const pair = [style[element.closest("svg") ? "fill" : "color"], background(element)].map(luminance);
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    return { text: own(element), ratio };
  });
  const scrolling = [document.documentElement, ...document.querySelectorAll(".card")]
    .filter((element) => element.scrollWidth > element.clientWidth)
    .map((element) => `${element.tagName} ${element.className}: ${element.scrollWidth} in ${element.clientWidth}`);
  const controls = [...document.querySelectorAll("button, input, select, summary, .wide")].filter((one) => one.checkVisibility());
  const outside = controls.filter((one) => box(one).left < 0 || box(one).right > document.documentElement.clientWidth)
    .map((one) => `${one.tagName} ${one.getAttribute("aria-label") ?? own(one)}`);
  const shown = (svg, kind) => [...svg.querySelectorAll(kind)].filter((text) => text.getClientRects().length > 0);
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  const svgs = [...document.querySelectorAll(".picture > svg, .gantt .axis")].filter((svg) => svg.getClientRects().length > 0);
  const overlaps = svgs.flatMap((svg) => {
    const texts = shown(svg, "text");
    const boxes = texts.map(box);
    return boxes.flatMap((a, i) => boxes.slice(i + 1).flatMap((b, j) =>
      apart(a, b) ? [] : [[own(texts[i]), own(texts[i + 1 + j])]]));
  });
  const cut = svgs.flatMap((svg) => {
    const card = box(svg.closest(".card"));
    return shown(svg, "text").filter((t) => box(t).left < card.left || box(t).right > card.right).map(own);
  });
  const marks = (svg, kind) => [...svg.querySelectorAll(kind)].map((element) => {
    const style = getComputedStyle(element);
    const tip = element.closest("[data-t]")?.dataset.t ?? "";
    return { ...box(element), fill: style.fill, opacity: style.opacity, tip };
  });
  const pictures = svgs.filter((svg) => svg.matches(".picture > svg")).map((svg) => ({
    queue: own(svg.closest("details")?.querySelector("summary") ?? svg.closest(".card")),
    title: own(svg.parentElement.previousElementSibling),
    plot: box(svg.querySelector(".plot")),
    labels: shown(svg, ".label").map(own),
    bars: marks(svg, ".bar"),
    used: marks(svg, ".used"),
    borrowed: marks(svg, ".borrowed"),
    depth: marks(svg, ".depth"),
    crosses: marks(svg, ".mark"),
    waits: marks(svg, ".wait"),
    nominal: marks(svg, ".nominal"),
  }));
  // The rows of jobs below each queue's own row are one picture.
  const rows = [...document.querySelectorAll(".gantt .row")].sort((a, b) => a.dataset.at - b.dataset.at);
  const schedules = [];
  for (const row of rows) {
    const lane = row.querySelector(".lane");
    if (row.matches(".queue")) {
      const name = row.querySelector(".front").textContent;
      schedules.push({ queue: name, title: "Jobs", plot: box(lane), labels: [], bars: [], used: [], borrowed: [], depth: [], crosses: [], waits: [], nominal: [] });
    } else if (schedules.length) {
      const last = schedules.at(-1);
      last.labels.push(row.querySelector(".name").textContent);
      last.bars.push(...marks(lane, ".bar"));
      last.crosses.push(...marks(lane, ".mark"));
      last.waits.push(...marks(lane, ".wait"));
    }
  }
  pictures.push(...schedules);
  const moments = [...document.querySelectorAll(".gantt .axis .sign")].map((sign) => ({ kind: sign.classList[1], tip: sign.dataset.t }));
  const key = [...document.querySelectorAll(".key:not(.gantt .key) span")].filter((span) => span.querySelector("i[class^=c]"));
  const legend = Object.fromEntries(
    key.map((span) => [own(span), getComputedStyle(span.querySelector("i")).backgroundColor]));
  const tiles = Object.fromEntries(
    [...document.querySelectorAll(".tile")].map((t) => [t.querySelector("span").textContent, t.querySelector("b").textContent]));
  const tip = document.getElementById("tip");
  return {
    scrolling, outside, overlaps, cut, pictures, moments, legend, tiles,
    elements: document.querySelectorAll("*").length,
    faint: contrast.filter(({ ratio }) => !(ratio >= 4.5)),
    texts: contrast.length,
    page: getComputedStyle(document.body).backgroundColor,
    tip: { shown: getComputedStyle(tip).display !== "none", text: tip.textContent, ...box(tip) },
    ran: window.ran ?? null,
  };
})()
