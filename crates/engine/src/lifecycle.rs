//! The life of a workload: from a job with a queue name to a finished Workload.
//!
//! * [`job`]: what a job needs next; [`matching`]: which Workload is its own; [`infos`]: what a start injects and a stop
//!   restores; [`priority`]: where its priority comes from.
//! * [`workload`]: what a Workload needs next; [`transition`]: the changes of its status; [`body`]: their writes.
//! * [`decisions`]: what the core decided, carried out.

pub(crate) mod body;
pub(crate) mod create;
pub(crate) mod decisions;
pub(crate) mod infos;
pub(crate) mod job;
pub(crate) mod matching;
pub(crate) mod priority;
pub(crate) mod ready;
pub(crate) mod stopped;
pub(crate) mod transition;
pub(crate) mod workload;
