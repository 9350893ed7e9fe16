//! RayClusters: what is read of each state, and how they start.

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_jobs::{StartError, observe, start};

use crate::testing::ray::{additions, changed, ray, template, with_status};

#[test]
fn a_cluster_holds_its_quota_while_it_may_have_pods() {
    let kind = JobKind::RAY_CLUSTER;
    let active = |status: Value| with_status(kind, status).active;
    assert!(!active(Value::Null) && !active(json!({"state": "suspended", "head": {"podName": ""}})));
    assert!(active(json!({"state": "ready"})));
    // Its pods were never all ready.
    assert!(active(json!({"state": "", "head": {"podName": "train-head"}})));
    assert!(active(json!({"availableWorkerReplicas": 1})));
    let condition = |type_: &str, status: &str| json!({"conditions": [{"type": type_, "status": status, "lastTransitionTime": "2026-01-02T03:04:05Z"}]});
    assert!(active(condition("RayClusterSuspending", "True")));
    assert!(!active(condition("RayClusterSuspending", "False")));
    let view = with_status(kind, condition("RayClusterSuspended", "True"));
    assert_eq!(view.suspended_condition, Some((true, view.created)));
    let ready = with_status(kind, json!({"state": "ready"}));
    assert!(ready.pods_ready && ready.finished.is_none() && ready.on_hold.is_none());
    assert!(
        with_status(kind, json!({"state": "failed", "reason": "why"})).finished.is_none(),
        "it never ends"
    );
}

#[test]
fn what_cannot_be_queued_says_why() {
    let group = |change: fn(&mut Value)| move |spec: &mut Value| change(&mut spec["workerGroupSpecs"][0]);
    let why = |change: &dyn Fn(&mut Value)| changed(JobKind::RAY_CLUSTER, change).invalid.unwrap_or_default();
    let at = "spec.workerGroupSpecs[0]";
    assert_eq!(
        why(&group(|g| g["groupName"] = json!("Head"))),
        format!("{at}.groupName: \"head\" is reserved for the head group")
    );
    for name in [json!(null), json!("a.b"), json!("a_b"), json!("x".repeat(64))] {
        let reported = why(&|spec| spec["workerGroupSpecs"][0]["groupName"] = name.clone());
        assert!(
            reported.starts_with(&format!("{at}.groupName: ")) && reported.contains("cannot be the name"),
            "{reported}"
        );
    }
    assert_eq!(
        why(&|spec| spec["workerGroupSpecs"][1]["groupName"] = json!("SMALL")),
        "spec.workerGroupSpecs[1].groupName: \"small\" is the name of another group"
    );
    assert_eq!(
        why(&group(|g| g["replicas"] = json!(-1))),
        format!("{at}.replicas: -1: must not be negative")
    );
    assert_eq!(
        why(&group(|g| g["numOfHosts"] = json!(-2))),
        format!("{at}.numOfHosts: -2: must not be negative")
    );
    let reported = why(&group(|g| g["minReplicas"] = json!(4)));
    assert_eq!(reported, format!("{at}.replicas: 2: KubeRay would make 4 for minReplicas 4, maxReplicas 5"));
    assert_eq!(why(&group(|g| g["maxReplicas"] = json!(1))), "", "fewer pods than quota");
    let bounds = |least: i32, most: i32| {
        why(&|spec| {
            let group = &mut spec["workerGroupSpecs"][0];
            (group["minReplicas"], group["maxReplicas"]) = (json!(least), json!(most));
        })
    };
    assert_eq!(
        bounds(5, 2),
        format!("{at}.replicas: 2: KubeRay would make 5 for minReplicas 5, maxReplicas 2")
    );
    assert_eq!(bounds(2, 1), "", "no release makes more than 2");
    let reported = why(&|spec| spec["enableInTreeAutoscaling"] = json!(true));
    assert!(
        reported.starts_with("spec.enableInTreeAutoscaling: a kueue managed job should only use autoscaling"),
        "{reported}"
    );
    let reported = why(&group(|g| g["template"] = json!({"spec": {"containers": 5}})));
    assert!(reported.starts_with(&format!("{at}.template: ")), "{reported}");
    let many = |spec: &mut Value| {
        let groups = (0..18).map(|n| json!({"groupName": format!("g{n}"), "template": template("x")}));
        spec["workerGroupSpecs"] = groups.collect();
    };
    assert_eq!(why(&many), "too many pod sets: 19, at most 18");
    let huge = changed(JobKind::RAY_CLUSTER, |spec| {
        spec["workerGroupSpecs"][1]["replicas"] = json!(i64::MAX);
        spec["workerGroupSpecs"][1]["numOfHosts"] = json!(i64::MAX);
    });
    assert_eq!(huge.pod_sets[2].count, i32::MAX, "no cluster has room for it");
}

#[test]
fn a_cluster_starts_with_all_of_its_pods_or_not_at_all() {
    let view = observe(JobKind::RAY_CLUSTER, &ray(JobKind::RAY_CLUSTER));
    for admitted in [1, 3] {
        let mut infos = additions(&view, "a");
        infos[1].count = admitted;
        let pod_set = "small".to_owned();
        assert_eq!(start(&view, &infos), Err(StartError::Count { pod_set, admitted, needed: 2 }));
    }
    assert!(matches!(start(&view, &additions(&view, "a")[..1]), Err(StartError::PodSets { .. })));
    let mut infos = additions(&view, "a");
    infos[0].scheduling.node_selector.insert("type".to_owned(), "other".to_owned());
    assert!(matches!(start(&view, &infos), Err(StartError::Conflict { field: "nodeSelector", .. })));
}
