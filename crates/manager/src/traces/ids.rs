//! Ids of traces and spans, computed from the Workload and the number of the attempt: every replica computes the same ones.

use std::fmt;

use sha2::{Digest, Sha256};

/// The id of a trace (W3C Trace Context), shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// The id of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// Of an attempt, by the Workload's UID and its number from 1.
    pub fn of(uid: &str, attempt: u32) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"sluice.dev/admission\0");
        hash.update(uid.as_bytes());
        hash.update([0]);
        hash.update(attempt.to_be_bytes());
        Self(first(&hash.finalize()))
    }

    /// Of its span of a name; checks have `check/NAME`.
    pub fn span(self, name: &str) -> SpanId {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(name.as_bytes());
        SpanId(first(&hash.finalize()))
    }

    /// On the wire.
    pub fn to_vec(self) -> Vec<u8> {
        self.0.to_vec()
    }

    /// The upper half of the seven bytes that decide whether it is sampled, as OpenTelemetry has it.
    fn randomness(self) -> u32 {
        let [.., a, b, c, d, _, _, _] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl SpanId {
    /// On the wire.
    pub fn to_vec(self) -> Vec<u8> {
        self.0.to_vec()
    }
}

/// The beginning of a digest, which is longer. All zeros is no id, and no digest begins with that many.
fn first<const N: usize>(digest: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().zip(digest) {
        *to = *from;
    }
    bytes
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which traces are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    ratio: f64,
}

impl Sampling {
    /// This part of them, from 0 to 1.
    pub fn new(ratio: f64) -> Self {
        Self { ratio }
    }

    /// The id of an attempt's trace, if it is sampled. Programs that sample by the same rule and ratio choose the same attempts.
    pub fn trace(self, uid: &str, attempt: u32) -> Option<TraceId> {
        let id = TraceId::of(uid, attempt);
        let least = (1.0 - self.ratio) * (f64::from(u32::MAX) + 1.0);
        (f64::from(id.randomness()) >= least).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_the_workload_and_the_attempt_for_good() {
        let id = TraceId::of("6f1c0f0e-8f0c-4c57-9d63-6a6b5f5f7b11", 1);
        assert_eq!(id.to_string(), "44316d782ab90c7fe59e47d440de3589");
        assert_ne!(id, TraceId::of("6f1c0f0e-8f0c-4c57-9d63-6a6b5f5f7b11", 2));
        assert_ne!(id, TraceId::of("6f1c0f0e-8f0c-4c57-9d63-6a6b5f5f7b1", 1));
        assert_ne!(id.span("queued"), id.span("cycle"));
        assert_eq!((id.to_vec().len(), id.span("queued").to_vec().len()), (16, 8));
    }

    #[test]
    fn about_that_part_of_the_traces_is_made() {
        let made = |ratio: f64| (0..4000).filter(|n| Sampling::new(ratio).trace("uid", *n).is_some()).count();
        assert_eq!((made(0.0), made(1.0)), (0, 4000));
        assert!((900..1100).contains(&made(0.25)), "{}", made(0.25));
        // A larger ratio samples all that a smaller ratio samples.
        let both = (0..4000).filter(|n| {
            let made = |ratio: f64| Sampling::new(ratio).trace("uid", *n).is_some();
            made(0.25) && !made(0.5)
        });
        assert_eq!(both.count(), 0);
    }
}
