//! One node group per child Job: the annotation `alpha.jobset.sigs.k8s.io/exclusive-topology`.
//!
//! JobSet lets the first pod of a child choose a group by affinity to its own child and anti-affinity to all others, and sends
//! the rest after it with a node selector. The stand-in gives every pod the affinities, which ends in the same places: the
//! scheduler chooses.

use k8s_openapi::api::core::v1::{Affinity, PodAffinity, PodAffinityTerm, PodAntiAffinity, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::children::JOB_KEY;
use super::types::{JobSet, ReplicatedJob};

/// Names the node label whose values are the groups.
pub const ANNOTATION: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";

/// The node label that the children of this group get exclusively: from the group's Job template, else from the JobSet.
pub fn topology_key(jobset: &JobSet, group: &ReplicatedJob) -> Option<String> {
    let of_group = group.template.metadata.as_ref().and_then(|meta| meta.annotations.as_ref());
    let of_jobset = jobset.metadata.annotations.as_ref();
    of_group
        .and_then(|all| all.get(ANNOTATION))
        .or_else(|| of_jobset.and_then(|all| all.get(ANNOTATION)))
        .cloned()
}

/// A term that selects the pods of this child, or those of all others, in any namespace.
fn pods(topology: &str, operators: &[(&str, Option<&str>)]) -> PodAffinityTerm {
    let requirement = |(operator, value): &(&str, Option<&str>)| LabelSelectorRequirement {
        key: JOB_KEY.to_owned(),
        operator: (*operator).to_owned(),
        values: value.map(|value| vec![value.to_owned()]),
    };
    PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_expressions: Some(operators.iter().map(requirement).collect()),
            match_labels: None,
        }),
        namespace_selector: Some(LabelSelector::default()),
        topology_key: topology.to_owned(),
        ..PodAffinityTerm::default()
    }
}

/// Lets the pods of the child `key` share one group with each other and with no other child.
pub fn require(template: &mut PodTemplateSpec, topology: &str, key: &str) {
    let affinity: &mut Affinity = template.spec.get_or_insert_default().affinity.get_or_insert_default();
    let together: &mut PodAffinity = affinity.pod_affinity.get_or_insert_default();
    together
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_default()
        .push(pods(topology, &[("In", Some(key))]));
    let apart: &mut PodAntiAffinity = affinity.pod_anti_affinity.get_or_insert_default();
    apart
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_default()
        .push(pods(topology, &[("Exists", None), ("NotIn", Some(key))]));
}
