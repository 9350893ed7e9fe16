//! Workloads that are named, made, changed and deleted by hand.

use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::workloads as objects;
use sluice_tests::place::{DEADLINE, Place, job, patch};

use super::bed::{OWN, SHARED, Tenant, attack, bed, refused, tenant};

const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";

async fn workload_name(place: &Place<'_>, job: &str) -> String {
    let workload = place.workload(job).await.unwrap();
    workload["metadata"]["name"].as_str().unwrap().to_owned()
}

/// A job of more than any queue has, that names a Workload.
fn greedy(name: &str, workload: &str) -> Value {
    let mut job = attack(name, OWN);
    job["metadata"]["labels"][PREBUILT] = json!(workload);
    job["spec"]["parallelism"] = json!(64);
    job["spec"]["completions"] = json!(64);
    job
}

pub async fn a_workload_that_is_not_the_jobs_own_admits_nothing() {
    let tenant = tenant("prebuilt").await;
    tenant.running("mine").await;
    tenant.waiting("waits").await;
    tenant.make(&job("done", OWN, 1, 1, 0)).await.unwrap();
    tenant.place.wait_for_condition("done", "Finished", "True").await.unwrap();
    let victim =
        Place { plane: &bed().await.plane, client: tenant.place.client.clone(), name: "victim".to_owned() };
    let names = [
        ("of-mine", workload_name(&tenant.place, "mine").await),
        ("of-waiting", workload_name(&tenant.place, "waits").await),
        ("of-done", workload_name(&tenant.place, "done").await),
        ("of-others", workload_name(&victim, "precious").await),
        ("of-nothing", "no-such-workload".to_owned()),
        ("malformed", "Not_A.Name".to_owned()),
    ];
    for (name, workload) in names {
        if refused(tenant.make(&greedy(name, &workload)).await) {
            continue;
        }
        drop(tenant.patch(name, json!({"spec": {"suspend": false}})).await);
        // Named later, by one that waits.
        let late = format!("late-{name}");
        let mut job = attack(&late, SHARED);
        job["spec"]["parallelism"] = json!(64);
        tenant.make(&job).await.unwrap();
        let rename = json!({"metadata": {"labels": {PREBUILT: workload}}, "spec": {"suspend": false}});
        drop(tenant.patch(&late, rename).await);
    }
    tenant.gained_nothing().await;
    tenant.place.wait_until("mine", true).await.unwrap();
    tenant.others_go_on().await;
}

pub async fn a_batch_user_writes_no_workload() {
    let tenant = tenant("no-rights").await;
    tenant.waiting("waits").await;
    let name = workload_name(&tenant.place, "waits").await;
    let api = objects::namespaced(&tenant.user, &tenant.place.name, "Workload", "workloads");
    let params = kube::api::PatchParams::default();
    let admit = json!({"status": {"conditions": []}});
    let merge = kube::api::Patch::Merge(&admit);
    assert!(refused(api.patch_status(&name, &params, &merge).await), "its status");
    assert!(refused(api.patch(&name, &params, &merge).await), "its spec");
    assert!(refused(api.delete(&name, &DeleteParams::default()).await), "its deletion");
    let workload = own_workload(&tenant, "forged", "waits").await;
    let workload = serde_json::from_value(workload).unwrap();
    assert!(refused(api.create(&kube::api::PostParams::default(), &workload).await), "a new one");
}

/// A Workload that says it is a job's, asks for next to nothing, and says that it is admitted.
async fn own_workload(tenant: &Tenant, name: &str, job: &str) -> Value {
    let jobs: Api<Job> = tenant.place.jobs();
    let job = jobs.get(job).await.unwrap();
    let owner = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name, "uid": job.metadata.uid, "controller": true,
    }]);
    let mut template = serde_json::to_value(job.spec.unwrap().template).unwrap();
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1m"}});
    let conditions = ["QuotaReserved", "Admitted"].map(|kind| {
        json!({"type": kind, "status": "True", "reason": "Forged", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    });
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "ownerReferences": owner},
        "spec": {"queueName": OWN, "podSets": [{"name": "main", "count": 1, "template": template}]},
        "status": {
            "conditions": conditions,
            "admission": {"clusterQueue": tenant.place.name, "podSetAssignments": [{"name": "main", "count": 1}]},
        },
    })
}

pub async fn a_tenant_who_writes_workloads_runs_nothing_beyond_quota() {
    let tenant = tenant("writers").await;
    let api = tenant.place.workloads();
    // A Workload of next to nothing for a job of 64 processors.
    let mut large = attack("large", OWN);
    large["spec"]["parallelism"] = json!(64);
    large["spec"]["completions"] = json!(64);
    tenant.make(&large).await.unwrap();
    tenant.place.wait_for_condition("large", "QuotaReserved", "False").await.unwrap();
    let forged = serde_json::from_value(own_workload(&tenant, "forged", "large").await).unwrap();
    drop(api.create(&kube::api::PostParams::default(), &forged).await);
    drop(tenant.patch("large", json!({"spec": {"suspend": false}})).await);
    tenant.gained_nothing().await;

    // A Workload that loses its owner: the job finds back, or has another one.
    tenant.running("orphaned").await;
    let name = workload_name(&tenant.place, "orphaned").await;
    patch(&api, &name, json!({"metadata": {"ownerReferences": null}})).await.unwrap();
    tenant.gained_nothing().await;
    tenant.place.wait_until("orphaned", true).await.unwrap();

    // A Workload that is deleted while its job runs: what runs has a new one soon, or stops.
    tenant.running("bereft").await;
    let name = workload_name(&tenant.place, "bereft").await;
    let uid = tenant.place.workload("bereft").await.unwrap()["metadata"]["uid"].clone();
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    eventually("another Workload", DEADLINE, || async {
        let now =
            objects::of_job(&tenant.place.client, &tenant.place.name, "bereft").await?.unwrap_or_default();
        Ok(progress(now["metadata"]["uid"].is_string() && now["metadata"]["uid"] != uid, &now["metadata"]))
    })
    .await
    .unwrap();
    tenant.gained_nothing().await;
    tenant.place.wait_until("bereft", true).await.unwrap();

    // One whose deletion something else holds up, and whose finalizers are taken off.
    let name = workload_name(&tenant.place, "bereft").await;
    patch(&api, &name, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await.unwrap();
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    tenant.gained_nothing().await;
    patch(&api, &name, json!({"metadata": {"finalizers": null}})).await.unwrap();
    tenant.place.wait_until("bereft", true).await.unwrap();
    tenant.gained_nothing().await;
}
