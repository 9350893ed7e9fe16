//! Queue names that come, go and change while quota is held.

use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::workloads::{self as objects, holds};
use sluice_tests::place::{DEADLINE, QUEUE_NAME};

use super::bed::{OWN, SHARED, Tenant, attack, tenant};

fn label(queue: &Value) -> Value {
    json!({"metadata": {"labels": {QUEUE_NAME: queue}}})
}

fn annotation(queue: &Value) -> Value {
    json!({"metadata": {"annotations": {QUEUE_NAME: queue}}})
}

fn with_suspend(mut patch: Value, suspend: bool) -> Value {
    patch["spec"] = json!({"suspend": suspend});
    patch
}

/// The queue that a job's Workload holds quota of is the one that the job names: nothing runs on the quota of another.
async fn runs_in_its_queue(tenant: &Tenant, name: &str) {
    eventually(&format!("{name} to run in the queue that it names, or not at all"), DEADLINE, || async {
        let job = tenant.place.jobs().get(name).await?;
        let suspended = job.spec.and_then(|spec| spec.suspend).unwrap_or_default();
        let (labels, annotations) = (job.metadata.labels, job.metadata.annotations);
        let named = |map: Option<std::collections::BTreeMap<String, String>>| map?.get(QUEUE_NAME).cloned();
        let queue = named(labels).or_else(|| named(annotations)).unwrap_or_default();
        let workload =
            objects::of_job(&tenant.place.client, &tenant.place.name, name).await?.unwrap_or_default();
        let right = holds(&workload, "Admitted") && workload["spec"]["queueName"] == queue.as_str();
        Ok(progress(
            suspended || right,
            format!("it runs, {queue:?} is named, {}", workload["spec"]["queueName"]),
        ))
    })
    .await
    .unwrap();
}

pub async fn a_queue_that_is_named_by_annotation_is_a_queue() {
    let tenant = tenant("annotated").await;
    for (name, queue) in [("shared", SHARED), ("nowhere", "no-such-queue")] {
        let mut job = attack(name, queue);
        job["metadata"]["labels"] = json!({});
        job["metadata"]["annotations"] = json!({QUEUE_NAME: queue});
        tenant.make(&job).await.unwrap();
        drop(tenant.patch(name, json!({"spec": {"suspend": false}})).await);
    }
    let mut job = attack("own", OWN);
    job["metadata"]["labels"] = json!({});
    job["metadata"]["annotations"] = json!({QUEUE_NAME: OWN});
    tenant.make(&job).await.unwrap();
    tenant.place.wait_until("own", true).await.unwrap();
    // It runs: its annotation names another queue, then none.
    for change in [json!(SHARED), json!("no-such-queue")] {
        drop(tenant.patch("own", annotation(&change)).await);
        runs_in_its_queue(&tenant, "own").await;
    }
    tenant.gained_nothing().await;
}

pub async fn a_queue_name_that_changes_takes_no_quota_along() {
    let tenant = tenant("requeued").await;
    // While it waits.
    tenant.waiting("waits").await;
    for change in [json!("no-such-queue"), json!(SHARED)] {
        drop(tenant.patch("waits", with_suspend(label(&change), false)).await);
        runs_in_its_queue(&tenant, "waits").await;
    }
    // While it runs: alone, with a suspension in the same write, and by an annotation beside the label.
    tenant.running("runs").await;
    drop(tenant.patch("runs", label(&json!(SHARED))).await);
    runs_in_its_queue(&tenant, "runs").await;
    drop(tenant.patch("runs", with_suspend(label(&json!(SHARED)), true)).await);
    drop(tenant.patch("runs", json!({"spec": {"suspend": false}})).await);
    runs_in_its_queue(&tenant, "runs").await;
    // While it is being stopped and started.
    tenant.running("flips").await;
    for queue in [SHARED, OWN, SHARED, OWN, SHARED] {
        drop(tenant.patch("flips", with_suspend(label(&json!(queue)), true)).await);
        drop(tenant.patch("flips", with_suspend(label(&json!(queue)), false)).await);
    }
    runs_in_its_queue(&tenant, "flips").await;
    tenant.gained_nothing().await;
}

pub async fn a_running_job_that_takes_its_queue_name_off_keeps_no_quota_for_nothing() {
    let tenant = tenant("unnamed").await;
    tenant.running("runs").await;
    let refused = super::bed::refused(tenant.patch("runs", label(&Value::Null)).await);
    if !refused {
        drop(tenant.patch("runs", json!({"spec": {"parallelism": 30, "completions": 30}})).await);
    }
    tenant.gained_nothing().await;
    // Nothing is hidden from the queue's sum: what runs here is in it, or there is nothing.
    // The sum follows within a second.
    eventually("the job to be in its queue's sum, or not to run", DEADLINE, || async {
        let job = tenant.place.jobs().get("runs").await?;
        let runs = job.spec.is_some_and(|spec| spec.suspend != Some(true));
        let reserved = tenant.place.reserved_cpu().await?;
        Ok(progress(runs == (reserved != "0"), format!("runs: {runs}, reserved: {reserved}")))
    })
    .await
    .unwrap();
}
