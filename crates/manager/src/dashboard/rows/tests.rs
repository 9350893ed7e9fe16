use serde_json::{Value, json};

use super::*;
use crate::dashboard::store::tests::condition;

/// A Workload with two pod sets, of four pods with six cores and of one with half a core, that holds quota for `assigned` of the first.
fn holds(assigned: i32, over: i32) -> WorkloadRow {
    let pods = |name: &str, count: i32| json!({"name": name, "count": count, "template": {"spec": {"containers": []}}});
    let set = |name: &str, count: i32, cpu: &str| json!({"name": name, "count": count, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": cpu}});
    let cpu = format!("{}m", 1500 * assigned);
    let workload: Value = json!({
        "metadata": {"name": "w", "namespace": "a", "uid": "u"},
        "spec": {"queueName": "lq", "podSets": [pods("main", 4), pods("more", 1)]},
        "status": {
            "conditions": [condition("QuotaReserved", "True", "QuotaReserved", 1)],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [set("main", assigned, &cpu), set("more", 1, "500m")]},
            "reclaimablePods": [{"name": "main", "count": over}],
        },
    });
    WorkloadRow::of(&serde_json::from_value(workload).unwrap())
}

#[test]
fn pods_that_are_over_hold_no_quota() {
    let used = |row: &WorkloadRow| row.usage.iter().map(|(_, _, amount)| *amount).collect::<Vec<_>>();
    assert_eq!(used(&holds(4, 0)), [6000, 500]);
    let row = holds(4, 3);
    assert_eq!(used(&row), [1500, 500]);
    assert_eq!(row.requests, Amounts::from([("cpu".into(), 6500)]), "what it asked for stays");
    assert_eq!(used(&holds(4, 9)), [0, 500]);
    // Of four pods it got quota for three, and one is over: as the engine counts, three are left.
    assert_eq!(used(&holds(3, 1)), [4500, 500]);
}

/// As the engine counts: quota is given back by each pod, places by the whole.
#[test]
fn pods_that_are_over_keep_their_places_until_the_workload_ends() {
    let row = |over: i32, conditions: &[Value]| {
        let domains = json!({"domainCount": 2, "valuesPerLevel": [{"individual": {"prefix": "n", "roots": ["1", "2"]}}], "podCounts": {"universal": 2}});
        let assignment = json!({"levels": ["kubernetes.io/hostname"], "slices": [domains]});
        let set = json!({"name": "main", "count": 4, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "4"}, "topologyAssignment": assignment});
        let workload: Value = json!({
            "metadata": {"name": "w", "namespace": "a", "uid": "u"},
            "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 4, "template": {"spec": {"containers": []}}}]},
            "status": {
                "conditions": conditions, "reclaimablePods": [{"name": "main", "count": over}],
                "admission": {"clusterQueue": "cq", "podSetAssignments": [set]},
            },
        });
        WorkloadRow::of(&serde_json::from_value(workload).unwrap())
    };
    let reserved = condition("QuotaReserved", "True", "QuotaReserved", 1);
    let some = row(3, std::slice::from_ref(&reserved));
    assert_eq!(some.usage, [("spot".into(), "cpu".into(), 1000)]);
    let places: Vec<_> = some.placed[0].hosts().map(|(host, pods)| (&**host, pods)).collect();
    assert_eq!(places, [("n1", 2), ("n2", 2)]);
    assert!(row(4, &[reserved, condition("Finished", "True", "Succeeded", 2)]).placed.is_empty());
}

#[test]
fn what_is_deactivated_waits_for_nothing() {
    let of = |active: bool, conditions: &[Value]| {
        let workload = json!({"metadata": {"name": "w", "namespace": "a"}, "spec": {"active": active}, "status": {"conditions": conditions}});
        WorkloadRow::of(&serde_json::from_value(workload).unwrap())
    };
    let waits = condition("QuotaReserved", "False", "Pending", 1);
    let evicted = condition("Evicted", "True", "Deactivated", 2);
    assert_eq!(of(true, std::slice::from_ref(&waits)).state, State::Pending);
    let row = of(false, &[waits, evicted]);
    assert_eq!((row.state, &*row.reason), (State::Inactive, "Deactivated"));
    // It holds its quota until its pods are gone.
    assert_eq!(of(false, &[condition("QuotaReserved", "True", "QuotaReserved", 1)]).state, State::Reserved);
    assert_eq!(State::parse("inactive"), Some(State::Inactive));
}
