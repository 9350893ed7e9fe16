//! Topology assignments in the column-oriented encoding of v1beta2 (docs/reference/06-algorithm.md 6.21).

use proptest::prelude::*;
use sluice_api::conversion::topology;
use sluice_api::v1beta1::{TopologyAssignment, TopologyDomainAssignment};

fn rows(levels: &[&str], domains: Vec<(Vec<String>, i32)>) -> TopologyAssignment {
    TopologyAssignment {
        levels: levels.iter().map(|&l| l.to_owned()).collect(),
        domains: domains
            .into_iter()
            .map(|(values, count)| TopologyDomainAssignment { values, count })
            .collect(),
    }
}

#[test]
fn nodes_of_one_pool_become_a_slice_where_that_is_shorter() {
    let node = |pool: &str, n: i32| (vec![format!("{pool}-{n}")], 1);
    let mut domains: Vec<_> = (100..140).map(|n| node("gke-very-long-pool-name-a", n)).collect();
    domains.extend((200..240).map(|n| node("b", n)));
    let assignment = rows(&["kubernetes.io/hostname"], domains);
    let by_prefix = topology::encode(&assignment, true).unwrap();
    assert_eq!(by_prefix.slices.len(), 2);
    let prefix = |slice: usize| {
        by_prefix.slices[slice].values_per_level[0].individual.clone().unwrap().prefix.unwrap()
    };
    assert_eq!(prefix(0), "gke-very-long-pool-name-a-1");
    assert_eq!(prefix(1), "b-2");
    let whole = topology::encode(&assignment, false).unwrap();
    assert_eq!(whole.slices.len(), 1, "the gate is off");
    for encoded in [by_prefix, whole] {
        assert_eq!(topology::decode(&encoded).unwrap(), assignment);
    }
}

#[test]
fn nodes_stay_together_where_cutting_is_longer() {
    let domains = (0..8).map(|n| (vec![format!("{}-{n}", ["a", "b"][n % 2])], 1)).collect();
    let assignment = rows(&["kubernetes.io/hostname"], domains);
    assert_eq!(topology::encode(&assignment, true).unwrap().slices.len(), 1);
}

#[test]
fn more_runs_than_slices_are_allowed_lower_the_depth() {
    // Alternating between two pools of one cluster: 2,400 runs by pool, one by cluster.
    let domains = (0..2400).map(|n| (vec![format!("c-{}-{n}", ["a", "b"][n % 2])], 1)).collect();
    let assignment = rows(&["kubernetes.io/hostname"], domains);
    let encoded = topology::encode(&assignment, true).unwrap();
    assert!(encoded.slices.len() <= 1000);
    assert_eq!(topology::decode(&encoded).unwrap(), assignment);
}

#[test]
fn slices_hold_at_most_as_many_domains_as_the_schema_allows() {
    let domains = (0..150_000).map(|n| (vec![n.to_string()], 1)).collect();
    let assignment = rows(&["kubernetes.io/hostname"], domains);
    for by_prefix in [true, false] {
        let encoded = topology::encode(&assignment, by_prefix).unwrap();
        let counts: Vec<i32> = encoded.slices.iter().map(|s| s.domain_count).collect();
        assert_eq!(counts, [100_000, 50_000]);
    }
}

#[test]
fn an_empty_assignment_has_no_slices_and_one_domain_has_one() {
    for by_prefix in [true, false] {
        let encoded =
            |domains| topology::encode(&rows(&["kubernetes.io/hostname"], domains), by_prefix).unwrap();
        assert!(encoded(Vec::new()).slices.is_empty());
        assert_eq!(encoded(vec![(vec!["pool-a-1".to_owned()], 3)]).slices.len(), 1);
    }
}

#[test]
fn any_legal_form_is_read() {
    let text = r#"{"levels": ["block", "host"], "slices": [
        {"domainCount": 2, "podCounts": {"individual": [2, 2]},
         "valuesPerLevel": [{"universal": "b1"}, {"individual": {"roots": ["x-1", "x-2"]}}]},
        {"domainCount": 1, "podCounts": {"universal": 3}, "valuesPerLevel": [
            {"individual": {"prefix": "b", "roots": ["1"]}},
            {"individual": {"prefix": "x", "suffix": "-3", "roots": [""]}}]},
        {"domainCount": 1, "podCounts": {"individual": [1]},
         "valuesPerLevel": [{"individual": {"suffix": "2", "roots": ["b"]}}, {"universal": "x-1"}]}]}"#;
    let read = topology::decode(&serde_json::from_str(text).unwrap()).unwrap();
    let domains = [("b1", "x-1", 2), ("b1", "x-2", 2), ("b1", "x-3", 3), ("b2", "x-1", 1)];
    let domains = domains.map(|(block, host, pods)| (vec![block.to_owned(), host.to_owned()], pods));
    assert_eq!(read, rows(&["block", "host"], domains.into()));
}

fn domain_values() -> impl Strategy<Value = (usize, Vec<(Vec<String>, i32)>)> {
    (1_usize..4).prop_flat_map(|levels| {
        let value = prop_oneof!["[ab]-[ab]-[0-9]{1,2}", "[a-c]{0,3}", "[äöa]{0,3}", Just("same".to_owned())];
        let row = (prop::collection::vec(value, levels), 1_i32..4);
        (Just(levels), prop::collection::vec(row, 0..40))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn topology_assignments_survive_compression((levels, domains) in domain_values(), hostname: bool, gate: bool) {
        let mut names = vec!["block", "rack", "host"];
        names.truncate(levels);
        if hostname {
            names.pop();
            names.push("kubernetes.io/hostname");
        }
        let assignment = rows(&names, domains);
        let encoded = topology::encode(&assignment, gate).unwrap();
        prop_assert_eq!(topology::decode(&encoded).unwrap(), assignment);
    }
}
