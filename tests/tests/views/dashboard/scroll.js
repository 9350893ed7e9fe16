// Scrolls the first table of the view from its beginning to its end: how long pictures took, and whether any showed nothing.
(async () => {
  const body = document.querySelector(".rows, .grid-body");
  const frame = () => new Promise(requestAnimationFrame);
  const steps = 60, times = [];
  let blank = 0, rows = 0;
  for (let step = 0; step <= steps; step += 1) {
    const began = performance.now();
    body.scrollTop = (body.scrollHeight - body.clientHeight) * step / steps;
    await frame();
    await frame();
    times.push(performance.now() - began);
    const { top, bottom } = body.getBoundingClientRect();
    const seen = [...body.querySelectorAll("[role=row]")].filter((row) => {
      const box = row.getBoundingClientRect();
      return box.bottom > top && box.top < bottom;
    });
    if (seen.length < 5) blank += 1;
    rows = Math.max(rows, body.querySelectorAll("[role=row]").length);
  }
  times.sort((a, b) => a - b);
  const at = (part) => Math.round(times[Math.floor((times.length - 1) * part)]);
  body.scrollTop = 0;
  return { blank, rows, twoFramesP50: at(0.5), twoFramesP95: at(0.95), longest: at(1) };
})()
