//! The writes on a Workload: its status, its spec and metadata, its finalizer, its deletion.

use std::sync::Arc;

use serde_json::json;
use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::labels;
use sluice_api::v1beta2::WorkloadStatus;
use sluice_core::WorkloadKey;

use super::body::{self, strict_patch};
use super::left_behind::holds_quota;
use super::ready;
use crate::answers::workload_key;
use crate::effect::{Effect, Purpose, Write};
use crate::engine::Engine;
use crate::input::Kind;
use crate::outbox::Open;
use crate::world::kept::is_over;
use crate::world::{job_key, workload_ref};

impl Engine {
    /// Reads a Workload that a former leader admitted before its job starts; says whether it must be waited for. An eviction that the
    /// former leader sent last may have come after our list, and no version connects it with the job.
    pub(crate) fn read_inherited(&mut self, workload: &WorkloadKey) -> bool {
        let Some(entry) = self.world.workloads.get_mut(workload).filter(|entry| entry.inherited) else {
            return false;
        };
        if entry.open.is_none() && !entry.retry.waits(self.now) {
            let id = self.outbox.write(workload_ref(workload), Purpose::Read, Write::Read, Vec::new());
            entry.open = Some(id);
        }
        true
    }

    /// Applies the status that admission owns.
    pub(crate) fn write_status(
        &mut self,
        key: &WorkloadKey,
        purpose: Purpose,
        mut next: WorkloadStatus,
        then: Vec<Effect>,
    ) {
        if self.is_known_in_part(key) {
            return;
        }
        let waits_for_pods = self.config.wait_for_pods_ready.is_some();
        self.reported(key);
        let report = matches!(purpose, Purpose::Pend | Purpose::Bypassed);
        self.reporting += usize::from(report);
        let Some(entry) = self.world.workloads.get_mut(key) else { return };
        if !report {
            entry.forget_written_reason();
        }
        if waits_for_pods {
            let generation = entry.object.metadata.generation.unwrap_or(0);
            ready::ride(&entry.object.status, &mut next, generation, self.now);
        }
        let body = body::admission_status(&entry.object, &next);
        let write = Write::Apply { subresource: Some("status"), field_manager: body::ADMISSION, body };
        let id = self.outbox.write(workload_ref(key), purpose, write, then);
        if purpose == Purpose::ReserveQuota {
            self.outbox.reserves(id, self.now);
        }
        self.world.assume(key, id, next);
    }

    /// Applies a part of the status under a manager of its own.
    pub(crate) fn write_part(
        &mut self,
        key: &WorkloadKey,
        purpose: Purpose,
        field_manager: &'static str,
        next: WorkloadStatus,
        then: Vec<Effect>,
    ) {
        if self.is_known_in_part(key) {
            return;
        }
        let Some(entry) = self.world.workloads.get(key) else { return };
        let body = match purpose {
            Purpose::Reclaim => body::reclaimable_pods(&entry.object, &next),
            Purpose::Replacement => body::condition(&entry.object, &next, Type::WaitingForReplacementPods),
            _ => body::condition(&entry.object, &next, Type::PodsReady),
        };
        let write = Write::Apply { subresource: Some("status"), field_manager, body };
        let id = self.outbox.write(workload_ref(key), purpose, write, then);
        self.world.assume(key, id, next);
    }

    /// Whether a part of a Workload's status may have been left out: no status is made of what is left, which would take the rest away.
    fn is_known_in_part(&self, key: &WorkloadKey) -> bool {
        self.world.workloads.get(key).is_some_and(|entry| is_over(&entry.object))
    }

    /// Patches the Workload itself.
    pub(crate) fn patch_workload(
        &mut self,
        key: &WorkloadKey,
        purpose: Purpose,
        body: serde_json::Value,
        then: Vec<Effect>,
    ) {
        self.write_workload(key, purpose, Write::MergePatch { subresource: None, body }, then);
    }

    /// Sends a write on a Workload itself.
    pub(super) fn write_workload(
        &mut self,
        key: &WorkloadKey,
        purpose: Purpose,
        write: Write,
        then: Vec<Effect>,
    ) {
        let id = self.outbox.write(workload_ref(key), purpose, write, then);
        if let Some(entry) = self.world.workloads.get_mut(key) {
            entry.open = Some(id);
        }
    }

    /// Removes our finalizer from a Workload, if it has it and no other write is in progress.
    pub(crate) fn drop_finalizer(&mut self, key: &WorkloadKey) {
        self.drop_finalizer_as(key, self.end_of(key, Purpose::Finalizer));
    }

    /// What a step towards the end of a Workload is for: others wait for the quota that it still holds.
    fn end_of(&self, key: &WorkloadKey, otherwise: Purpose) -> Purpose {
        let holds = self.world.workloads.get(key).is_some_and(holds_quota);
        if holds { Purpose::ReleaseQuota } else { otherwise }
    }

    /// The same, with that purpose.
    pub(super) fn drop_finalizer_as(&mut self, key: &WorkloadKey, purpose: Purpose) {
        let Some(entry) = self.world.workloads.get(key) else { return };
        if entry.open.is_some() || entry.retry.waits(self.now) {
            return;
        }
        let finalizers = entry.object.metadata.finalizers.clone().unwrap_or_default();
        let rest: Vec<_> = finalizers.iter().filter(|f| *f != labels::RESOURCE_IN_USE_FINALIZER).collect();
        if rest.len() == finalizers.len() {
            return;
        }
        let body = strict_patch(&entry.object, json!({"metadata": {"finalizers": rest}}));
        self.patch_workload(key, purpose, body, Vec::new());
    }

    /// Removes a Workload: its finalizer first, then itself.
    pub(crate) fn delete_workload(&mut self, key: &WorkloadKey, then: Vec<Effect>) {
        let Some(entry) = self.world.workloads.get(key) else { return };
        if entry.open.is_some() || entry.retry.waits(self.now) {
            return;
        }
        let held =
            entry.object.metadata.finalizers.iter().flatten().any(|f| f == labels::RESOURCE_IN_USE_FINALIZER);
        if held {
            return self.drop_finalizer(key);
        }
        if entry.deleted || entry.object.metadata.deletion_timestamp.is_some() {
            return;
        }
        let write = Write::Delete { uid: Some(entry.uid()), grace_period_seconds: None, foreground: false };
        let purpose = self.end_of(key, Purpose::DeleteWorkload);
        let id = self.outbox.write(workload_ref(key), purpose, write, then);
        if let Some(entry) = self.world.workloads.get_mut(key) {
            entry.open = Some(id);
        }
    }

    /// The deletion of an object was accepted. Until its watch reports that, it is not deleted again.
    pub(crate) fn note_deletion(&mut self, open: &Open) {
        let of_job = matches!(open.purpose, Purpose::DeleteChild | Purpose::ReplacePart | Purpose::DeleteJob);
        let of_workload = open.object.kind == Kind::Workload && open.deletes;
        if !(of_job || of_workload) || !self.is_about_known(open) {
            return;
        }
        if let Some(entry) = self.world.workloads.get_mut(&workload_key(&open.object)).filter(|_| !of_job) {
            entry.deleted = true;
        }
        let Some(key) = job_key(&open.object).filter(|_| of_job) else { return };
        if let Some(entry) = self.world.jobs.get_mut(&key) {
            Arc::make_mut(&mut entry.view).deleting = true;
        }
        // The job's view is computed from its pods.
        if let Some(parent) = self.world.pod_jobs.get_mut(&key).and_then(|job| job.parent.as_mut()) {
            Arc::make_mut(parent).deleting = true;
        }
    }
}
