//! Jobs that are unsuspended by hand, in every state of their Workload.

use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_testkit::kubectl::kubectl;
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::workloads;
use sluice_tests::place::{DEADLINE, job, patch};

use super::bed::{CHECKED, OWN, SHARED, Tenant, attack, set, tenant};

/// A job runs with as many pods as its Workload was admitted with, or less.
async fn has_no_more_pods_than_admitted(tenant: &Tenant, name: &str) {
    let (client, namespace) = (&tenant.place.client, &tenant.place.name);
    eventually(&format!("{name} to have as many pods as are admitted"), DEADLINE, || async {
        let job = tenant.place.jobs().get(name).await?;
        let workload = workloads::of_job(client, namespace, name).await?.unwrap_or_default();
        let (spec, status) = (job.spec.unwrap_or_default(), job.status.unwrap_or_default());
        let admitted = workload["status"]["admission"]["podSetAssignments"][0]["count"].as_i64().unwrap_or(0);
        let over = status.completion_time.is_some();
        let runs =
            if spec.suspend == Some(true) || over { 0 } else { i64::from(spec.parallelism.unwrap_or(1)) };
        Ok(progress(runs <= admitted, format!("{runs} of {admitted}")))
    })
    .await
    .unwrap();
}

fn unsuspend() -> serde_json::Value {
    json!({"spec": {"suspend": false}})
}

pub async fn a_job_that_is_unsuspended_by_hand_is_stopped_in_every_state() {
    let tenant = tenant("unsuspended").await;
    // Before it has a Workload, while it waits, and when it can never run.
    tenant.make(&attack("new", SHARED)).await.unwrap();
    drop(tenant.patch("new", unsuspend()).await);
    tenant.waiting("waits").await;
    drop(tenant.patch("waits", unsuspend()).await);
    let mut huge = attack("huge", SHARED);
    huge["spec"]["parallelism"] = json!(64);
    huge["spec"]["completions"] = json!(64);
    tenant.make(&huge).await.unwrap();
    tenant.place.wait_for_condition("huge", "QuotaReserved", "False").await.unwrap();
    drop(tenant.patch("huge", unsuspend()).await);
    // In a queue that is not there.
    tenant.make(&attack("nowhere", "no-such-queue")).await.unwrap();
    drop(tenant.patch("nowhere", unsuspend()).await);
    tenant.gained_nothing().await;

    // Deactivated, and evicted by that.
    tenant.running("stopped").await;
    let workload = tenant.place.workload("stopped").await.unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    patch(&tenant.place.workloads(), name, json!({"spec": {"active": false}})).await.unwrap();
    tenant.place.wait_until("stopped", false).await.unwrap();
    drop(tenant.patch("stopped", unsuspend()).await);
    // Again and again: it does not tire.
    for _ in 0..20 {
        drop(tenant.patch("waits", unsuspend()).await);
    }
    tenant.gained_nothing().await;
    tenant.others_go_on().await;
}

pub async fn a_job_in_a_stopped_queue_is_stopped_and_one_with_more_pods_waits_again() {
    let tenant = tenant("unsuspended-held").await;
    tenant.running("drained").await;
    let queue = tenant.place.name.clone();
    let policy = |policy: &str| json!({"spec": {"stopPolicy": policy}});
    patch(&tenant.place.cluster_queues(), &queue, policy("HoldAndDrain")).await.unwrap();
    tenant.place.wait_until("drained", false).await.unwrap();
    drop(tenant.patch("drained", unsuspend()).await);
    tenant.make(&attack("held", OWN)).await.unwrap();
    drop(tenant.patch("held", unsuspend()).await);
    tenant.make(&set("held-set", OWN, 1)).await.unwrap();
    tenant.gained_nothing().await;
    tenant.place.delete_job("held").await.unwrap();
    kubectl(tenant.place.plane, &["delete", "-n", &queue, "jobset", "held-set"]).await.unwrap();
    patch(&tenant.place.cluster_queues(), &queue, policy("None")).await.unwrap();
    tenant.place.wait_until("drained", true).await.unwrap();

    // A job that runs asks for more than it was admitted with.
    let more = json!({"spec": {"parallelism": 40, "completions": 40}});
    drop(tenant.patch("drained", more).await);
    has_no_more_pods_than_admitted(&tenant, "drained").await;
    tenant.gained_nothing().await;
}

/// Quota is reserved, and the checks have not said yes: the job does not run, whatever its user does.
pub async fn a_job_whose_quota_is_reserved_waits_for_its_checks() {
    let tenant = tenant("checked").await;
    let place = &tenant.place;
    tenant.queue_with_a_check("hostile").await;

    tenant.make(&attack("reserved", CHECKED)).await.unwrap();
    place.wait_for_condition("reserved", "QuotaReserved", "True").await.unwrap();
    for patch in [unsuspend(), json!({"spec": {"suspend": false, "parallelism": 2}}), unsuspend()] {
        drop(tenant.patch("reserved", patch).await);
    }
    tenant.make(&set("reserved-set", CHECKED, 1)).await.unwrap();
    tenant.gained_nothing().await;
    place.wait_for_condition("reserved", "QuotaReserved", "True").await.unwrap();
    assert!(place.suspended("reserved").await.unwrap());
    // It was for the check alone that it waited.
    let workload = place.workload("reserved").await.unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    let ready = json!([{"name": "hostile", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let status = Patch::Merge(json!({"status": {"admissionChecks": ready}}));
    place.workloads().patch_status(name, &PatchParams::default(), &status).await.unwrap();
    place.wait_until("reserved", true).await.unwrap();
    tenant.gained_nothing().await;
}

/// A job that is about to end, or has ended, gets no more pods than it was admitted with, and does not begin again.
pub async fn a_job_that_is_finishing_gets_no_more_pods() {
    let tenant = tenant("finishing").await;
    let more = || json!({"spec": {"suspend": false, "parallelism": 40, "completions": 40}});
    let indexed = |name: &str, seconds: u32| {
        let mut job = job(name, OWN, 1, 1, seconds);
        job["spec"]["completionMode"] = json!("Indexed");
        job
    };
    // While its only pod ends.
    tenant.make(&indexed("ends", 1)).await.unwrap();
    tenant.place.wait_until("ends", true).await.unwrap();
    for _ in 0..20 {
        drop(tenant.patch("ends", more()).await);
    }
    has_no_more_pods_than_admitted(&tenant, "ends").await;
    // Stopped at that moment, and resumed by hand.
    tenant.make(&indexed("stopped", 1)).await.unwrap();
    tenant.place.wait_until("stopped", true).await.unwrap();
    let workload = tenant.place.workload("stopped").await.unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    patch(&tenant.place.workloads(), name, json!({"spec": {"active": false}})).await.unwrap();
    for _ in 0..20 {
        drop(tenant.patch("stopped", unsuspend()).await);
        drop(tenant.patch("stopped", more()).await);
    }
    has_no_more_pods_than_admitted(&tenant, "stopped").await;
    // When it is over.
    tenant.make(&indexed("over", 0)).await.unwrap();
    tenant.place.wait_for_condition("over", "Finished", "True").await.unwrap();
    for patch in [unsuspend(), more(), json!({"spec": {"suspend": true}}), more()] {
        drop(tenant.patch("over", patch).await);
    }
    tenant.gained_nothing().await;
    for name in ["ends", "stopped", "over"] {
        has_no_more_pods_than_admitted(&tenant, name).await;
    }
    tenant.place.wait_for_condition("over", "Finished", "True").await.unwrap();
}
