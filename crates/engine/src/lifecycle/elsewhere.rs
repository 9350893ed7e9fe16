//! Jobs that run where they were not admitted: their templates lack the labels of their flavors, so that their pods may run on nodes of another
//! flavor, on the quota of this one.
//!
//! This happens to a job that was resumed by hand before its start, or whose template its user changes while it runs, as some kinds allow; and to a
//! part of a job that a user made in place of the one that the controller makes. A flavor may also change, or be deleted and made again, while jobs
//! run on it: these were started with the older version. The time of a change is known since the start of the manager; the time of creation is in the
//! flavor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_api::job::{JobPodSet, JobView};
use sluice_api::v1beta2::{PodSetAssignment, ResourceFlavor, WorkloadStatus};
use sluice_core::{Name, WorkloadKey};

use crate::engine::Engine;
use crate::ingest::workload::is;
use crate::world::JobKey;

impl Engine {
    /// Takes in that a flavor is seen, or goes.
    pub(crate) fn note_flavor_labels(&mut self, name: &Name, flavor: Option<&ResourceFlavor>) {
        let Some(flavor) = flavor else {
            self.world.relabeled.remove(name);
            return;
        };
        let changed = match self.world.flavors.get(name) {
            Some(known) => known.spec.node_labels != flavor.spec.node_labels,
            // Its earlier version is not known.
            None => flavor.metadata.generation.is_none_or(|generation| generation > 1),
        };
        if changed {
            self.world.relabeled.insert(Arc::clone(name), self.now);
        }
    }

    /// The labels of its flavors that a running job lacks.
    pub(super) fn off_its_flavors(
        &self,
        key: &JobKey,
        view: &JobView,
        workload: &WorkloadKey,
    ) -> Option<String> {
        if !says_where_its_pods_go(key, view) || self.is_elastic(view) {
            return None;
        }
        let status = self.world.workloads.get(workload)?.status();
        let assignments = &status.admission.as_ref()?.pod_set_assignments;
        // KubeRay's own template is written down by a start of ours alone.
        let written = |set: &JobPodSet| set.unwritten.is_none() && set.count > 0;
        let mut sets = view.pod_sets.iter().zip(assignments).filter(|(set, _)| written(set));
        sets.find_map(|(set, assignment)| {
            let (label, (flavor, value)) = self.lacks(set, status, assignment)?;
            let set = &set.name;
            Some(format!(
                "The pods of {set:?} run without the node selector {label}={value} of flavor {flavor:?}, on which they are admitted"
            ))
        })
    }

    /// Whether a part of a job runs without the labels of the flavors on which the pod set that it plays was admitted. Its controller makes it of
    /// the job's template, which has them since the start. Parts that a controller resumes as it made them are brought up to date.
    pub(super) fn part_off_its_flavors(&self, above: &JobView, part: &JobView, ancestor: &str) -> bool {
        let kind = above.job.kind;
        let is_of_one = kind.parts_of(part.job.kind).is_some_and(|parts| parts.names.is_of_one());
        let set = self.made(above, part).and_then(<[JobPodSet]>::first).filter(|set| set.unwritten.is_none());
        let as_made = kind.integration().resumes_parts_as_made;
        let run = !above.suspended && !part.suspended;
        let Some(set) = set.filter(|_| is_of_one && !as_made && run && !self.is_elastic(above)) else {
            return false;
        };
        let owned = self.world.owned(ancestor);
        let mut statuses = owned.iter().map(|workload| self.world.workloads[workload].status());
        statuses.any(|status| {
            let admission = status.admission.as_ref().filter(|_| is(status, Type::Admitted));
            let mut assignments = admission.into_iter().flat_map(|admission| &admission.pod_set_assignments);
            let Some(assignment) = assignments.find(|assignment| assignment.name == set.name) else {
                return false;
            };
            part.pod_sets.iter().any(|own| self.lacks(own, status, assignment).is_some())
        })
    }

    /// A label that the template of a running pod set lacks: with it the flavor, and the value there.
    fn lacks<'a>(
        &'a self,
        set: &JobPodSet,
        status: &'a WorkloadStatus,
        assignment: &'a PodSetAssignment,
    ) -> Option<(&'a str, (&'a str, &'a String))> {
        // Nearly all jobs have all labels: nothing is made for these.
        if self.has_all_labels(set, assignment) {
            return None;
        }
        let admitted = conditions::true_since(&status.conditions, Type::Admitted.as_str())?;
        let updates = || status.admission_checks.iter().flat_map(|check| &check.pod_set_updates);
        let by_check = |label: &str| updates().any(|update| update.node_selector.contains_key(label));
        let labels = self.labels_since(admitted, assignment)?;
        let mut all = labels.into_iter().filter(|(label, _)| !by_check(label));
        all.find(|(label, (_, value))| set.scheduling.node_selector.get(*label) != Some(value))
    }

    fn has_all_labels(&self, set: &JobPodSet, assignment: &PodSetAssignment) -> bool {
        let flavors = assignment.flavors.values().filter_map(|name| self.world.flavors.get(name.as_str()));
        let mut labels = flavors.flat_map(|flavor| &flavor.spec.node_labels);
        labels.all(|(label, value)| set.scheduling.node_selector.get(label) == Some(value))
    }

    /// The labels that a start has added since then for these flavors, and the flavor of each. Empty if one of the flavors changed, or was replaced
    /// by another of that name.
    fn labels_since<'a>(
        &'a self,
        admitted: Timestamp,
        assignment: &'a PodSetAssignment,
    ) -> Option<BTreeMap<&'a str, (&'a str, &'a String)>> {
        let names: BTreeSet<&str> = assignment.flavors.values().map(String::as_str).collect();
        let mut labels = BTreeMap::new();
        for name in names {
            if self.world.relabeled.get(name).is_some_and(|since| *since >= admitted) {
                return None;
            }
            let flavor = self.world.flavors.get(name)?;
            if flavor.metadata.creation_timestamp.as_ref().is_some_and(|made| made.0 >= admitted) {
                return None;
            }
            labels.extend(flavor.spec.node_labels.iter().map(|(label, value)| (&**label, (name, value))));
        }
        Some(labels)
    }
}

/// Whether the templates of a job have the node selectors of its start: not if pods get them one by one, if they are kept beside the templates, or if
/// the kind's declaration may have no place for them.
fn says_where_its_pods_go(key: &JobKey, view: &JobView) -> bool {
    let integration = key.kind.integration();
    let beside = integration.wraps_objects || view.template.is_some() || integration.declared;
    !(integration.of_pods || integration.suspends_pods || beside)
}
