//! Durations as people write them: `90s`, `1h30m`, `2d`, or a plain number of seconds.

use jiff::SignedDuration;
use serde_json::Value;

/// Reads a duration: numbers with the units `d`, `h`, `m`, `s`, `ms`, or a plain number of seconds.
///
/// # Errors
///
/// If the text is empty, a number is missing, a unit is none of these, or the whole is too long to count in milliseconds.
pub fn parse(text: &str) -> Result<SignedDuration, String> {
    let wrong = || format!("expected a duration like 90s, 1h30m or 2d, found {text:?}");
    let mut total: i64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: i64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "d" => 86_400_000,
            "h" => 3_600_000,
            "m" => 60_000,
            "s" | "" => 1000,
            "ms" => 1,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        total = number.checked_mul(unit).and_then(|n| total.checked_add(n)).ok_or_else(wrong)?;
    }
    Ok(SignedDuration::from_millis(total))
}

/// Reads a duration out of a document: text as [`parse`] takes it, or a number of seconds.
pub(crate) fn from_value(value: &Value) -> Result<SignedDuration, String> {
    match value {
        Value::String(text) => parse(text),
        Value::Number(number) => match number.as_i64().filter(|n| (0..=i64::MAX / 1000).contains(n)) {
            Some(seconds) => Ok(SignedDuration::from_secs(seconds)),
            None => Err(format!("expected a duration like 90s or 1h30m, found {number}")),
        },
        other => Err(format!("expected a duration like 90s or 1h30m, found {other}")),
    }
}

/// For `#[serde(deserialize_with)]`.
pub(crate) fn required<'de, D: serde::Deserializer<'de>>(d: D) -> Result<SignedDuration, D::Error> {
    let value = <Value as serde::Deserialize>::deserialize(d)?;
    from_value(&value).map_err(serde::de::Error::custom)
}

/// For `#[serde(default, deserialize_with)]`.
pub(crate) fn optional<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<SignedDuration>, D::Error> {
    required(d).map(Some)
}

/// Milliseconds as people read them: `1d2h`, `3h05m`, `4m10s`, `5s`, `250ms`.
pub fn show(millis: i64) -> String {
    let sign = if millis < 0 { "-" } else { "" };
    let millis = millis.unsigned_abs();
    let seconds = millis / 1000;
    let (d, h, m, s) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let text = match (d, h, m) {
        (0, 0, 0) if !millis.is_multiple_of(1000) => format!("{millis}ms"),
        (0, 0, 0) => format!("{s}s"),
        (0, 0, _) if s == 0 => format!("{m}m"),
        (0, 0, _) => format!("{m}m{s:02}s"),
        (0, _, _) if m == 0 && s == 0 => format!("{h}h"),
        (0, _, _) if s == 0 => format!("{h}h{m:02}m"),
        (0, _, _) => format!("{h}h{m:02}m{s:02}s"),
        _ if h == 0 && m == 0 => format!("{d}d"),
        _ => format!("{d}d{h:02}h{m:02}m"),
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_add_up() {
        assert_eq!(parse("1h30m").unwrap().as_millis(), 5_400_000);
        assert_eq!(parse("2d").unwrap().as_millis(), 172_800_000);
        assert_eq!(parse("45").unwrap().as_millis(), 45_000);
        assert_eq!(parse("250ms").unwrap().as_millis(), 250);
        for wrong in ["", "h", "1w", "-5s", "1 h", "99999999999999d"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_are_shown_in_at_most_three_units() {
        let shown: Vec<_> = [0, 250, 5000, 60_000, 250_000, 11_100_000, 93_600_000].map(show).into();
        assert_eq!(shown, ["0s", "250ms", "5s", "1m", "4m10s", "3h05m", "1d02h00m"]);
    }
}
