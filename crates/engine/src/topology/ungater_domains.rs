//! The domains that the pods of a pod set are assigned to, from its Workload.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::conversion::topology;
use sluice_api::slim;
use sluice_api::v1beta2::{PodSetAssignment, WorkloadStatus};

use super::ungater_plan::{FreeDomain, Ranks};
use crate::job_pod::Place;

/// The level of single nodes.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";

/// The domains of a pod set, in the order of its assignment.
#[derive(Clone, Debug)]
pub(super) struct Domains {
    levels: Vec<String>,
    /// Their values, the topmost level first.
    values: Vec<Vec<String>>,
    /// How many pods each takes.
    pub rooms: Vec<FreeDomain>,
    /// The places of the values.
    places: BTreeMap<Vec<String>, usize>,
}

impl Domains {
    /// The domains of an assignment, if it has any. None of the `unhealthy` nodes takes a pod.
    pub fn of(assignment: &PodSetAssignment, unhealthy: &BTreeSet<&str>) -> Option<Self> {
        // If it cannot be read, no pod is ungated: the webhook refuses such a Workload.
        let rows = topology::decode(assignment.topology_assignment.as_ref()?).ok()?;
        let mut domains =
            Self { levels: rows.levels, values: Vec::new(), rooms: Vec::new(), places: BTreeMap::new() };
        let by_node = domains.are_nodes();
        for row in rows.domains {
            let pods = usize::try_from(row.count).unwrap_or(0);
            if let Some(known) = domains.places.get(&row.values).and_then(|at| domains.rooms.get_mut(*at)) {
                known.pods += pods;
                continue;
            }
            let closed = by_node && row.values.last().is_some_and(|node| unhealthy.contains(node.as_str()));
            domains.rooms.push(FreeDomain { pods, closed });
            domains.places.insert(row.values.clone(), domains.values.len());
            domains.values.push(row.values);
        }
        Some(domains)
    }

    /// The same cut to this number of pods: a slice that became smaller gives up its last domains.
    pub fn at_most(mut self, pods: i32) -> Self {
        let mut left = usize::try_from(pods).unwrap_or(0);
        for room in &mut self.rooms {
            room.pods = room.pods.min(left);
            left -= room.pods;
        }
        self
    }

    /// Whether each domain is one node.
    pub fn are_nodes(&self) -> bool {
        self.levels.last().is_some_and(|level| level == HOSTNAME)
    }

    /// The domain with these values.
    pub fn find<'a>(&self, values: impl IntoIterator<Item = &'a str>) -> Option<usize> {
        let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
        self.places.get(&values).copied()
    }

    /// The domain that the node selector of a pod means.
    pub fn of_pod(&self, place: &Place) -> Option<usize> {
        self.find(self.levels.iter().map(|level| place.selects(level).map_or("", |value| &**value)))
    }

    /// The node labels of a domain.
    pub fn labels(&self, domain: usize) -> impl Iterator<Item = (&str, &str)> {
        let values = self.values.get(domain).into_iter().flatten();
        self.levels.iter().zip(values).map(|(level, value)| (level.as_str(), value.as_str()))
    }
}

/// How many pods a pod set was admitted with.
fn admitted(set: &slim::PodSet, assignment: &PodSetAssignment) -> i32 {
    assignment.count.unwrap_or(set.count)
}

/// How the pods of the pod set at this position are ranked, according to the Workload alone; and the labels with their index and with that of their
/// group. The pods of the larger of two grouped pod sets are counted after the others (docs/reference/06-algorithm.md 6.13).
pub(super) fn ranks<'a>(
    sets: &'a [slim::PodSet],
    status: &WorkloadStatus,
    at: usize,
) -> Option<(Ranks, &'a str, Option<&'a str>)> {
    let assignments = status.admission.as_ref().map(|admission| &admission.pod_set_assignments[..])?;
    let request = |set: &'a slim::PodSet| set.topology_request.as_deref();
    let group =
        |set: &'a slim::PodSet| request(set).and_then(|request| request.pod_set_group_name.as_deref());
    let (set, assignment) = (sets.get(at)?, assignments.get(at)?);
    let size = admitted(set, assignment);
    let other = sets
        .iter()
        .zip(assignments)
        .enumerate()
        .find(|(other, (theirs, _))| *other != at && group(set).is_some() && group(theirs) == group(set));
    let before = other.map(|(other, (theirs, assignment))| (admitted(theirs, assignment), other));
    let before = before.filter(|before| *before < (size, at)).map_or(0, |(pods, _)| pods);
    let asked = request(set)?;
    let groups = asked.sub_group_index_label.as_ref().map(|_| asked.sub_group_count.unwrap_or(0));
    let number = |number: i32| u32::try_from(number).unwrap_or(0);
    let ranks = Ranks { size: number(size), offset: number(before), groups: groups.map(number) };
    Some((ranks, asked.pod_index_label.as_deref()?, asked.sub_group_index_label.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn assigned(topology: &Value) -> PodSetAssignment {
        serde_json::from_value(json!({"name": "main", "count": 3, "topologyAssignment": topology})).unwrap()
    }

    #[test]
    fn a_pod_is_in_the_domain_that_its_node_selector_means() {
        let topology = json!({"levels": ["block", "rack"], "slices": [{
            "domainCount": 2, "podCounts": {"individual": [2, 1]},
            "valuesPerLevel": [{"universal": "b"}, {"individual": {"prefix": "r", "roots": ["1", "2"]}}],
        }]});
        let domains = Domains::of(&assigned(&topology), &BTreeSet::from(["r1"])).unwrap();
        assert!(!domains.are_nodes());
        assert_eq!(
            domains.rooms,
            [FreeDomain { pods: 2, closed: false }, FreeDomain { pods: 1, closed: false }]
        );
        assert_eq!((domains.find(["b", "r2"]), domains.find(["b", ""])), (Some(1), None));
        assert_eq!(domains.labels(1).collect::<Vec<_>>(), [("block", "b"), ("rack", "r2")]);
    }

    #[test]
    fn unhealthy_nodes_are_closed_and_one_that_is_listed_twice_is_one() {
        let topology = json!({"levels": [HOSTNAME], "slices": [{
            "domainCount": 3, "podCounts": {"universal": 1},
            "valuesPerLevel": [{"individual": {"roots": ["a", "b", "a"]}}],
        }]});
        let domains = Domains::of(&assigned(&topology), &BTreeSet::from(["b"])).unwrap();
        assert_eq!(
            domains.rooms,
            [FreeDomain { pods: 2, closed: false }, FreeDomain { pods: 1, closed: true }]
        );
        assert!(domains.are_nodes());
    }

    #[test]
    fn the_larger_of_two_grouped_pod_sets_is_counted_after_the_other() {
        let set = |name: &str, count: i32| {
            json!({"name": name, "count": count,
                "topologyRequest": {"required": "r", "podSetGroupName": "g", "podIndexLabel": "i"}})
        };
        let offsets = |first: i32, second: i32| {
            let sets: Vec<slim::PodSet> =
                serde_json::from_value(json!([set("a", first), set("b", second)])).unwrap();
            let assignment = |name: &str| json!({"name": name});
            let status: WorkloadStatus = serde_json::from_value(json!({"admission": {
                "clusterQueue": "q", "podSetAssignments": [assignment("a"), assignment("b")]}}))
            .unwrap();
            [0, 1].map(|at| ranks(&sets, &status, at).unwrap().0.offset)
        };
        assert_eq!(offsets(1, 4), [0, 1]);
        assert_eq!(offsets(4, 1), [1, 0]);
        assert_eq!(offsets(1, 1), [0, 1]);
    }
}
