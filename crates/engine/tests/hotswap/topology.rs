//! JobSets whose nodes are assigned: their failed nodes are replaced first, and Hotswap makes room where that is not possible.

use serde_json::json;
use sluice_api::gates::{Gate, Gates};
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose};

use crate::bed::{Bed, POOL, TPU};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Pools of four nodes in a flavor with a topology.
fn bed(gates: &[(Gate, bool)], pools: &[&str]) -> Bed {
    let gates = gates.iter().fold(Gates::default(), |gates, (gate, on)| gates.with(*gate, *on));
    let mut bed = Bed::with(EngineConfig { gates, status_interval_ms: 0, ..EngineConfig::default() });
    let levels = json!({"levels": [{"nodeLabel": POOL}, {"nodeLabel": HOSTNAME}]});
    bed.c.api.put(Kind::Topology, json!({"metadata": {"name": "dc"}, "spec": levels}));
    let tolerations = json!([{"key": TPU, "operator": "Exists"}]);
    let flavor = ObjectRef::cluster(Kind::ResourceFlavor, "tpu");
    bed.c.api.edit(&flavor, &json!({"spec": {"topologyName": "dc", "tolerations": tolerations}}));
    bed.pools(pools, 4);
    for node in bed.nodes_of(pools) {
        bed.c.api.edit(&node, &json!({"metadata": {"labels": {HOSTNAME: &*node.name}}}));
    }
    bed.page_queue(64);
    bed
}

/// The nodes that a JobSet's only pod set is assigned to.
fn assigned(bed: &Bed, job: &str) -> Vec<String> {
    let set = bed.c.workload(job).status.unwrap().admission.unwrap().pod_set_assignments[0].clone();
    let rows = sluice_api::conversion::topology::decode(&set.topology_assignment.unwrap()).unwrap();
    rows.domains.into_iter().map(|row| row.values.concat()).collect()
}

#[test]
fn what_lost_several_nodes_is_evicted_once_and_others_make_room_for_it() {
    let mut bed = bed(&[], &["a", "b", "c", "d"]);
    bed.jobset("high", "q", "high", 2);
    bed.settle();
    bed.jobset("low", "q", "low", 2);
    bed.pass(3);
    assert!(bed.runs("high") && bed.runs("low"));
    assert!(assigned(&bed, "high").iter().all(|node| node.starts_with('a') || node.starts_with('b')));
    bed.fail(&["a"]);
    bed.pass(120);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)]);
    assert!(bed.runs("high"));
    assert!(assigned(&bed, "high").iter().all(|node| !node.starts_with('a')));
}

#[test]
fn without_a_replacement_hotswap_moves_the_whole() {
    for hotswap in [true, false] {
        let gates = [(Gate::TASFailedNodeReplacementFailFast, false), (Gate::Hotswap, hotswap)];
        let mut bed = bed(&gates, &["a", "b"]);
        bed.jobset("high", "q", "high", 1);
        bed.settle();
        bed.jobset("low", "q", "low", 1);
        bed.pass(3);
        assert!(assigned(&bed, "high").iter().all(|node| node.starts_with('a')));
        bed.ready(&ObjectRef::cluster(Kind::Node, "a-1"), "Unknown");
        bed.pass(120);
        let moved = bed.evictions("high") == [("NodeFailures".to_owned(), 1)];
        assert_eq!(moved, hotswap);
        assert!(bed.runs("high") && bed.runs("low") != hotswap);
        assert_ne!(assigned(&bed, "high").contains(&"a-1".to_owned()), hotswap);
        assert_eq!(bed.listed("high").len(), usize::from(!hotswap));
        assert_eq!(bed.c.written(Purpose::UnhealthyNodes), 1, "one of the two keeps the list");
    }
}

#[test]
fn one_node_is_replaced_and_hotswap_has_nothing_to_do() {
    let mut bed = bed(&[], &["a", "b", "c"]);
    bed.jobset("high", "q", "high", 1);
    bed.settle();
    bed.jobset("low", "q", "low", 1);
    bed.pass(3);
    bed.ready(&ObjectRef::cluster(Kind::Node, "a-1"), "Unknown");
    bed.pass(120);
    assert!(bed.evictions("high").is_empty() && bed.evictions("low").is_empty());
    assert!(bed.runs("high") && !assigned(&bed, "high").contains(&"a-1".to_owned()));
    assert!(bed.listed("high").is_empty());
}
