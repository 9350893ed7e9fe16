//! Remedies of every kind, applied to the real objects as given in the answer: the job starts, and exactly the jobs that it names are preempted.

use jiff::Timestamp;
use kube::api::{Api, DynamicObject};
use sluice_testkit::workloads;

use super::*;

const WORLD: &str = r"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: reserved}
spec:
  nodeTaints: [{key: reserved, value: 'yes', effect: NoSchedule}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: open}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: open
      resources: [{name: cpu, nominalQuota: 4}]
    - name: reserved
      resources: [{name: cpu, nominalQuota: 4}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 100
";

/// Asks the manager until the answer has a remedy that begins so.
async fn remedy(manager: &Manager, job: &str, beginning: &str) -> Value {
    let path = format!("/debug/explain/default/{job}?output=json");
    let found = std::sync::Mutex::new(Value::Null);
    eventually(&format!("a remedy for {job}: {beginning}"), DEADLINE, || async {
        let (_, page) = manager.health(&path).await?;
        let explained: Value = serde_json::from_str(&page).unwrap_or_default();
        let all = explained["remedies"].as_array().cloned().unwrap_or_default();
        let one = all.into_iter().find(|r| r["text"].as_str().is_some_and(|t| t.starts_with(beginning)));
        let there = one.is_some();
        *found.lock().unwrap() = one.unwrap_or_default();
        Ok(progress(there, page))
    })
    .await
    .unwrap();
    found.into_inner().unwrap()
}

/// Applies the patches of a remedy.
async fn apply_to_the_cluster(client: &Client, remedy: &Value) {
    for patch in remedy["patches"].as_array().unwrap() {
        let name = patch["name"].as_str().unwrap();
        let merge = Patch::Merge(&patch["merge"]);
        if patch["kind"] == "Job" {
            let jobs: Api<Job> = Api::namespaced(client.clone(), patch["namespace"].as_str().unwrap());
            jobs.patch(name, &PatchParams::default(), &merge).await.unwrap();
        } else {
            assert_eq!(patch["kind"], "ClusterQueue", "{remedy}");
            let queues: Api<DynamicObject> = workloads::all(client, "ClusterQueue", "clusterqueues");
            queues.patch(name, &PatchParams::default(), &merge).await.unwrap();
        }
    }
}

/// As the Job controller, which this plane does not have, would say it.
async fn complete(client: &Client, name: &str) {
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    let now = "2030-01-01T00:00:00Z";
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now, "lastProbeTime": now});
    let pods = jobs.get(name).await.unwrap().spec.and_then(|spec| spec.completions).unwrap_or(1);
    let status = json!({"status": {
        "startTime": now, "completionTime": now, "succeeded": pods,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }});
    jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// The same of a Job that was stopped, once it is asked.
async fn confirm_the_stop(client: &Client, name: &str) {
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    let condition = |status: &str| json!({"type": "Suspended", "status": status});
    let asked = condition("False");
    eventually(&format!("{name} to be stopped and asked about"), DEADLINE, || async {
        let job = serde_json::to_value(jobs.get(name).await?)?;
        let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let holds = conditions.iter().any(|c| c["type"] == asked["type"] && c["status"] == asked["status"]);
        Ok(progress(holds, job["status"].to_string()))
    })
    .await
    .unwrap();
    let mut answer = condition("True");
    answer["lastTransitionTime"] = json!(Timestamp::now());
    let status = json!({"status": {"conditions": [answer]}});
    jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn remedies_of_every_kind_let_the_job_start_when_they_are_applied() {
    let (_turn, plane, client, setup) = plane().await;
    let manager = Manager::start(plane, setup).await.unwrap();
    apply(plane, WORLD).await.unwrap();
    make_job(&client, "default", "first", 3).await;
    wait_until_started(&client, "default", "first").await;

    // Another flavor.
    make_job(&client, "default", "tolerant", 4).await;
    let wanted = "starts now if flavor reserved is allowed: tolerate the taint reserved";
    let flavor = remedy(&manager, "tolerant", wanted).await;
    apply_to_the_cluster(&client, &flavor).await;
    wait_until_started(&client, "default", "tolerant").await;
    let tolerant = workloads::of_job(&client, "default", "tolerant").await.unwrap().unwrap();
    assert_eq!(tolerant["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"], "reserved");

    // More quota.
    make_job(&client, "default", "more", 4).await;
    let quota =
        remedy(&manager, "more", "needs 3 more cpu of flavor open as nominal quota of ClusterQueue cq").await;
    apply_to_the_cluster(&client, &quota).await;
    wait_until_started(&client, "default", "more").await;

    // A higher priority, which costs another job the quota.
    make_job(&client, "default", "important", 4).await;
    let priority = remedy(&manager, "important", "starts now with the WorkloadPriorityClass urgent").await;
    assert_eq!(priority["preempts"], json!(["default/more"]), "{priority}");
    apply_to_the_cluster(&client, &priority).await;
    confirm_the_stop(&client, "more").await;
    wait_until_started(&client, "default", "important").await;
    let more = workloads::of_job(&client, "default", "more").await.unwrap().unwrap();
    assert!(workloads::holds(&more, "Preempted") && workloads::holds(&more, "Evicted"), "{more}");
    let first = workloads::of_job(&client, "default", "first").await.unwrap().unwrap();
    assert!(workloads::holds(&first, "Admitted"), "{first}");

    // The end of another: what is patched is nothing.
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    complete(&client, "more").await;
    let waits = json!({"metadata": {"annotations": {"sluice.dev/run-seconds": "300"}}});
    jobs.patch("important", &PatchParams::default(), &Patch::Merge(waits)).await.unwrap();
    make_job(&client, "default", "patient", 1).await;
    let end = remedy(&manager, "patient", "starts when default/important finishes, in about ").await;
    assert_eq!(end["patches"], json!([]));
    complete(&client, "important").await;
    wait_until_started(&client, "default", "patient").await;
}
