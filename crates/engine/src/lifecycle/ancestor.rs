//! What manages a job: the job itself, by its queue name or by the configuration, or a job above it in its owner references.
//!
//! Any user can write an owner reference. It counts only where the owner exists by name in the job's own namespace, with that kind and UID.

use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::config::selector_matches;
use sluice_api::job::{JobKind, JobPodSet, JobView, PodScheduling, PodSetInfo};
use sluice_api::labels;
use sluice_core::{Name, WorkloadKey};

use super::workload::later;
use crate::effect::{Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::external::parents::ExternalParent;
use crate::ingest::workload::{is, reserved};
use crate::input::ObjectRef;
use crate::outbox::normal;
use crate::world::JobKey;

/// How many owners are looked at.
const MAX_NESTING: usize = 10;
/// For how many seconds after a job's creation its owner may still be unseen: jobs of several kinds come by several watches.
pub(crate) const OWNER_WAIT_SECONDS: i64 = 10;

/// What is above a job.
enum Ancestor {
    /// No managed job.
    None,
    /// A managed job.
    Managed {
        /// Its UID.
        uid: Name,
        /// Whether a job in between is not one that the job above it could have made.
        claimed: bool,
    },
    /// An owner of an integrated kind that has not been seen.
    Unknown,
    /// More owners than are looked at.
    TooDeep,
}

/// The managed job that a job is a part of, and on whose quota it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Its kind; possibly one that another controller manages.
    pub kind: JobKind,
    /// Its name, in the namespace of the part.
    pub name: Name,
    /// The name of its Workload, if it has one.
    pub workload: Option<Name>,
}

/// What manages a job.
pub(crate) enum Standing {
    /// Not managed by Sluice.
    Unmanaged,
    /// The job has a Workload of its own.
    Own,
    /// It runs on the Workload of the job above it.
    Part {
        /// Its UID.
        of: Name,
        /// Until this time, unless its controller names it before; [`Timestamp::MAX`] if that is certain.
        until: Timestamp,
        /// Whether it only says so: it does not run on that Workload where it would have been queued without an owner.
        claimed: bool,
    },
    /// Its owner may yet be seen, until then.
    Unverified(Timestamp),
    /// It has more levels of owners than are looked at, and no Workload.
    TooDeep,
}

impl Engine {
    /// What manages a job now.
    pub(crate) fn standing(&self, view: &JobView) -> Standing {
        let alone = || if self.manages_itself(view) { Standing::Own } else { Standing::Unmanaged };
        match self.ancestor(view) {
            Ancestor::None => alone(),
            // A job that names a queue itself is a part only of a job that makes such jobs.
            Ancestor::Managed { claimed: true, .. } if self.manages_itself(view) => Standing::Own,
            Ancestor::Managed { uid: of, claimed } => {
                let until = self.part_until(view).unwrap_or(Timestamp::MAX);
                Standing::Part { of, until, claimed }
            }
            Ancestor::Unknown => {
                let until = later(view.created, OWNER_WAIT_SECONDS);
                if until > self.now { Standing::Unverified(until) } else { alone() }
            }
            // It was queued by itself before its user wrote such owners: it is stopped, ends and gives its quota back like any other.
            Ancestor::TooDeep if !self.world.owned(&view.job.uid).is_empty() => alone(),
            Ancestor::TooDeep => Standing::TooDeep,
        }
    }

    /// The job that a job is a part of, if it has no Workload for that reason.
    pub fn whole_of(&self, job: &ObjectRef) -> Option<Whole> {
        let entry = self.world.jobs.get(&self.world.job_key(job)?)?;
        let Standing::Part { of, .. } = self.standing(&entry.view) else { return None };
        let key = self.world.job_by_uid.get(&of).or_else(|| self.world.external.key(&of))?;
        // The newest, if it grows by slices.
        let workload = self.world.owned(&of).into_iter().rfind(|w| w.namespace == key.namespace);
        Some(Whole { kind: key.kind, name: Arc::clone(&key.name), workload: workload.map(|key| key.name) })
    }

    /// Whether a job runs on the Workload of a job above it.
    pub(crate) fn is_part(&self, view: &JobView) -> bool {
        matches!(self.standing(view), Standing::Part { .. })
    }

    /// Whether a job is managed whatever stands above it: because it names a queue, or because all jobs of its namespace are. What it made for itself
    /// runs on its quota: so it is managed as long as it has that, whatever it is turned into, and whether or not it names a queue while it is being
    /// deleted, when the webhook refuses nothing.
    pub(crate) fn manages_itself(&self, view: &JobView) -> bool {
        let holds = |workload: &WorkloadKey| {
            let status = self.world.workloads[workload].status();
            reserved(status) && !is(status, Type::Finished)
        };
        let has_quota = || self.world.owned(&view.job.uid).iter().any(holds);
        let queued = view.queue_name.is_some() || view.deleting && has_quota();
        (!view.skipped || has_quota()) && self.manages(queued, &view.job.namespace)
    }

    /// Whether an object is managed that names a queue, or does not.
    pub(crate) fn manages(&self, queued: bool, namespace: &str) -> bool {
        queued || self.config.manage_jobs_without_queue_name && self.manages_namespace(namespace)
    }

    /// Whether jobs of a namespace are managed.
    pub(super) fn manages_namespace(&self, namespace: &str) -> bool {
        let Some(wanted) = &self.config.managed_jobs_namespace_selector else { return true };
        let Some(namespace) = self.world.namespaces.get(namespace) else { return false };
        selector_matches(wanted, &namespace.metadata.labels.clone().unwrap_or_default())
    }

    /// Whether a new job that names no queue gets one in this namespace.
    fn has_default_queue(&self, namespace: &Name) -> bool {
        let queue = (Arc::clone(namespace), labels::DEFAULT_LOCAL_QUEUE.into());
        self.world.local_queues.contains_key(&queue) && self.manages_namespace(namespace)
    }

    /// Until when a job counts as a part of its controller: for good if the controller makes such jobs. If the controller's status should name them,
    /// it may do so a little after the job is seen.
    pub(crate) fn part_until(&self, view: &JobView) -> Option<Timestamp> {
        if self.world.external.controller_of(view).is_some() {
            // It is not known what other controllers make.
            return Some(Timestamp::MAX);
        }
        let above = &self.world.jobs.get(self.parent(view)?)?.view;
        if self.made(above, view).is_some() || self.is_wrapped(above, view) || above.is_cleaned_up_by(view) {
            return Some(Timestamp::MAX);
        }
        // As it was made: it runs only if that was in order.
        let unchanged = view.generation <= 1 && above.job.kind.names_parts_of(view.job.kind);
        let until = later(view.created, OWNER_WAIT_SECONDS);
        (unchanged && until > self.now).then_some(until)
    }

    /// Whether a job is a part of its controller, as far as that can be known. It is not known what the controllers of declared kinds make, and a
    /// part that its job no longer names is about to be deleted: neither is a job of its own unless it names a queue.
    fn is_believed(&self, view: &JobView) -> bool {
        let parent =
            self.parent(view).and_then(|key| self.world.jobs.get(key)).map(|entry| entry.view.job.kind);
        let not_known = |kind: JobKind| kind.integration().declared || kind.names_parts_of(view.job.kind);
        // Pods are identified by their marks instead.
        let not_asked = || view.job.kind.integration().of_pods || parent.is_some_and(not_known);
        self.part_until(view).is_some() || !self.manages_itself(view) && not_asked()
    }

    /// Whether a job is one of the objects that its controller wraps. If the API server generates the rest of a name, jobs whose names begin right
    /// count, the oldest first, up to the number of such objects.
    pub(super) fn is_wrapped(&self, above: &JobView, view: &JobView) -> bool {
        let Some(most) = above.wraps_by_prefix(view.job.kind, &view.job.name) else {
            return above.wraps_object(view.job.kind, &view.job.name);
        };
        let age = |view: &JobView| (view.created, Arc::clone(&view.job.uid));
        let is_older = |other: &JobView| {
            let by_prefix = above.wraps_by_prefix(view.job.kind, &other.job.name).is_some();
            // A finalizer of its user may keep it, and its pods run on.
            let goes = other.deleting && !other.active;
            other.job.kind == view.job.kind && by_prefix && !goes && age(other) < age(view)
        };
        let siblings = self.children_of(&above.job.namespace, &above.job.uid);
        siblings.filter(|sibling| is_older(&sibling.view)).count() < most
    }

    /// The pod sets of the job `above` that a job which it controls plays.
    pub(crate) fn made<'a>(&self, above: &'a JobView, part: &JobView) -> Option<&'a [JobPodSet]> {
        let named = || self.world.jobs.get(&JobKey::of(&part.job)).is_some_and(|entry| entry.named);
        above.made(part).or_else(|| named().then_some(&above.pod_sets[..]))
    }

    /// Whether a job cleans up after its controller, which is being deleted: it may run without quota. If it requests more than KubeRay lets it, it may
    /// where jobs that name no queue run anyway.
    pub(crate) fn cleans_up(&self, view: &JobView) -> bool {
        let Some(above) = self.parent(view).and_then(|key| self.world.jobs.get(key)) else { return false };
        let above = &above.view;
        let called = above.job.kind.is_cleaned_up_by(&above.job.name, (view.job.kind, &view.job.name));
        let is_free = || !self.manages_itself(view) && !self.has_default_queue(&view.job.namespace);
        above.is_cleaned_up_by(view) || called && above.deleting && is_free()
    }

    /// Remembers that the status of the job's controller has named it.
    pub(super) fn remember_name(&mut self, key: &JobKey, view: &JobView) {
        let above = self.parent(view).and_then(|key| self.world.jobs.get(key));
        let named = above.is_some_and(|above| {
            above.view.job.kind.names_parts_of(view.job.kind) && above.view.made(view).is_some()
        });
        if named && let Some(entry) = self.world.jobs.get_mut(key) {
            entry.named = true;
        }
    }

    /// The managed job above a job, if there is one. A job made by a managed job has no Workload of its own.
    fn ancestor(&self, view: &JobView) -> Ancestor {
        let (mut found, mut claimed) = (None, false);
        let none = |found, claimed| match found {
            Some(uid) => Ancestor::Managed { uid, claimed },
            None => Ancestor::None,
        };
        let mut part = Some(view);
        let mut controller = view.controller.as_ref();
        for _ in 0..MAX_NESTING {
            let Some(owner) = controller else { return none(found, claimed) };
            let external = &self.config.external;
            let kind = JobKind::from_owner_or(external, &owner.api_version, &owner.kind);
            let Some(kind) = kind.filter(|kind| self.config.knows(*kind) || external.contains(kind)) else {
                return none(found, claimed);
            };
            let namespace = Arc::clone(&view.job.namespace);
            let key = JobKey { kind, namespace, name: owner.name.as_str().into(), group: None };
            let above = self.world.jobs.get(&key).map(|entry| &entry.view);
            if let Some(above) = above.filter(|above| *above.job.uid == *owner.uid) {
                if above.job.uid == view.job.uid {
                    // No controller made it below itself.
                    return none(found, true);
                }
                if part.is_some_and(|part| !self.is_believed(part)) {
                    if found.is_some() {
                        return none(found, claimed);
                    }
                    claimed = true;
                }
                if self.manages_itself(above) {
                    found = Some(Arc::clone(&above.job.uid));
                }
                part = Some(above);
                controller = above.controller.as_ref();
            } else if let Some(above) = self.world.external.get(&key, &owner.uid) {
                if self.manages(above.queued, &key.namespace) {
                    found = Some(Arc::clone(&above.uid));
                    if !self.is_below_its_maker(&key, above) {
                        return none(found, claimed);
                    }
                }
                part = None;
                controller = above.controller.as_ref();
            } else if found.is_some() {
                return none(found, claimed);
            } else {
                let uid = Name::from(owner.uid.as_str());
                let is_later = |since| later(view.created, OWNER_WAIT_SECONDS) > since;
                let made_later = self.gone_since(&uid).is_some_and(is_later);
                return if made_later { Ancestor::Managed { uid, claimed } } else { Ancestor::Unknown };
            }
        }
        if found.is_some() { none(found, claimed) } else { Ancestor::TooDeep }
    }

    /// When the managed job that made jobs was deleted, if that is not long ago.
    fn gone_since(&self, uid: &Name) -> Option<Timestamp> {
        self.gone.since(uid).filter(|_| !self.world.job_by_uid.contains_key(uid))
    }

    /// Remembers a managed job that goes: its controller may be behind, and make a job below it. What was made before it went ends with it, on its
    /// quota.
    pub(super) fn note_gone(&mut self, key: &JobKey) {
        let Some(entry) = self.world.jobs.get(key).filter(|_| key.kind.makes_jobs()) else { return };
        let view = Arc::clone(&entry.view);
        let above = view.controller.as_ref().map(|owner| owner.uid.as_str());
        let is_managed = self.manages_itself(&view)
            || !self.world.owned(&view.job.uid).is_empty()
            || above.is_some_and(|uid| self.gone.since(uid).is_some())
            || self.is_part(&view);
        if is_managed {
            self.gone.note(&view.job.uid, self.now);
        }
    }

    /// Whether the controller of an object that others manage may have made it: another such object, or a job that wraps it.
    fn is_below_its_maker(&self, key: &JobKey, parent: &ExternalParent) -> bool {
        let Some(owner) = &parent.controller else { return false };
        let external =
            self.config.external.iter().any(|kind| kind.is_named_by(&owner.api_version, &owner.kind));
        let above = self.world.job_by_uid.get(owner.uid.as_str()).and_then(|key| self.world.jobs.get(key));
        external || above.is_some_and(|above| above.view.wraps_object(key.kind, &key.name))
    }

    /// Whether the Workload of the job above lets a part in this namespace run.
    pub(crate) fn is_admitted_above(&self, namespace: &Name, ancestor: &str, claimed: bool) -> bool {
        // Jobs in other namespaces only claim to be its parts.
        let owned = self.world.owned(ancestor);
        let admitted = owned.iter().filter(|w| w.namespace == *namespace).any(|w| {
            let status = &self.world.workloads[w].object.status;
            is(status, Type::Admitted) && !is(status, Type::Finished)
        });
        let is_queued_otherwise = claimed && self.has_default_queue(namespace);
        // Its Workload may still be there for pods that were made before.
        admitted && !is_queued_otherwise && self.gone_since(&Name::from(ancestor)).is_none()
    }

    /// Whether a part has more pods than the job that controls it has quota for, or runs elsewhere: that job's controller did not make it so.
    pub(crate) fn exceeds_its_job(&self, view: &JobView, ancestor: &str) -> bool {
        let Some(parent) = self.parent(view).and_then(|key| self.world.jobs.get(key)) else { return false };
        let parent = &parent.view;
        parent.is_exceeded_by(view, self.is_elastic(parent))
            || self.exceeds_admitted(parent, view)
            || parent.exceeded_by_wrapped(view).is_some()
            || self.part_off_its_flavors(parent, view, ancestor)
    }

    /// The part of the same job on whose quota a part has to wait.
    pub(crate) fn waits_for(&self, view: &JobView) -> Option<Name> {
        let parent = self.parent(view).and_then(|key| self.world.jobs.get(key))?;
        self.runs_before(&parent.view, view)
    }

    /// Keeps the part of a managed job suspended until that job's workload is admitted. It has no Workload of its own.
    pub(super) fn hold_child(&mut self, key: &JobKey, view: &Arc<JobView>, ancestor: &str, claimed: bool) {
        let admitted = self.is_admitted_above(&key.namespace, ancestor, claimed);
        // Nothing managed it before. What must not run is stopped first.
        if view.slim && (admitted || view.suspended) {
            return self.read_job(key);
        }
        let cleans_up = self.cleans_up(view);
        let (exceeds, waits_for) = (self.exceeds_its_job(view, ancestor), self.waits_for(view));
        if admitted && exceeds && !view.suspended && self.replace_exceeding(key, view) {
            return;
        }
        let admitted = admitted && !exceeds && waits_for.is_none();
        if admitted && let Some(entry) = self.world.jobs.get_mut(key) {
            entry.suspend_is_not_refused();
        }
        // A job that is being deleted gets no more pods, and its controller does not look at it otherwise.
        let ends = view.finished.is_some() || view.deleting;
        if admitted || cleans_up || view.suspended || ends {
            for workload in self.world.owned(&view.job.uid) {
                self.delete_workload(&workload, Vec::new());
            }
            if cleans_up && view.suspended && !ends {
                self.resume_clean_up(key, view);
            }
            return;
        }
        if view.stopping {
            // A stop that was begun while its ancestor was admitted.
            return self.stop_job(key, view, Vec::new(), "", &[]);
        }
        if self.delete_unstoppable(key, view) {
            return;
        }
        let mut note = "Kueue managed child job suspended".to_owned();
        if let Some(other) = waits_for.filter(|_| !exceeds) {
            note = format!("{note}: its job has quota for one at a time, and {:?} runs on it", &*other);
        }
        let reported = normal(self.about_job(key, view), "Suspended", note);
        let write = Write::SuspendJob { view: Arc::clone(view) };
        self.write_job(key, Purpose::SuspendJob, write, vec![reported]);
    }

    /// Resumes a job that cleans up after its controller: it was suspended before the deletion was seen, and nothing else resumes it.
    fn resume_clean_up(&mut self, key: &JobKey, view: &Arc<JobView>) {
        let info = |set: &JobPodSet| PodSetInfo {
            name: set.name.clone(),
            count: set.count,
            scheduling: PodScheduling::default(),
        };
        let infos = view.pod_sets.iter().map(info).collect();
        let note = "It needs no quota: it cleans up after its controller, which is being deleted";
        let reported = normal(self.about_job(key, view), "Started", note);
        let write = Write::StartJob { view: Arc::clone(view), infos };
        self.write_job(key, Purpose::StartJob, write, vec![reported]);
    }

    /// Looks at a job again when its owner should have been seen.
    pub(super) fn wait_for_owner(&mut self, key: &JobKey, until: Timestamp) {
        self.wake_at(until, Alarm::Job(key.clone()));
    }
}
