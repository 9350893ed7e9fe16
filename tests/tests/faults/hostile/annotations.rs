//! Annotations and labels that Sluice and Kueue write or read, set on jobs and removed by their user, in every state.

use serde_json::{Value, json};
use sluice_tests::place::{job, patch};

use super::bed::{OWN, SHARED, Tenant, attack, tenant};

/// Annotations, with values that say what a tenant would like.
const ANNOTATIONS: [(&str, &str); 13] = [
    ("kueue.x-k8s.io/stopping", "true"),
    ("kueue.x-k8s.io/job-min-parallelism", "1"),
    ("kueue.x-k8s.io/job-completions-equal-parallelism", "true"),
    ("kueue.x-k8s.io/admission-gated-by", "example.com/gate"),
    ("kueue.x-k8s.io/elastic-job", "true"),
    ("kueue.x-k8s.io/workload-slice-name", "precious"),
    ("kueue.x-k8s.io/workload-slice-replacement-for", "victim/precious"),
    ("kueue.x-k8s.io/priority-boost", "2147483647"),
    ("kueue.x-k8s.io/workload-allowed-resource-flavors", "victim"),
    ("kueue.x-k8s.io/is-group-workload", "true"),
    ("kueue.x-k8s.io/pod-suspending-parent", "job"),
    ("sluice.dev/node-affinity", "{}"),
    ("sluice.dev/stop-repeated", "true"),
];

/// Labels.
const LABELS: [(&str, &str); 8] = [
    ("kueue.x-k8s.io/managed", "true"),
    ("kueue.x-k8s.io/podset", "main"),
    ("kueue.x-k8s.io/pod-group-name", "precious"),
    ("kueue.x-k8s.io/local-queue-name", "lq"),
    ("kueue.x-k8s.io/cluster-queue-name", "victim"),
    ("kueue.x-k8s.io/multikueue-origin", "elsewhere"),
    ("kueue.x-k8s.io/job-uid", "00000000-0000-0000-0000-000000000000"),
    ("kueue.x-k8s.io/max-exec-time-seconds", "2147483647"),
];

/// Puts each of them on a job and takes it off, with and without an attempt to run with more pods; and all of them at once.
async fn try_all(tenant: &Tenant, name: &str) {
    let run = |metadata: Value| json!({"metadata": metadata, "spec": {"suspend": false, "parallelism": 30, "completions": 30}});
    let of = |part: &str, key: &str, value: Value| json!({part: {key: value}});
    let all =
        ANNOTATIONS.map(|one| ("annotations", one)).into_iter().chain(LABELS.map(|one| ("labels", one)));
    let mut taken = 0;
    for (part, (key, value)) in all {
        let on = of(part, key, json!(value));
        taken += usize::from(tenant.patch(name, json!({"metadata": on.clone()})).await.is_ok());
        drop(tenant.patch(name, run(on)).await);
        drop(tenant.patch(name, run(of(part, key, json!("")))).await);
        drop(tenant.patch(name, run(of(part, key, Value::Null))).await);
        drop(tenant.patch(name, json!({"metadata": of(part, key, Value::Null)})).await);
    }
    assert!(taken > 0, "not one was tried");
    drop(tenant.patch(name, run(json!({"annotations": Value::from_iter(ANNOTATIONS)}))).await);
    drop(tenant.patch(name, run(json!({"labels": Value::from_iter(LABELS)}))).await);
}

pub async fn marks_of_the_manager_gain_a_user_nothing() {
    let tenant = tenant("marked").await;
    tenant.waiting("waits").await;
    try_all(&tenant, "waits").await;
    tenant.gained_nothing().await;

    tenant.running("runs").await;
    try_all(&tenant, "runs").await;
    tenant.gained_nothing().await;

    // One that was stopped, and while it is being stopped.
    tenant.running("stopped").await;
    let workload = tenant.place.workload("stopped").await.unwrap();
    let workload = workload["metadata"]["name"].as_str().unwrap();
    patch(&tenant.place.workloads(), workload, json!({"spec": {"active": false}})).await.unwrap();
    try_all(&tenant, "stopped").await;
    tenant.gained_nothing().await;
    try_all(&tenant, "stopped").await;
    tenant.gained_nothing().await;
    tenant.others_go_on().await;
}

pub async fn marks_in_templates_gain_a_user_nothing() {
    let tenant = tenant("marked-pods").await;
    for (number, (part, (key, value))) in ANNOTATIONS
        .map(|one| ("annotations", one))
        .into_iter()
        .chain(LABELS.map(|one| ("labels", one)))
        .chain([("annotations", ("kueue.x-k8s.io/workload", "precious"))])
        .enumerate()
    {
        let mut attack = attack(&format!("a{number}"), SHARED);
        attack["spec"]["template"]["metadata"][part][key] = json!(value);
        drop(tenant.make(&attack).await);
    }
    tenant.gained_nothing().await;

    // With all of them a job is queued as any other is, or refused.
    let mut all = job("all", OWN, 1, 1, 36_000);
    for (key, value) in ANNOTATIONS {
        all["spec"]["template"]["metadata"]["annotations"][key] = json!(value);
    }
    all["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/workload"] = json!("job-precious");
    drop(tenant.make(&all).await);
    tenant.gained_nothing().await;
    tenant.others_go_on().await;
}
