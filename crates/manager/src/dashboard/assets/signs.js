// The signs of a schedule.

import { draw } from "./dom.js";

/** How a hold ended, in words. */
export const ENDS = { open: "still running", finished: "finished", failed: "failed", preempted: "preempted", evicted: "evicted" };
/** What happened to nodes, queues or quota, in words. */
export const KINDS = { nodes: "nodes", stop: "a queue stops", resume: "a queue continues", quota: "quota changes", refused: "an object is refused", scenario: "other changes" };
/** Shapes differ, too, for those who do not see the colours. */
export const SHAPES = {
  preempted: "M-4-4l8 8m0-8l-8 8",
  evicted: "M0-5l5 5l-5 5l-5-5z",
  failed: "M0-5l5 9h-10z",
  nodes: "M-5-4h10l-5 9z",
  stop: "M-4-4h8v8h-8z",
  resume: "M-3-5l7 5l-7 5z",
  quota: "M0-5v10m-4-6l4-4l4 4",
  refused: "M-4 0h8",
  scenario: "M0-3a3 3 0 1 0 .1 0z",
};

/** A mark at a part of the width. */
export function shape(kind, x, y, tip) {
  return draw("svg", { x, y, class: `sign ${kind}`, "data-t": tip },
    draw("circle", { class: "hit", r: 7 }), draw("path", { class: "edge", d: SHAPES[kind] }), draw("path", { class: "mark", d: SHAPES[kind] }));
}
