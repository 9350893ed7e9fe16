//! Queue names that are added, removed and changed while quota is held.

use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::workloads::{self as objects, holds};
use sluice_tests::place::{DEADLINE, QUEUE_NAME, job, patch};

use super::bed::{CHECKED, OWN, SHARED, Tenant, attack, tenant};

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
        let over = job.status.is_some_and(|status| status.completion_time.is_some());
        let (labels, annotations) = (job.metadata.labels, job.metadata.annotations);
        let named = |map: Option<std::collections::BTreeMap<String, String>>| map?.get(QUEUE_NAME).cloned();
        let queue = named(labels).or_else(|| named(annotations)).unwrap_or_default();
        let workload =
            objects::of_job(&tenant.place.client, &tenant.place.name, name).await?.unwrap_or_default();
        let right = holds(&workload, "Admitted") && workload["spec"]["queueName"] == queue.as_str();
        // A job without a queue runs as it likes.
        Ok(progress(
            suspended || over || right || queue.is_empty(),
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

/// In the states that the other stories leave out.
pub async fn a_queue_name_that_changes_in_any_state_gains_nothing() {
    let tenant = tenant("requeued-anywhen").await;
    let (place, unsuspend) = (&tenant.place, json!({"spec": {"suspend": false}}));
    let all_ways = |name: &'static str| {
        let (tenant, unsuspend) = (&tenant, &unsuspend);
        async move {
            for queue in [SHARED, "no-such-queue", SHARED] {
                let queue = json!(queue);
                drop(tenant.patch(name, label(&queue)).await);
                drop(tenant.patch(name, annotation(&queue)).await);
                drop(tenant.patch(name, with_suspend(label(&queue), true)).await);
                drop(tenant.patch(name, with_suspend(label(&queue), false)).await);
                drop(tenant.patch(name, unsuspend.clone()).await);
                runs_in_its_queue(tenant, name).await;
            }
        }
    };
    // It had no queue, and runs for that.
    let mut free = attack("joins", SHARED);
    free["metadata"]["labels"] = json!({});
    tenant.make(&free).await.unwrap();
    for change in [label(&json!(SHARED)), annotation(&json!(SHARED)), with_suspend(label(&json!(OWN)), true)]
    {
        if !super::bed::refused(tenant.patch("joins", change).await) {
            runs_in_its_queue(&tenant, "joins").await;
        }
    }
    all_ways("joins").await;
    place.delete_job("joins").await.unwrap();
    // Its queue is not there.
    tenant.make(&attack("nowhere", "nowhere")).await.unwrap();
    all_ways("nowhere").await;
    // Quota is reserved, and a check has not answered.
    tenant.queue_with_a_check("unanswered").await;
    tenant.make(&attack("reserved", CHECKED)).await.unwrap();
    place.wait_for_condition("reserved", "QuotaReserved", "True").await.unwrap();
    all_ways("reserved").await;
    // It is deactivated, and evicted by that: also in a queue that has room, it stays so.
    tenant.running("deactivated").await;
    let workload = place.workload("deactivated").await.unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    patch(&place.workloads(), name, json!({"spec": {"active": false}})).await.unwrap();
    all_ways("deactivated").await;
    drop(tenant.patch("deactivated", with_suspend(label(&json!(OWN)), false)).await);
    runs_in_its_queue(&tenant, "deactivated").await;
    // Its queue is drained.
    tenant.running("drained").await;
    let policy = |policy: &str| json!({"spec": {"stopPolicy": policy}});
    patch(&place.cluster_queues(), &place.name, policy("HoldAndDrain")).await.unwrap();
    all_ways("drained").await;
    patch(&place.cluster_queues(), &place.name, policy("None")).await.unwrap();
    // It is over, and stays so.
    tenant.make(&job("over", OWN, 1, 1, 0)).await.unwrap();
    place.wait_for_condition("over", "Finished", "True").await.unwrap();
    all_ways("over").await;
    place.wait_for_condition("over", "Finished", "True").await.unwrap();
    // It is being deleted.
    tenant.running("goes").await;
    place.delete_job("goes").await.unwrap();
    drop(tenant.patch("goes", with_suspend(label(&json!(SHARED)), false)).await);
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
