//! Flavors, Cohorts, ClusterQueues and LocalQueues as plain data: the input of the core about quota.

use sluice_selector::{Operator, Requirement, Sorted, TolerationOperator};

use crate::{Amount, Name};

/// A point in time: nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

impl Time {
    /// `seconds` after the Unix epoch, saturating.
    pub const fn from_seconds(seconds: i64) -> Time {
        Time(seconds.saturating_mul(1_000_000_000))
    }
}

/// A fair-sharing weight, exact in units of 1e-9 (docs/reference/06-algorithm.md 6.8). The default is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(i128);

impl Weight {
    /// The weight 1.
    pub const ONE: Weight = Weight(1_000_000_000);
    /// The weight 0: a queue or Cohort that has it and borrows has an infinite share.
    pub const ZERO: Weight = Weight(0);

    /// A weight of `nano` billionths; a negative one counts as zero.
    pub const fn from_nano(nano: i128) -> Weight {
        Weight(if nano < 0 { 0 } else { nano })
    }

    /// A weight of `milli` thousandths.
    pub const fn from_milli(milli: i64) -> Weight {
        Weight::from_nano(milli as i128 * 1_000_000)
    }

    /// True for the weight 0.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The nearest floating-point number.
    #[expect(clippy::cast_precision_loss, reason = "the nearest number is what is asked for")]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

/// A ResourceFlavor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlavorSpec {
    /// Its name.
    pub name: Name,
    /// `nodeLabels`: what identifies its nodes.
    pub node_labels: Vec<(Name, Name)>,
    /// `nodeTaints`; only `NoSchedule` and `NoExecute` count.
    pub taints: Vec<Taint>,
    /// `tolerations`: added to admitted pods, and counted as tolerated.
    pub tolerations: Vec<Toleration>,
    /// `topologyName`, for topology-aware scheduling.
    pub topology: Option<Name>,
}

/// A Cohort that has an object; one that is only referenced is implicit and has no quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CohortSpec {
    /// Its name.
    pub name: Name,
    /// `parentName`.
    pub parent: Option<Name>,
    /// Quotas of its own.
    pub resource_groups: Vec<ResourceGroup>,
    /// `fairSharing.weight`.
    pub fair_weight: Weight,
}

/// The controller of an AdmissionCheck, as far as checks of a ClusterQueue exclude each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckController {
    /// Sends the workload to another cluster.
    MultiKueue,
    /// Asks an autoscaler for nodes.
    ProvisioningRequest,
    /// Any other.
    #[default]
    Other,
}

/// An AdmissionCheck.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckSpec {
    /// Its condition Active is True.
    pub active: bool,
    /// The controller that answers it.
    pub controller: CheckController,
}

impl From<bool> for CheckSpec {
    /// Whether a check of some other controller is active.
    fn from(active: bool) -> Self {
        Self { active, controller: CheckController::Other }
    }
}

/// A ClusterQueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterQueueSpec {
    /// Its name.
    pub name: Name,
    /// `cohortName`.
    pub cohort: Option<Name>,
    /// Its quotas.
    pub resource_groups: Vec<ResourceGroup>,
    /// `queueingStrategy`.
    pub strategy: QueueingStrategy,
    /// `namespaceSelector`; `None` selects nothing.
    pub namespace_selector: Option<Selector>,
    /// `flavorFungibility`.
    pub fungibility: Fungibility,
    /// `preemption`.
    pub preemption: Preemption,
    /// `stopPolicy`.
    pub stop_policy: StopPolicy,
    /// The object is being deleted.
    pub terminating: bool,
    /// `fairSharing.weight`.
    pub fair_weight: Weight,
    /// `admissionChecksStrategy`.
    pub admission_checks: Vec<CheckRule>,
    /// `admissionScope.admissionMode: UsageBasedAdmissionFairSharing`.
    pub usage_based_fair_sharing: bool,
}

impl ClusterQueueSpec {
    /// A queue of that name with every optional part at the API's default, and without quota.
    pub fn named(name: impl Into<Name>) -> Self {
        Self {
            name: name.into(),
            cohort: None,
            resource_groups: Vec::new(),
            strategy: QueueingStrategy::default(),
            namespace_selector: Some(Selector::default()),
            fungibility: Fungibility::default(),
            preemption: Preemption::default(),
            stop_policy: StopPolicy::default(),
            terminating: false,
            fair_weight: Weight::ONE,
            admission_checks: Vec::new(),
            usage_based_fair_sharing: false,
        }
    }
}

/// A LocalQueue.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalQueueSpec {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// `clusterQueue`.
    pub cluster_queue: Name,
    /// `stopPolicy`.
    pub stop_policy: StopPolicy,
    /// The object is being deleted.
    pub terminating: bool,
    /// `fairSharing.weight`.
    pub fair_weight: Weight,
    /// Consumed usage per resource from the status, the initial value of admission fair sharing's ledger. It is read when the LocalQueue is first
    /// seen, then the core keeps the ledger. cpu in cores, everything else in whole units.
    pub consumed: Vec<(Name, f64)>,
}

/// `queueingStrategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueingStrategy {
    /// The head blocks the queue.
    StrictFIFO,
    /// A workload that does not fit becomes inadmissible, so that it does not block others.
    #[default]
    BestEffortFIFO,
}

/// `stopPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StopPolicy {
    /// Not stopped.
    #[default]
    None,
    /// No new reservation.
    Hold,
    /// As `Hold`, and admitted workloads are evicted.
    HoldAndDrain,
}

/// One resource group: the flavors that offer a set of resources, in the order to try them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceGroup {
    /// `coveredResources`.
    pub covered: Vec<Name>,
    /// The flavors with their quotas.
    pub flavors: Vec<FlavorQuotas>,
}

/// The quotas of one flavor in one resource group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlavorQuotas {
    /// The flavor.
    pub name: Name,
    /// A quota for each covered resource.
    pub resources: Vec<ResourceQuota>,
}

/// The quota of one resource of one flavor. cpu in milli-CPU, everything else in whole units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceQuota {
    /// The resource.
    pub name: Name,
    /// `nominalQuota`.
    pub nominal: Amount,
    /// `borrowingLimit`; `None` is no limit.
    pub borrowing_limit: Option<Amount>,
    /// `lendingLimit`; `None` lends everything.
    pub lending_limit: Option<Amount>,
}

/// One admission check of a ClusterQueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRule {
    /// The check.
    pub name: Name,
    /// The flavors that it applies to; empty means all.
    pub on_flavors: Vec<Name>,
}

/// `flavorFungibility` (docs/reference/06-algorithm.md 6.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fungibility {
    /// `whenCanBorrow`. The default stops at the flavor.
    pub when_can_borrow: FungibilityPolicy,
    /// `whenCanPreempt`. The default tries the next flavor.
    pub when_can_preempt: WhenCanPreempt,
    /// `preference`; `None` acts as `BorrowingOverPreemption`.
    pub preference: Option<FungibilityPreference>,
}

/// `whenCanBorrow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FungibilityPolicy {
    /// Take the flavor.
    #[default]
    MayStopSearch,
    /// Consider the next one first.
    TryNextFlavor,
}

/// `whenCanPreempt`: the same values with another default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenCanPreempt {
    /// Take the flavor.
    MayStopSearch,
    /// Consider the next one first.
    #[default]
    TryNextFlavor,
}

/// `preference`: which of two flavors is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FungibilityPreference {
    /// [quirk] Compares the preemption mode first, then the borrowing height: rather borrow than preempt.
    BorrowingOverPreemption,
    /// Compares the borrowing height first, then the preemption mode.
    PreemptionOverBorrowing,
}

/// `preemption` of a ClusterQueue (docs/reference/06-algorithm.md 6.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preemption {
    /// `withinClusterQueue`.
    pub within_cluster_queue: PreemptionPolicy,
    /// `reclaimWithinCohort`.
    pub reclaim_within_cohort: PreemptionPolicy,
    /// `borrowWithinCohort`; `None` is `Never`.
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
}

/// Which workloads a preemption policy allows as victims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PreemptionPolicy {
    /// None.
    #[default]
    Never,
    /// Workloads of a lower priority.
    LowerPriority,
    /// Workloads of a lower priority, or of the same and with a later place in the queue (`withinClusterQueue` only).
    LowerOrNewerEqualPriority,
    /// All (`reclaimWithinCohort` only).
    Any,
}

/// `borrowWithinCohort` with the policy `LowerPriority`: preempt in the cohort even while borrowing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BorrowWithinCohort {
    /// `maxPriorityThreshold`: victims have at most this priority.
    pub max_priority_threshold: Option<i32>,
}

/// A label selector; empty selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    /// `matchLabels`.
    pub match_labels: Vec<(Name, Name)>,
    /// `matchExpressions`, all of which must hold.
    pub expressions: Vec<Expression>,
}

/// One requirement of a label selector or a node affinity term.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expression {
    key: Name,
    op: Operator,
    /// In order, each once, unless they are numbers.
    values: Vec<Name>,
}

impl Expression {
    /// A requirement of the label with this key: an operator and values.
    pub fn new(key: Name, op: Operator, mut values: Vec<Name>) -> Self {
        if !matches!(op, Operator::Gt | Operator::Lt) {
            sluice_selector::sort(&mut values);
        }
        Self { key, op, values }
    }

    /// The label's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The requirement in the form that is compared with labels.
    pub fn requirement(&self) -> Requirement<'_, Sorted<'_, Name>> {
        Requirement { key: &self.key, operator: Some(self.op), values: Sorted(&self.values) }
    }
}

/// A node taint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// Its key.
    pub key: Name,
    /// Its value, maybe empty.
    pub value: Name,
    /// Its effect.
    pub effect: TaintEffect,
}

/// The effect of a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// New pods stay away.
    NoSchedule,
    /// New pods rather stay away; ignored by admission.
    PreferNoSchedule,
    /// Pods are driven away.
    NoExecute,
}

impl TaintEffect {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            TaintEffect::NoSchedule => "NoSchedule",
            TaintEffect::PreferNoSchedule => "PreferNoSchedule",
            TaintEffect::NoExecute => "NoExecute",
        }
    }
}

/// A toleration of taints.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// The taint's key; `None` (or empty): any.
    pub key: Option<Name>,
    /// How the taint's value is compared.
    pub operator: TolerationOperator,
    /// What the taint's value is compared with.
    pub value: Name,
    /// The taint's effect; `None` tolerates every effect.
    pub effect: Option<TaintEffect>,
}
