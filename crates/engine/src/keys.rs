//! The names of jobs.

use std::sync::Arc;

use sluice_api::job::{JobKind, JobRef};
use sluice_core::Name;

use crate::input::{Kind, ObjectRef};

/// The key of a reference to a job.
pub(crate) fn job_key(object: &ObjectRef) -> Option<JobKey> {
    let Kind::Job(kind) = object.kind else { return None };
    let (namespace, name) = (Arc::clone(&object.namespace), Arc::clone(&object.name));
    Some(JobKey { kind, namespace, name, group: None })
}

/// Names a job by where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobKey {
    /// Its kind.
    pub kind: JobKind,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Which group of the object's pods it is, if each of them is a job.
    pub group: Option<u32>,
}

impl JobKey {
    /// The key of a job.
    pub fn of(job: &JobRef) -> Self {
        let (namespace, name) = (Arc::clone(&job.namespace), Arc::clone(&job.name));
        Self { kind: job.kind, namespace, name, group: job.group }
    }

    /// The reference to the job's object.
    pub fn object(&self) -> ObjectRef {
        ObjectRef::namespaced(Kind::Job(self.kind), Arc::clone(&self.namespace), Arc::clone(&self.name))
    }
}

/// The UID of a group of pods, which has no object.
pub(crate) fn pod_group_uid(namespace: &str, group: &str) -> String {
    format!("group/{namespace}/{group}")
}
