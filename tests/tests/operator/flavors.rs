//! A place with two flavors, between which a job moves.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use serde_json::{Value, json};
use sluice_testkit::nodes;
use sluice_tests::place::{Place, create, patch};

use crate::bed::bed;

/// The node label by which the flavors differ.
pub const POOL: &str = "test-pool";

/// A label that only nodes of the first flavor have: what merges the selectors of two flavors keeps it.
const OLD: &str = "test-old";

/// The node selector of a flavor.
pub fn selector_of(flavor: &str) -> Value {
    if flavor.ends_with("-old") { json!({POOL: flavor, OLD: "yes"}) } else { json!({POOL: flavor}) }
}

/// A place whose queue has this many processors of the first flavor and of the second, and enough memory. Each has a node of its own.
pub async fn two_flavors(name: &'static str, quota: [u32; 2]) -> Place<'static> {
    let place = Place::bare(bed().await.plane, name).await.unwrap();
    for flavor in flavors(name) {
        let labels = selector_of(&flavor);
        let mut pool = nodes::pool(&flavor, 1);
        for (key, value) in labels.as_object().into_iter().flatten() {
            pool = pool.label(key, value.as_str().unwrap());
        }
        pool.make(&place.client).await.unwrap();
        let spec = json!({"nodeLabels": labels});
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
