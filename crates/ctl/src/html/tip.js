const tip = document.getElementById("tip");
const tell = (event) => {
  const mark = event.target.closest ? event.target.closest("[data-t]") : null;
  tip.style.display = mark ? "block" : "none";
  if (!mark) return;
  tip.textContent = mark.dataset.t;
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const y = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8);
  tip.style.left = Math.max(x, 4) + "px";
  tip.style.top = Math.max(y, 4) + "px";
};
// A finger points too.
document.addEventListener("pointermove", tell);
document.addEventListener("pointerdown", tell);
document.addEventListener("scroll", () => { tip.style.display = "none"; }, true);
