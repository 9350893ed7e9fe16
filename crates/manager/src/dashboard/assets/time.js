// Times and durations as people read them. All in milliseconds; clock times are UTC.

/** A duration: `1d2h`, `3h05m`, `4m10s`, `5s`, `250ms`. */
export function show(millis) {
  const sign = millis < 0 ? "-" : "";
  const all = Math.round(Math.abs(millis));
  const seconds = Math.floor(all / 1000);
  const [d, h, m, s] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60];
  const two = (n) => String(n).padStart(2, "0");
  if (!d && !h && !m) return sign + (all % 1000 ? `${all}ms` : `${s}s`);
  if (!d && !h) return sign + (s ? `${m}m${two(s)}s` : `${m}m`);
  if (!d) return sign + (s ? `${h}h${two(m)}m${two(s)}s` : m ? `${h}h${two(m)}m` : `${h}h`);
  return sign + (h || m ? `${d}d${two(h)}h${two(m)}m` : `${d}d`);
}

/** A time of day, with its seconds only where it has some. */
export function clock(epoch) {
  if (!Number.isFinite(epoch) || Math.abs(epoch) > 8e15) return "–";
  const text = new Date(epoch).toISOString();
  return text.slice(11, epoch % 60000 ? 19 : 16);
}

/** A date and a time of day. */
export function stamp(epoch) {
  if (!Number.isFinite(epoch) || Math.abs(epoch) > 8e15) return "–";
  return `${new Date(epoch).toISOString().slice(0, 10)} ${clock(epoch)} UTC`;
}

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const STEPS = [1, 2, 5, 10, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE,
  30 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, DAY, 2 * DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY];

/** Round times between two, about `most` of them at the highest. */
export function ticks(from, to, most) {
  const span = Math.max(to - from, 1);
  const step = STEPS.find((one) => span / one <= most) ?? Math.ceil(span / most);
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to && found.length <= most + 1; at += step) found.push(at);
  return found;
}
