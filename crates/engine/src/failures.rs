//! How an object reports why a write on it, or a write that was to create it, fails.

use std::sync::Arc;

use sluice_api::status_apply::TOPOLOGY_MANAGER;

use crate::effect::Purpose;
use crate::engine::Engine;
use crate::input::{Kind, ObjectRef, WriteError};
use crate::outbox::{About, Open, warning};
use crate::world::{JobKey, job_key, workload_ref};
use crate::{REPORTER_WORKLOAD, answers, provisioning};

impl Engine {
    /// Reports why a write fails on its object, or on the object for which it was to create one.
    pub(crate) fn report_failure(&mut self, open: &Open, error: &WriteError) {
        let creates = answers::creates(open);
        if matches!(error, WriteError::NotFound(_)) && !creates {
            // A deleted object needs no write.
            return;
        }
        let (reason, verb) = match open.purpose {
            _ if creates => ("FailedCreate", "creating"),
            _ if open.deletes => ("FailedDelete", "deleting"),
            Purpose::DeleteWorkload
            | Purpose::DeleteJob
            | Purpose::DeleteChild
            | Purpose::ReplacePart
            | Purpose::DeleteRequest
            | Purpose::DeletePod
            | Purpose::MovePod
            | Purpose::RemovePod => ("FailedDelete", "deleting"),
            Purpose::Read => return,
            _ => ("FailedUpdate", "updating"),
        };
        let Some((subject, uid, reporter)) = self.subject(open) else { return };
        let note = format!("Error {verb} {} {:?}: {error}", open.object.kind.as_str(), open.object.name);
        if self.retry_of(open).is_some_and(|retry| retry.should_report(error, &note)) {
            self.outbox.push(warning(About::new(&subject, &uid, reporter), reason, note));
        }
    }

    /// The object on which a failure is reported: one that exists.
    fn subject(&self, open: &Open) -> Option<(ObjectRef, Arc<str>, &'static str)> {
        let of_job = |key: &JobKey| {
            let view = &self.world.jobs.get(key)?.view;
            let (object, uid) = self.speaker(key, view);
            Some((object, uid, key.kind.integration().reporter))
        };
        if let Some(key) = &open.job {
            return of_job(key);
        }
        let object = &open.object;
        match object.kind {
            Kind::Job(kind) if kind.integration().of_pods => {
                let (_, member) = self.world.member(object)?;
                Some((object.clone(), Arc::clone(&member.uid), kind.integration().reporter))
            }
            Kind::Job(_) => of_job(&job_key(object)?),
            Kind::ProvisioningRequest | Kind::PodTemplate => {
                let key = self.made.owners.get(object)?;
                let entry = self.world.workloads.get(key)?;
                Some((workload_ref(key), entry.uid(), provisioning::REPORTER))
            }
            Kind::JobPod => {
                let known =
                    self.world.job_pods.get(&(Arc::clone(&object.namespace), Arc::clone(&object.name)))?;
                let uid = Arc::from(&*known.uid);
                let reporter = if known.place.is_some() { TOPOLOGY_MANAGER } else { REPORTER_WORKLOAD };
                Some((object.clone(), uid, reporter))
            }
            _ => Some((object.clone(), self.uid_of(object)?, REPORTER_WORKLOAD)),
        }
    }
}
