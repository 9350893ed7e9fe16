//! MiniClusters: the Jobs that are made of them.

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_jobs::JobMaker;

fn cluster(spec: &Value) -> Value {
    json!({
        "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
        "metadata": {"name": "a", "namespace": "t"}, "spec": spec,
    })
}

fn job_of(cluster: &Value) -> Option<Value> {
    JobMaker::of(cluster).unwrap().job_of(cluster)
}

#[test]
fn a_mini_cluster_has_a_job_of_as_many_pods_as_its_size() {
    let containers =
        json!([{"image": "i", "resources": {"requests": {"cpu": 3}}}, {"name": "side", "image": "j"}]);
    let of = cluster(
        &json!({"size": 4, "jobLabels": {"kueue.x-k8s.io/queue-name": "main"}, "containers": containers}),
    );
    let job = job_of(&of).unwrap();
    let view = sluice_jobs::observe(JobKind::JOB, &job);
    assert_eq!((view.invalid, view.queue_name.as_deref()), (None, Some("main")));
    assert_eq!(view.pod_sets[0].count, 4);
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!([&pod["containers"][0]["name"], &pod["containers"][1]["name"]], ["a-0", "side"]);
    assert_eq!(job_of(&cluster(&json!({"size": 0}))), None);
}

#[test]
fn the_job_of_a_mini_cluster_names_it_as_its_controller() {
    let mut of = cluster(&json!({}));
    let owner = |of: &Value| job_of(of).unwrap()["metadata"]["ownerReferences"].clone();
    let mut wanted = json!([{
        "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "name": "a",
        "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(owner(&of), wanted, "an object of a file has no uid");
    of["metadata"]["uid"] = json!("u");
    wanted[0]["uid"] = json!("u");
    assert_eq!(owner(&of), wanted);
}

#[test]
fn objects_of_other_kinds_make_no_jobs() {
    for [version, kind] in [
        ["flux-framework.org/v1alpha2", "Other"],
        ["flux-framework.org.example.com/v1", "MiniCluster"],
        ["v1", "MiniCluster"],
    ] {
        assert!(JobMaker::of(&json!({"apiVersion": version, "kind": kind})).is_none(), "{version} {kind}");
    }
    assert!(JobMaker::of(&Value::Null).is_none());
}
