//! Ids of traces and spans, computed from the Workload and the number of the attempt: every replica computes the same ones.

use opentelemetry::trace::{SpanId, TraceId};
use sha2::{Digest, Sha256};

/// The id of an attempt's trace, by the Workload's UID and the attempt's number from 1.
pub fn trace_id(uid: &str, attempt: u32) -> TraceId {
    let mut hash = Sha256::new();
    hash.update(b"sluice.dev/admission\0");
    hash.update(uid.as_bytes());
    hash.update([0]);
    hash.update(attempt.to_be_bytes());
    TraceId::from_bytes(first(&hash.finalize()))
}

/// The id of its span of a name; checks have `check/NAME`.
pub fn span_id(trace: TraceId, name: &str) -> SpanId {
    let mut hash = Sha256::new();
    hash.update(trace.to_bytes());
    hash.update(name.as_bytes());
    SpanId::from_bytes(first(&hash.finalize()))
}

/// The upper half of the seven bytes that decide whether a trace is sampled, as OpenTelemetry has it.
fn randomness(trace: TraceId) -> u32 {
    let [.., a, b, c, d, _, _, _] = trace.to_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// The beginning of a digest, which is longer. All zeros is no id, and no digest begins with that many.
fn first<const N: usize>(digest: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().zip(digest) {
        *to = *from;
    }
    bytes
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
        let id = trace_id(uid, attempt);
        let least = (1.0 - self.ratio) * (f64::from(u32::MAX) + 1.0);
        (f64::from(randomness(id)) >= least).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_the_workload_and_the_attempt_for_good() {
        let id = trace_id("6f1c0f0e-8f0c-4c57-9d63-6a6b5f5f7b11", 1);
        assert_eq!(id.to_string(), "44316d782ab90c7fe59e47d440de3589");
        assert_ne!(id, trace_id("6f1c0f0e-8f0c-4c57-9d63-6a6b5f5f7b11", 2));
        assert_ne!(id, trace_id("6f1c0f0e-8f0c-4c57-9d63-6a6b5f5f7b1", 1));
        assert_ne!(span_id(id, "queued"), span_id(id, "cycle"));
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
