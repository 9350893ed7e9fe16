//! Counts the outcomes of traces.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{info, warn};

use crate::metrics::TRACES;
use crate::metrics::registry::Registry;

/// The outcomes of traces, as labels of the metric.
const SENT: &str = "sent";
/// Too many waited, or the collector could not be reached.
const LOST: &str = "lost";
/// The collector did not want them.
const REJECTED: &str = "rejected";

/// Counts the outcomes of traces, and logs once when some are lost, and when no more are lost.
#[derive(Clone, Debug)]
pub struct Tally {
    registry: Arc<Registry>,
    losing: Arc<AtomicBool>,
}

impl Tally {
    /// Counts in this registry.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry, losing: Arc::default() }
    }

    fn count(&self, result: &'static str, traces: usize) {
        let value = f64::from(u32::try_from(traces).unwrap_or(u32::MAX));
        self.registry.record(TRACES.sample([result], value));
    }

    /// Some traces are lost: that is logged if none was lost before.
    pub fn lost(&self, traces: usize, why: &dyn Display) {
        self.count(LOST, traces);
        self.say(why);
    }

    /// The collector did not want some traces, which is logged likewise.
    pub fn rejected(&self, traces: usize, why: &dyn Display) {
        self.count(REJECTED, traces);
        self.say(why);
    }

    /// Traces cannot be sent at present, which is logged likewise.
    pub fn say(&self, why: &dyn Display) {
        if !self.losing.swap(true, Ordering::Relaxed) {
            warn!(%why, "traces are lost; sluice_traces_total counts them");
        }
    }

    /// The collector took all of these traces.
    pub fn sent(&self, traces: usize) {
        self.count(SENT, traces);
        if self.losing.swap(false, Ordering::Relaxed) {
            info!("traces are sent again");
        }
    }

    /// The collector took only some traces.
    pub fn partly_sent(&self, traces: usize, rejected: usize, why: &dyn Display) {
        self.count(SENT, traces - rejected);
        self.rejected(rejected, why);
    }
}
