//! Pods that are bound to nodes: how they come and go, and which Workload each runs for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use sluice_api::job::JobKind;
use sluice_api::{labels, slim};
use sluice_core::{Name, WorkloadKey};

use super::health::{self, Health};
use super::kept_capacity::Share;
use super::matching::has_labels;
use super::pod::{Pod, PodKey, takes};
use super::snapshot::{holds, holds_of, leaves, reserved_since};
use crate::engine::{Alarm, Engine};
use crate::ingest::limits::LimitSummary;
use crate::input::{Kind, ObjectRef};
use crate::world::{JobKey, WorkloadEntry};

impl Pod {
    /// Whether it is left over from before its Workload got the quota that it holds now.
    pub fn is_of_former_run(&self, entry: &WorkloadEntry) -> bool {
        let reserved = reserved_since(entry.status());
        // A pod that continues belongs to this run, whatever the clocks say.
        self.former
            || self.leaving
                && reserved.is_some_and(|reserved| self.created.is_none_or(|created| created < reserved))
    }
}

impl Engine {
    /// Takes a pod in.
    pub(crate) fn observe_pod(&mut self, reference: &ObjectRef, pod: &slim::Pod) {
        self.observe_terminating(reference, pod);
        if pod.ended || pod.node.is_empty() {
            // It ended by itself, or was never bound: it did not leave the node.
            let key = (Arc::clone(&reference.namespace), Arc::clone(&reference.name));
            return self.drop_pod(&key);
        }
        let mut requests = takes(&pod.spec, &LimitSummary::default(), &BTreeMap::new());
        for (name, _) in &mut requests {
            *name = self.hotswap.intern(name);
        }
        let entry = Pod {
            node: self.shared_name_of(&pod.node),
            uid: Name::from(pod.metadata.uid.as_deref().unwrap_or_default()),
            leaving: pod.metadata.deletion_timestamp.is_some(),
            former: false,
            before_node: None,
            controller: pod.controller_uid.as_deref().map(|uid| self.shared_uid_of(uid)),
            jobset: pod.jobset.as_deref().map(|name| self.hotswap.intern(name)),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            requests,
        };
        let key = (self.hotswap.intern(&reference.namespace), Arc::clone(&reference.name));
        let last = self.world.pods.get(&key);
        let known = last.filter(|known| known.uid == entry.uid);
        let before_node = match known {
            Some(known) => known.before_node,
            // Pods of the initial list have nodes that are listed, or deleted.
            None => self.listed.contains(&Kind::Pod).then_some(self.now),
        };
        let before_node = before_node.filter(|_| !self.world.nodes.contains_key(&entry.node));
        let entry = Pod { former: known.is_some_and(|known| known.former), before_node, ..entry };
        if last != Some(&entry) {
            let came = last.is_none();
            if entry.leaving {
                self.hotswap_left(&key, &entry);
            }
            self.mark_if_stuck(&entry);
            if let Some(controller) = entry.controller.as_ref().filter(|_| !entry.leaving) {
                self.note_stray(&key.0, controller, entry.created);
            }
            if let Some(until) = self.node_expected_until(&entry) {
                self.wake_at(until, Alarm::Hotswap);
            }
            let before = if came { Some(Vec::new()) } else { self.shares_of(&key, true) };
            self.world.put_pod(key.clone(), entry);
            self.count_pod(&key);
            let after = before.as_ref().and_then(|_| self.shares_of(&key, false));
            self.hotswap_pod_changed(before.zip(after));
        }
    }

    /// The shared copy of a node's name: the one of the node, if that is known.
    fn shared_name_of(&mut self, node: &str) -> Name {
        let known = self.world.nodes.get_key_value(node).map(|(name, _)| Name::clone(name));
        known.unwrap_or_else(|| self.hotswap.intern(node))
    }

    /// The shared copy of a controller's UID: the one of the job, if that is known.
    fn shared_uid_of(&self, uid: &str) -> Name {
        let known = self.world.job_by_uid.get_key_value(uid).map(|(uid, _)| Name::clone(uid));
        known.unwrap_or_else(|| Name::from(uid))
    }

    /// Until when a pod's node that was never seen does not count as deleted.
    pub(super) fn node_expected_until(&self, pod: &Pod) -> Option<Timestamp> {
        let wait = SignedDuration::from_secs(self.config.hotswap.not_ready_after.as_secs());
        pod.before_node.filter(|_| !self.world.nodes.contains_key(&pod.node))?.checked_add(wait).ok()
    }

    /// The time since which a pod's node counts as lost, if it is not ready or gone.
    pub(crate) fn lost_from(&self, pod: &Pod) -> Option<Timestamp> {
        match self.world.nodes.get(&pod.node) {
            Some(node) => health::lost_from(node, &self.config.hotswap),
            None => Some(self.node_expected_until(pod).unwrap_or(Timestamp::MIN)),
        }
    }

    /// A Workload gave its quota back: the present pods of its job do not belong to its next start.
    pub(crate) fn hotswap_released(&mut self, workload: &WorkloadKey) {
        self.hotswap.left.remove(workload);
        // If the watch skipped the release, the pods of the next start may have been seen already.
        let status = self.world.workloads.get(workload).map(|entry| &entry.object.status);
        let reserved = status.and_then(reserved_since);
        let before = |pod: &Pod| reserved.is_none_or(|at| pod.created.is_none_or(|created| created < at));
        let own = |key: &PodKey| {
            self.world
                .pods
                .get(key)
                .is_some_and(|pod| before(pod) && self.workloads_of_pod(key, pod).any(|of| of == workload))
        };
        let old: BTreeSet<PodKey> = self.pods_of(workload).filter(|key| own(key)).cloned().collect();
        self.world.claims_are_as_seen &= old.is_empty();
        for key in old {
            if let Some(pod) = self.world.pods.get_mut(&key) {
                pod.former = true;
            }
        }
    }

    /// The pods of the job that a Workload is of, maybe with some that only name one like it.
    fn pods_of<'a>(&'a self, workload: &'a WorkloadKey) -> impl Iterator<Item = &'a PodKey> {
        // Hundreds may be released in a second, and most pods are of other jobs.
        let owner = self.world.workloads.get(workload).and_then(|entry| entry.owner.as_ref());
        let jobset = owner.and_then(|uid| self.world.job_by_uid.get(uid));
        let below = owner.and_then(|uid| self.world.children.get(uid)).into_iter().flatten();
        let below = below.filter_map(|child| Some(&self.world.jobs.get(child)?.view.job.uid));
        // Pods run in the namespace of their Workload.
        let namespace = &workload.namespace;
        let controlled = below.chain(owner).flat_map(|uid| self.world.pods_controlled_by(uid, namespace));
        let named = jobset.into_iter().flat_map(|job| self.world.pods_of_jobset(&job.name, namespace));
        controlled.chain(named)
    }

    /// Whether pods of a Workload may be there.
    pub(super) fn has_pods(&self, workload: &WorkloadKey) -> bool {
        self.pods_of(workload).next().is_some()
    }

    /// A job came. Its pods may have come before it, and were not known to be its.
    pub(crate) fn hotswap_job_came(&mut self, job: &JobKey) {
        let Some(entry) = self.world.jobs.get(job).filter(|_| !self.hotswap.flavors.is_empty()) else {
            return;
        };
        let controlled = self.world.pods_controlled_by(&entry.view.job.uid, &job.namespace);
        let named = self.world.pods_of_jobset(&job.name, &job.namespace);
        if controlled.chain(named).next().is_some() {
            self.hotswap_pods_changed();
        }
    }

    /// What a pod, which came or, if it `goes`, is about to go, takes of the capacity of flavors, beside what is counted as quota of its Workload. None
    /// if a look may find other differences, too: its node is not healthy or in a group that is not whole, its Workload lacks something, or a Workload
    /// needs room, so that it makes a difference what the pod takes of its node. While other pods of its Workload leave nodes, or are on nodes that are
    /// not healthy, it matters whether all of them are there.
    fn shares_of(&self, key: &PodKey, goes: bool) -> Option<Vec<Share>> {
        let state = &self.hotswap;
        if state.flavors.is_empty() {
            return Some(Vec::new());
        }
        if state.evaluated_at.is_none() || state.needs_room {
            return None;
        }
        let pod = self.world.pods.get(key)?;
        let node = self.world.nodes.get(&pod.node)?;
        if health::of(node, self.now, &self.config.hotswap) != Health::Healthy || self.is_in_part(node) {
            return None;
        }
        if pod.requests.iter().any(|(_, amount)| amount.is_unlimited()) {
            // A look takes it as above every sum: it is not given back as a number.
            return None;
        }
        let holder = self.holder_of(key, pod);
        if holder.is_some_and(|(of, entry)| pod.leaving || self.lacks_pods(of, entry, goes)) {
            return None;
        }
        let has = |flavor: &Name| {
            let object = self.world.flavors.get(flavor);
            object.is_some_and(|object| has_labels(node, &object.spec.node_labels))
        };
        let mut shares = Vec::new();
        for (flavor, counted) in state.flavors.iter().filter(|(flavor, _)| has(flavor)) {
            let is_beside = |resource: &Name| {
                let is_held = holder.is_some_and(|(_, entry)| holds_of(entry, flavor, resource));
                counted.contains(resource) && !is_held
            };
            let beside = pod.requests.iter().filter(|(resource, _)| is_beside(resource));
            shares.extend(beside.map(|(resource, amount)| Share {
                flavor: Name::clone(flavor),
                resource: Name::clone(resource),
                amount: i128::from(amount.get()),
            }));
        }
        Some(shares)
    }

    /// The Workload as whose quota a pod is counted.
    fn holder_of(&self, key: &PodKey, pod: &Pod) -> Option<(&WorkloadKey, &WorkloadEntry)> {
        let mut all = self.workloads_of_pod(key, pod).filter_map(|of| self.world.workloads.get_key_value(of));
        all.find(|(_, entry)| holds(entry) && !pod.is_of_former_run(entry))
    }

    /// Whether a Workload was found to lack pods or nodes, or may lack some if one of its pods `goes`.
    fn lacks_pods(&self, key: &WorkloadKey, entry: &WorkloadEntry, goes: bool) -> bool {
        let state = &self.hotswap;
        state.concerned.contains(key)
            || state.left.get(key).is_some_and(|nodes| !nodes.is_empty())
            || !entry.status().unhealthy_nodes.is_empty()
            || goes && state.unsettled.contains(key)
    }

    /// Whether a node may be in a group that is not whole.
    fn is_in_part(&self, node: &slim::Node) -> bool {
        let Some(known) = self.hotswap.nodes_to_avoid.get() else { return true };
        let value = |label: &String| node.metadata.labels.as_ref()?.get(label);
        let mut broken = known.flavors.values().flat_map(|nodes| &nodes.broken);
        broken.any(|(label, groups)| value(label).is_some_and(|group| groups.contains(group)))
    }

    /// A pod is gone.
    pub(crate) fn forget_pod(&mut self, reference: &ObjectRef, uid: Option<&str>) {
        self.forget_terminating(reference);
        let key = (Arc::clone(&reference.namespace), Arc::clone(&reference.name));
        let same = |pod: &Pod| uid.is_none_or(|uid| *pod.uid == *uid);
        if self.world.pods.get(&key).is_some_and(same) {
            self.drop_pod(&key);
        }
    }

    fn drop_pod(&mut self, key: &PodKey) {
        if self.world.pods.contains_key(key) {
            let before = self.shares_of(key, true);
            self.world.take_pod(key);
            self.count_pod(key);
            self.hotswap_pod_changed(before.map(|before| (before, Vec::new())));
        }
    }

    /// A pod is being deleted, which may be over before the next look: its node is kept while its Workload runs. For a pod that merely disappeared
    /// nothing is known: the watch shows the same for one that ended.
    fn hotswap_left(&mut self, key: &PodKey, pod: &Pod) {
        if self.hotswap.flavors.is_empty() {
            return;
        }
        let runs = |entry: &WorkloadEntry| holds(entry) && !leaves(entry) && !pod.is_of_former_run(entry);
        let all = self.workloads_of_pod(key, pod);
        let of: Vec<_> = all.filter(|of| self.world.workloads.get(*of).is_some_and(runs)).cloned().collect();
        for workload in of {
            self.hotswap.left.entry(workload).or_default().insert(Name::clone(&pod.node));
        }
    }

    /// The job that a pod runs for: its controller, the controller of that, or the JobSet that it names.
    fn job_of_pod(&self, (namespace, _): &PodKey, pod: &Pod) -> Option<&JobKey> {
        let by_uid = |uid: &str| self.world.job_by_uid.get(uid);
        if let Some(key) = pod.controller.as_deref().and_then(by_uid) {
            let view = &self.world.jobs.get(key)?.view;
            let above = view.controller.as_ref().and_then(|owner| by_uid(&owner.uid));
            return above.or(Some(key));
        }
        let name = Arc::clone(pod.jobset.as_ref()?);
        let is_named = |kind: &JobKind| kind.integration().part_label == Some(labels::JOBSET_NAME);
        let kind = JobKind::ALL.into_iter().find(is_named)?;
        let key = JobKey { kind, namespace: Arc::clone(namespace), name, group: None };
        self.world.jobs.get_key_value(&key).map(|(key, _)| key)
    }

    /// The Workloads of the job that a pod runs for.
    pub(crate) fn workloads_of_pod(&self, key: &PodKey, pod: &Pod) -> impl Iterator<Item = &WorkloadKey> {
        let job = self.job_of_pod(key, pod).and_then(|job| self.world.jobs.get(job));
        let owned = job.and_then(|entry| self.world.by_owner.get(&entry.view.job.uid));
        owned.into_iter().flatten()
    }
}
