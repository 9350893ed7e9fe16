//! One node group per child Job: the annotation `alpha.jobset.sigs.k8s.io/exclusive-topology`.
//!
//! JobSet does it with pod affinities, pod by pod. What one sees is that the pods of a child are in one group and that no
//! two children share one; the stand-in pins each child to a free group by a required node affinity when it starts.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, PodTemplateSpec, Taint, Toleration,
};

use super::children;
use super::types::{JobSet, ReplicatedJob};

/// Names the node label whose values are the groups.
pub const ANNOTATION: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
/// On a child Job, the group it is pinned to (the stand-in's own).
pub const GROUP: &str = "stand-in.sluice.dev/exclusive-group";

/// The node label that the children of this group get exclusively: from the group's Job template, else from the JobSet.
pub fn topology_key(jobset: &JobSet, group: &ReplicatedJob) -> Option<String> {
    let of_group = group.template.metadata.as_ref().and_then(|meta| meta.annotations.as_ref());
    let of_jobset = jobset.metadata.annotations.as_ref();
    of_group
        .and_then(|all| all.get(ANNOTATION))
        .or_else(|| of_jobset.and_then(|all| all.get(ANNOTATION)))
        .cloned()
}

/// The topology key and group that a child is pinned to.
fn pin(job: &Job) -> Option<(&str, &str)> {
    let annotations = job.metadata.annotations.as_ref()?;
    Some((annotations.get(ANNOTATION)?, annotations.get(GROUP)?))
}

/// Whether the child still holds its group: it runs, or its pods have not ended.
fn holds(job: &Job) -> bool {
    let pods =
        job.status.as_ref().map_or(0, |status| status.active.unwrap_or(0) + status.terminating.unwrap_or(0));
    pods > 0 || !(children::is_suspended(job) || children::is_finished(job))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let value = toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
    (effect.is_empty() || effect == taint.effect)
        && (key == taint.key || (key.is_empty() && exists))
        && (exists || value)
}

/// Whether the scheduler could put this pod on the node, by readiness, selector and taints.
fn fits(node: &Node, pod: &PodSpec) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready =
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"));
    let spec = node.spec.as_ref();
    let unschedulable = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let labels = node.metadata.labels.as_ref();
    let selected = pod
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
    let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let tolerated = taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .all(|taint| pod.tolerations.iter().flatten().any(|toleration| tolerates(toleration, taint)));
    ready && !unschedulable && selected && tolerated
}

/// The first free group, in name order, with the most fitting nodes; `None` while all are taken.
pub fn free_group(key: &str, pod: &PodSpec, me: &str, nodes: &[Node], jobs: &[Job]) -> Option<String> {
    let taken: BTreeSet<&str> = jobs
        .iter()
        .filter(|job| job.metadata.uid.as_deref() != Some(me) && holds(job))
        .filter_map(pin)
        .filter(|(topology, _)| *topology == key)
        .map(|(_, group)| group)
        .collect();
    let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
    for node in nodes.iter().filter(|node| fits(node, pod)) {
        if let Some(group) = node.metadata.labels.as_ref().and_then(|labels| labels.get(key)) {
            *groups.entry(group).or_default() += 1;
        }
    }
    let free = groups.into_iter().filter(|(group, _)| !taken.contains(group));
    free.max_by(|(a, many), (b, more)| many.cmp(more).then(b.cmp(a))).map(|(group, _)| group.to_owned())
}

/// Requires the group for these pods.
pub fn require(pods: &mut PodTemplateSpec, key: &str, group: &str) {
    let requirement = NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![group.to_owned()]),
    };
    let affinity = pods.spec.get_or_insert_default().affinity.get_or_insert_default();
    let node = affinity.node_affinity.get_or_insert_default();
    let terms = &mut node
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_default()
        .node_selector_terms;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    // Terms are alternatives: the group is required in each.
    for term in terms {
        term.match_expressions.get_or_insert_default().push(requirement.clone());
    }
}
