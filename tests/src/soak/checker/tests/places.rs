//! Places that pods may not have.

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "it is made for the call")]
fn node(labels: Value, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({
        "metadata": {"labels": labels},
        "status": {
            "allocatable": {"cpu": "2", "pods": "110"},
            "conditions": [{"type": "Ready", "status": status}],
        },
    })
}

/// Nodes of two racks, and a Workload with one pod on each.
fn apart() -> History {
    let rack = |name: &str, rack: &str| node(json!({"rack": rack, "kubernetes.io/hostname": name}), true);
    let mut history = History::new().placed(WORKLOAD, ADMITTED, 1).0;
    let workload = history.pop().and_then(|change| change.object).unwrap();
    let history = History(history).put("/registry/minions/n-1", rack("n-1", "a"));
    history.put("/registry/minions/n-2", rack("n-2", "b")).put(WORKLOAD, workload)
}

fn requiring(level: &str) -> History {
    apart().with(|workload| workload["spec"]["podSets"][0]["topologyRequest"] = json!({"required": level}))
}

#[test]
fn pods_that_must_be_in_one_domain_and_are_not_are_noticed() {
    assert_eq!(apart().broken(), []);
    assert_broken(requiring("rack"), Rule::Misplaced, "must be in one rack");
    assert_broken(
        requiring("kubernetes.io/hostname"),
        Rule::Misplaced,
        "must be in one kubernetes.io/hostname",
    );
    assert_broken(requiring("zone"), Rule::Misplaced, "must be in one zone");
    let together = requiring("rack").with(|workload| {
        let set = &mut workload["status"]["admission"]["podSetAssignments"][0];
        set["topologyAssignment"]["slices"] = json!([{
            "domainCount": 1,
            "valuesPerLevel": [{"universal": "a"}, {"universal": "n-1"}],
            "podCounts": {"universal": 2},
        }]);
    });
    assert_eq!(together.broken(), []);
}

#[test]
fn a_pod_on_a_node_that_its_flavor_does_not_choose_is_noticed() {
    let flavored = |labels: Value| {
        let flavor = json!({"spec": {"nodeLabels": labels}});
        let history = History::new().put("/registry/kueue.x-k8s.io/resourceflavors/f", flavor);
        let kind = node(json!({"kind": "fast"}), true);
        let begun = history.put("/registry/minions/n-1", kind).job(true, &[]);
        begun.workload(WORKLOAD, ADMITTED, 1).job(false, &[]).pod_on("p", "n-1")
    };
    assert_eq!(flavored(json!({"kind": "fast"})).broken(), []);
    assert_broken(flavored(json!({"kind": "slow"})), Rule::Misplaced, "n-1 has not the labels");
}

#[test]
fn a_node_that_was_lost_long_ago_is_not_given_away() {
    let placed_at = |time: Duration, lost: Option<Value>| {
        let mut history = apart().0;
        let workload = history.pop().unwrap();
        let mut checker = Checker::default();
        checker.clock(Duration::from_secs(1));
        History(history).play(&mut checker);
        match lost {
            Some(lost) => History::default().put("/registry/minions/n-2", lost),
            None => History::default().delete("/registry/minions/n-2"),
        }
        .play(&mut checker);
        checker.clock(time);
        checker.observe(&workload).unwrap();
        checker.violations().iter().map(|one| one.text.clone()).collect::<Vec<_>>()
    };
    let failed = || Some(node(json!({"rack": "b"}), false));
    for lost in [None, failed()] {
        assert!(placed_at(Duration::from_secs(50), lost.clone()).is_empty());
        assert_eq!(placed_at(Duration::from_secs(70), lost), ["n-2 was not well for longer than 60 s"]);
    }
    let well = Some(node(json!({"rack": "b"}), true));
    assert!(placed_at(Duration::from_secs(70), well).is_empty());
}

#[test]
fn pods_on_nodes_that_are_well_stay_where_they_are_when_others_move() {
    let moved = |to: Value| {
        let lost = apart().delete("/registry/minions/n-2");
        let well = lost.put("/registry/minions/n-3", node(json!({"rack": "b"}), true));
        let well = well.put("/registry/minions/n-4", node(json!({"rack": "b"}), true));
        let History(changes) = apart();
        let workload = changes.into_iter().next_back().and_then(|change| change.object).unwrap();
        well.put(WORKLOAD, workload).with(|workload| {
            let set = &mut workload["status"]["admission"]["podSetAssignments"][0];
            set["topologyAssignment"]["slices"][0]["valuesPerLevel"][1]["individual"]["roots"] = to;
        })
    };
    assert_eq!(moved(json!(["1", "3"])).broken(), []);
    assert_broken(moved(json!(["4", "3"])), Rule::AdmittedTwice, "changes without an eviction");
}
