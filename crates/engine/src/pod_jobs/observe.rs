//! Follows the events of pods that make up jobs.

use std::sync::Arc;

use sluice_api::gates::Gate;
use sluice_jobs::pods::Member;

use super::index::{PODS, job_of, pod_key};
use crate::effect::Purpose;
use crate::engine::Engine;
use crate::hotswap::pod::PodKey;
use crate::input::ObjectRef;
use crate::version::{Seen, compare};
use crate::world::job_key;

impl Engine {
    /// Takes a pod that is queued, or in a queued group.
    pub(crate) fn observe_member(&mut self, mut member: Member) {
        if !self.config.on(Gate::WorkloadIdentifierAnnotations) {
            member.read_labels_alone();
        }
        let pod = (Arc::clone(&member.namespace), Arc::clone(&member.name));
        let others = self.config.implied_pods && member.suspending_parent.is_none();
        if !member.managed || others || !self.config.frameworks.contains(&PODS) {
            return self.drop_member(&pod);
        }
        let key = job_of(&self.config.frameworks, &member);
        // The group made the engine panic.
        if (member.group.is_some() || key.kind.gathers_pods()) && self.aside.contains_key(&key.object()) {
            return self.drop_member(&pod);
        }
        if let Some(home) = self.world.pod_homes.get(&pod).cloned()
            && let Some(job) = self.world.pod_jobs.get_mut(&home)
            && let Some(known) = job.pods.get(&member.name)
        {
            let same = known.uid == member.uid;
            // A pod that was read for its template has nothing else that is new.
            let has_more = member.has_template() && !known.has_template() && !job.slim;
            match compare(Some(&known.resource_version), Some(&member.resource_version)) {
                Seen::Older => return,
                Seen::Same if same && !has_more => return,
                _ if !same || home != key => self.drop_member(&pod),
                _ => {
                    if let Some(fare) = job.fares.get_mut(&member.name) {
                        fare.retry.seen_newer();
                    }
                }
            }
        }
        self.world.put_member(&key, member, &self.config.label_keys_to_copy);
        self.world.note_left_over(&key);
        if !self.world.jobs.contains_key(&key) {
            self.refresh_pod_job(&key);
        }
        if let Some(entry) = self.world.jobs.get_mut(&key) {
            entry.retry.seen_newer();
        }
        self.dirty.jobs.insert(key);
    }

    /// A pod was deleted, or is no longer managed.
    pub(crate) fn drop_member(&mut self, pod: &PodKey) {
        let Some((key, open)) = self.world.take_member(pod) else { return };
        let starts = open.and_then(|id| self.outbox.purpose(id)) == Some(Purpose::StartJob);
        if !self.world.pod_jobs.contains_key(&key) {
            return self.drop_job(&key);
        }
        if starts {
            self.starts_no_longer(&key);
        }
        self.dirty.jobs.insert(key);
    }

    /// Takes in that a pod is gone, or that a group is set aside.
    pub(crate) fn forget_member(&mut self, object: &ObjectRef, uid: Option<&str>) {
        let group = job_key(object).and_then(|key| self.world.pod_jobs.get(&key));
        if let Some(group) = group.filter(|job| job.has_roles()) {
            let pods =
                group.pods.members().map(|member| (Arc::clone(&member.namespace), Arc::clone(&member.name)));
            for pod in pods.collect::<Vec<_>>() {
                self.drop_member(&pod);
            }
            return;
        }
        let known = self.world.member(object);
        if known.is_some_and(|(_, member)| uid.is_none_or(|uid| *member.uid == *uid))
            && let Some(pod) = pod_key(object)
        {
            self.drop_member(&pod);
        }
    }
}
