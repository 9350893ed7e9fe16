//! What manages a job: itself, by its queue name or by the configuration, or a job above it that its owner references lead to.
//!
//! Any user can write an owner reference. It counts only where the owner exists by name in the job's own namespace, with that kind and UID.

use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::config::selector_matches;
use sluice_api::job::{JobKind, JobPodSet, JobView};
use sluice_core::Name;

use super::workload::later;
use crate::effect::{Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::external::parents::ExternalParent;
use crate::ingest::workload::is;
use crate::outbox::normal;
use crate::world::JobKey;

/// How many owners are looked at.
const MAX_NESTING: usize = 10;
/// For so many seconds after a job was made its owner may still have to be seen: jobs of several kinds come by several watches.
pub(crate) const OWNER_WAIT_SECONDS: i64 = 10;

/// What stands above a job.
enum Ancestor {
    /// Nothing that is managed.
    None,
    /// A managed job, by its UID.
    Managed(Name),
    /// An owner of an integrated kind that has not been seen.
    Unknown,
    /// More owners than are looked at.
    TooDeep,
}

/// What manages a job.
pub(crate) enum Standing {
    /// Nothing of ours.
    Unmanaged,
    /// The job has a Workload of its own.
    Own,
    /// It runs on the Workload of the job above it.
    Part {
        /// Its UID.
        of: Name,
        /// Until then, unless its controller names it before; [`Timestamp::MAX`] if that is no question.
        until: Timestamp,
    },
    /// Its owner may yet be seen, until then.
    Unverified(Timestamp),
    /// It has more owners than are looked at.
    TooDeep,
}

impl Engine {
    /// What manages a job now.
    pub(crate) fn standing(&self, view: &JobView) -> Standing {
        let alone = || if self.manages_itself(view) { Standing::Own } else { Standing::Unmanaged };
        match self.ancestor(view) {
            Ancestor::None => alone(),
            Ancestor::Managed(above) => {
                // A job that asks for a queue itself is a part only of one that makes such jobs.
                let until =
                    if self.manages_itself(view) { self.part_until(view) } else { Some(Timestamp::MAX) };
                until.map_or(Standing::Own, |until| Standing::Part { of: above, until })
            }
            Ancestor::Unknown => {
                let until = later(view.created, OWNER_WAIT_SECONDS);
                if until > self.now { Standing::Unverified(until) } else { alone() }
            }
            Ancestor::TooDeep => Standing::TooDeep,
        }
    }

    /// Whether a job runs on the Workload of one above it.
    pub(crate) fn is_part(&self, view: &JobView) -> bool {
        matches!(self.standing(view), Standing::Part { .. })
    }

    /// Whether a job is managed whatever stands above it: because it names a queue, or because all jobs of its namespace are.
    pub(crate) fn manages_itself(&self, view: &JobView) -> bool {
        !view.skipped && self.manages(view.queue_name.is_some(), &view.job.namespace)
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

    /// Until when a job passes for a part of the one that controls it: for good if that one makes such jobs. Where its status is to name them,
    /// that may be seen a little later than the job itself.
    pub(crate) fn part_until(&self, view: &JobView) -> Option<Timestamp> {
        if self.world.external.controller_of(view).is_some() {
            // What the controllers of others make is not known.
            return Some(Timestamp::MAX);
        }
        let above = &self.world.jobs.get(self.parent(view)?)?.view;
        if self.made(above, view).is_some() || above.wraps(view) {
            return Some(Timestamp::MAX);
        }
        // As it was made: it runs only if that was in order.
        let unchanged = view.generation <= 1 && above.job.kind.names_parts_of(view.job.kind);
        let until = later(view.created, OWNER_WAIT_SECONDS);
        (unchanged && until > self.now).then_some(until)
    }

    /// The pod sets of the job `above` that a job which it controls plays.
    pub(crate) fn made<'a>(&self, above: &'a JobView, part: &JobView) -> Option<&'a [JobPodSet]> {
        let named = || self.world.jobs.get(&JobKey::of(&part.job)).is_some_and(|entry| entry.named);
        above.made(part).or_else(|| named().then_some(&above.pod_sets[..]))
    }

    /// Remembers that the status of the job that controls this one has named it.
    pub(super) fn remember_name(&mut self, key: &JobKey, view: &JobView) {
        let above = self.parent(view).and_then(|key| self.world.jobs.get(key));
        let named = above.is_some_and(|above| {
            above.view.job.kind.names_parts_of(view.job.kind) && above.view.made(view).is_some()
        });
        if named && let Some(entry) = self.world.jobs.get_mut(key) {
            entry.named = true;
        }
    }

    /// The managed job above a job, if there is one. One that was made by a managed job itself has no Workload: that one has.
    fn ancestor(&self, view: &JobView) -> Ancestor {
        let mut found = None;
        let none = |found| if let Some(uid) = found { Ancestor::Managed(uid) } else { Ancestor::None };
        let mut controller = view.controller.as_ref();
        for _ in 0..MAX_NESTING {
            let Some(owner) = controller else { return none(found) };
            let external = &self.config.external;
            let kind = JobKind::from_owner_or(external, &owner.api_version, &owner.kind);
            let Some(kind) = kind.filter(|kind| self.config.knows(*kind) || external.contains(kind)) else {
                return none(found);
            };
            let namespace = Arc::clone(&view.job.namespace);
            let key = JobKey { kind, namespace, name: owner.name.as_str().into(), group: None };
            let above = self.world.jobs.get(&key).map(|entry| &entry.view);
            if let Some(above) = above.filter(|above| *above.job.uid == *owner.uid) {
                if self.manages_itself(above) {
                    found = Some(Arc::clone(&above.job.uid));
                    if self.part_until(above).is_none() {
                        return none(found);
                    }
                }
                controller = above.controller.as_ref();
            } else if let Some(above) = self.world.external.get(&key, &owner.uid) {
                if self.manages(above.queued, &key.namespace) {
                    found = Some(Arc::clone(&above.uid));
                    if !self.is_below_its_maker(&key, above) {
                        return none(found);
                    }
                }
                controller = above.controller.as_ref();
            } else {
                return if found.is_some() { none(found) } else { Ancestor::Unknown };
            }
        }
        if found.is_some() { none(found) } else { Ancestor::TooDeep }
    }

    /// Whether what controls an object that others manage may have made it: another one of these, or a job that wraps it.
    fn is_below_its_maker(&self, key: &JobKey, parent: &ExternalParent) -> bool {
        let Some(owner) = &parent.controller else { return false };
        let external =
            self.config.external.iter().any(|kind| kind.is_named_by(&owner.api_version, &owner.kind));
        let above = self.world.job_by_uid.get(owner.uid.as_str()).and_then(|key| self.world.jobs.get(key));
        external || above.is_some_and(|above| above.view.wraps_object(key.kind, &key.name))
    }

    /// Keeps the part of a managed job suspended until that job's workload is admitted. It has no Workload of its own.
    pub(super) fn hold_child(&mut self, key: &JobKey, view: &Arc<JobView>, ancestor: &str) {
        // Those in other namespaces only claim to be its.
        let owned = self.world.owned(ancestor);
        let admitted = owned.iter().filter(|w| w.namespace == key.namespace).any(|w| {
            let status = &self.world.workloads[w].object.status;
            is(status, Type::Admitted) && !is(status, Type::Finished)
        });
        // What a kind that makes no jobs makes once it is being deleted cleans up after it, and lets it go.
        let parent = self.parent(view).and_then(|key| self.world.jobs.get(key));
        let cleans_up =
            parent.is_some_and(|parent| parent.view.deleting && !parent.view.job.kind.makes_jobs());
        // One with more pods than the job above has quota for is none that its controller made.
        let exceeds = |parent: &JobView| {
            parent.is_exceeded_by(view, self.is_elastic(parent))
                || self.exceeds_admitted(parent, view)
                || parent.exceeded_by_wrapped(view).is_some()
        };
        let exceeds = parent.is_some_and(|parent| exceeds(&parent.view));
        if admitted && exceeds && !view.suspended && self.replace_exceeding(key, view) {
            return;
        }
        let admitted = admitted && !exceeds;
        if admitted && let Some(entry) = self.world.jobs.get_mut(key) {
            entry.suspend_is_not_refused();
        }
        // What is being deleted gets no more pods, and its controller does not look at it otherwise.
        if admitted || cleans_up || view.suspended || view.finished.is_some() || view.deleting {
            for workload in self.world.owned(&view.job.uid) {
                self.delete_workload(&workload, Vec::new());
            }
            return;
        }
        if view.stopping {
            // What was begun while its ancestor was admitted.
            return self.stop_job(key, view, Vec::new(), "", &[]);
        }
        if self.delete_unstoppable(key, view) {
            return;
        }
        let note = "Kueue managed child job suspended";
        let reported = normal(self.about_job(key, view), "Suspended", note);
        let write = Write::SuspendJob { view: Arc::clone(view) };
        self.write_job(key, Purpose::SuspendJob, write, vec![reported]);
    }

    /// Looks at a job again when the time for its owner to be seen is over.
    pub(super) fn wait_for_owner(&mut self, key: &JobKey, until: Timestamp) {
        self.wake_at(until, Alarm::Job(key.clone()));
    }
}
