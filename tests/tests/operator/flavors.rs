//! A place with two flavors, between which a job moves.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use serde_json::{Value, json};
use sluice_testkit::nodes;
use sluice_tests::place::{Place, create, patch};

use crate::bed::bed;

/// The node label by which the flavors differ.
pub const POOL: &str = "test-pool";

/// A place whose queue has this many processors of the first flavor and of the second, and enough memory. Each has a node of its own.
pub async fn two_flavors(name: &'static str, quota: [u32; 2]) -> Place<'static> {
    let place = Place::bare(bed().await.plane, name).await.unwrap();
    for flavor in flavors(name) {
        nodes::pool(&flavor, 1).label(POOL, &flavor).make(&place.client).await.unwrap();
        let spec = json!({"nodeLabels": {POOL: flavor}});
        let flavors = place.global("ResourceFlavor", "resourceflavors");
        create(&flavors, json!({"metadata": {"name": flavor}, "spec": spec})).await.unwrap();
    }
    let preempts = json!({"withinClusterQueue": "LowerPriority"});
    let spec =
        json!({"namespaceSelector": {}, "preemption": preempts, "resourceGroups": groups(name, quota)});
    create(&place.cluster_queues(), json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
    place.local_queue("lq", name).await.unwrap();
    place
}

/// The names of a place's flavors.
pub fn flavors(place: &str) -> [String; 2] {
    ["old", "new"].map(|flavor| format!("{place}-{flavor}"))
}

fn groups(place: &str, quota: [u32; 2]) -> Value {
    let of = |(name, cpu): (String, u32)| {
        let resources = json!([
            {"name": "cpu", "nominalQuota": cpu},
            {"name": "memory", "nominalQuota": "64Gi"},
        ]);
        json!({"name": name, "resources": resources})
    };
    let flavors: Vec<_> = flavors(place).into_iter().zip(quota).map(of).collect();
    json!([{"coveredResources": ["cpu", "memory"], "flavors": flavors}])
}

/// Gives the flavors other processors.
pub async fn set_quota(place: &Place<'_>, quota: [u32; 2]) {
    let spec = json!({"spec": {"resourceGroups": groups(&place.name, quota)}});
    patch(&place.cluster_queues(), &place.name, spec).await.unwrap();
}
