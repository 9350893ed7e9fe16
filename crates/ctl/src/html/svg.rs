//! Drawing: time goes from left to right over the full width, heights are pixels.
//!
//! Parts that stretch with the page (areas, lines) use units of the time axis; texts, which must not stretch, have a relative position.

use std::fmt::Write as _;

use sluice_sim::duration::show;

/// The units of the width that time runs over.
const WIDTH: i64 = 100_000;

/// The units that something short is wide at least, so that it is seen.
const NARROWEST: i64 = 50;

/// How many colours the style knows.
const COLOURS: usize = 16;

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

/// The class of a flavor's colour.
pub(super) fn colour(flavor: usize) -> String {
    format!("c{}", flavor % COLOURS)
}

/// A drawing in progress.
pub(super) struct Svg {
    grid: String,
    /// Parts that stretch.
    plot: String,
    /// Parts that do not.
    fixed: String,
    height: i64,
    end: i64,
}

impl Svg {
    /// A drawing of this height over the time from 0 to `end`.
    pub fn new(height: i64, end: i64) -> Self {
        let (grid, plot, fixed) = (String::new(), String::new(), String::new());
        Self { grid, plot, fixed, height, end: end.max(1) }
    }

    /// Where a time is.
    pub fn x(&self, at: i64) -> i64 {
        self.parts(at, WIDTH)
    }

    fn parts(&self, at: i64, of: i64) -> i64 {
        let x = i128::from(at.clamp(0, self.end)) * i128::from(of) / i128::from(self.end);
        i64::try_from(x).unwrap_or(of)
    }

    /// Where a time is, in percent of the width.
    fn percent(&self, at: i64) -> String {
        let hundredths = self.parts(at, 10_000);
        format!("{}.{:02}%", hundredths / 100, hundredths % 100)
    }

    /// A rectangle with a text that shows when the mouse is on it.
    pub fn rect(&mut self, class: &str, flavor: Option<usize>, area: (i64, i64, i64, i64), tip: &str) {
        let (x, y, w, h) = area;
        let class = flavor.map_or_else(|| class.to_owned(), |flavor| format!("{class} {}", colour(flavor)));
        // Writing into a String does not fail.
        let _ = write!(
            self.plot,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" data-t=\"{}\"/>",
            w.max(NARROWEST),
            h.max(1),
            escape(tip)
        );
    }

    /// A text in front of the drawing.
    pub fn label(&mut self, y: i64, text: &str) {
        let _ = write!(self.fixed, "<text class=\"label\" x=\"-8\" y=\"{y}\">{}</text>", escape(text));
    }

    /// A line of steps: `(at, y)`.
    pub fn steps(&mut self, class: &str, points: &[(i64, i64)]) {
        let mut path = String::new();
        for (i, (at, y)) in points.iter().enumerate() {
            let x = self.x(*at);
            let _ = if i == 0 { write!(path, "M{x} {y}") } else { write!(path, "H{x}V{y}") };
        }
        let _ = write!(self.plot, "<path class=\"{class}\" d=\"{path}H{WIDTH}\"/>");
    }

    /// The axis of time at the bottom, with lines through the whole height.
    pub fn axis(&mut self, bottom: i64) {
        let step = tick(self.end);
        for (count, at) in (0..).map_while(|i: i64| Some((i, i.checked_mul(step)?))) {
            if at > self.end {
                break;
            }
            let _ = write!(self.grid, "<path class=\"grid\" d=\"M{} 0V{bottom}\"/>", self.x(at));
            let class = if count % 2 == 0 { "tick" } else { "tick odd" };
            let (x, y) = (self.percent(at), bottom + 13);
            let _ = write!(self.fixed, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", show(at));
        }
        let _ = write!(self.plot, "<path class=\"axis\" d=\"M0 {bottom}H{WIDTH}\"/>");
    }

    /// The finished drawing, with what it shows in words.
    pub fn finish(self, label: &str) -> String {
        let Self { grid, plot, fixed, height, .. } = self;
        format!(
            "<div class=\"picture\"><svg role=\"img\" aria-label=\"{}\" height=\"{height}\">\
             <svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" preserveAspectRatio=\"none\">{grid}{plot}</svg>{fixed}</svg></div>\n",
            escape(label)
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
