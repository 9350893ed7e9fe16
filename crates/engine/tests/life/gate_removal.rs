//! How long pods wait behind their gates after admission (docs/reference/05-metrics.md).

use sluice_engine::metrics::names::POD_SCHEDULING_GATE_REMOVAL_SECONDS as REMOVAL;
use sluice_engine::{Purpose, WriteError};

use crate::model::Cluster;
use crate::model::pods::{member, pod};
use crate::plain_pods::bed;

/// Each gate that came off a pod: its name, the ClusterQueue, whether the pod is of a group, and the seconds since admission.
pub fn removals(c: &Cluster) -> Vec<String> {
    let of = c.observed.iter().zip(&c.values).filter(|((name, _), _)| name == REMOVAL);
    of.map(|((_, labels), seconds)| format!("{} {seconds}", labels.join(" "))).collect()
}

#[test]
fn the_gate_of_a_pod_is_off_when_the_write_is_answered() {
    let mut c = bed("1");
    c.slow = Some(Purpose::StartJob);
    c.api.add_pod(pod("a", "lq", "1"));
    c.advance(3);
    assert!(c.api.is_gated("a") && removals(&c).is_empty());
    c.release();
    assert!(c.api.is_free("a"));
    assert_eq!(removals(&c), ["kueue.x-k8s.io/admission cq false 3"]);
    // The rest of its life takes no gate off.
    c.api.run_pod("a", "Succeeded");
    c.settle();
    assert_eq!(removals(&c).len(), 1);
}

#[test]
fn each_pod_of_a_group_counts_once_it_is_released_and_a_write_that_fails_does_not() {
    let mut c = bed("2");
    c.fail.push_back((Purpose::StartJob, WriteError::Refused("not now".to_owned())));
    for name in ["p0", "p1"] {
        c.api.add_pod(member(name, "g", 2, "main"));
    }
    c.settle();
    assert_eq!(removals(&c), ["kueue.x-k8s.io/admission cq true 0"]);
    c.advance(60);
    assert!(c.api.is_free("p0") && c.api.is_free("p1"));
    let all = removals(&c);
    assert_eq!(all.len(), 2, "{all:?}");
    let late = all[1].strip_prefix("kueue.x-k8s.io/admission cq true ").unwrap();
    assert!(late.parse::<f64>().unwrap() > 0.0, "{all:?}");
}
