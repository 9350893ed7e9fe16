//! Where the pods of a Workload are: its topology assignment, domain by domain.

use std::collections::BTreeSet;

use sluice_api::slim;
use sluice_api::v1beta2::{TopologyAssignment, TopologyAssignmentSlice, TopologyAssignmentSliceLevelValues};
use sluice_engine::Name;

use super::amounts::{self, Amounts};

/// The lowest level of most topologies.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Domains of a pod set that are kept at most: more than clusters have hosts.
const MOST_DOMAINS: usize = 16_384;

/// The pods of one pod set.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Its flavors.
    pub flavors: BTreeSet<Name>,
    /// The labels of the levels, from the widest; only that of the hostname if it is the lowest.
    pub levels: Vec<Name>,
    /// The requests of each pod.
    pub each: Amounts,
    /// The values of each domain, one for each level, and how many pods are assigned to it. Pods that ended count, too: their places are free for
    /// others only when the Workload ends, and it is not known where the ended pods were.
    pub domains: Vec<(Vec<Name>, i64)>,
}

impl Placed {
    /// The host of each domain and its pods, if the lowest level are hosts.
    pub fn hosts(&self) -> impl Iterator<Item = (&Name, i64)> {
        let hosts = self.levels.last().is_some_and(|level| **level == *HOSTNAME);
        let domains = self.domains.iter().filter(move |_| hosts);
        domains.filter_map(|(values, pods)| Some((values.last()?, *pods)))
    }
}

/// Where the pods of a Workload are.
pub fn placed(workload: &slim::Workload) -> Vec<Placed> {
    let Some(admission) = &workload.status.admission else { return Vec::new() };
    let mut all = Vec::new();
    for assigned in &admission.pod_set_assignments {
        let Some(assignment) = &assigned.topology_assignment else { continue };
        let template = workload.spec.pod_sets.iter().find(|pod_set| pod_set.name == assigned.name);
        let Some(template) = template.map(|pod_set| &pod_set.template) else { continue };
        let domains = domains(assignment).take(MOST_DOMAINS);
        all.push(Placed {
            flavors: assigned.flavors.values().map(|flavor| flavor.as_str().into()).collect(),
            levels: assignment.levels.iter().map(|level| level.as_str().into()).collect(),
            each: amounts::of_pod(template),
            domains: domains.map(|(values, pods)| (values, i64::from(pods.max(0)))).collect(),
        });
    }
    all
}

/// The values of the lowest level, each with its number of pods.
pub fn lowest(assignment: &TopologyAssignment) -> impl Iterator<Item = (Name, i32)> + '_ {
    domains(assignment).filter_map(|(values, pods)| Some((values.last()?.clone(), pods)))
}

fn domains(assignment: &TopologyAssignment) -> impl Iterator<Item = (Vec<Name>, i32)> + '_ {
    assignment.slices.iter().flat_map(|slice| {
        let count = usize::try_from(slice.domain_count).unwrap_or(0);
        // Values that the lists lack do not exist, whatever the number says.
        (0..count).map_while(|at| Some((values(slice, at)?, pods(slice, at)?)))
    })
}

fn values(slice: &TopologyAssignmentSlice, at: usize) -> Option<Vec<Name>> {
    let (lowest, above) = slice.values_per_level.split_last()?;
    // If the lowest level has one value for all of them, they are one domain.
    let last = value(lowest, at).filter(|_| at == 0 || lowest.universal.is_none())?;
    above.iter().map(|level| value(level, at)).chain([Some(last)]).collect()
}

fn value(level: &TopologyAssignmentSliceLevelValues, at: usize) -> Option<Name> {
    let Some(individual) = &level.individual else { return level.universal.as_deref().map(Name::from) };
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let root = individual.roots.get(at)?;
    Some((part(&individual.prefix) + root + &part(&individual.suffix)).into())
}

fn pods(slice: &TopologyAssignmentSlice, at: usize) -> Option<i32> {
    slice.pod_counts.universal.or_else(|| slice.pod_counts.individual.get(at).copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_legal_form_is_read_and_counts_that_lie_end_with_the_lists() {
        let rack = json!({"universal": "r1"});
        let hosts = json!({"individual": {"prefix": "n", "roots": ["1", "2"]}});
        let slice = |count: i32| json!({"domainCount": count, "valuesPerLevel": [rack, hosts], "podCounts": {"individual": [3, 4]}});
        let of = |count: i32| -> Vec<(String, i32)> {
            let assignment = json!({"levels": ["rack", HOSTNAME], "slices": [slice(count)]});
            let assignment: TopologyAssignment = serde_json::from_value(assignment).unwrap();
            domains(&assignment).map(|(values, pods)| (values.join("/"), pods)).collect()
        };
        let expected = [("r1/n1".to_owned(), 3), ("r1/n2".to_owned(), 4)];
        assert_eq!((of(2), of(i32::MAX), of(-1).len()), (expected.to_vec(), expected.to_vec(), 0));
    }
}
