//! Drawing: time goes from left to right, coordinates are whole pixels.

use std::fmt::Write as _;

use crate::duration::show;

/// The width of the part that time runs over.
pub(super) const WIDTH: i64 = 960;
/// The room for labels at the left.
pub(super) const LEFT: i64 = 150;

/// A text safe inside elements and attributes.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c => safe.push(c),
        }
    }
    safe
}

/// A drawing that is being made.
pub(super) struct Svg {
    body: String,
    height: i64,
    end: i64,
}

impl Svg {
    /// A drawing of this height over the time from 0 to `end`.
    pub fn new(height: i64, end: i64) -> Self {
        Self { body: String::new(), height, end: end.max(1) }
    }

    /// Where a time is.
    pub fn x(&self, at: i64) -> i64 {
        let x = i128::from(at.clamp(0, self.end)) * i128::from(WIDTH) / i128::from(self.end);
        LEFT + i64::try_from(x).unwrap_or(WIDTH)
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing into a String does not fail.
        let _ = self.body.write_fmt(element);
    }

    /// A rectangle that tells something when the mouse is on it.
    pub fn rect(&mut self, class: &str, fill: Option<usize>, area: (i64, i64, i64, i64), tip: &str) {
        let (x, y, w, h) = area;
        let fill = fill.map_or(String::new(), |c| format!(" fill=\"var(--c{})\"", c % 8));
        let tip = escape(tip);
        let round = if class == "bar" { " rx=\"2\"" } else { "" };
        self.put(format_args!(
            "<rect class=\"{class}\"{fill} x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\"{round} data-t=\"{tip}\"/>",
            w.max(1),
            h.max(1)
        ));
    }

    /// A horizontal line that tells something.
    pub fn wait(&mut self, from: i64, to: i64, y: i64, tip: &str) {
        let (x1, x2, tip) = (self.x(from), self.x(to), escape(tip));
        if x2 > x1 {
            // A wide invisible line under the thin one is easier to hit.
            self.put(format_args!(
                "<g data-t=\"{tip}\"><line class=\"wait\" x1=\"{x1}\" x2=\"{x2}\" y1=\"{y}\" y2=\"{y}\"/>\
                 <line stroke=\"transparent\" stroke-width=\"10\" x1=\"{x1}\" x2=\"{x2}\" y1=\"{y}\" y2=\"{y}\"/></g>"
            ));
        }
    }

    /// A cross: here somebody else got the quota.
    pub fn cross(&mut self, at: i64, y: i64, tip: &str) {
        let (x, tip) = (self.x(at), escape(tip));
        self.put(format_args!(
            "<g data-t=\"{tip}\"><path class=\"mark\" d=\"M{} {}l8 8m0-8l-8 8\"/>\
             <circle r=\"7\" fill=\"transparent\" cx=\"{x}\" cy=\"{y}\"/></g>",
            x - 4,
            y - 4
        ));
    }

    /// A text.
    pub fn text(&mut self, x: i64, y: i64, anchor: &str, text: &str) {
        let text = escape(text);
        self.put(format_args!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"));
    }

    /// A dashed line of steps: `(at, y)`.
    pub fn steps(&mut self, class: &str, points: &[(i64, i64)]) {
        let mut path = String::new();
        for (i, (at, y)) in points.iter().enumerate() {
            let x = self.x(*at);
            let _ = if i == 0 { write!(path, "M{x} {y}") } else { write!(path, "H{x}V{y}") };
        }
        let right = LEFT + WIDTH;
        self.put(format_args!("<path class=\"{class}\" d=\"{path}H{right}\"/>"));
    }

    /// The axis of time at the bottom, with lines through the whole height.
    pub fn axis(&mut self, bottom: i64) {
        let step = tick(self.end);
        let mut at = 0;
        while at <= self.end {
            let x = self.x(at);
            self.body.insert_str(
                0,
                &format!("<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"{bottom}\"/>"),
            );
            self.text(x, bottom + 13, "middle", &show(at));
            at += step;
        }
        let (left, right) = (LEFT, LEFT + WIDTH);
        self.put(format_args!(
            "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>"
        ));
    }

    /// The finished drawing, with what it shows in words.
    pub fn finish(self, label: &str) -> String {
        let (width, height, label) = (LEFT + WIDTH + 40, self.height, escape(label));
        format!(
            "<svg role=\"img\" aria-label=\"{label}\" width=\"{width}\" height=\"{height}\">{}</svg>\n",
            self.body
        )
    }
}

/// A round distance between ticks: 5 to 12 of them.
fn tick(end: i64) -> i64 {
    const SECOND: i64 = 1000;
    const STEPS: [i64; 18] = [
        SECOND,
        2 * SECOND,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
        60 * SECOND,
        120 * SECOND,
        300 * SECOND,
        600 * SECOND,
        1800 * SECOND,
        3600 * SECOND,
        7200 * SECOND,
        14_400 * SECOND,
        28_800 * SECOND,
        86_400 * SECOND,
        172_800 * SECOND,
        604_800 * SECOND,
        2_592_000 * SECOND,
    ];
    let fits = |step: &i64| end / step <= 11;
    STEPS.into_iter().find(fits).unwrap_or((end / 10).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        for (end, expected) in
            [(10_000, 1000), (86_400_000, 14_400_000), (1, 1000), (i64::MAX, i64::MAX / 10)]
        {
            assert_eq!(tick(end), expected, "{end}");
        }
    }

    #[test]
    fn texts_cannot_break_out() {
        assert_eq!(escape("<a b=\"c\">&"), "&lt;a b=&quot;c&quot;&gt;&amp;");
    }
}
