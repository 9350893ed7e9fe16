//! The admission algorithm: a pure, deterministic library without I/O, clock or randomness.
//!
//! It holds ClusterQueues, Cohorts, flavors and workloads as plain data and decides, one [`Scheduler::cycle`] at a
//! time, which workloads get quota. It must never contain: I/O, a clock, randomness, an API type, or an order that comes from a
//! hash. Time comes in as an argument; the same calls in the same order give the same results, byte for byte.
//!
//! Invariants: the usage of every node equals what its workloads hold ([`Scheduler::audit`] recomputes and compares);
//! a workload is in exactly one place (inactive, pending, holding quota); no input makes a function panic.
//!
//! Layers, from the bottom; a file imports only from its own layer and from those before it. No two files import each other except `quota` and
//! `usage`, the two halves of one arithmetic:
//!
//! 1. what is said: `config`, `spec`, `workload` come in, `reason`, `report`, `stats` go out, and of `topology` its requests, assignments
//!    and failures;
//! 2. names and tables: `intern`, `tables`, `changed`;
//! 3. the `world`, which is the configuration (`quota`, `forest`, `queue`, `workloads`, `topology` and their parts), and the `books`, which are
//!    the usage (of quota, of nodes and of physical capacity), with a journal;
//! 4. the search, functions over a `view` of both, which reads the world and restores the books: `flavor_assigner`, `preemption`,
//!    `partial_admission`, `placement`, `halving`;
//! 5. `scheduler`: world, books and the `agenda` of what has to be tried, with a module for each way to change or read them from outside;
//! 6. `cycle`: which search is made for which workload, and its consequences; outside of a cycle `capacity_search`: whether work would find nodes, and
//!    after it `hotswap`: where displaced workloads go.
//!
//! Where each rule is, by its usual name, with the section of docs/reference/06-algorithm.md:
//!
//! | rule | module |
//! |---|---|
//! | 6.2 effective requests, the resource `pods`, uncovered resources | `plan`, `shape` |
//! | 6.3 SubtreeQuota, localQuota, available, potentialAvailable, BorrowingWith | `quota` |
//! | 6.3 addUsage, removeUsage; snapshot and rollback | `usage` |
//! | 6.3 cohort forest, cycles, IsWithinNominal, borrowing height (FindHeightOfLowestSubtreeThatFits) | `forest` |
//! | 6.4 order in a queue, heap, inadmissible, flush, sticky preemptor, equivalence classes | `queue` |
//! | 6.4 what is queued, what triggers a flush; backoff | `scheduler::waiting`, `scheduler::ingest`, `scheduler::flush` |
//! | 6.4 Heads; requeue after a cycle | `cycle::heads`, `cycle::requeue` |
//! | 6.5 the cycle: nominate, order, processEntry, admit, issue preemptions | `cycle`, one file for each |
//! | 6.5 usage that only lasts for the cycle | `cycle::transient` |
//! | 6.5 order under fair sharing: the tournament | `cycle::tournament` |
//! | 6.4, 6.15 second-pass queue, second pass | `second_pass`, `cycle::second_pass` |
//! | 6.6 flavor assignment, quota per resource, start index | `flavor_assigner` |
//! | 6.6 granular mode, preference, shouldTryNext (flavor fungibility) | `flavor_assigner::granular` |
//! | 6.6 LastAssignment and when it is outdated | `last_assignment` |
//! | 6.6 taints, node selector, node affinity | `matching` |
//! | 6.12 topology: nodes, trees of domains, usage of places, placement of pods | `topology` |
//! | 6.14 replacement of lost nodes | `topology::replace` |
//! | 6.6 partial admission | `partial_admission` |
//! | 6.7 candidates, their policies and order | `preemption::candidates` |
//! | 6.7 classical preemption: hierarchical advantage, attempts | `preemption::classical` |
//! | 6.7 fill-back | `preemption::request` |
//! | 6.6 preemption oracle | `preemption` |
//! | 6.8 dominant resource share (DRS) | `fair_sharing` |
//! | 6.8 preemption strategies, almost-LCA | `preemption::fair` |
//! | 6.9 admission fair sharing: decay, entry penalty | `admission_fair_sharing`, `scheduler::samples` |
//! | 6.10 which checks apply | `cycle::admit` |
//! | 6.26 slices of elastic jobs: what a slice takes over from the one before | `cycle::slices` |
//! | 6.28 saturating amounts | `sluice_quantity::Amount` |
//! | reasons and their messages | `reason` |
//! | ours: PreemptionLoopGuard, AdmitOnlyFreeQuota | `loop_guard`, `cycle::process` |
//! | ours: RequeueReclaimersOnBorrowing | `scheduler::reclaimers` |
//! | ours: workloads that reservations kept out are tried again | `kept_out`, `cycle::retry` |
//! | ours: whether a workload finds nodes without others, and which ones have to go (Hotswap) | `capacity_search` |
//! | ours: the same for nodes with a topology, by the placement of admissions | `scheduler::node_trial` |
//! | ours: which displaced workloads move where, and which ones are preempted for them (Hotswap) | `hotswap` |
//! | ours: what healthy nodes of a flavor have (Hotswap) | `hotswap::flavor_capacity` |
//! | ours: limits of physical capacity, displaced workloads | `capacity` |
#![forbid(unsafe_code)]
#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

mod admission_fair_sharing;
mod agenda;
mod backoff;
mod books;
mod cache;
mod capacity;
mod capacity_search;
mod changed;
mod changes;
mod cluster_queue;
mod config;
mod cycle;
mod fair_sharing;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod flavor_assigner;
mod forest;
mod halving;
mod hotswap;
mod index_map;
mod intern;
mod kept_out;
mod last_assignment;
mod local_queue;
mod loop_guard;
mod matching;
mod moves;
mod partial_admission;
mod placement;
mod plan;
mod preemption;
mod queue;
mod quota;
mod reason;
mod referring_queues;
mod report;
mod resource_group;
mod scheduler;
mod second_pass;
mod shape;
mod spec;
mod stats;
mod tables;
mod topology;
mod usage;
mod view;
mod workload;
mod workloads;
mod world;

pub use backoff::Backoff;
pub use capacity::Displaced;
pub use capacity_search::{
    Answers, AssignedPods, Candidate, CapacityMark, CapacityNode, Choice, FreeCapacity, NodeGroup,
    NodeGroups, NodeSet, PodRequests, PodsApart, SetNeeds,
};
pub use config::{AdmissionFairSharing, Config, FairSharing, FairStrategy, Gates};
pub use hotswap::{
    CapacityFacts, CapacitySums, DisplacedOutcome, DisplacedSearch, DisplacedWorkload, FlavorCapacity,
    FlavorChoice, FlavorNodes, HotswapDecisions, HotswapFacts, NotMoved, PodOnNode, SearchResults,
    SearchSteps, capacity_of_flavors,
};
pub use reason::{
    Detail, LoopKind, PREEMPTION_HELD_BACK, PodSetRefusal, PodSetRequests, PreemptionPossibility, Reason,
    Refusal, Unadmitted,
};
pub use report::{
    Changed, ClusterQueueStatus, CohortStatus, Considered, ConsideredFlavor, CycleReport, EntryReport,
    FlavorMode, FlavorUsage, InactiveCause, LocalQueueInactive, LocalQueueStatus, Outcome, PendingClasses,
    PendingPosition, PreemptionReason, ResourceUsage, SlicesMoved, Victim,
};
pub use scheduler::Scheduler;
pub use scheduler::asked_shapes::{PodSetCapacity, PodShape, WaitingShape, WorkloadFits};
pub use scheduler::claims::Claim;
pub use scheduler::node_trial::{NodeTrial, PodsToPlace, TrialMark};
pub use scheduler::snapshot::Snapshot;
pub use scheduler::standing::Standing;
pub use sluice_quantity::Amount;
pub use sluice_selector::{Operator, TolerationOperator};
pub use spec::{
    BorrowWithinCohort, CheckController, CheckRule, CheckSpec, ClusterQueueSpec, CohortSpec, Expression,
    FlavorQuotas, FlavorSpec, Fungibility, FungibilityPolicy, FungibilityPreference, LocalQueueSpec,
    Preemption, PreemptionPolicy, QueueingStrategy, ResourceGroup, ResourceQuota, Selector, StopPolicy,
    Taint, TaintEffect, Time, Toleration, Weight, WhenCanPreempt,
};
pub use stats::Stats;
pub use topology::{
    AssignedDomain, Exclusions, HOSTNAME, LargestFit, LevelFits, NodeSpec, PlacementFailure, PlacementFit,
    RequestedLevel, SharedAssignment, SliceLayer, SliceMoves, TopologyAssignment, TopologyRequest,
    TopologySpec, UnmovedSlice,
};
pub use workload::{
    Admission, AffinityTerm, PodSetAssignment, PodSetSpec, PreferredTerm, ReplacedSlice, TopologyState,
    WorkloadKey, WorkloadSpec, WorkloadState,
};

/// A name, shared instead of copied.
pub type Name = std::sync::Arc<str>;
