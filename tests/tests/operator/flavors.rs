//! A namespace with two flavors, between which a job moves.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use serde::Serialize;
use serde_json::{Value, json};
use sluice_testkit::{ControlPlane, nodes};
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

/// The key of the toleration that each flavor adds to pods. Its value is the flavor's name.
const TOLERATED: &str = "test-flavor";

/// What a pod, or the spec of a template, says of nodes: its selector, and the flavors whose toleration it has.
pub fn of_nodes(spec: impl Serialize) -> Value {
    let spec = json!(spec);
    let selector = &spec["nodeSelector"];
    let selector = if *selector == json!({}) { &Value::Null } else { selector };
    let tolerations = spec["tolerations"].as_array().into_iter().flatten();
    let tolerated: Vec<_> =
        tolerations.filter(|one| one["key"] == TOLERATED).map(|one| one["value"].clone()).collect();
    json!({"nodeSelector": selector, "tolerated": tolerated})
}

/// The same of what has been admitted to a flavor, or to none.
pub fn of_flavor(flavor: Option<&str>) -> Value {
    json!({"nodeSelector": flavor.map(selector_of), "tolerated": flavor.into_iter().collect::<Vec<_>>()})
}

/// The flavor of a place that a pod was admitted to: what it says of nodes is of that alone. Empty if of none, or of several.
pub fn flavor_of(spec: impl Serialize, place: &str) -> String {
    let nodes = of_nodes(spec);
    flavors(place).into_iter().find(|flavor| nodes == of_flavor(Some(flavor))).unwrap_or_default()
}

/// A place whose queue has this many processors of the first flavor and of the second, and enough memory. Each has a node of its own.
pub async fn two_flavors(name: &'static str, quota: [u32; 2]) -> Place<'static> {
    two_flavors_on(bed().await.plane, name, quota).await
}

/// The same on another plane.
pub async fn two_flavors_on(
    control: &'static ControlPlane,
    name: &'static str,
    quota: [u32; 2],
) -> Place<'static> {
    let place = Place::bare(control, name).await.unwrap();
    for flavor in flavors(name) {
        let labels = selector_of(&flavor);
        let mut pool = nodes::pool(&flavor, 1);
        for (key, value) in labels.as_object().into_iter().flatten() {
            pool = pool.label(key, value.as_str().unwrap());
        }
        pool.make(&place.client).await.unwrap();
        let toleration =
            json!({"key": TOLERATED, "operator": "Equal", "value": flavor, "effect": "NoSchedule"});
        let spec = json!({"nodeLabels": labels, "tolerations": [toleration]});
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

/// The resource groups of its queue, with these processors of each flavor.
pub fn groups(place: &str, quota: [u32; 2]) -> Value {
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
