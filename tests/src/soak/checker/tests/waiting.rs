//! Jobs that still wait when nothing happens any more.

use super::*;

/// What is lost, judged when nothing happens any more.
fn lost(history: History) -> Vec<String> {
    let mut checker = history.checked();
    checker.judge_waiting();
    let lost = checker.violations().iter().filter(|one| one.rule == Rule::Lost);
    lost.map(|one| one.key.clone()).collect()
}

fn waiting() -> History {
    History::new().job(true, &[]).workload(WORKLOAD, &[], 2)
}

/// Another job holds `pods` processors.
fn beside(history: History, held: &[&str], pods: u32) -> History {
    history.late_job(false).workload(OTHER, held, pods).with(|workload| {
        workload["metadata"]["ownerReferences"][0]["uid"] = json!("k");
    })
}

#[test]
fn a_job_that_waits_beside_room_for_it_is_lost() {
    assert_eq!(lost(waiting()), [JOB]);
    assert!(lost(beside(waiting(), ADMITTED, 1)).is_empty(), "one processor is left, and it needs two");
    let one = || waiting().with(|workload| workload["spec"]["podSets"][0]["count"] = json!(1));
    assert_eq!(lost(beside(one(), ADMITTED, 1)), [JOB]);
    assert!(lost(beside(one(), EVICTED, 1)).is_empty(), "what is evicted may make room for another");
    assert!(lost(one().with(|workload| workload["spec"]["active"] = json!(false))).is_empty());
    assert!(lost(one().put(LOCAL, json!({"spec": {"clusterQueue": "cq", "stopPolicy": "Hold"}}))).is_empty());
    assert!(lost(waiting().workload(WORKLOAD, ADMITTED, 2)).is_empty(), "it does not wait");
    assert!(lost(waiting().job(true, &["Complete"])).is_empty(), "it has ended");
}

#[test]
fn a_job_that_waits_beside_nodes_for_it_is_lost() {
    let node = |rack: &str, ready: &str| {
        json!({
            "metadata": {"labels": {"rack": rack}},
            "status": {
                "allocatable": {"cpu": "1", "pods": "110"},
                "conditions": [{"type": "Ready", "status": ready}],
            },
        })
    };
    let asking = |second: Value, request: Value| {
        let nodes = History::new().put("/registry/minions/n-1", node("a", "True"));
        let nodes = nodes.put("/registry/minions/n-2", second).job(true, &[]).workload(WORKLOAD, &[], 2);
        lost(nodes.with(|workload| workload["spec"]["podSets"][0]["topologyRequest"] = request))
    };
    let rack = || json!({"required": "rack"});
    assert_eq!(asking(node("a", "True"), rack()), [JOB]);
    assert!(asking(node("b", "True"), rack()).is_empty(), "each rack has room for one pod");
    assert_eq!(asking(node("b", "True"), json!({"unconstrained": true})), [JOB]);
    assert!(asking(node("b", "False"), json!({"unconstrained": true})).is_empty());
}
