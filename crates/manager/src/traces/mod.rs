//! Traces of admissions (OpenTelemetry): how an attempt to admit a Workload spent its time, from the queue to ready pods.
//!
//! The engine reports what it sees and decides; the task here keeps the attempts in progress, in bounded memory, and makes the spans of an attempt
//! when it is over; another task sends them by OpenTelemetry's exporter. Every replica follows the attempts, and the leader sends, so that a change
//! of the leader loses next to nothing. Nothing waits for traces: what does not fit is dropped and counted.

mod attempts;
mod collector;
mod delivery;
mod exporter;
mod ids;
mod spans;
mod tally;

use std::sync::Arc;
use std::time::Duration;

pub use opentelemetry::trace::TraceId;
use sluice_api::config;
use sluice_engine::attempt::AttemptStep;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

pub use self::collector::{Collector, SettingsError};
pub use self::ids::Sampling;
use crate::metrics::registry::Registry;
use crate::shutdown::Stop;
use crate::supervise::Supervisor;
use attempts::Attempts;
use exporter::{Exporter, Spans};
use spans::spans;
use tally::Tally;

/// Steps that wait to be looked at, which takes next to no time.
const STEPS: usize = 8192;

/// A step, how long its cycle took, and whether the process leads.
type Seen = (Box<AttemptStep>, Duration, bool);

/// Takes steps of attempts.
pub struct Traces {
    sampling: Sampling,
    steps: Sender<Seen>,
    tally: Tally,
}

impl Traces {
    /// Starts the tasks; the second ends when the last step is taken in and all traces are sent, or lost.
    ///
    /// # Errors
    /// When the collector's settings are no good.
    pub fn start(
        supervisor: &Supervisor,
        section: &config::Tracing,
        instance: &str,
        registry: Arc<Registry>,
        stop: Stop,
    ) -> Result<(Self, JoinHandle<()>), SettingsError> {
        let collector = Collector::new(section)?;
        let tally = Tally::new(registry);
        let exporter = Exporter::new(collector, instance.to_owned(), tally.clone(), stop)?;
        let sampling = Sampling::new(section.sample_ratio);
        let (steps, taken) = channel(STEPS);
        let (traces, waiting) = channel(usize::try_from(section.max_queue_size).unwrap_or(1).max(1));
        supervisor.spawn_finite("attempts of traces", follow(taken, traces, tally.clone(), sampling));
        let exporting = supervisor.spawn_finite("traces", exporter.run(waiting));
        Ok((Self { sampling, steps, tally }, exporting))
    }

    /// Hands a step over; never waits.
    pub fn put(&self, step: Box<AttemptStep>, took: Duration, leading: bool) {
        if self.sampling.trace(&step.uid, step.attempt).is_some()
            && self.steps.try_send((step, took, leading)).is_err()
        {
            self.tally.lost(1, &"steps come faster than they can be processed");
        }
    }
}

/// Follows attempts, and sends the spans of ended ones.
async fn follow(mut steps: Receiver<Seen>, traces: Sender<Spans>, tally: Tally, sampling: Sampling) {
    let mut attempts = Attempts::default();
    while let Some((step, took, leading)) = steps.recv().await {
        let Some(attempt) = attempts.take(*step, took).filter(|_| leading) else { continue };
        let Some(id) = sampling.trace(&attempt.uid, attempt.number) else { continue };
        if traces.try_send(spans(id, &attempt)).is_err() {
            tally.lost(1, &"more traces wait to be sent than tracing.maxQueueSize allows");
        }
    }
}

#[cfg(test)]
mod stand_in;
#[cfg(test)]
mod tests;
