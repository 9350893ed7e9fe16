//! The Workload of a group: it has the group's name, and all pods own it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;
use sluice_api::conditions::{self, Wanted, WorkloadCondition as Type};
use sluice_api::job::JobView;
use sluice_core::{Name, WorkloadKey};
use sluice_jobs::pods::{
    MAX_OWNER_BYTES, Replacement, RoleCount, is_group_workload, owner_reference, replacement,
};

use super::index::PodJob;
use super::tend::role_counts;
use crate::effect::{Effect, Event, EventType, Purpose};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::{is, reserved};
use crate::lifecycle::body::{self, strict_patch};
use crate::lifecycle::matching::OwnWorkload;
use crate::outbox::{About, normal};
use crate::world::{JobKey, WorkloadEntry, workload_ref};

/// Whether a Workload that has no quota is for other pods than its group has by now: its user may replace pods that wait, and change their number.
pub(super) fn waits_for_others(job: &PodJob, group: &str, entry: &WorkloadEntry) -> bool {
    let status = entry.status();
    let is_at_rest = entry.decision.is_none() && entry.object.spec.active;
    // Pods of the run that an eviction ended may still be there.
    if !is_at_rest || reserved(status) || is(status, Type::Evicted) && !job.pods.only_waits() {
        return false;
    }
    let Ok(composed) = job.pods.compose(group) else { return false };
    let of = |sets: Vec<RoleCount>| -> BTreeMap<_, _> {
        sets.into_iter().filter(|set| set.count > 0).map(|set| (set.role, set.count)).collect()
    };
    of(composed.pod_sets) != of(role_counts(entry))
}

impl Engine {
    /// The group of a job, if the job is a group.
    pub(crate) fn group_of(&self, key: &JobKey) -> Option<Name> {
        self.world.pod_jobs.get(key)?.group.clone()
    }

    /// The Workload of a group.
    pub(crate) fn group_workload(&mut self, key: &JobKey, view: &Arc<JobView>, group: &Name) -> OwnWorkload {
        let workload = WorkloadKey::new(Arc::clone(&key.namespace), Arc::clone(group));
        let Some(entry) = self.world.workloads.get(&workload) else { return OwnWorkload::None };
        if entry.open.is_some() || entry.retry.waits(self.now) {
            return OwnWorkload::Wait;
        }
        let metadata = &entry.object.metadata;
        let annotations = metadata.annotations.clone().unwrap_or_default();
        // If an object's pods make up one job, the Workload has a computed name.
        let of_object = entry.controller_uid().is_some();
        if of_object || !is_group_workload(&annotations, &self.config.gates) {
            self.report_conflict(key, view, group);
            return OwnWorkload::Wait;
        }
        let Some(job) = self.world.pod_jobs.get(key) else { return OwnWorkload::Wait };
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        if metadata.deletion_timestamp.is_some() {
            let own =
                owners.iter().any(|o| job.pods.get(&o.name).is_some_and(|member| *member.uid == *o.uid));
            if own || owners.is_empty() {
                return OwnWorkload::One(workload);
            }
            // It belongs to a former group, whose pods are gone.
            self.drop_finalizer(&workload);
            return OwnWorkload::Wait;
        }
        if is(entry.status(), Type::Finished) {
            return OwnWorkload::One(workload);
        }
        let matches = job.pods.against(&role_counts(entry)).matches;
        let leaves = is(entry.status(), Type::Evicted) && (reserved(entry.status()) || !view.suspended);
        if !matches || waits_for_others(job, group, entry) {
            let why = "No matching Workload; restoring pod templates according to existent Workload";
            if matches || !self.stop_pods(key, view, why) && !self.is_active(key) {
                let note = format!("Deleted not matching Workload: {workload}");
                let reported = normal(self.about_job(key, view), "DeletedWorkload", note);
                self.delete_workload(&workload, vec![reported]);
            }
            return OwnWorkload::Wait;
        }
        // New owners come after it is stopped: neither a refused write nor a stream of new pods may delay a stop.
        if !leaves && self.add_owners(key, &workload) {
            return OwnWorkload::Wait;
        }
        self.world.drop_pod_templates(key);
        OwnWorkload::One(workload)
    }

    /// A Workload that does not belong to a group has the group's name: the group is not admitted.
    fn report_conflict(&mut self, key: &JobKey, view: &JobView, group: &str) {
        let why = "WorkloadNameConflict";
        let Some(entry) = self.world.jobs.get_mut(key) else { return };
        if entry.reported.as_deref() == Some(why) {
            return;
        }
        entry.reported = Some(why.to_owned());
        let note = format!(
            "A Workload named {group:?} already exists but is not a pod group workload; this pod group cannot be admitted"
        );
        let event = crate::outbox::warning(self.about_job(key, view), why, note);
        let Effect::Event(event) = event else { return };
        self.outbox.push(Effect::Event(Event {
            action: "Admission".to_owned(),
            type_: EventType::Warning,
            ..event
        }));
    }

    /// Makes pods that came later owners of their Workload, too; says whether it does.
    fn add_owners(&mut self, key: &JobKey, workload: &WorkloadKey) -> bool {
        let new = |job: &&mut PodJob| !job.unowned.is_empty() && job.pods.is_settled();
        let now = self.now;
        let Some(job) = self.world.pod_jobs.get_mut(key).filter(new) else { return false };
        let entry = &self.world.workloads[workload];
        let metadata = &entry.object.metadata;
        // To look at all owners for each pod that comes would be too much.
        let changed = job.owners_of != metadata.resource_version;
        if let Some(until) = job.owners_wait(now).filter(|_| !changed) {
            self.wake_at(until, Alarm::Job(key.clone()));
            return true;
        }
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let known: BTreeSet<&str> = owners.iter().map(|owner| owner.uid.as_str()).collect();
        let pods = &job.pods;
        // A pod without our finalizer is about to be gone.
        let missing = |name: &Name| pods.get(name).filter(|pod| pod.held && !known.contains(&*pod.uid));
        job.unowned.retain(|name| missing(name).is_some());
        job.owners_of.clone_from(&metadata.resource_version);
        let missing: Vec<_> = job.unowned.iter().filter_map(missing).map(owner_reference).collect();
        if let Some(until) = job.owners_wait(now).filter(|_| !missing.is_empty()) {
            self.wake_at(until, Alarm::Job(key.clone()));
            return true;
        }
        if missing.is_empty() {
            // Others may go now.
            self.dirty.jobs.insert(key.clone());
            return false;
        }
        let next = job.pods.owners_with(owners, missing);
        let added = next.iter().filter(|owner| !known.contains(owner.uid.as_str())).count();
        if added == 0 {
            // There is no room, also not for pods of another time: they run, and it does not wait for them when it goes.
            let left_out = job.unowned.len();
            job.unowned.clear();
            self.dirty.jobs.insert(key.clone());
            self.report_left_out(key, left_out);
            return false;
        }
        job.owned_at = Some(now);
        let note = format!("Added {added} owner reference(s)");
        let body = strict_patch(&entry.object, json!({"metadata": {"ownerReferences": next}}));
        let about = About::new(&workload_ref(workload), &entry.uid(), key.kind.integration().reporter);
        self.patch_workload(
            workload,
            Purpose::UpdateWorkload,
            body,
            vec![normal(about, "OwnerReferencesAdded", note)],
        );
        true
    }

    /// Reports how many pods of a group are not owners of its Workload.
    fn report_left_out(&mut self, key: &JobKey, pods: usize) {
        let Some(view) = self.world.jobs.get(key).map(|entry| Arc::clone(&entry.view)) else { return };
        let note = format!(
            "{pods} pods could not become owners of the Workload of their group: owner references are limited to {MAX_OWNER_BYTES} bytes. The Workload is deleted with the pods that are owners"
        );
        self.report_job(key, &view, EventType::Warning, "ErrWorkloadCompose", &note);
    }

    /// The owners of a group's new Workload.
    pub(crate) fn group_owners(&self, key: &JobKey) -> Option<Vec<OwnerReference>> {
        let job = self.world.pod_jobs.get(key).filter(|job| job.group.is_some())?;
        Some(job.pods.members().filter(|member| member.held).map(owner_reference).collect())
    }

    /// Keeps the condition that says that pods of a group are missing; says whether it wrote.
    pub(crate) fn sync_replacement(&mut self, key: &JobKey, workload: &WorkloadKey) -> bool {
        let Some(job) = self.world.pod_jobs.get(key).filter(|job| job.group.is_some()) else { return false };
        let entry = &self.world.workloads[workload];
        let status = entry.status();
        let pod_sets = role_counts(entry);
        // A group that does not wait for its pods needs one of each role: the first makes, or waits for, the others.
        let absent = if job.pods.is_fast() {
            job.pods.roles_without_pods(&pod_sets)
        } else {
            job.pods.against(&pod_sets).absent
        };
        let says = |type_: Type| {
            let found = conditions::find(&status.conditions, type_.as_str())?;
            Some(Replacement {
                status: found.status == "True",
                reason: found.reason.clone(),
                message: found.message.clone(),
            })
        };
        let evicted = says(Type::Evicted).filter(|evicted| evicted.status);
        let evicted = evicted.as_ref().map(|evicted| (&*evicted.reason, &*evicted.message));
        let Some(wanted) = replacement(says(Type::WaitingForReplacementPods).as_ref(), absent, evicted)
        else {
            return false;
        };
        let at = self.at(&entry.object);
        let mut next = status.clone();
        let wanted = Wanted { status: wanted.status, reason: &wanted.reason, message: &wanted.message };
        let type_ = Type::WaitingForReplacementPods.as_str();
        conditions::set(&mut next.conditions, type_, wanted, at.generation, at.now);
        self.write_part(workload, Purpose::Replacement, body::REPLACEMENT_PODS, next, Vec::new());
        true
    }
}
