//! The case file: format `kueue-core-bench/v1`.
//!
//! A case describes one deterministic experiment on the admission core: the objects, the loop's parameters and the expected outcome. Unknown fields
//! are errors, so that no parameter is silently ignored.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The only schema that the runner knows.
pub const SCHEMA: &str = "kueue-core-bench/v1";

/// One case file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Case {
    /// Must be [`SCHEMA`].
    pub schema: String,
    /// The case's name; also the stem of its golden file.
    pub name: String,
    /// The purpose of the case, in words.
    #[serde(default)]
    #[expect(dead_code, reason = "part of the format, for people")]
    pub purpose: String,
    /// Whether fair sharing is on (both preemption strategies, in the reference's order).
    #[serde(default)]
    pub fair_sharing: bool,
    /// The name of the resource flavor, if there is only one.
    #[serde(default = "default_flavor")]
    pub flavor: String,
    /// The nodes, by topology; the flavor is then named `tas`.
    pub topology: Option<Topology>,
    /// The cohort forest.
    #[serde(default)]
    pub cohorts: Cohorts,
    /// The ClusterQueues.
    pub cluster_queues: ClusterQueues,
    /// The classes of workloads.
    pub workloads: Vec<Class>,
    /// Upper bound of the loop; the number of snapshots when `snapshotOnly`.
    pub max_cycles: u64,
    /// How many cycles lie between two timed snapshots; 0 or absent: no snapshots.
    #[serde(default)]
    pub snapshot_every: u64,
    /// Take snapshots only.
    #[serde(default)]
    pub snapshot_only: bool,
    /// Overrides of feature gates.
    #[serde(default)]
    pub feature_gates: BTreeMap<String, bool>,
    /// The expected outcome; a case without it is run and reported only.
    pub expected: Option<Expected>,
}

fn default_flavor() -> String {
    "rf".to_owned()
}

/// The cohort forest: fan-out per depth.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cohorts {
    /// Fan-out per depth, the roots first; empty: no cohort.
    #[serde(default)]
    pub tree: Vec<usize>,
    /// Fair-sharing weights, cycled in depth-first creation order.
    #[serde(default)]
    pub fair_weights: Vec<Text>,
}

/// The ClusterQueues, equal except for their weights.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterQueues {
    /// Queues per leaf cohort (or in all, without cohorts).
    pub per_cohort: usize,
    /// Quota per resource, of the only flavor.
    #[serde(default)]
    pub quota: BTreeMap<String, Quota>,
    /// Ours, instead of `quota`: several resource groups, or several flavors.
    #[serde(default)]
    pub resource_groups: Vec<Group>,
    /// Sluice's extension: `flavorFungibility`; the values' names are those of the API.
    #[serde(default)]
    pub flavor_fungibility: FlavorFungibility,
    /// `reclaimWithinCohort`.
    #[serde(default = "never")]
    pub reclaim_within_cohort: String,
    /// `withinClusterQueue`.
    #[serde(default = "never")]
    pub within_cluster_queue: String,
    /// `borrowWithinCohort`.
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
    /// `queueingStrategy`.
    #[serde(default = "best_effort")]
    pub queueing_strategy: String,
    /// Fair-sharing weights, cycled by the queue's index.
    #[serde(default)]
    pub fair_weights: Vec<Text>,
}

fn never() -> String {
    "Never".to_owned()
}

fn best_effort() -> String {
    "BestEffortFIFO".to_owned()
}

/// A resource group of every queue.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its flavors, in the order in which they are tried. All have the same resources.
    pub flavors: Vec<GroupFlavor>,
}

/// A flavor of a resource group.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupFlavor {
    /// Its name.
    pub name: String,
    /// Quota per resource.
    pub quota: BTreeMap<String, Quota>,
}

/// `flavorFungibility` of every queue; what is absent has the API's default.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlavorFungibility {
    /// MayStopSearch or TryNextFlavor.
    pub when_can_borrow: Option<String>,
    /// MayStopSearch or TryNextFlavor.
    pub when_can_preempt: Option<String>,
    /// BorrowingOverPreemption or PreemptionOverBorrowing.
    pub preference: Option<String>,
}

/// `borrowWithinCohort` of every queue.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BorrowWithinCohort {
    /// Never or LowerPriority.
    pub policy: String,
    /// The highest priority that may be preempted while borrowing.
    pub max_priority_threshold: Option<i32>,
}

/// The quota of one resource.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Quota {
    /// The nominal quota.
    pub nominal: Text,
    /// The borrowing limit; absent: none.
    pub borrowing_limit: Option<Text>,
    /// The lending limit; absent: none.
    pub lending_limit: Option<Text>,
}

/// A class of workloads.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Class {
    /// The class's name, the first part of its workloads' names.
    #[serde(rename = "class")]
    pub name: String,
    /// How many per ClusterQueue.
    #[serde(rename = "countPerCQ")]
    pub count_per_cq: usize,
    /// `spec.priority`.
    #[serde(default)]
    pub priority: i32,
    /// Pods in the only pod set.
    pub pods: i64,
    /// Ours: `minCount` of the pod set, for partial admission.
    pub min_pods: Option<i64>,
    /// Request per pod and resource.
    pub request: BTreeMap<String, Text>,
    /// Cycles that an admitted workload runs; 0: for ever.
    #[serde(default)]
    pub runtime_cycles: u64,
    /// Whether it holds quota from the start.
    #[serde(default)]
    pub preadmitted: bool,
    /// The cycle before which it arrives; absent, 0 or 1: before the first.
    #[serde(default)]
    pub arrival_cycle: u64,
    /// Restricts the class to some queues of each cohort.
    pub cq_filter: Option<CqFilter>,
    /// The topology request of its pod set.
    pub topology: Option<ClassTopology>,
}

/// The nodes of a case.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Topology {
    /// The Topology's name.
    pub name: String,
    /// From the highest to the lowest, which is the node.
    pub levels: Vec<Level>,
    /// The flavor's node labels; on every node.
    #[serde(default)]
    pub node_labels: BTreeMap<String, String>,
    /// `status.allocatable` of every node.
    pub node_allocatable: BTreeMap<String, Text>,
}

/// One level of a topology.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// The node label.
    pub label: String,
    /// How the names of its domains begin, after the parent's name.
    pub prefix: String,
    /// Domains in each parent.
    pub count: usize,
}

/// The topology request of a pod set.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClassTopology {
    /// `required`, `preferred`, `unconstrained` or `slice`.
    pub mode: String,
    /// The level, except for `unconstrained`.
    pub level: Option<String>,
    /// Pods in a slice.
    pub slice_size: Option<i64>,
}

/// Selects the queues whose index inside their cohort is `eq` modulo `mod`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CqFilter {
    /// The modulus.
    #[serde(rename = "mod")]
    pub modulus: usize,
    /// The remainder.
    pub eq: usize,
}

/// The outcome that the case's author recorded.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expected {
    /// Non-idle cycles.
    pub cycles: u64,
    /// Cycles without a waiting Workload in an active heap.
    pub idle_cycles: u64,
    /// Admissions, including repeated ones.
    pub admissions: u64,
    /// Workloads ever admitted.
    pub distinct_admitted: u64,
    /// Evictions.
    pub evictions: u64,
    /// Workloads that finished.
    pub finished: u64,
    /// Workloads holding quota at the end.
    pub holding_at_end: u64,
    /// Workloads in active heaps at the end.
    pub pending_active: u64,
    /// Inadmissible workloads at the end.
    pub pending_inadmissible: u64,
    /// `drained`, `stalled`, `maxCycles` or `snapshotOnly`.
    pub end: String,
    /// sha256 digests by name.
    #[serde(default)]
    pub digest: BTreeMap<String, String>,
    /// Digests that differed between the author's own runs: not compared.
    #[serde(default)]
    pub unstable: Vec<String>,
    /// How many runs agreed.
    #[serde(default)]
    #[expect(dead_code, reason = "part of the format, for people")]
    pub runs: u64,
}

/// A scalar that a case may write quoted or bare (`'20'`, `20`, `1.5`).
#[derive(Clone, Debug)]
pub struct Text(pub String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => Ok(Self(text)),
            serde_json::Value::Number(number) => Ok(Self(number.to_string())),
            other => Err(serde::de::Error::custom(format!("expected a quantity, found {other}"))),
        }
    }
}

/// A flavor's name, and its quota per resource.
pub type FlavorQuota<'a> = (&'a str, &'a BTreeMap<String, Quota>);

impl Case {
    /// Reads and checks one case.
    ///
    /// # Errors
    /// If the document is malformed, has another schema, or a parameter of a feature that the core does not have.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let case: Self = serde_saphyr::from_str(text)?;
        anyhow::ensure!(case.schema == SCHEMA, "schema is {:?}, expected {SCHEMA:?}", case.schema);
        let queues = &case.cluster_queues;
        anyhow::ensure!(
            queues.quota.is_empty() != queues.resource_groups.is_empty(),
            "a case has either quota or resourceGroups"
        );
        Ok(case)
    }

    /// The resource groups of every queue: for each its flavors, and their quota per resource.
    pub fn groups(&self) -> Vec<Vec<FlavorQuota<'_>>> {
        if self.cluster_queues.resource_groups.is_empty() {
            return vec![vec![(&self.flavor, &self.cluster_queues.quota)]];
        }
        let groups = self.cluster_queues.resource_groups.iter();
        groups
            .map(|group| group.flavors.iter().map(|flavor| (flavor.name.as_str(), &flavor.quota)).collect())
            .collect()
    }

    /// The first flavor of each resource: what preadmitted workloads hold.
    pub fn first_flavors(&self) -> BTreeMap<&str, &str> {
        self.groups()
            .into_iter()
            .filter_map(|group| group.into_iter().next())
            .flat_map(|(flavor, quota)| quota.keys().map(move |resource| (resource.as_str(), flavor)))
            .collect()
    }
}
