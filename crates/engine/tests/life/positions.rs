//! Pod sets of an admission and of a job are matched by their positions, not by their names.

use serde_json::json;
use sluice_engine::Kind;

use crate::contract::{cq, submit};
use crate::model::build::{job, pod_set};
use crate::model::{Api, Cluster, reported};
use crate::parity::{admission, alone, says};

#[test]
fn pod_sets_of_an_admission_go_by_position() {
    let mut c = Cluster::plain();
    c.api.simple("0", &json!({}));
    submit(&mut c, "a", "lq", 3, |view| view.pod_sets = vec![pod_set("main", 3, "1")]);
    let workload = Api::workload_ref(&c.workload("a"));
    let mut given = admission("cq", "other-name", "3");
    given["podSetAssignments"][0]["count"] = json!(3);
    c.api.edit_status(&workload, |status| {
        *status = json!({"admission": given, "conditions": [says("QuotaReserved", "True", "QuotaReserved")]});
    });
    c.settle();
    let job = c.api.job("a");
    assert!(!job.view.suspended, "{}", reported(&c.workload("a"), "Finished"));
    assert_eq!(job.view.pod_sets[0].scheduling.node_selector["pool"], "default");
    assert_eq!(job.view.pod_sets[0].scheduling.labels["kueue.x-k8s.io/podset"], "main");
    c.api.edit_job("a", |j| j.view.reclaimable = vec![("main".to_owned(), 2)]);
    c.settle();
    let used = &c.api.json(&cq()).unwrap()["status"]["flavorsUsage"][0]["resources"][0];
    assert_eq!(used["total"], "1", "two of its three pods are over");
}

#[test]
fn pod_sets_go_by_position_where_their_names_are_those_of_others() {
    let mut c = Cluster::plain();
    c.api.simple("0", &json!({}));
    let more = json!({"nodeLabels": {"pool": "second"}});
    c.api.put(Kind::ResourceFlavor, json!({"metadata": {"name": "second"}, "spec": more}));
    submit(&mut c, "a", "lq", 1, |view| {
        view.pod_sets = vec![pod_set("driver", 1, "1"), pod_set("workers", 3, "1")];
    });
    let workload = Api::workload_ref(&c.workload("a"));
    let mut given = admission("cq", "workers", "1");
    let mut second = given["podSetAssignments"][0].clone();
    second["name"] = json!("driver");
    second["count"] = json!(3);
    second["flavors"] = json!({"cpu": "second"});
    second["resourceUsage"] = json!({"cpu": "3"});
    given["podSetAssignments"].as_array_mut().unwrap().push(second);
    c.api.edit_status(&workload, |status| {
        *status = json!({"admission": given, "conditions": [says("QuotaReserved", "True", "QuotaReserved")]});
    });
    c.settle();
    let job = c.api.job("a");
    assert!(!job.view.suspended, "{}", reported(&c.workload("a"), "Finished"));
    let pools: Vec<&str> =
        job.view.pod_sets.iter().map(|set| &*set.scheduling.node_selector["pool"]).collect();
    assert_eq!(pools, ["default", "second"]);
    assert_eq!(job.view.pod_sets.iter().map(|set| set.count).collect::<Vec<_>>(), [1, 3]);
    // It stops as it was.
    c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    c.settle();
    let job = c.api.job("a");
    let now: Vec<_> = job.view.pod_sets.iter().map(|set| set.scheduling.clone()).collect();
    assert_eq!((job.view.suspended, now), (true, job.original.clone()));
}

#[test]
fn a_prebuilt_workload_may_name_its_pod_sets_otherwise_than_its_job() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    let prebuilt = alone(&mut c, "mine", "1");
    let mut value = c.api.json(&prebuilt).unwrap()["spec"].clone();
    value["podSets"][0]["name"] = json!("workers");
    c.api.edit(&prebuilt, &json!({"spec": value}));
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.prebuilt_workload = Some("mine".to_owned());
    c.api.add_job(view);
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(c.api.job("a").view.pod_sets[0].scheduling.labels["kueue.x-k8s.io/podset"], "workers");
    c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    c.settle();
    let job = c.api.job("a");
    assert_eq!((job.view.suspended, &job.view.pod_sets[0].scheduling), (true, &job.original[0]));
}
