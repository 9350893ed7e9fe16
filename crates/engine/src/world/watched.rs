//! The index of the Workloads that a look at the nodes visits. It follows each change of a Workload or a job, so that no look visits the Workloads that
//! wait or have finished.

use std::collections::BTreeSet;

use sluice_api::conditions::{WorkloadCondition as Type, reason};
use sluice_api::job::JobView;
use sluice_api::v1beta2::WorkloadStatus;
use sluice_core::{Name, WorkloadKey};

use super::{Decision, WorkloadEntry, World};
use crate::effect::EffectId;
use crate::hotswap::exclusive::{exclusive_in, exclusive_labels, takes_groups};
use crate::ingest::workload::{holds_quota, is, reserved, was_evicted_for_nodes};

impl WorkloadEntry {
    /// Whether it will be evicted for failing nodes as soon as that can be written.
    pub fn is_evicted_for_nodes(&self) -> bool {
        matches!(self.decision.as_deref(), Some(Decision::Evict(why, _)) if why.reason == reason::NODE_FAILURES)
    }
}

/// Whether a look visits a Workload: by what was seen of it, or is being written.
fn matters(entry: &WorkloadEntry) -> bool {
    let matters = |status: &WorkloadStatus| {
        holds_quota(status) || was_evicted_for_nodes(status) && !is(status, Type::Finished)
    };
    matters(&entry.object.status)
        || entry.assumed.as_deref().is_some_and(matters)
        || entry.is_evicted_for_nodes()
}

impl World {
    /// The JobSet of a Workload.
    pub(crate) fn jobset_of(&self, key: &WorkloadKey, entry: &WorkloadEntry) -> Option<&JobView> {
        let job = self.job_by_uid.get(entry.owner.as_ref()?)?;
        // A job of another namespace is only claimed.
        let own = job.namespace == key.namespace && job.kind.integration().exclusive_topology.is_some();
        Some(&self.jobs.get(job).filter(|_| own)?.view)
    }

    /// A write of a Workload's status begins: decisions are made on that from now on.
    pub(crate) fn assume(&mut self, key: &WorkloadKey, write: EffectId, next: WorkloadStatus) {
        self.claims_are_as_seen = self.claims_stay_if(key, &next);
        let Some(entry) = self.workloads.get_mut(key) else { return };
        entry.open = Some(write);
        entry.assumed = Some(Box::new(next));
        self.watch_held(key);
    }

    /// A Workload may hold quota from now on.
    pub(crate) fn watch_held(&mut self, key: &WorkloadKey) {
        if let Some((known, entry)) = self.workloads.get_key_value(key)
            && matters(entry)
            && !self.watched.visited.contains(key)
        {
            self.watched.visited.insert(known.clone());
        }
    }

    /// A Workload came, changed or went, or its job did.
    pub(crate) fn watch(&mut self, key: &WorkloadKey) {
        let Some((known, entry)) = self.workloads.get_key_value(key) else {
            self.watched.visited.remove(key);
            return self.watched.set_groups(key, None);
        };
        // Where no queue has Hotswap, no look leaves out what is over.
        if !matters(entry) {
            self.watched.visited.remove(key);
        } else if !self.watched.visited.contains(key) {
            self.watched.visited.insert(known.clone());
        }
        let labels = self.groups_awaited(key, entry);
        let same = match (&labels, self.watched.waiting.get(key)) {
            (Some(labels), Some(((_, queue), known))) => {
                **queue == *entry.object.spec.queue_name && known.iter().eq(labels)
            }
            (labels, known) => labels.is_none() && known.is_none(),
        };
        if !same {
            let labels = labels.map(|labels| labels.into_iter().map(str::to_owned).collect());
            let groups = labels.map(|labels| (Self::queue_of(known, &entry.object), labels));
            let known = known.clone();
            self.watched.set_groups(&known, groups);
        }
    }

    /// A job came, changed or went: the groups of nodes that its Workloads wait for may be others.
    pub(crate) fn watch_job(&mut self, before: Option<&JobView>, after: Option<&JobView>) {
        let groups = |view: &JobView| (Name::clone(&view.job.uid), takes_groups(view));
        if let (Some(before), Some(after)) = (before, after)
            && before.job.uid == after.job.uid
            && exclusive_labels(before).eq(exclusive_labels(after))
        {
            return;
        }
        let jobs = before.into_iter().chain(after).map(groups).filter(|(_, takes_groups)| *takes_groups);
        for uid in jobs.map(|(uid, _)| uid).collect::<BTreeSet<Name>>() {
            let owned: Vec<WorkloadKey> = self.by_owner.get(&uid).into_iter().flatten().cloned().collect();
            for key in owned {
                self.watch(&key);
            }
        }
    }

    /// Workloads that have released their quota, or are over, are not visited again.
    pub(crate) fn watch_less(&mut self) {
        let Self { workloads, watched, .. } = self;
        watched.visited.retain(|key| workloads.get(key).is_some_and(matters));
    }

    /// The labels by which a Workload that waits will take whole groups of nodes.
    fn groups_awaited(&self, key: &WorkloadKey, entry: &WorkloadEntry) -> Option<BTreeSet<&str>> {
        let status = &entry.object.status;
        if reserved(status) || is(status, Type::Finished) {
            return None;
        }
        Some(exclusive_in(self.jobset_of(key, entry)?)).filter(|labels| !labels.is_empty())
    }

    /// The differences between what is watched and the Workloads.
    pub(crate) fn audit_watched(&self, fresh: &World) -> Vec<String> {
        let mut differences = Vec::new();
        for (key, _) in self.workloads.iter().filter(|(_, entry)| matters(entry)) {
            if !self.watched.visited.contains(key) {
                differences.push(format!("looks at the nodes leave out the workload {key}"));
            }
        }
        let same =
            (&fresh.watched.waiting, &fresh.watched.labels) == (&self.watched.waiting, &self.watched.labels);
        if !same {
            differences.push(
                "the index of groups of nodes that workloads wait for differs from the objects".to_owned(),
            );
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluice_api::slim;

    use super::*;

    fn workload(conditions: &[&str]) -> slim::Workload {
        let condition = |type_: &&str| -> Value {
            json!({"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let conditions: Vec<Value> = conditions.iter().map(condition).collect();
        serde_json::from_value(json!({
            "metadata": {"name": "w", "namespace": "ns", "uid": "u"},
            "spec": {"queueName": "q", "podSets": []},
            "status": {"conditions": conditions, "admission": {"clusterQueue": "cq", "podSetAssignments": []}},
        }))
        .unwrap()
    }

    #[test]
    fn what_is_over_is_not_visited_although_no_look_has_left_it_out() {
        let mut world = World::default();
        let keys: Vec<_> = (0..100).map(|at| WorkloadKey::new("ns", format!("w{at}"))).collect();
        let mut put = |conditions: &[&str]| {
            for key in &keys {
                world.put_workload(key, workload(conditions));
            }
            world.watched.visited.len()
        };
        assert_eq!(put(&[]), 0);
        assert_eq!(put(&["QuotaReserved"]), keys.len());
        assert_eq!(put(&["QuotaReserved", "Finished"]), 0);
    }

    #[test]
    fn what_is_being_given_quota_is_visited_whatever_its_object_says() {
        let mut world = World::default();
        let key = WorkloadKey::new("ns", "w");
        world.put_workload(&key, workload(&[]));
        world.assume(&key, EffectId(1), workload(&["QuotaReserved"]).status);
        world.put_workload(&key, workload(&[]));
        assert!(world.watched.visited.contains(&key));
    }
}
