//! The life of a workload: from a job with a queue name to a finished Workload.
//!
//! * [`job`]: what a job needs next; [`ancestor`]: what manages it; [`unadmitted`]: that it does not run before its time; [`children`]: leftovers of an
//!   earlier admission in jobs that it made; [`siblings`]: where only one of them may run; [`matching`]: which Workload is its own; [`places`]: which
//!   nodes that names; [`mismatched`]: a Workload that does not describe its job; [`unreadable`]: a job that cannot be read;
//!   [`infos`]: what a start injects and a stop restores; [`priority`]: where its priority comes from.
//! * [`slices`]: the Workloads of a job that changes its size while it runs; [`ungate`]: its pods, which wait for one of them.
//! * [`workload`]: what a Workload needs next, [`pending`] while it waits and [`reserved`] while it holds quota; [`eviction`], [`exceeding`], [`elsewhere`];
//!   [`transition`]: the changes of its status; [`mod@write`] and [`body`]: their writes.
//! * [`stopped`]: how a run ends; [`left`]: a job that leaves its queue; [`finished`]: what remains of a run; [`clean_up`]: what parts of a deleted
//!   job still need its quota for; [`active`]: when its pods are gone, so that its quota is free; [`answered`]: whether the job's controller has seen
//!   the stop; [`unheeded`]: a controller that does not stop it; [`outlived`]: pods that continue after its end; [`unstoppable`]: a job that cannot be
//!   suspended.
//! * [`requeue`]: what lets it be queued again; [`deactivated`]: consequences for the job of a Workload that waits.
//! * [`decisions`]: carries out what the core decided; [`outdated`]: what of that does not count any more.

pub(crate) mod active;
pub(crate) mod ancestor;
pub(crate) mod answered;
mod beyond;
pub(crate) mod body;
pub(crate) mod children;
pub(crate) mod clean_up;
pub(crate) mod create;
pub(crate) mod deactivated;
pub(crate) mod decisions;
mod elsewhere;
pub(crate) mod eviction;
pub(crate) mod exceeding;
pub(crate) mod finished;
pub(crate) mod hold;
pub(crate) mod infos;
pub(crate) mod job;
pub(crate) mod left;
pub(crate) mod left_behind;
pub(crate) mod matching;
pub(crate) mod mismatched;
pub(crate) mod outdated;
pub(crate) mod outlived;
pub(crate) mod pending;
mod places;
pub(crate) mod priority;
pub(crate) mod ready;
mod reason_report;
pub(crate) mod report;
pub(crate) mod requeue;
pub(crate) mod reserved;
pub(crate) mod seen_by_controller;
mod siblings;
pub(crate) mod sized;
pub(crate) mod slices;
pub(crate) mod stopped;
pub(crate) mod transition;
pub(crate) mod unadmitted;
pub(crate) mod ungate;
pub(crate) mod unheeded;
pub(crate) mod unreadable;
mod unstoppable;
pub(crate) mod workload;
pub(crate) mod write;
