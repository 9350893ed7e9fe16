//! Times as numbers.

/// Milliseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of centuries are exact in a double")]
pub(crate) fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}
