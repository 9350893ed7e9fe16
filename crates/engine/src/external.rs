//! Parents that others manage (docs/reference/07-integrations.md 7.2, "External frameworks"): objects of the kinds in
//! `integrations.externalFrameworks`.
//!
//! Their controllers make Workloads for them, which are queued like all others. Nothing is made for them here, and nothing is written to them:
//! they are known so that jobs below them are told from jobs that only name an owner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_api::job::{ControllerRef, JobView};
use sluice_api::slim;
use sluice_core::Name;

use crate::engine::Engine;
use crate::version::{Seen, compare};
use crate::world::{JobKey, controller};

/// How many parents, one above the other, are looked through for the jobs below.
const MAX_NESTING: usize = 10;

/// What is known of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExternalParent {
    /// Its UID.
    pub uid: Name,
    /// The version in which it was seen.
    resource_version: String,
    /// Whether it names a queue.
    pub queued: bool,
    /// Its own controller.
    pub controller: Option<ControllerRef>,
}

impl From<&JobView> for ExternalParent {
    fn from(view: &JobView) -> Self {
        Self {
            uid: Arc::clone(&view.job.uid),
            resource_version: view.resource_version.clone(),
            queued: view.queue_name.is_some(),
            controller: view.controller.clone(),
        }
    }
}

/// All that were seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExternalParents {
    all: BTreeMap<JobKey, ExternalParent>,
    by_uid: BTreeMap<Name, JobKey>,
    /// By the UID of their controller.
    below: BTreeMap<Name, BTreeSet<JobKey>>,
}

impl ExternalParents {
    /// The one of this name, if it has this UID.
    pub fn get(&self, key: &JobKey, uid: &str) -> Option<&ExternalParent> {
        self.all.get(key).filter(|parent| *parent.uid == *uid)
    }

    /// The object that controls a job, if it is one of them: by kind, name and UID, in the namespace of the job.
    pub fn controller_of(&self, view: &JobView) -> Option<&ExternalParent> {
        let owner = view.controller.as_ref()?;
        let key = self.by_uid.get(owner.uid.as_str())?;
        let named = key.namespace == view.job.namespace
            && *key.name == *owner.name
            && key.kind.is_named_by(&owner.api_version, &owner.kind);
        self.all.get(key).filter(|_| named)
    }

    /// Their names.
    pub fn keys(&self) -> impl Iterator<Item = &JobKey> {
        self.all.keys()
    }

    fn put(&mut self, key: JobKey, parent: ExternalParent) {
        self.take(&key, None);
        self.by_uid.insert(Arc::clone(&parent.uid), key.clone());
        if let Some(owner) = &parent.controller {
            self.below.entry(Name::from(owner.uid.as_str())).or_default().insert(key.clone());
        }
        self.all.insert(key, parent);
    }

    /// Takes one out, unless another one has its name by now.
    fn take(&mut self, key: &JobKey, uid: Option<&str>) -> Option<ExternalParent> {
        self.all.get(key).filter(|known| uid.is_none_or(|uid| *known.uid == *uid))?;
        let parent = self.all.remove(key)?;
        self.by_uid.remove(&parent.uid);
        if let Some(owner) = &parent.controller
            && let Some(set) = self.below.get_mut(owner.uid.as_str())
        {
            set.remove(key);
            if set.is_empty() {
                self.below.remove(owner.uid.as_str());
            }
        }
        Some(parent)
    }

    /// The UIDs of an object and of those below it.
    fn with_those_below(&self, uid: &Name) -> BTreeSet<Name> {
        let mut found = BTreeSet::from([Arc::clone(uid)]);
        let mut level = vec![Arc::clone(uid)];
        for _ in 0..MAX_NESTING {
            let keys = level.iter().filter_map(|uid| self.below.get(uid)).flatten();
            let uids = keys.filter_map(|key| Some(Arc::clone(&self.all.get(key)?.uid)));
            level = uids.filter(|uid| found.insert(Arc::clone(uid))).collect();
        }
        found
    }
}

impl Engine {
    /// Takes in an object of a kind that others manage.
    pub(crate) fn observe_external(&mut self, view: &JobView) {
        let key = JobKey::of(&view.job);
        let parent = ExternalParent::from(view);
        let known = self.world.external.get(&key, &view.job.uid);
        if let Some(known) = known
            && compare(Some(&known.resource_version), Some(&parent.resource_version)) == Seen::Older
        {
            return;
        }
        // Most changes are of what does not matter here.
        let matters = known
            .is_none_or(|known| (known.queued, &known.controller) != (parent.queued, &parent.controller));
        // One of that name before: jobs below it have no parent any more.
        if known.is_none() {
            self.forget_external(&key, None);
        }
        self.world.external.put(key, parent);
        if matters {
            self.mark_below(&view.job.uid);
        }
    }

    /// Takes in that an object of a kind that others manage is gone.
    pub(crate) fn forget_external(&mut self, key: &JobKey, uid: Option<&str>) {
        if let Some(gone) = self.world.external.take(key, uid) {
            self.mark_below(&gone.uid);
        }
    }

    /// The UID of the object that a Workload belongs to, if others manage that.
    pub(crate) fn external_owner(&self, workload: &slim::Workload) -> Option<Name> {
        let known = &self.world.external.by_uid;
        let (uid, _) = known.get_key_value(controller(workload)?.uid.as_str())?;
        Some(Arc::clone(uid))
    }

    /// Marks the jobs below an object that others manage.
    pub(crate) fn mark_below(&mut self, uid: &Name) {
        for above in self.world.external.with_those_below(uid) {
            self.dirty.jobs.extend(self.world.children.get(&above).into_iter().flatten().cloned());
        }
    }
}
