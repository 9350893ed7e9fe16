// Of a long list only the rows that can be seen exist.

const BESIDE = 4;

/**
 * Makes the rows of a scroller that can be seen and some beside them, and takes the others away. One with the focus stays, so that the keys continue
 * working. `shown` has those that exist, by their place in the list. Gives the first place and the one past the last.
 */
export function showVisible(scroller, space, shown, { height, count, make }) {
  const high = scroller.clientHeight || 400;
  const first = Math.max(Math.floor(scroller.scrollTop / height) - BESIDE, 0);
  const past = Math.min(first + Math.ceil(high / height) + 2 * BESIDE, count);
  for (const [at, row] of shown) {
    if ((at < first || at >= past) && !row.contains(document.activeElement)) {
      row.remove();
      shown.delete(at);
    }
  }
  const added = document.createDocumentFragment();
  for (let at = first; at < past; at += 1) {
    if (shown.has(at)) continue;
    const row = make(at);
    shown.set(at, row);
    added.append(row);
  }
  space.append(added);
  return [first, past];
}

/** Scrolls as far as it takes for a row to be seen. */
export function scrollToRow(scroller, at, height) {
  const top = at * height, high = scroller.clientHeight;
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  else if (top + height > scroller.scrollTop + high) scroller.scrollTop = top + height - high;
}
