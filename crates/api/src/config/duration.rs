//! Durations in the text form of Kubernetes' configuration files, which is Go's (`1h30m`, `500ms`).

use std::fmt;

use serde::{Serialize, Serializer};

const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
];

/// A signed duration with a resolution of one nanosecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(i64);

impl Duration {
    /// The duration zero.
    pub const ZERO: Self = Self(0);

    /// A number of seconds, saturating.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// A number of nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Whole seconds, cut off.
    pub const fn as_secs(self) -> i64 {
        self.0 / 1_000_000_000
    }

    /// Whole seconds, rounded up: a positive duration has at least one.
    pub const fn as_secs_up(self) -> i64 {
        self.0 / 1_000_000_000 + (self.0 % 1_000_000_000 > 0) as i64
    }

    /// The standard library's type; a negative duration is none at all.
    pub fn as_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Parses Go's text form: an optional sign and one or more numbers with units, or `0`.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Some(Self::ZERO);
        }
        if rest.is_empty() {
            return None;
        }
        let mut nanos = 0_i64;
        while !rest.is_empty() {
            let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let (number, tail) = rest.split_at(number_end);
            let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_end);
            let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
            nanos = nanos.checked_add(scaled(number, *scale)?)?;
            rest = tail;
        }
        Some(Self(if negative { -nanos } else { nanos }))
    }
}

/// `number` times `scale`, cut to whole nanoseconds; the number may have a fraction.
fn scaled(number: &str, scale: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut nanos = if whole.is_empty() { 0 } else { whole.parse::<i64>().ok()?.checked_mul(scale)? };
    let mut place = scale;
    for digit in fraction.chars() {
        let digit = i64::from(digit.to_digit(10)?);
        // The remainder of `scale / 10^k` matters only below one nanosecond for the units above.
        place /= 10;
        nanos = nanos.checked_add(place * digit)?;
    }
    Some(nanos)
}

impl fmt::Display for Duration {
    /// Go's text form: `1h30m0s`, `1.5s`, `500ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let nanos = self.0.unsigned_abs();
        for (unit, scale) in [("ns", 1_000), ("µs", 1_000_000), ("ms", 1_000_000_000)] {
            if nanos < scale {
                return write!(f, "{}{unit}", decimal(nanos, scale / 1_000));
            }
        }
        let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
        let seconds = decimal(rest, 1_000_000_000);
        match (minutes / 60, minutes % 60) {
            (0, 0) => write!(f, "{seconds}s"),
            (0, minutes) => write!(f, "{minutes}m{seconds}s"),
            (hours, minutes) => write!(f, "{hours}h{minutes}m{seconds}s"),
        }
    }
}

/// `value / scale` (a power of ten) without trailing zeros.
fn decimal(value: u64, scale: u64) -> String {
    let (whole, rest) = (value / scale, value % scale);
    if rest == 0 {
        return whole.to_string();
    }
    let width = scale.ilog10() as usize;
    let text = format!("{whole}.{rest:0width$}");
    text.trim_end_matches('0').to_owned()
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_s_text_form_is_read() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("15s", 15_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1m0.001s", 60_001_000_000),
            ("-2m", -120_000_000_000),
            ("500ms", 500_000_000),
            ("7us", 7_000),
            ("7µs", 7_000),
        ] {
            assert_eq!(Duration::parse(text), Some(Duration(nanos)), "{text}");
        }
        for text in ["", "-", "5", "5 s", "5x", "s", ".s", "1..5s", "99999999999h", "1h-5m", "5mm"] {
            assert_eq!(Duration::parse(text), None, "{text}");
        }
    }

    #[test]
    fn go_s_text_form_is_written() {
        for (seconds, text) in
            [(0, "0s"), (15, "15s"), (60, "1m0s"), (5400, "1h30m0s"), (3600, "1h0m0s"), (-120, "-2m0s")]
        {
            assert_eq!(Duration::from_secs(seconds).to_string(), text);
        }
        for (nanos, text) in [
            (1, "1ns"),
            (1_500, "1.5µs"),
            (500_000_000, "500ms"),
            (1_500_000_000, "1.5s"),
            (60_001_000_000, "1m0.001s"),
        ] {
            assert_eq!(Duration(nanos).to_string(), text);
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_back(nanos in proptest::num::i64::ANY) {
            let duration = Duration(nanos.max(-i64::MAX));
            proptest::prop_assert_eq!(Duration::parse(&duration.to_string()), Some(duration));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-+0-9.hmsnuµ]{0,12}|.*") {
            let _ = Duration::parse(&text);
        }
    }
}
