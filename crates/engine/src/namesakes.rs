//! Late answers: by the time of an answer its object may have been deleted and replaced by another of the same name. Nothing in such an answer
//! applies to the new object.

use std::sync::Arc;

use sluice_core::Name;

use crate::answers::workload_key;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::input::{Kind, ObjectRef};
use crate::outbox::Open;
use crate::world::job_key;

impl Engine {
    /// The known UID of an object, for kinds that are written to.
    pub(crate) fn uid_of(&self, object: &ObjectRef) -> Option<Name> {
        let world = &self.world;
        let key = || (Arc::clone(&object.namespace), Arc::clone(&object.name));
        match object.kind {
            Kind::Workload => {
                world.workloads.get(&workload_key(object)).map(crate::world::WorkloadEntry::uid)
            }
            Kind::Job(kind) if kind.integration().of_pods => {
                world.member(object).map(|(_, member)| Arc::clone(&member.uid))
            }
            Kind::Job(_) => {
                let key = job_key(object)?;
                let of_set = || world.sets.get(&key).map(|set| Arc::clone(&set.job.uid));
                world.jobs.get(&key).map(|entry| Arc::clone(&entry.view.job.uid)).or_else(of_set)
            }
            Kind::JobPod => world.job_pods.get(&key()).map(|pod| Name::from(&*pod.uid)),
            Kind::Pod => self.terminating_uid(object),
            Kind::ProvisioningRequest => {
                let request = world.provisioning_requests.get(&key())?;
                request.metadata.uid.as_deref().map(Name::from)
            }
            Kind::LocalQueue => world.local_queues.get(&key())?.metadata.uid.as_deref().map(Name::from),
            Kind::Cohort => world.cohorts.get(&object.name)?.metadata.uid.as_deref().map(Name::from),
            _ => self.protected(object)?.uid.as_deref().map(Name::from),
        }
    }

    /// Remembers of the writes that are handed out which objects they are on.
    pub(crate) fn note_uids(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Write(request) = effect {
                let uid = self.uid_of(&request.object);
                self.outbox.amend(request.id, |open| open.uid = uid);
            }
        }
    }

    /// Whether what is known of that name is what a write was on.
    pub(crate) fn is_about_known(&self, open: &Open) -> bool {
        self.uid_of(&open.object) == open.uid
    }
}
