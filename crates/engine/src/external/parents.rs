//! What is known of parents that other controllers manage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_api::job::{ControllerRef, JobView};
use sluice_core::Name;

use crate::keys::JobKey;

/// How many levels of parents are searched for the jobs below.
const MAX_NESTING: usize = 10;

/// What is known of a parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExternalParent {
    /// Its UID.
    pub uid: Name,
    /// The version of the object that was seen.
    pub resource_version: String,
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
    /// The parent of this name, if it has this UID.
    pub fn get(&self, key: &JobKey, uid: &str) -> Option<&ExternalParent> {
        self.all.get(key).filter(|parent| *parent.uid == *uid)
    }

    /// The parent that controls a job, if there is one: by kind, name and UID, in the namespace of the job.
    pub fn controller_of(&self, view: &JobView) -> Option<&ExternalParent> {
        let owner = view.controller.as_ref()?;
        let key = self.by_uid.get(owner.uid.as_str())?;
        let named = key.namespace == view.job.namespace
            && *key.name == *owner.name
            && key.kind.is_named_by(&owner.api_version, &owner.kind);
        self.all.get(key).filter(|_| named)
    }

    /// The UID, if a parent has it.
    pub fn uid(&self, uid: &str) -> Option<Name> {
        let (uid, _) = self.by_uid.get_key_value(uid)?;
        Some(Arc::clone(uid))
    }

    /// The name of the parent with this UID.
    pub fn key(&self, uid: &str) -> Option<&JobKey> {
        self.by_uid.get(uid)
    }

    /// Their names.
    pub fn keys(&self) -> impl Iterator<Item = &JobKey> {
        self.all.keys()
    }

    /// Adds a parent, in place of one with the same name.
    pub fn put(&mut self, key: JobKey, parent: ExternalParent) {
        self.take(&key, None);
        self.by_uid.insert(Arc::clone(&parent.uid), key.clone());
        if let Some(owner) = &parent.controller {
            self.below.entry(Name::from(owner.uid.as_str())).or_default().insert(key.clone());
        }
        self.all.insert(key, parent);
    }

    /// Removes a parent, unless another one has its name by now.
    pub fn take(&mut self, key: &JobKey, uid: Option<&str>) -> Option<ExternalParent> {
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
    pub fn with_those_below(&self, uid: &Name) -> BTreeSet<Name> {
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
