//! Jobs that claim that another object made them, so that they would need no admission of their own.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_tests::place::QUEUE_NAME;

use super::bed::{OWN, SHARED, attack, bed, set, tenant};

/// The UID of no object.
const GHOST: &str = "11111111-2222-3333-4444-555555555555";

/// A controller of a job, as its owner reference says.
fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": false}])
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

pub async fn an_owner_that_is_not_there_admits_nothing() {
    let tenant = tenant("forged-owners").await;
    let jobs: kube::Api<k8s_openapi::api::batch::v1::Job> =
        kube::Api::namespaced(bed().await.plane.client().await.unwrap(), "victim");
    let others = jobs.get("precious").await.unwrap().metadata.uid.unwrap();
    let running = uid(&tenant.running("mine").await);
    let owners = [
        ("ghost-set", "jobset.x-k8s.io/v1alpha2", "JobSet", "ghost", GHOST),
        ("ghost-job", "batch/v1", "Job", "ghost", GHOST),
        ("unserved-version", "jobset.x-k8s.io/v9", "JobSet", "ghost", GHOST),
        ("unserved-kind", "kubeflow.org/v1", "PyTorchJob", "ghost", GHOST),
        ("others-job", "batch/v1", "Job", "precious", &others),
        ("others-job-by-another-name", "batch/v1", "Job", "mine", &others),
        ("other-kind-same-uid", "jobset.x-k8s.io/v1alpha2", "JobSet", "mine", &running),
        ("unserved-version-same-uid", "jobset.x-k8s.io/v9", "JobSet", "mine", &running),
        ("right-name-wrong-uid", "batch/v1", "Job", "mine", GHOST),
    ];
    for (name, api_version, kind, owner_name, owner_uid) in owners {
        let mut job = attack(name, SHARED);
        job["metadata"]["ownerReferences"] = owner(api_version, kind, owner_name, owner_uid);
        tenant.make(&job).await.unwrap();
        // And the same one that lays the queue name aside: it is managed no more than any Job, unless its owner is.
        let mut set = set(&format!("{name}-set"), SHARED, 1);
        set["metadata"]["ownerReferences"] = job["metadata"]["ownerReferences"].clone();
        tenant.make(&set).await.unwrap();
    }
    tenant.gained_nothing().await;
    tenant.others_go_on().await;
}

pub async fn a_real_owner_admits_only_what_it_made() {
    let tenant = tenant("real-owners").await;
    let running = uid(&tenant.running("mine").await);
    // A Job makes no Jobs, admitted or not.
    let mut child = attack("child-of-running", SHARED);
    child["metadata"]["ownerReferences"] = owner("batch/v1", "Job", "mine", &running);
    tenant.make(&child).await.unwrap();
    // Nor does an admitted JobSet make Jobs that name a queue themselves.
    let mut parent = set("parent", OWN, 1);
    // As many pods as run side by side.
    let job = &mut parent["spec"]["replicatedJobs"][0]["template"]["spec"];
    (job["completions"], job["completionMode"]) = (Value::Null, json!("NonIndexed"));
    let parent = tenant.make(&parent).await.unwrap();
    tenant.place.wait_for_condition("parent", "Admitted", "True").await.unwrap();
    // What it made has no more pods than it was admitted with.
    tenant.place.wait_until("parent-k0-0", true).await.unwrap();
    tenant.patch("parent-k0-0", json!({"spec": {"parallelism": 64}})).await.unwrap();
    // By a name that none of its Jobs has, and by that of a second replica: it has one.
    for name in ["child-of-set", "parent-k0-1"] {
        let mut child = attack(name, SHARED);
        child["metadata"]["ownerReferences"] =
            owner("jobset.x-k8s.io/v1alpha2", "JobSet", "parent", &uid(&parent));
        tenant.make(&child).await.unwrap();
    }
    // One that waits lets nothing run either.
    let waits = uid(&tenant.waiting("waits").await);
    let mut child = attack("child-of-waiting", SHARED);
    child["metadata"]["ownerReferences"] = owner("batch/v1", "Job", "waits", &waits);
    tenant.make(&child).await.unwrap();
    // An owner that nothing manages does not take a job out of its queue.
    let mut free = attack("free", SHARED);
    free["metadata"]["labels"] = json!({});
    free["spec"]["suspend"] = json!(true);
    let free = uid(&tenant.make(&free).await.unwrap());
    let mut child = attack("child-of-unmanaged", SHARED);
    child["metadata"]["ownerReferences"] = owner("batch/v1", "Job", "free", &free);
    tenant.make(&child).await.unwrap();
    // The reference comes later, or goes.
    tenant.waiting("late").await;
    let late = json!({"metadata": {"ownerReferences": owner("batch/v1", "Job", "mine", &running)}, "spec": {"suspend": false}});
    drop(tenant.patch("late", late).await);
    let job = tenant.place.jobs().get("late").await.unwrap();
    assert_eq!(job.metadata.labels.unwrap()[QUEUE_NAME], SHARED);
    tenant.gained_nothing().await;
}

pub async fn owners_that_own_each_other_keep_nothing_running() {
    let tenant = tenant("circular-owners").await;
    let mut uids = Vec::new();
    for name in ["one", "two"] {
        let mut free = attack(name, SHARED);
        free["metadata"]["labels"] = json!({});
        free["spec"]["suspend"] = json!(true);
        uids.push(uid(&tenant.make(&free).await.unwrap()));
    }
    tenant.running("mine").await;
    for (name, above, of) in [("one", "two", 1), ("two", "one", 0), ("mine", "one", 0)] {
        let owners = owner("batch/v1", "Job", above, &uids[of]);
        tenant.patch(name, json!({"metadata": {"ownerReferences": owners}})).await.unwrap();
    }
    let workload = tenant.place.workload("mine").await.unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    let patch = Patch::Merge(json!({"spec": {"active": false}}));
    tenant.place.workloads().patch(name, &PatchParams::default(), &patch).await.unwrap();
    tenant.place.wait_until("mine", false).await.unwrap();
    tenant.place.wait_for_condition("mine", "QuotaReserved", "False").await.unwrap();
    tenant.gained_nothing().await;
}
