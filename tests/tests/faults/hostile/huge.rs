//! Objects as large as the API server takes.

use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::DEADLINE;

use super::bed::{OWN, SHARED, attack, refused, set, tenant};

fn container(job: &mut Value) -> &mut Value {
    &mut job["spec"]["template"]["spec"]["containers"][0]
}

pub async fn huge_objects_wait_like_others_or_are_refused() {
    let tenant = tenant("huge").await;
    let mut variables = attack("variables", SHARED);
    let many: Vec<_> =
        (0..10_000).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "x".repeat(40)})).collect();
    container(&mut variables)["env"] = json!(many);
    let mut wide = attack("wide", SHARED);
    container(&mut wide)["args"] = json!(["x".repeat(1_000_000)]);
    let mut labelled = attack("labelled", SHARED);
    for n in 0..1_000 {
        let (key, value) = (format!("{}.example.com/{n:063}", "d".repeat(60)), "v".repeat(63));
        labelled["metadata"]["labels"][key.as_str()] = json!(value);
        labelled["spec"]["template"]["metadata"]["labels"][key.as_str()] = json!(value);
    }
    let mut annotated = attack("annotated", SHARED);
    annotated["metadata"]["annotations"] = json!({"example.com/much": "x".repeat(250_000)});
    let mut named = attack(&"n".repeat(63), SHARED);
    named["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("p".repeat(63));
    let mut containers = attack("containers", SHARED);
    let many: Vec<_> = (0..500)
        .map(|n| json!({"name": format!("c{n}"), "image": "i", "resources": {"requests": {"cpu": "1m"}}}))
        .collect();
    containers["spec"]["template"]["spec"]["containers"] = json!(many);
    let sets = [set("nineteen", SHARED, 19), set("thirty", SHARED, 30), set("eight", SHARED, 8)];
    for object in [variables, wide, labelled, annotated, named, containers].iter().chain(&sets) {
        let name = object["metadata"]["name"].as_str().unwrap();
        if !refused(tenant.make(object).await) && object["kind"] == "Job" {
            drop(tenant.patch(name, json!({"spec": {"suspend": false}})).await);
        }
    }
    tenant.gained_nothing().await;
    tenant.others_go_on().await;
    // One that is large and fits runs.
    let mut large = attack("large", OWN);
    container(&mut large)["args"] = json!(["x".repeat(500_000)]);
    tenant.make(&large).await.unwrap();
    tenant.place.wait_until("large", true).await.unwrap();
    // And all of it goes.
    for name in ["large", "wide", "variables"] {
        tenant.place.delete_job(name).await.unwrap();
        eventually(&format!("the Workload of {name} to be gone"), DEADLINE, || async {
            let found = sluice_testkit::workloads::of_job(&tenant.place.client, "huge", name).await?;
            Ok(progress(found.is_none(), "it is there"))
        })
        .await
        .unwrap();
    }
}
