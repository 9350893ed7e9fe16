//! How many writes Workloads that users make directly take on a real API server, counted at its door (docs/manual/performance.md "Writes").

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::wait::{consistently, eventually, progress};
use sluice_testkit::{FaultProxy, Write, workloads};
use sluice_tests::place::{DEADLINE, Place};

use crate::status::start_with;

fn api(here: &Place<'_>) -> Api<DynamicObject> {
    workloads::namespaced(&here.client, &here.name, "Workload", "workloads")
}

/// A Workload with one pod that asks for so many processors.
async fn make(here: &Place<'_>, name: &str, cpu: u32) {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu.to_string()}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": name},
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]},
    });
    api(here).create(&PostParams::default(), &serde_json::from_value(workload).unwrap()).await.unwrap();
}

/// Says that a Workload has finished, as the harness of another project would.
async fn finish(here: &Place<'_>, name: &str) {
    let condition = json!({"type": "Finished", "status": "True", "reason": "Succeeded", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": name},
        "status": {"conditions": [condition]},
    });
    let by = PatchParams::apply("harness").force();
    api(here).patch_status(name, &by, &Patch::Apply(status)).await.unwrap();
}

/// Waits until a condition has a status.
async fn wait_for(here: &Place<'_>, name: &str, type_: &str, status: &str) {
    eventually(&format!("{type_}={status} of {name}"), DEADLINE, || async {
        let object = api(here).get(name).await?;
        let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is = |c: &Value| c["type"] == type_ && c["status"] == status;
        Ok(progress(conditions.iter().any(is), format!("{conditions:?}")))
    })
    .await
    .unwrap();
}

/// The writes on a Workload by the manager.
fn of(proxy: &FaultProxy, name: &str) -> Vec<Write> {
    let on = |write: &Write| write.path.contains(&format!("/workloads/{name}"));
    proxy.writes().into_iter().filter(on).collect()
}

#[tokio::test]
async fn a_workload_takes_one_write_and_one_more_if_it_waits() {
    let (plane, proxy, manager) = start_with(&json!({})).await;
    let here = Place::new(&plane, "counted", 1).await.unwrap();
    let queues = workloads::namespaced(&here.client, &here.name, "LocalQueue", "localqueues");
    here.wait_for_queue(&queues, "lq", "True/Ready").await.unwrap();
    proxy.forget_writes();
    make(&here, "first", 1).await;
    wait_for(&here, "first", "Admitted", "True").await;
    make(&here, "waits", 1).await;
    make(&here, "large", 7).await;
    for name in ["waits", "large"] {
        wait_for(&here, name, "QuotaReserved", "False").await;
    }
    finish(&here, "first").await;
    wait_for(&here, "waits", "Admitted", "True").await;
    finish(&here, "waits").await;
    // Others come and go: what waits is not written again. On a busy machine one of them may wait for the end before it to be seen.
    let mut waited = 0;
    for number in 0..5 {
        let name = format!("next-{number}");
        make(&here, &name, 1).await;
        wait_for(&here, &name, "Admitted", "True").await;
        finish(&here, &name).await;
        let count = of(&proxy, &name).len();
        assert!((1..=2).contains(&count), "{name}: {:?}", of(&proxy, &name));
        waited += count - 1;
    }
    let counts = || ["first", "waits", "large"].map(|name| of(&proxy, name).len());
    assert_eq!(counts(), [1, 2, 1], "{:?}", proxy.writes());
    consistently("no more writes", Duration::from_secs(2), || async {
        Ok(progress(counts() == [1, 2, 1], format!("{:?}", counts())))
    })
    .await
    .unwrap();
    let conflicts: Vec<_> = proxy.writes().into_iter().filter(|write| write.status == 409).collect();
    assert!(conflicts.is_empty(), "{conflicts:?}");
    let events = proxy.writes().iter().filter(|write| write.path.contains("/events")).count();
    // Seven admissions with an event each, and the Workloads that waited.
    assert!(events <= 9 + waited, "{events}");
    manager.stop().await.unwrap();
    plane.stop();
}
