//! The admission algorithm: a pure, deterministic library without I/O, clock or randomness.
//!
//! It holds ClusterQueues, Cohorts, flavors and workloads as plain data and decides, one [`Scheduler::cycle`] at a
//! time, which workloads get quota. It must never contain: I/O, a clock, randomness, an API type, or an order that comes from a
//! hash. Time comes in as an argument; the same calls in the same order give the same results, byte for byte.
//!
//! Invariants: the usage of every node equals what its workloads hold ([`Scheduler::audit`] recomputes and compares);
//! a workload is in exactly one place (inactive, pending, holding quota); no input makes a function panic.
//!
//! Where each rule is, by its usual name (numbers: the reference of the algorithm, 06):
//!
//! | rule | module |
//! |---|---|
//! | 6.2 effective requests, the resource `pods`, uncovered resources | `plan`, `shape` |
//! | 6.3 SubtreeQuota, localQuota, available, potentialAvailable, BorrowingWith | `quota` |
//! | 6.3 addUsage, removeUsage; snapshot and rollback | `usage` |
//! | 6.3 cohort forest, cycles, IsWithinNominal, borrowing height (FindHeightOfLowestSubtreeThatFits) | `forest` |
//! | 6.4 order in a queue, heap, inadmissible, flush, sticky preemptor, equivalence classes | `queue` |
//! | 6.4 what is queued, what triggers a flush; backoff | `waiting`, `ingest`, `scheduler` |
//! | 6.4 Heads; requeue after a cycle | `cycle::heads`, `cycle::requeue` |
//! | 6.5 the cycle: nominate, order, processEntry, admit, issue preemptions | `cycle`, one file for each |
//! | 6.5 order under fair sharing: the tournament | `tournament` |
//! | 6.4, 6.15 second-pass queue, second pass | `second_pass` |
//! | 6.6 flavor assignment, quota per resource, start index | `flavor_assigner` |
//! | 6.6 granular mode, preference, shouldTryNext (flavor fungibility) | `flavor_assigner::granular` |
//! | 6.6 LastAssignment and when it is outdated | `flavor_assigner::last_assignment` |
//! | 6.6 taints, node selector, node affinity | `matching` |
//! | 6.6 partial admission | `partial_admission` |
//! | 6.7 candidates, their policies and order | `preemption::candidates` |
//! | 6.7 classical preemption: hierarchical advantage, attempts | `preemption::classical` |
//! | 6.7 fill-back; the preemption oracle of 6.6 | `preemption` |
//! | 6.8 dominant resource share (DRS) | `fair_sharing` |
//! | 6.8 preemption strategies, almost-LCA | `preemption::fair` |
//! | 6.9 admission fair sharing: decay, entry penalty | `admission_fair_sharing` |
//! | 6.10 which checks apply | `cycle::admit` |
//! | 6.28 saturating amounts | `sluice_quantity::Amount` |
//! | reasons and their messages | `reason` |
//! | ours: PreemptionLoopGuard, AdmitOnlyFreeQuota | `loop_guard`, `cycle::process` |
//! | ours: RequeueReclaimersOnBorrowing | `reclaimers` |
//! | ours: workloads that reservations kept out are tried again | `kept_out` |
#![forbid(unsafe_code)]
#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

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
mod ingest;
mod intern;
mod kept_out;
mod local_queue;
mod loop_guard;
mod matching;
mod partial_admission;
mod plan;
mod preemption;
mod queue;
mod quota;
mod reason;
mod reclaimers;
mod referring_queues;
mod report;
mod reservation;
mod scheduler;
mod second_pass;
mod shape;
mod snapshot;
mod spec;
mod standing;
mod status;
mod sweep;
mod tournament;
mod tree;
mod usage;
mod view;
mod waiting;
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
pub use second_pass::SecondPass;
pub use sluice_quantity::Amount;
pub use sluice_selector::Operator;
pub use snapshot::{Snapshot, Stats};
pub use spec::{
    BorrowWithinCohort, CheckController, CheckRule, CheckSpec, ClusterQueueSpec, CohortSpec, Expression,
    FlavorQuotas, FlavorSpec, Fungibility, FungibilityPolicy, FungibilityPreference, LocalQueueSpec,
    Preemption, PreemptionPolicy, QueueingStrategy, ResourceGroup, ResourceQuota, Selector, StopPolicy,
    Taint, TaintEffect, Time, Toleration, Weight, WhenCanPreempt,
};
pub use standing::Standing;
pub use workload::{
    Admission, AffinityTerm, PodSetAssignment, PodSetSpec, WorkloadKey, WorkloadSpec, WorkloadState,
};

/// A name, shared instead of copied.
pub type Name = std::sync::Arc<str>;
