//! What the engine's timers are for.

use sluice_core::WorkloadKey;

use crate::input::ObjectRef;
use crate::world::JobKey;

/// What a timer wakes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// Look at a Workload.
    Workload(WorkloadKey),
    /// Look at a job.
    Job(JobKey),
    /// Look at the status of a queue, cohort, flavor or check.
    Object(ObjectRef),
    /// Look at nodes.
    Hotswap,
    /// Set the limits of flavors whose capacity has changed by pods alone.
    Capacity,
    /// Look at the pods of a Workload with a topology assignment.
    Place(WorkloadKey),
    /// The next reason for waiting may be written.
    Reasons,
    /// Look again at an object that made the engine panic several times.
    Aside(ObjectRef),
}
