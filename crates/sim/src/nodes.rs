//! Where pods run: a simple scheduler, to know which jobs a failing node affects and which find no capacity.
//!
//! Kueue itself looks at quota, not at nodes; a world without nodes has capacity for everything.

mod assigned;
mod fit;
mod shared;
mod template;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_engine::{Kind, ObjectRef};

use crate::json::text;
use fit::{Ground, Labels};
use template::{Amounts, amounts};

pub(crate) use assigned::{Assigned, Domain, assigned};
pub(crate) use fit::tolerated;
pub(crate) use shared::Share;
pub(crate) use template::{PodGroup, groups, requests};

/// One node.
#[derive(Clone, Debug, Default)]
struct Node {
    labels: Labels,
    taints: Vec<Value>,
    free: Amounts,
    capacity: Amounts,
    /// Its machine answers.
    ready: bool,
    /// Whether the node is cordoned.
    closed: bool,
    /// How many pods of JobSets are on it.
    of_jobsets: usize,
}

/// A pod on a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placed {
    /// The node.
    pub node: Arc<str>,
    /// Which of the job's templates it was made from.
    pub group: usize,
    /// Which of that template's Jobs it belongs to.
    pub replica: i64,
    /// Its number among the pods of that Job.
    pub index: i64,
    requests: Arc<Amounts>,
    apart: bool,
}

/// A job's pods on the nodes.
#[derive(Clone, Debug, Default)]
struct Placement {
    pods: Vec<Placed>,
    /// Groups of nodes that it has to itself: label and value.
    holds: Vec<(String, String)>,
    /// The pod set of this pod, if other pods share it.
    share: Option<Share>,
}

/// What happened to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// As before, as far as pods go.
    Same,
    /// Its machine no longer answers.
    Failed,
    /// The node has capacity that it did not have before.
    Better,
}

/// The nodes, and which pods are where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    by_name: BTreeMap<Arc<str>, Node>,
    placed: BTreeMap<ObjectRef, Placement>,
    waiting: BTreeSet<ObjectRef>,
    /// For each pod set of several objects: how many of its pods each node has.
    shares: BTreeMap<Share, BTreeMap<Arc<str>, i64>>,
}

impl Node {
    /// Whether a pod may come here; room is another question.
    fn allows(&self, name: &str, pod: &PodGroup<'_>) -> bool {
        self.ready && !self.closed && fit::allowed(&pod.spec, &pod.requests, self.ground(name))
    }

    /// The properties of the node that decide which pods it accepts.
    fn ground<'a>(&'a self, name: &'a str) -> Ground<'a> {
        Ground { name, labels: &self.labels, taints: &self.taints }
    }

    /// Whether there is room for a pod.
    fn has_room(&self, pod: &PodGroup<'_>) -> bool {
        pod.requests.iter().all(|(r, n)| match self.free.get(r) {
            Some(free) => free >= n,
            // A node that does not say how many pods it takes does not limit them.
            None => r == "pods" || *n == 0,
        })
    }

    fn change(&mut self, pod: &Placed, sign: i64) {
        for (resource, amount) in &*pod.requests {
            if let Some(free) = self.free.get_mut(resource) {
                *free += sign * amount;
            }
        }
        if pod.apart {
            self.of_jobsets = if sign < 0 { self.of_jobsets + 1 } else { self.of_jobsets.saturating_sub(1) };
        }
    }
}

impl Nodes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// A node is new or different.
    pub fn set(&mut self, name: &str, value: &Value) -> Turn {
        let capacity = amounts(&value["status"]["allocatable"]);
        let labels = value["metadata"]["labels"].as_object().into_iter().flatten();
        let conditions = value["status"]["conditions"].as_array().into_iter().flatten();
        let failed = conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] != "True");
        let old = self.by_name.remove(name);
        let mut free = capacity.clone();
        if let Some(old) = &old {
            for (resource, amount) in &mut free {
                let used = |map: &Amounts| map.get(resource).copied().unwrap_or(0);
                *amount -= used(&old.capacity) - used(&old.free);
            }
        }
        let mut node = Node {
            labels: labels.map(|(k, v)| (k.clone(), text(v).to_owned())).collect(),
            taints: value["spec"]["taints"].as_array().cloned().unwrap_or_default(),
            free,
            capacity,
            ready: !failed,
            closed: value["spec"]["unschedulable"] == true,
            of_jobsets: old.as_ref().map_or(0, |old| old.of_jobsets),
        };
        if old.is_none() {
            // The node may return before its pods were collected.
            let pods = self.placed.values().flat_map(|place| &place.pods);
            pods.filter(|pod| *pod.node == *name).for_each(|pod| node.change(pod, -1));
        }
        let turn = match &old {
            Some(old) if old.ready && !node.ready => Turn::Failed,
            Some(old)
                if old.ready == node.ready && old.closed == node.closed && old.taints == node.taints =>
            {
                Turn::Same
            }
            _ => Turn::Better,
        };
        self.by_name.insert(name.into(), node);
        turn
    }

    /// A node is gone; says whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.by_name.remove(name).is_some()
    }

    /// Whether a node's machine answers.
    pub fn is_ready(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|node| node.ready)
    }

    /// The jobs with pods on a node.
    pub fn jobs_on(&self, name: &str) -> Vec<ObjectRef> {
        let on = |place: &Placement| place.pods.iter().any(|pod| *pod.node == *name);
        self.placed.iter().filter(|(_, place)| on(place)).map(|(job, _)| job.clone()).collect()
    }

    /// The pods of a job.
    pub fn pods_of(&self, job: &ObjectRef) -> &[Placed] {
        self.placed.get(job).map_or(&[], |place| &place.pods)
    }

    /// Registers a pod that is already on a node; the nodes are added later.
    pub fn adopt(&mut self, owner: &ObjectRef, node: &str, spec: &Value) {
        let apart = matches!(owner.kind, Kind::Job(kind) if template::keeps_apart(kind));
        let requests = Arc::new(template::requests(spec));
        let place = self.placed.entry(owner.clone()).or_default();
        let index = i64::try_from(place.pods.len()).unwrap_or(i64::MAX);
        place.pods.push(Placed { node: node.into(), group: 0, replica: 0, index, requests, apart });
    }

    /// A job has groups of nodes to itself.
    pub fn hold(&mut self, job: &ObjectRef, groups: BTreeSet<(String, String)>) {
        if let Some(place) = self.placed.get_mut(job) {
            place.holds.extend(groups);
        }
    }

    /// Finds capacity for all pods of a job or for none: on their assigned nodes, or else on the preferred ones, first fit by name among equals.
    pub fn place(&mut self, job: &ObjectRef, kind: JobKind, value: &Value, assigned: &Assigned) -> bool {
        if self.by_name.is_empty() || self.placed.contains_key(job) {
            return true;
        }
        let mut place = Placement::default();
        for (number, group) in groups(kind, value).iter().enumerate() {
            let found = match assigned.get(&*group.name) {
                Some(domains) => self.place_assigned(number, group, domains, &mut place.pods),
                None => self.place_group(number, group, &mut place),
            };
            if !found {
                self.give_back(&place.pods);
                self.waiting.insert(job.clone());
                return false;
            }
        }
        self.waiting.remove(job);
        self.placed.insert(job.clone(), place);
        true
    }

    fn place_group(&mut self, number: usize, group: &PodGroup<'_>, place: &mut Placement) -> bool {
        if group.is_empty() {
            return true;
        }
        let candidates = self.candidates(group);
        match group.exclusive {
            None => self.fill(number, group, 0..group.replicas, &candidates, &mut place.pods),
            Some(label) => self.place_in_domains(number, group, label, &candidates, place),
        }
    }

    /// Puts pods on their assigned nodes, in the order of their ranks. If that fails, the pods placed so far stay placed.
    fn place_assigned(
        &mut self,
        number: usize,
        group: &PodGroup<'_>,
        domains: &[Domain],
        pods: &mut Vec<Placed>,
    ) -> bool {
        if group.is_empty() {
            return true;
        }
        let requests = Arc::new(group.requests.clone());
        let mut ranks =
            (0..group.replicas).flat_map(|replica| (0..group.each).map(move |index| (replica, index)));
        for domain in domains {
            for (replica, index) in ranks.by_ref().take(usize::try_from(domain.pods).unwrap_or(0)) {
                let takes = |name: &str, node: &Node| {
                    domain.has(&node.labels) && node.allows(name, group) && node.has_room(group)
                };
                let Some((name, node)) = self.by_name.iter_mut().find(|(name, node)| takes(name, node))
                else {
                    return false;
                };
                let (node_name, requests) = (Arc::clone(name), Arc::clone(&requests));
                let pod =
                    Placed { node: node_name, group: number, replica, index, requests, apart: group.apart };
                node.change(&pod, -1);
                pods.push(pod);
            }
        }
        // Fewer pods are assigned than the job has.
        ranks.next().is_none()
    }

    /// The nodes that a pod may be on, as it likes them.
    fn candidates(&self, group: &PodGroup<'_>) -> Vec<Arc<str>> {
        let free = |node: &Node| {
            let held: Vec<_> = self.placed.values().flat_map(|place| &place.holds).collect();
            held.into_iter().all(|(label, value)| node.labels.get(label) != Some(value))
        };
        let allowed = self.by_name.iter().filter(|(name, node)| node.allows(name, group));
        let mut all: Vec<_> = allowed
            .filter(|(_, node)| !group.apart || free(node))
            .map(|(name, node)| (Reverse(fit::score(&group.spec, node.ground(name))), Arc::clone(name)))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, name)| name).collect()
    }

    /// Puts the pods of these Jobs on these nodes, as many on each as fit. If not all fit, the pods placed so far stay placed.
    fn fill(
        &mut self,
        number: usize,
        group: &PodGroup<'_>,
        replicas: Range<i64>,
        nodes: &[Arc<str>],
        pods: &mut Vec<Placed>,
    ) -> bool {
        let requests = Arc::new(group.requests.clone());
        // All pods have the same requests: a node that was too small for one is too small for the next.
        let mut ranks = replicas.flat_map(|replica| (0..group.each).map(move |index| (replica, index)));
        let mut next = ranks.next();
        for name in nodes {
            let Some(node) = self.by_name.get_mut(name) else { continue };
            while let Some((replica, index)) = next
                && node.has_room(group)
            {
                let (node_name, requests) = (Arc::clone(name), Arc::clone(&requests));
                let pod =
                    Placed { node: node_name, group: number, replica, index, requests, apart: group.apart };
                node.change(&pod, -1);
                pods.push(pod);
                next = ranks.next();
            }
        }
        next.is_none()
    }

    /// Gives each Job of a JobSet the first group of nodes, as its pods like them, that holds all of them and no other JobSet's.
    fn place_in_domains(
        &mut self,
        number: usize,
        group: &PodGroup<'_>,
        label: &str,
        candidates: &[Arc<str>],
        place: &mut Placement,
    ) -> bool {
        let mut tried = BTreeSet::new();
        let mut replica = 0;
        for name in candidates {
            if replica == group.replicas {
                break;
            }
            let Some(value) = self.by_name.get(name).and_then(|node| node.labels.get(label)).cloned() else {
                continue;
            };
            if !tried.insert(value.clone()) || self.has_jobset(label, &value) {
                continue;
            }
            let has = |name: &&Arc<str>| {
                self.by_name.get(*name).is_some_and(|n| n.labels.get(label) == Some(&value))
            };
            let nodes: Vec<_> = candidates.iter().filter(has).cloned().collect();
            let mut pods = Vec::new();
            if self.fill(number, group, replica..replica + 1, &nodes, &mut pods) {
                place.pods.append(&mut pods);
                place.holds.push((label.to_owned(), value));
                replica += 1;
            } else {
                self.give_back(&pods);
            }
        }
        replica == group.replicas
    }

    /// Whether pods of a JobSet are in a group of nodes.
    fn has_jobset(&self, label: &str, value: &str) -> bool {
        let of = self.by_name.values().filter(|n| n.labels.get(label).is_some_and(|is| is == value));
        of.into_iter().any(|node| node.of_jobsets > 0)
    }

    fn give_back(&mut self, pods: &[Placed]) {
        for pod in pods {
            if let Some(node) = self.by_name.get_mut(&pod.node) {
                node.change(pod, 1);
            }
        }
    }

    /// Removes all pods of a job, and returns them.
    pub fn release(&mut self, job: &ObjectRef) -> Vec<Placed> {
        self.waiting.remove(job);
        let place = self.placed.remove(job).unwrap_or_default();
        self.unshare(&place);
        self.give_back(&place.pods);
        place.pods
    }

    /// A started job's pods wait.
    pub fn wait(&mut self, job: &ObjectRef) {
        self.waiting.insert(job.clone());
    }

    /// A started job runs without room on the nodes that are known.
    pub fn wait_no_more(&mut self, job: &ObjectRef) {
        self.waiting.remove(job);
    }

    /// Started jobs whose pods found no room; they are tried again.
    pub fn take_waiting(&mut self) -> BTreeSet<ObjectRef> {
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests;
