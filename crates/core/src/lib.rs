//! The admission algorithm: a pure, deterministic library without I/O, clock or randomness.
//!
//! It holds ClusterQueues, Cohorts, flavors and workloads as plain data and decides, one [`Scheduler::cycle`] at a
//! time, who gets quota. It must never contain: I/O, a clock, randomness, an API type, or an order that comes from a
//! hash. Time comes in as an argument; the same calls in the same order give the same results, byte for byte.
//!
//! Invariants: the usage of every node equals what its workloads hold ([`Scheduler::audit`] recomputes and compares);
//! a workload is in exactly one place (parked, pending, holding quota); no input makes a function panic.
#![forbid(unsafe_code)]
#![warn(clippy::disallowed_types)]

mod activity;
mod admission_fair_sharing;
mod audit;
mod capacity;
mod changed;
mod cluster_queue;
mod config;
mod cycle;
mod fair_sharing;
mod flavor_assigner;
mod forest;
mod holding;
mod ingest;
mod intern;
mod local_queue;
mod loop_guard;
mod matching;
mod partial_admission;
mod plan;
mod preemption;
mod queue;
mod quota;
mod reason;
mod report;
mod scheduler;
mod shape;
mod snapshot;
mod spec;
mod status;
mod tournament;
mod usage;
mod view;
mod workload;
mod workloads;

pub use capacity::Displaced;
pub use config::{AdmissionFairSharing, Config, FairSharing, FairStrategy, Gates};
pub use reason::{
    Detail, LoopKind, PodSetRefusal, PodSetRequests, PreemptionOutlook, Reason, Refusal, Unadmitted,
};
pub use report::{
    Changed, ClusterQueueStatus, CohortStatus, Considered, ConsideredFlavor, CycleReport, EntryReport,
    FlavorMode, FlavorUsage, InactiveCause, LocalQueueInactive, LocalQueueStatus, Outcome, PendingPosition,
    PreemptionReason, ResourceUsage, Victim,
};
pub use scheduler::Scheduler;
pub use sluice_quantity::Amount;
pub use snapshot::{Snapshot, Stats};
pub use spec::{
    BorrowWithinCohort, CheckController, CheckRule, CheckSpec, ClusterQueueSpec, CohortSpec, Expression,
    FlavorQuotas, FlavorSpec, Fungibility, FungibilityPolicy, FungibilityPreference, LocalQueueSpec,
    Operator, Preemption, PreemptionPolicy, QueueingStrategy, ResourceGroup, ResourceQuota, Selector,
    StopPolicy, Taint, TaintEffect, Time, Toleration, Weight, WhenCanPreempt,
};
pub use workload::{
    Admission, AffinityTerm, PodSetAssignment, PodSetSpec, WorkloadKey, WorkloadSpec, WorkloadState,
};

/// A name, shared instead of copied.
pub type Name = std::sync::Arc<str>;
