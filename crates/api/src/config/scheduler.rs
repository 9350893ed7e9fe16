//! `scheduler`: a section that Kueue does not have; when decisions are made, and how long quota is waited for.

use serde::Serialize;

use super::Duration;
use super::reader::{Reader, field, not_negative};

/// The longest accepted time.
const MOST: Duration = Duration::from_secs(1);

/// `scheduler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scheduler {
    /// After quota became free, or a Workload came, so long for more of that before it is decided on; longer, up to 50 ms more, while many starts and
    /// admissions wait to be sent. 3 ms; at most 1 s.
    pub gather_for: Duration,
    /// A Workload that gives its quota back waits so long for its pods to end, from its eviction or deletion on, or once its job has ended; then they
    /// are given 30 s. 1 h; 0: for as long as they take.
    pub max_termination_grace_period: Duration,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            gather_for: Duration::from_nanos(3_000_000),
            max_termination_grace_period: Duration::from_secs(3_600),
        }
    }
}

impl Scheduler {
    /// Whether everything is as by default.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads the section.
pub(super) fn scheduler(mut reader: Option<Reader<'_>>) -> Scheduler {
    let gather_for = |r: &mut Reader<'_>| {
        let time = not_negative(r, "gatherFor")?;
        if time > MOST {
            r.error("gatherFor", format!("expected {MOST} at most, found {time}"));
        }
        Some(time)
    };
    let longest = |r: &mut Reader<'_>| not_negative(r, "maxTerminationGracePeriod");
    let Scheduler { gather_for: default_gather, max_termination_grace_period: default_longest } =
        Scheduler::default();
    Scheduler {
        gather_for: field(&mut reader, gather_for).unwrap_or(default_gather),
        max_termination_grace_period: field(&mut reader, longest).unwrap_or(default_longest),
    }
}
