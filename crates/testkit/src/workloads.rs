//! Workloads as JSON, for tests of what a user sees rather than of our own types.

use anyhow::{Context as _, Result};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::Value;

/// The API of one of Kueue's kinds in v1beta2, in all namespaces or for a cluster-wide kind.
pub fn all(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource(kind, plural))
}

/// The API of one of Kueue's kinds in v1beta2, in a namespace.
pub fn namespaced(client: &Client, namespace: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(kind, plural))
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", kind), plural)
}

/// The Workloads of a namespace, whole, sorted by name.
///
/// # Errors
///
/// If the API server cannot be reached, or refuses the list.
pub async fn list(client: &Client, namespace: &str) -> Result<Vec<Value>> {
    let api = namespaced(client, namespace, "Workload", "workloads");
    let mut items = api.list(&ListParams::default()).await.context("listing Workloads")?.items;
    items.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    items.iter().map(|item| serde_json::to_value(item).context("writing a Workload as JSON")).collect()
}

/// The Workload that the job of this name owns, if there is one.
///
/// # Errors
///
/// As [`list`].
pub async fn of_job(client: &Client, namespace: &str, job: &str) -> Result<Option<Value>> {
    let owned = |workload: &Value| {
        let owners = workload.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        owners.is_some_and(|owners| {
            owners.iter().any(|owner| owner["name"] == job && owner["controller"] == true)
        })
    };
    Ok(list(client, namespace).await?.into_iter().find(owned))
}

/// A condition of an object, if it has one of this type.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Whether a condition of an object is true.
pub fn holds(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_condition_holds_only_when_it_is_true() {
        let object = json!({ "status": { "conditions": [
            { "type": "Admitted", "status": "True" },
            { "type": "Evicted", "status": "False" },
        ] } });
        assert!(holds(&object, "Admitted") && !holds(&object, "Evicted") && !holds(&object, "Finished"));
        assert_eq!(condition(&object, "Evicted").unwrap()["status"], "False");
        assert!(!holds(&json!({}), "Admitted"));
    }
}
