//! Jobs that are deleted without their pods.

use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::json;
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::DEADLINE;

use super::bed::{OWN, attack, refused, set, tenant};

pub async fn a_job_that_is_deleted_without_its_pods_stays() {
    let tenant = tenant("orphans").await;
    let mut marked = attack("marked", OWN);
    marked["metadata"]["finalizers"] = json!(["orphan"]);
    // The API server hears of a policy a moment after it was made.
    eventually("the policy to be in force", DEADLINE, || async {
        Ok(progress(tenant.dry_run(&marked).await.is_err(), "a job with the finalizer orphan is let in"))
    })
    .await
    .unwrap();
    tenant.running("kept").await;
    let orphan =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    assert!(refused(tenant.delete("Job", "kept", &orphan).await));
    assert!(refused(tenant.patch("kept", json!({"metadata": {"finalizers": ["orphan"]}})).await));
    assert!(!tenant.place.suspended("kept").await.unwrap());
    tenant.delete("Job", "kept", &DeleteParams::background()).await.unwrap();
    tenant.place.wait_until_empty().await.unwrap();

    // The Jobs of a JobSet have no queue name.
    tenant.make(&set("whole", OWN, 1)).await.unwrap();
    tenant.place.wait_until("whole-k0-0", true).await.unwrap();
    assert!(refused(tenant.delete("JobSet", "whole", &orphan).await));
    assert!(refused(tenant.delete("Job", "whole-k0-0", &orphan).await));
    tenant.delete("JobSet", "whole", &DeleteParams::foreground()).await.unwrap();
    tenant.gained_nothing().await;
}
