// The simulator's page: its schedules, and charts whose time follows them.

const showAll = (charts, from, to, start) => {
  // All are measured before any is changed: the page is laid out once.
  const widths = charts.map(({ picture }) => picture.clientWidth || 600);
  for (const [number, chart] of charts.entries()) {
    const { plot, units, end, picture } = chart;
    const x = (at) => at / end * units;
    plot.setAttribute("viewBox", `${x(from)} 0 ${Math.max(x(to) - x(from), 1e-6)} ${chart.high}`);
    for (const tick of picture.querySelectorAll(".tick")) tick.remove();
    for (const at of ticks(from, to, Math.max(Math.floor(widths[number] / 84), 2))) {
      const tick = draw("text", { class: "tick", x: `${((at - from) / (to - from) * 100).toFixed(2)}%`, y: chart.bottom }, show(at));
      tick.dataset.t = stamp(start + at);
      picture.append(tick);
    }
  }
};

const charts = (end) => [...document.querySelectorAll(".picture > svg")].map((picture) => {
  const plot = picture.querySelector(".plot");
  const [, , units, high] = plot.getAttribute("viewBox").split(" ").map(Number);
  return { picture, plot, units, high, end, bottom: picture.querySelector(".tick")?.getAttribute("y") ?? high };
});

const main = () => {
  tips(document.getElementById("tip"));
  const { schedules } = JSON.parse(document.getElementById("schedules").textContent);
  const hosts = [...document.querySelectorAll("[data-schedule]")];
  const gantts = hosts.map((host) => new Gantt(host, schedules[Number(host.dataset.schedule)], { label: host.dataset.label }));
  if (gantts.length > 1) together(gantts);
  const places = [];
  for (const host of hosts) {
    const schedule = schedules[Number(host.dataset.schedule)];
    const space = el("div", { class: "places" });
    host.after(space);
    for (const topology of schedule.places) places.push(new Places(space, topology, schedule, hosts.length > 1 ? host.dataset.label : ""));
  }
  alike(places);
  if (gantts.length !== 1) return;
  const [one] = gantts;
  const pictures = charts(one.end);
  let range = one.range;
  const redraw = () => showAll(pictures, ...range, one.schedule.start);
  const later = soon(redraw);
  one.options.onRange = (from, to) => { range = [from, to]; later(); };
  window.addEventListener("resize", later);
  redraw();
};

main();
