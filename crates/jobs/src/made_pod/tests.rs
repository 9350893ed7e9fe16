use super::*;
use crate::may_be_pod_of;

use serde_json::{Value, json};

const LONG: &str = "a-cluster-whose-name-is-longer-than-any-value-of-a-label-is-allowed-to-be";

/// A job of this kind, name and spec, with the UID `u`.
fn job(kind: JobKind, name: &str, spec: &Value) -> JobView {
    crate::observe(kind, &json!({"metadata": {"name": name, "namespace": "ns", "uid": "u"}, "spec": spec}))
}

fn may_be(view: &JobView, pod: &str, labels: &[(&str, &str)]) -> bool {
    let marks = PodMarks::of(view);
    let job = Maker { kind: view.job.kind, name: &view.job.name, uid: &view.job.uid, marks: &marks };
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    may_be_pod_of(&job, &MadePod { name: pod, labels: &labels })
}

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[test]
fn pods_of_a_job_have_the_label_by_which_it_selects_them() {
    let plain = job(JobKind::JOB, "a", &json!({"template": template()}));
    let own = [("batch.kubernetes.io/controller-uid", "u")];
    assert!(may_be(&plain, "a-", &own) && may_be(&plain, "any", &own));
    for labels in [&[][..], &[("batch.kubernetes.io/controller-uid", "v")], &[("controller-uid", "u")]] {
        assert!(!may_be(&plain, "a-x7k2p", labels), "{labels:?}");
    }
    let selector = json!({"matchLabels": {"app": "a"}});
    let selects = json!({"manualSelector": true, "selector": selector, "template": template()});
    let selects = job(JobKind::JOB, "a", &selects);
    assert!(may_be(&selects, "a-x7k2p", &[("app", "a")]));
    assert!(!may_be(&selects, "a-x7k2p", &own) && !may_be(&selects, "a-x7k2p", &[("app", "b")]));
}

/// Each new pod of the namespace is compared with it.
#[test]
fn no_pod_is_identified_by_a_selector_of_many_values() {
    let selects = |values: usize| {
        let values: Vec<_> = (0..values).map(|at| format!("v{at}")).collect();
        let selector = json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": values}]});
        job(JobKind::JOB, "a", &json!({"manualSelector": true, "selector": selector, "template": template()}))
    };
    assert!(may_be(&selects(200), "a-x7k2p", &[("app", "a")]));
    let large = selects(300);
    assert_eq!(large.invalid.as_deref(), Some("spec.selector: Too long: may not have more than 256 values"));
    assert!(!may_be(&large, "a-x7k2p", &[("app", "a")]));
}

#[test]
fn pods_of_kubeflows_jobs_have_a_name_of_their_own() {
    let specs = json!({"Master": {"replicas": 1, "template": template()},
        "Worker": {"replicas": 2, "template": template()}});
    let torch = job(JobKind::PYTORCH_JOB, "a", &json!({"pytorchReplicaSpecs": specs}));
    for name in ["a-master-0", "a-worker-0", "a-worker-1"] {
        assert!(may_be(&torch, name, &[]), "{name}");
    }
    for name in [
        "a-worker-2",
        "a-worker--1",
        "a-worker-00",
        "a-worker-+1",
        "a-worker",
        "a-chief-0",
        "b-worker-0",
        "a-",
        "",
    ] {
        assert!(!may_be(&torch, name, &[]), "{name}");
    }
    let specs = json!({"Launcher": {"replicas": 1, "template": template()},
        "Worker": {"replicas": 1, "template": template()}});
    let mpi = job(JobKind::MPI_JOB, "a", &json!({"mpiReplicaSpecs": specs}));
    assert!(may_be(&mpi, "a-worker-0", &[]) && !may_be(&mpi, "a-worker-1", &[]));
    assert!(!may_be(&mpi, "a-launcher-0", &[]), "its launcher's pod is that of a Job");
}

#[test]
fn pods_of_a_ray_cluster_have_the_labels_of_the_cluster_and_of_one_of_its_groups() {
    let spec = json!({"headGroupSpec": {"template": template()}, "workerGroupSpecs": [
        {"groupName": "Small", "replicas": 1, "template": template()}]});
    let ray = job(JobKind::RAY_CLUSTER, "a", &spec);
    let of_type = |cluster, group, node_type| {
        [("ray.io/cluster", cluster), ("ray.io/group", group), ("ray.io/node-type", node_type)]
    };
    let labels = |cluster, group| of_type(cluster, group, "worker");
    assert!(may_be(&ray, "a-head-x", &of_type("a", "headgroup", "head")));
    assert!(may_be(&ray, "a-small-x", &labels("a", "Small")));
    // KubeRay does not find these, so that it would end none of them.
    for labels in [
        labels("b", "Small"),
        labels("a", "other"),
        labels("", "Small"),
        labels("a", "SMALL"),
        labels("a", "small"),
        labels("a", "headgroup"),
        of_type("a", "Small", "head"),
        of_type("a", "headgroup", ""),
        of_type("a", "headgroup", "redis-cleanup"),
        [("ray.io/cluster", "a"); 3],
    ] {
        assert!(!may_be(&ray, "a-small-x", &labels), "{labels:?}");
    }
    let long = job(JobKind::RAY_CLUSTER, LONG, &spec);
    let cut_off = &LONG[LONG.len() - 63..];
    assert!(
        may_be(&long, "x", &labels(cut_off, "Small")) && !may_be(&long, "x", &labels(&LONG[..63], "Small"))
    );
}

#[test]
fn any_pod_may_be_of_a_kind_of_which_nothing_is_known_and_none_of_one_that_others_look_after() {
    let train = job(JobKind::TRAIN_JOB, "a", &json!({}));
    assert!(may_be(&train, "any", &[]));
    let unreadable = job(JobKind::PYTORCH_JOB, "a", &json!({"pytorchReplicaSpecs": 7}));
    assert!(may_be(&unreadable, "any", &[]));
    let own = [("batch.kubernetes.io/controller-uid", "u")];
    let others = |by: &str| job(JobKind::JOB, "a", &json!({"managedBy": by, "template": template()}));
    assert!(may_be(&others("kubernetes.io/job-controller"), "a-x", &own));
    assert!(!may_be(&others("example.com/mine"), "a-x", &own));
}
