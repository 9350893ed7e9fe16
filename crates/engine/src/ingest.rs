//! The only bridge between the API's types and the core's.
//!
//! * [`requests`]: what one pod asks for, with [`limits`] and [`amounts`].
//! * [`queues`]: ResourceFlavor, ClusterQueue, LocalQueue, Cohort.
//! * [`topology`]: Topology, Node, and the topology parts of a Workload.
//! * [`workload`]: the Workload and its state.

mod amounts;
pub(crate) mod limits;
pub(crate) mod queues;
pub(crate) mod requests;
pub(crate) mod scheduling;
pub(crate) mod topology;
pub(crate) mod workload;

use sluice_core::{Name, Time};

/// The core's time of a timestamp; saturating at the ends of the calendar, which no object reaches.
pub(crate) fn time(at: jiff::Timestamp) -> Time {
    Time(i64::try_from(at.as_nanosecond()).unwrap_or(if at.as_second() < 0 { i64::MIN } else { i64::MAX }))
}

/// The timestamp of a core time.
pub(crate) fn timestamp(at: Time) -> jiff::Timestamp {
    jiff::Timestamp::from_nanosecond(i128::from(at.0)).unwrap_or(jiff::Timestamp::MAX)
}

/// A name of the API as the core takes it.
pub(crate) fn name(text: &str) -> Name {
    Name::from(text)
}
