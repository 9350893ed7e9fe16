//! Whether the controller of a job has seen a change, as far as its status shows.

use jiff::Timestamp;
use sluice_api::job::JobView;

/// Whether the controller of a job has shown that it saw the last start and stop.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenByController {
    /// The job's status has shown that it runs, since it was last started.
    pub(super) runs: bool,
    /// Since when it says that the job is suspended, although that was started: this is no answer to a later stop.
    pub(super) stale: Option<Timestamp>,
    /// When the job was first seen suspended, if it is.
    pub(super) suspended_from: Option<Timestamp>,
    /// A look found no pods since it was stopped, and its status has shown none since.
    pub(super) heeded: bool,
}

impl SeenByController {
    /// The value for the next version of a job, from the previous value and version.
    pub fn next(before: Option<(Self, &JobView)>, view: &JobView, now: Timestamp) -> Self {
        let known = before.map_or_else(Self::default, |(known, _)| known);
        let was = |is: fn(&JobView) -> bool| before.is_some_and(|(_, view)| is(view));
        let starts = was(|view| view.suspended) && !view.suspended;
        let runs = view.active && !view.activity_unknown
            || view.suspended_condition.is_some_and(|(suspended, _)| !suspended);
        Self {
            runs: runs || (known.runs && !starts),
            stale: if view.suspended {
                known.stale
            } else {
                view.suspended_condition.map(|(_, since)| since)
            },
            suspended_from: view.suspended.then(|| known.suspended_from.unwrap_or(now)),
            heeded: known.heeded && view.suspended && (!view.active || was(|view| view.active)),
        }
    }
}
