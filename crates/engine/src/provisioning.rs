//! The controller of AdmissionChecks `kueue.x-k8s.io/provisioning-request` (docs/reference/06-algorithm.md 6.23): it asks the cluster
//! autoscaler for nodes, and says whether they are there.
//!
//! * [`names`]: names of ProvisioningRequests and PodTemplates; [`plan`]: what is asked for; [`verdict`]: what an answer
//!   means for the check; [`template`]: the PodTemplate of a pod set. All four are pure.
//! * [`controller`]: what a Workload's checks need next; [`parameters`]: whether a check's parameters exist;
//!   [`seen`]: the objects as they were seen.
//!
//! Deviations (tests/compat/deviations.md): a request that waits for the provider's quota says so in the check's message;
//! a request that has its nodes, or whose Workload is admitted, is never deleted because its configuration changed, and none
//! is made for a Workload that is admitted.

pub(crate) mod controller;
pub(crate) mod names;
pub(crate) mod parameters;
pub(crate) mod plan;
pub(crate) mod seen;
pub mod template;
pub(crate) mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::WorkloadKey;

use crate::input::ObjectRef;

/// The reporter of its events (docs/reference/03-conditions-events.md 3.6).
pub(crate) const REPORTER: &str = "kueue-provisioning-request-controller";

/// How the API server refuses to make an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refused {
    /// How often in a row, not for want of rights.
    pub count: u8,
    /// The text of the last one.
    pub text: Box<str>,
}

/// What is known of the objects that were created for Workloads, besides what is watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    /// The Workload and check of each object that was written.
    pub owners: BTreeMap<ObjectRef, WorkloadKey>,
    /// PodTemplates that exist.
    pub templates: BTreeSet<ObjectRef>,
    /// What flavors added to each PodTemplate when it was last requested.
    pub added: BTreeMap<ObjectRef, Box<str>>,
    /// What the API server refused to make for each Workload at the last try.
    pub refused: BTreeMap<WorkloadKey, BTreeMap<ObjectRef, Refused>>,
    /// PodTemplates that belong to their ProvisioningRequest, so that they go with it.
    pub moved: BTreeSet<ObjectRef>,
}

impl Made {
    /// Drops everything about a deleted Workload.
    pub fn forget(&mut self, workload: &WorkloadKey) {
        self.refused.remove(workload);
        let gone: Vec<_> =
            self.owners.iter().filter(|(_, w)| *w == workload).map(|(o, _)| o.clone()).collect();
        for object in gone {
            self.forget_object(&object);
        }
    }

    /// The API server refused to make an object. `counts`: not for want of rights, which ends the row.
    pub fn count_refusal(&mut self, object: &ObjectRef, counts: bool, text: String) {
        let Some(key) = self.owners.get(object) else { return };
        let refused = self.refused.entry(key.clone()).or_default().entry(object.clone()).or_default();
        refused.count = if counts { refused.count.saturating_add(1) } else { 0 };
        refused.text = text.into();
    }

    /// An object was made, or could not be for another reason than a refusal.
    pub fn forget_refusals(&mut self, object: &ObjectRef) {
        if let Some(refused) = self.owners.get(object).and_then(|key| self.refused.get_mut(key)) {
            refused.remove(object);
        }
    }

    /// Forgets an object.
    pub fn forget_object(&mut self, object: &ObjectRef) {
        self.owners.remove(object);
        self.templates.remove(object);
        self.added.remove(object);
        self.moved.remove(object);
    }
}
