//! Whether pods are counted as the quota of the same Workloads as at the last look at the nodes.
//!
//! Most changes of that cause a look. Some do not: a reservation that is being written, a job that is gone before its pods. Then what the last look has
//! summed up says nothing of these pods, and no sum is continued before the next look.

use jiff::Timestamp;
use sluice_api::job::JobView;
use sluice_api::slim;
use sluice_api::v1beta2::{Admission, WorkloadStatus};
use sluice_core::{Name, WorkloadKey};

use super::{JobKey, WorkloadEntry, World};
use crate::hotswap::snapshot::reserved_since;
use crate::ingest::workload::holds_quota;

/// What a Workload holds for the pods of its job.
#[derive(Clone, Copy, PartialEq)]
struct Claim<'a> {
    /// The UID of the job.
    owner: &'a Name,
    since: Option<Timestamp>,
    admission: Option<&'a Admission>,
}

impl<'a> Claim<'a> {
    fn of(owner: Option<&'a Name>, status: &'a WorkloadStatus) -> Option<Self> {
        let owner = owner.filter(|_| holds_quota(status))?;
        Some(Self { owner, since: reserved_since(status), admission: status.admission.as_ref() })
    }

    /// By what decisions are made on.
    fn by(entry: &'a WorkloadEntry) -> Option<Self> {
        Self::of(entry.owner.as_ref(), entry.status())
    }
}

impl World {
    /// Whether pods may be there that run for a job, or for one below it. Those of other namespaces count, too: they only claim to, and are counted as
    /// its own.
    fn has_pods_of(&self, uid: &Name) -> bool {
        let below = self.children.get(uid).into_iter().flatten();
        let below = below.filter_map(|child| Some(&self.jobs.get(child)?.view.job.uid));
        let mut controllers = below.chain([uid]);
        controllers.any(|uid| self.pod_index.has_controller(uid))
            || self.job_by_uid.get(uid).is_some_and(|job| self.has_pods_in(job))
    }

    /// Whether pods name a JobSet of a job's name.
    fn has_pods_in(&self, JobKey { namespace, name, .. }: &JobKey) -> bool {
        self.pods_of_jobset(name, namespace).next().is_some()
    }

    /// Whether all pods count as before, if what one Workload holds is another thing.
    fn claims_stay<'c>(&self, before: Option<Claim<'c>>, after: Option<Claim<'c>>) -> bool {
        if !self.claims_are_as_seen || before == after {
            return self.claims_are_as_seen;
        }
        !before.into_iter().chain(after).any(|claim| self.has_pods_of(claim.owner))
    }

    /// The same when a Workload comes or changes.
    pub(super) fn claims_stay_with(
        &self,
        key: &WorkloadKey,
        object: &slim::Workload,
        owner: Option<&Name>,
    ) -> bool {
        let known = self.workloads.get(key);
        let status = known.and_then(|entry| entry.assumed.as_deref()).unwrap_or(&object.status);
        self.claims_stay(known.and_then(Claim::by), Claim::of(owner, status))
    }

    /// The same when a Workload goes.
    pub(super) fn claims_stay_without(&self, key: &WorkloadKey) -> bool {
        self.claims_stay(self.workloads.get(key).and_then(Claim::by), None)
    }

    /// The same when a Workload's status is assumed to be another.
    pub(super) fn claims_stay_if(&self, key: &WorkloadKey, next: &WorkloadStatus) -> bool {
        let known = self.workloads.get(key);
        let owner = known.and_then(|entry| entry.owner.as_ref());
        self.claims_stay(known.and_then(Claim::by), Claim::of(owner, next))
    }

    /// The same when a job comes, changes or goes.
    pub(super) fn claims_stay_with_job(&self, before: Option<&JobView>, after: Option<&JobView>) -> bool {
        fn place(view: &JobView) -> (&Name, Option<&str>) {
            (&view.job.uid, view.controller.as_ref().map(|owner| owner.uid.as_str()))
        }
        if !self.claims_are_as_seen || before.map(place) == after.map(place) {
            return self.claims_are_as_seen;
        }
        // One that comes is in no index yet.
        let has_pods =
            |view: &JobView| self.has_pods_of(&view.job.uid) || self.has_pods_in(&JobKey::of(&view.job));
        !before.into_iter().chain(after).any(has_pods)
    }

    /// A write of a Workload's status is answered: decisions are made on what was seen again.
    pub(crate) fn assume_nothing(&mut self, key: &WorkloadKey) {
        let Some(entry) = self.workloads.get(key) else { return };
        self.claims_are_as_seen = self.claims_stay_if(key, &entry.object.status);
        if let Some(entry) = self.workloads.get_mut(key) {
            entry.assumed = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::effect::EffectId;
    use crate::hotswap::pod::Pod;

    /// A Workload of the job `job`, with these conditions.
    fn workload(conditions: &[&str]) -> slim::Workload {
        let condition = |type_: &&str| -> Value {
            json!({"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let conditions: Vec<Value> = conditions.iter().map(condition).collect();
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job",
            "controller": true});
        serde_json::from_value(json!({
            "metadata": {"name": "w", "namespace": "ns", "uid": "u", "ownerReferences": [owner]},
            "spec": {"queueName": "q", "podSets": []},
            "status": {"conditions": conditions, "admission": {"clusterQueue": "cq", "podSetAssignments": []}},
        }))
        .unwrap()
    }

    /// With a pod of that job, as a look has just left it.
    fn world(pod: bool) -> (World, WorkloadKey) {
        let mut world = World::default();
        let key = WorkloadKey::new("ns", "w");
        world.put_workload(&key, workload(&[]));
        if pod {
            world.put_pod(("ns".into(), "p".into()), Pod::bound("n", "job"));
        }
        world.claims_are_as_seen = true;
        (world, key)
    }

    #[test]
    fn pods_count_otherwise_once_a_reservation_is_being_written_and_when_that_ends_in_another_way() {
        let reserved = workload(&["QuotaReserved"]);
        let (mut world, key) = world(true);
        world.put_workload(&key, workload(&[]));
        assert!(world.claims_are_as_seen, "nothing has changed");
        world.assume(&key, EffectId(1), reserved.status.clone());
        assert!(!world.claims_are_as_seen);
        world.claims_are_as_seen = true;
        world.put_workload(&key, reserved);
        world.assume_nothing(&key);
        assert!(world.claims_are_as_seen, "what was assumed is what was written");
        world.assume(&key, EffectId(2), workload(&[]).status);
        world.claims_are_as_seen = true;
        world.assume_nothing(&key);
        assert!(!world.claims_are_as_seen, "it holds its quota still");
    }

    #[test]
    fn workloads_that_come_and_go_without_pods_change_nothing_that_pods_count_as() {
        let (mut world, key) = world(false);
        world.assume(&key, EffectId(1), workload(&["QuotaReserved"]).status);
        world.put_workload(&key, workload(&["QuotaReserved"]));
        world.take_workload(&key);
        assert!(world.claims_are_as_seen);
    }

    #[test]
    fn pods_of_other_namespaces_that_claim_to_be_of_a_job_are_counted_as_its_own() {
        let (mut world, key) = world(false);
        world.put_pod(("other".into(), "p".into()), Pod::bound("n", "job"));
        world.put_workload(&key, workload(&["QuotaReserved"]));
        assert!(!world.claims_are_as_seen);
    }

    #[test]
    fn pods_count_otherwise_once_their_workload_is_gone() {
        let (mut world, key) = world(true);
        world.put_workload(&key, workload(&["QuotaReserved"]));
        world.claims_are_as_seen = true;
        world.take_workload(&key);
        assert!(!world.claims_are_as_seen);
    }
}
