//! What the engine knows of one workload, taken out of it: for explanations that are made elsewhere.

use sluice_api::conditions::{self, WorkloadCondition};
use sluice_api::job::JobKind;
use sluice_core::{Name, PendingPosition, Unadmitted, WorkloadKey};

use crate::changes::Change;
use crate::engine::Engine;
use crate::input::{Kind, ObjectRef};
use crate::world::{JobKey, WorkloadEntry, workload_ref};

/// How far a workload has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has no admission.
    Waiting,
    /// It is admitted.
    Admitted,
    /// It is over.
    Finished,
}

/// A workload as the engine sees it now.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The Workload.
    pub workload: ObjectRef,
    /// The LocalQueue that it names.
    pub local_queue: String,
    /// How far it has come.
    pub stage: Stage,
    /// Reason and message of its condition `QuotaReserved`, while that is not true.
    pub condition: Option<(String, String)>,
    /// Its place in its queue, if it is in one.
    pub position: Option<PendingPosition>,
    /// Who is ahead of it there, the next first.
    pub ahead: Vec<WorkloadKey>,
    /// Why it was not admitted when it was last tried.
    pub decision: Option<Unadmitted>,
    /// How its queues, Cohorts and flavors changed since it was made, as far as the engine saw that, oldest first.
    pub changes: Vec<Change>,
}

impl Engine {
    /// The account of a Workload, or of a job's Workload, with at most `most` of those ahead of it.
    ///
    /// `kind` says what the name is one of; without it a Workload of that name comes first.
    pub fn account(&self, kind: Option<Kind>, namespace: &str, name: &str, most: usize) -> Option<Account> {
        let own = || Some(WorkloadKey::new(namespace, name)).filter(|k| self.world.workloads.contains_key(k));
        let of_job = |kind: JobKind| {
            let key = JobKey { kind, namespace: namespace.into(), name: name.into() };
            let uid = &self.world.jobs.get(&key)?.view.job.uid;
            self.world.owned(uid).pop()
        };
        let key = match kind {
            Some(Kind::Workload) => own(),
            Some(Kind::Job(kind)) => of_job(kind),
            Some(_) => None,
            None => own().or_else(|| JobKind::ALL.into_iter().find_map(of_job)),
        }?;
        let entry = self.world.workloads.get(&key)?;
        let position = self.scheduler.position(&key);
        let ahead = position.as_ref().map(|own| {
            let all = self.scheduler.positions(&own.cluster_queue);
            let before = all.into_iter().filter(|p| p.in_cluster_queue < own.in_cluster_queue);
            before.take(most).map(|p| p.key).collect()
        });
        let made = entry.object.metadata.creation_timestamp.as_ref().map_or(jiff::Timestamp::MIN, |t| t.0);
        Some(Account {
            workload: workload_ref(&key),
            local_queue: entry.object.spec.queue_name.clone(),
            stage: stage(entry),
            condition: waits_for(entry),
            position,
            ahead: ahead.unwrap_or_default(),
            decision: self.scheduler.last_decision(&key).cloned(),
            changes: self.changes_for(&key.namespace, &Name::from(&*entry.object.spec.queue_name), made),
        })
    }
}

fn stage(entry: &WorkloadEntry) -> Stage {
    let is = |of: WorkloadCondition| conditions::is_true(&entry.status().conditions, of.as_str());
    if is(WorkloadCondition::Finished) {
        Stage::Finished
    } else if is(WorkloadCondition::Admitted) {
        Stage::Admitted
    } else {
        Stage::Waiting
    }
}

fn waits_for(entry: &WorkloadEntry) -> Option<(String, String)> {
    let found = conditions::find(&entry.status().conditions, WorkloadCondition::QuotaReserved.as_str())?;
    (found.status != "True").then(|| (found.reason.clone(), found.message.clone()))
}
