//! What is kept of each object: the columns that are shown.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};
use sluice_api::conditions::{ACTIVE, WorkloadCondition, find, is_true};
use sluice_api::slim;
use sluice_api::v1beta2::{
    ClusterQueue, Cohort, FlavorUsage, PodSetAssignment, ResourceFlavor, ResourceGroup, StopPolicy,
    WorkloadStatus,
};
use sluice_engine::{Name, WorkloadKey};

use super::amounts::{self, Amounts};
use super::placed::{Placed, placed};

/// The longest message that is kept, in bytes: conditions may have 32 KiB.
const LONGEST: usize = 1024;

/// How far a Workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It runs, or may run.
    Admitted,
    /// It holds quota, and waits for its admission checks.
    Reserved,
    /// It waits for quota.
    Pending,
    /// It is deactivated: it waits for nothing.
    Inactive,
    /// It has ended.
    Finished,
}

impl State {
    /// Its name in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Reserved => "reserved",
            Self::Pending => "pending",
            Self::Inactive => "inactive",
            Self::Finished => "finished",
        }
    }

    /// The state of that name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Admitted, Self::Reserved, Self::Pending, Self::Inactive, Self::Finished]
            .into_iter()
            .find(|s| s.as_str() == text)
    }

    /// Whether it holds quota.
    pub fn holds(self) -> bool {
        matches!(self, Self::Admitted | Self::Reserved)
    }
}

/// A condition that is true.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Its type.
    pub of: WorkloadCondition,
    /// Since when.
    pub at: Timestamp,
    /// The reason.
    pub reason: Name,
    /// The message, cut.
    pub message: Name,
}

/// A Workload.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadRow {
    /// Namespace and name.
    pub key: WorkloadKey,
    /// Distinguishes it from earlier and later Workloads of the same name.
    pub uid: Name,
    /// The name of its job, if it has one.
    pub job: Option<Name>,
    /// Its LocalQueue, empty for none.
    pub local_queue: Name,
    /// The ClusterQueue that holds quota for it.
    pub holder: Option<Name>,
    /// Its priority.
    pub priority: i32,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// The requests of all its pods, or what they were assigned.
    pub requests: Amounts,
    /// How far it is.
    pub state: State,
    /// Why.
    pub reason: Name,
    /// The message for people, cut.
    pub message: Name,
    /// The quota that it holds: flavor, resource, amount. Pods that are over hold none.
    pub usage: Vec<(Name, Name, i64)>,
    /// Where its pods are, as far as a topology says it.
    pub placed: Vec<Placed>,
    /// Its conditions that are true.
    pub facts: Vec<Fact>,
    /// The unhealthy nodes on which it has pods, from its status.
    pub lost: Vec<Name>,
    /// Since when it has any; `None` if it was first seen with them.
    pub lost_since: Option<Timestamp>,
}

/// Quota of one resource in one flavor, of a ClusterQueue or Cohort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The flavor.
    pub flavor: Name,
    /// The resource.
    pub resource: Name,
    /// The nominal quota.
    pub nominal: i64,
    /// The borrowing limit, if there is one.
    pub borrowing_limit: Option<i64>,
    /// The lending limit, if there is one.
    pub lending_limit: Option<i64>,
}

/// A ClusterQueue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueRow {
    /// Its cohort.
    pub cohort: Option<Name>,
    /// Whether it is stopped on purpose.
    pub stopped: bool,
    /// Whether it is active; reason and message of that.
    pub active: bool,
    /// The reason of the condition Active.
    pub reason: Name,
    /// The message, cut.
    pub message: Name,
    /// Its quotas, in the order of its flavors.
    pub quotas: Vec<Quota>,
    /// The counts in its status: pending, reserving, admitted.
    pub counts: [i32; 3],
    /// The quota in use according to its status: flavor, resource, amount.
    pub held: Vec<(Name, Name, i64)>,
}

/// A Cohort that has an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CohortRow {
    /// The Cohort above it.
    pub parent: Option<Name>,
    /// Its own quotas, in the order of its flavors.
    pub quotas: Vec<Quota>,
}

/// A ResourceFlavor.
#[derive(Clone, Debug, PartialEq)]
pub struct FlavorRow {
    /// The labels of its nodes.
    pub labels: BTreeMap<String, String>,
    /// The Topology of its nodes.
    pub topology: Option<Name>,
}

/// A Node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRow {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its capacity.
    pub capacity: Amounts,
    /// Why it takes no pods, if it takes none.
    pub why: Option<String>,
    /// Since when it is not ready, if it says so.
    pub not_ready_since: Option<Timestamp>,
}

/// A stored text: cut at the end of a character.
pub fn cut(text: &str) -> Name {
    let end = (0..=LONGEST.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].into()
}

fn name(text: &str) -> Option<Name> {
    (!text.is_empty()).then(|| text.into())
}

impl WorkloadRow {
    /// The columns of a Workload.
    pub fn of(workload: &slim::Workload) -> Self {
        let (metadata, spec, status) = (&workload.metadata, &workload.spec, &workload.status);
        let facts = facts(&status.conditions);
        let state = state(&status.conditions, spec.active);
        let (reason, message) = why(&status.conditions, state);
        let admission = status.admission.as_ref().filter(|_| state.holds());
        let (mut assigned, mut usage) = (Amounts::new(), Vec::new());
        let sets = admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        for (at, pod_set) in sets.enumerate() {
            let left = left_of(pod_set, spec.pod_sets.get(at), status);
            for (resource, quantity) in &pod_set.resource_usage {
                let flavor = pod_set.flavors.get(resource).map(String::as_str).unwrap_or_default();
                let (resource, all) = (Name::from(resource.as_str()), amounts::amount(resource, quantity));
                add_one(&mut assigned, &resource, all);
                usage.push((flavor.into(), resource, left.part(all)));
            }
        }
        Self {
            key: WorkloadKey {
                namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
                name: metadata.name.as_deref().unwrap_or_default().into(),
            },
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            job: controller(metadata.owner_references.as_deref()).and_then(|owner| name(&owner.name)),
            local_queue: spec.queue_name.as_str().into(),
            holder: admission.and_then(|admission| name(&admission.cluster_queue)),
            priority: spec.priority.unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            requests: requests(workload, assigned),
            state,
            reason: reason.into(),
            message: cut(message),
            placed: if state.holds() { placed(workload) } else { Vec::new() },
            usage,
            facts,
            lost: status.unhealthy_nodes.iter().map(|node| node.name.as_str().into()).collect(),
            lost_since: None,
        }
    }

    /// The texts that others are likely to have, too.
    pub fn common_texts(&mut self) -> impl Iterator<Item = &mut Name> {
        let own = [&mut self.key.namespace, &mut self.local_queue, &mut self.reason, &mut self.message];
        let usage = self.usage.iter_mut().flat_map(|(flavor, resource, _)| [flavor, resource]);
        let facts = self.facts.iter_mut().flat_map(|fact| [&mut fact.reason, &mut fact.message]);
        own.into_iter().chain(&mut self.holder).chain(usage).chain(facts)
    }

    /// The condition of this type, if it is true.
    pub fn fact(&self, of: WorkloadCondition) -> Option<&Fact> {
        self.facts.iter().find(|fact| fact.of == of)
    }
}

/// The owner that controls an object.
pub fn controller(owners: Option<&[OwnerReference]>) -> Option<&OwnerReference> {
    owners?.iter().find(|owner| owner.controller == Some(true))
}

fn facts(conditions: &[Condition]) -> Vec<Fact> {
    let of = |condition: &Condition| {
        Some(Fact {
            of: WorkloadCondition::parse(&condition.type_).filter(|_| condition.status == "True")?,
            at: condition.last_transition_time.0,
            reason: cut(&condition.reason),
            message: cut(&condition.message),
        })
    };
    conditions.iter().filter_map(of).collect()
}

/// The pods of a pod set that have not ended, among those that it has quota for.
#[derive(Clone, Copy, Debug)]
struct Left {
    pods: i64,
    assigned: i64,
}

impl Left {
    /// The part of an amount for all pods that belongs to those left.
    fn part(self, all: i64) -> i64 {
        let Self { pods, assigned } = self;
        if pods >= assigned || assigned <= 0 { all } else { (all / assigned).saturating_mul(pods) }
    }
}

/// Reclaimable pods are over and do not come again (docs/reference/06-algorithm.md 6.19).
fn left_of(assigned: &PodSetAssignment, spec: Option<&slim::PodSet>, status: &WorkloadStatus) -> Left {
    let wanted = spec.map_or(assigned.count, |spec| Some(spec.count)).unwrap_or(0);
    let name = spec.map_or(&assigned.name, |spec| &spec.name);
    let over = status.reclaimable_pods.iter().find(|pods| pods.name == *name).map_or(0, |pods| pods.count);
    let left = i64::from(wanted.saturating_sub(over.clamp(0, wanted.max(0))));
    let assigned = i64::from(assigned.count.unwrap_or(wanted));
    Left { pods: assigned.min(left), assigned }
}

/// How far a Workload with these conditions is, which may run at all if it is `active`.
pub fn state(conditions: &[Condition], active: bool) -> State {
    let is = |of: WorkloadCondition| is_true(conditions, of.as_str());
    if is(WorkloadCondition::Finished) {
        State::Finished
    } else if is(WorkloadCondition::Admitted) {
        State::Admitted
    } else if is(WorkloadCondition::QuotaReserved) {
        State::Reserved
    } else if active {
        State::Pending
    } else {
        State::Inactive
    }
}

/// Reason and message of the condition that says most about the state.
fn why(conditions: &[Condition], state: State) -> (&str, &str) {
    use WorkloadCondition::{Admitted, Evicted, Finished, PodsReady, QuotaReserved};
    let of = |wanted: WorkloadCondition| find(conditions, wanted.as_str());
    let evicted = of(Evicted).filter(|condition| condition.status == "True");
    let condition = match state {
        State::Finished => of(Finished),
        State::Admitted => evicted.or_else(|| of(PodsReady)).or_else(|| of(Admitted)),
        State::Reserved => evicted.or_else(|| of(Admitted)).or_else(|| of(QuotaReserved)),
        State::Pending => of(QuotaReserved).or(evicted),
        State::Inactive => evicted.or_else(|| of(QuotaReserved)),
    };
    condition.map_or(("", ""), |condition| (&condition.reason, &condition.message))
}

/// Its assignment; else the requests that the manager computed; else those of its templates.
fn requests(workload: &slim::Workload, assigned: Amounts) -> Amounts {
    if !assigned.is_empty() {
        return assigned;
    }
    let mut sum = Amounts::new();
    for request in &workload.status.resource_requests {
        amounts::add(&mut sum, &amounts::list(&request.resources), 1);
    }
    if sum.is_empty() {
        for pod_set in &workload.spec.pod_sets {
            amounts::add(&mut sum, &amounts::of_pod(&pod_set.template), i64::from(pod_set.count.max(0)));
        }
    }
    sum
}

fn add_one(sum: &mut Amounts, resource: &Name, amount: i64) {
    let entry = sum.entry(Name::clone(resource)).or_default();
    *entry = entry.saturating_add(amount);
}

impl QueueRow {
    /// The columns of a ClusterQueue.
    pub fn of(queue: &ClusterQueue) -> Self {
        let status = queue.status.clone().unwrap_or_default();
        let active = find(&status.conditions, ACTIVE);
        Self {
            cohort: queue.spec.cohort_name.as_deref().and_then(name),
            stopped: queue.spec.stop_policy != StopPolicy::None,
            // Before its status is written, it is not known to be inactive.
            active: active.is_none_or(|condition| condition.status == "True"),
            reason: cut(active.map(|condition| condition.reason.as_str()).unwrap_or_default()),
            message: cut(active.map(|condition| condition.message.as_str()).unwrap_or_default()),
            quotas: quotas(&queue.spec.resource_groups),
            counts: [status.pending_workloads, status.reserving_workloads, status.admitted_workloads],
            held: status.flavors_reservation.iter().flat_map(held).collect(),
        }
    }
}

fn quotas(groups: &[ResourceGroup]) -> Vec<Quota> {
    let mut quotas = Vec::new();
    for flavor in groups.iter().flat_map(|group| &group.flavors) {
        for quota in &flavor.resources {
            let amount = |text| amounts::amount(&quota.name, text);
            quotas.push(Quota {
                flavor: flavor.name.as_str().into(),
                resource: quota.name.as_str().into(),
                nominal: amount(&quota.nominal_quota),
                borrowing_limit: quota.borrowing_limit.as_ref().map(amount),
                lending_limit: quota.lending_limit.as_ref().map(amount),
            });
        }
    }
    quotas
}

impl CohortRow {
    /// The columns of a Cohort.
    pub fn of(cohort: &Cohort) -> Self {
        Self {
            parent: cohort.spec.parent_name.as_deref().and_then(name),
            quotas: quotas(&cohort.spec.resource_groups),
        }
    }
}

fn held(usage: &FlavorUsage) -> impl Iterator<Item = (Name, Name, i64)> + '_ {
    usage.resources.iter().map(|resource| {
        let amount = amounts::amount(&resource.name, &resource.total);
        (usage.name.as_str().into(), resource.name.as_str().into(), amount)
    })
}

impl FlavorRow {
    /// The columns of a ResourceFlavor.
    pub fn of(flavor: &ResourceFlavor) -> Self {
        Self {
            labels: flavor.spec.node_labels.clone(),
            topology: flavor.spec.topology_name.as_deref().and_then(name),
        }
    }

    /// Whether a node belongs to it.
    pub fn has(&self, node: &NodeRow) -> bool {
        self.labels.iter().all(|(key, value)| node.labels.get(key) == Some(value))
    }
}

impl NodeRow {
    /// The columns of a Node.
    pub fn of(node: &slim::Node) -> Self {
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            capacity: amounts::list(&node.allocatable),
            why: not_healthy(node),
            not_ready_since: node.ready_since.filter(|_| node.ready == Some(false)),
        }
    }
}

fn not_healthy(node: &slim::Node) -> Option<String> {
    // The taints that Kubernetes itself puts on nodes in trouble.
    let trouble = |taint: &&Taint| {
        taint.key.starts_with("node.kubernetes.io/")
            && matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
    };
    if node.metadata.deletion_timestamp.is_some() {
        Some("it is being deleted".to_owned())
    } else if node.ready == Some(false) {
        Some("it is not ready".to_owned())
    } else if node.ready.is_none() {
        Some("its kubelet has not reported yet".to_owned())
    } else if node.unschedulable {
        Some("it is cordoned".to_owned())
    } else {
        node.taints.iter().find(trouble).map(|taint| format!("it has the taint {}", taint.key))
    }
}

#[cfg(test)]
mod tests;
