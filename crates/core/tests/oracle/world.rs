//! The plain types of a world: what users declare.

use sluice_quantity::Amount;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub type Name = Arc<str>;

/// Seconds on some clock.
pub type Time = i64;

pub fn name(text: &str) -> Name {
    Name::from(text)
}

/// A (flavor, resource) pair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fr {
    pub flavor: Name,
    pub resource: Name,
}

/// Amounts by (flavor, resource).
pub type Usage = BTreeMap<Fr, Amount>;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flavor {
    pub labels: BTreeMap<Name, Name>,
    /// Keys of `NoSchedule` taints.
    pub taints: BTreeSet<Name>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quota {
    pub nominal: Amount,
    pub borrowing_limit: Option<Amount>,
    pub lending_limit: Option<Amount>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    pub covered: Vec<Name>,
    /// In the order in which they are tried.
    pub flavors: Vec<(Name, BTreeMap<Name, Quota>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Cohort {
    pub parent: Option<Name>,
    pub groups: Vec<Group>,
    pub weight: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    StrictFifo,
    BestEffortFifo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    Never,
    LowerPriority,
    LowerOrNewerEqualPriority,
    Any,
}

/// `borrowWithinCohort` with the policy LowerPriority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorrowWithinCohort {
    /// `maxPriorityThreshold`.
    pub threshold: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptionPolicies {
    pub within_cluster_queue: Policy,
    pub reclaim_within_cohort: Policy,
    /// `borrowWithinCohort.policy` is LowerPriority.
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fungibility {
    /// `whenCanBorrow: TryNextFlavor`.
    pub try_next_when_borrowing: bool,
    /// `whenCanPreempt: TryNextFlavor`.
    pub try_next_when_preempting: bool,
    /// `preference: PreemptionOverBorrowing`.
    pub preemption_over_borrowing: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    pub cohort: Option<Name>,
    pub groups: Vec<Group>,
    pub strategy: Strategy,
    pub preemption: PreemptionPolicies,
    pub fungibility: Fungibility,
    pub weight: f64,
    pub active: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodSet {
    pub name: Name,
    pub count: i64,
    pub min_count: Option<i64>,
    /// Per pod.
    pub requests: BTreeMap<Name, Amount>,
    pub node_selector: BTreeMap<Name, Name>,
    /// Keys of tolerated taints.
    pub tolerated: BTreeSet<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// `<namespace>/<name>`.
    pub key: Name,
    pub uid: Name,
    pub queue: Name,
    pub priority: i32,
    /// The queue-order timestamp.
    pub created: Time,
    pub pod_sets: Vec<PodSet>,
    pub gated: bool,
    /// The slice of an elastic job that it takes over from.
    pub replaces: Option<Slice>,
}

/// A slice of an elastic job (6.26), and the flavors that its pods run in: by pod set and resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub key: Name,
    pub flavors: BTreeMap<Name, BTreeMap<Name, Name>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairStrategy {
    LessThanOrEqualToFinalShare,
    LessThanInitialShare,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct World {
    pub flavors: BTreeMap<Name, Flavor>,
    pub cohorts: BTreeMap<Name, Cohort>,
    pub queues: BTreeMap<Name, Queue>,
    /// Fair sharing is on if there are strategies.
    pub fair: Option<Vec<FairStrategy>>,
}

/// What an admitted workload holds, per pod set: its count and the flavor of each resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Admitted {
    pub pod_sets: Vec<(Name, i64, BTreeMap<Name, Name>)>,
}

/// A workload with a quota reservation.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    pub workload: Workload,
    pub admitted: Admitted,
    pub usage: Usage,
    pub reserved_at: Time,
    /// Evicted, and still holding its quota.
    pub evicted: bool,
}

/// Why a workload is preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::enum_variant_names, reason = "the names of the API")]
pub enum Cause {
    InClusterQueue,
    InCohortReclamation,
    InCohortFairSharing,
    InCohortReclaimWhileBorrowing,
}

/// A victim and why.
pub type Target = (Name, Cause);
