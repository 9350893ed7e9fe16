//! Creates the PodTemplate of a pod set: the engine keeps no whole templates, so the Workload is read first.

use axum::http::Method;
use kube::Client;
use serde_json::{Value, json};
use sluice_api::v1beta2::Workload;
use sluice_engine::TemplateSource;
use sluice_engine::input::{ObjectRef, WriteError};

use super::persist;
use super::request::{collection, decode, failure, uri};
use crate::api_call::{Call, Content};

/// Reads the Workload, makes the template and creates it. One that is there already and belongs to the same Workload will
/// do, once it names the same nodes; one of somebody else's is a conflict: it is about to go, or in the way.
pub async fn create(client: &Client, object: &ObjectRef, source: &TemplateSource) -> Result<(), WriteError> {
    let version = object.kind.version();
    let workload = Call::get(uri(&source.workload, source.workload.kind.version(), None));
    let answer = persist(client, &workload).await.map_err(|error| failure(&error))?;
    let workload: Workload = decode(&answer)?;
    let template = source.build(&workload).map_err(WriteError::Refused)?;
    let template = serde_json::to_value(template).map_err(|error| WriteError::Refused(error.to_string()))?;
    let call = Call::with_body(Method::POST, collection(object, version), Content::Json, &template);
    match persist(client, &call).await.map_err(|error| failure(&error)) {
        Ok(_) => Ok(()),
        Err(WriteError::AlreadyExists(why)) => {
            let known = persist(client, &Call::get(uri(object, version, None))).await;
            let known: Value = decode(&known.map_err(|error| failure(&error))?)?;
            if !belongs_to(&known, &source.uid) {
                return Err(WriteError::Conflict(why));
            }
            let Some(patch) = correction(&known, &template) else { return Ok(()) };
            let call =
                Call::with_body(Method::PATCH, uri(object, version, None), Content::MergePatch, &patch);
            persist(client, &call).await.map(drop).map_err(|error| failure(&error))
        }
        Err(error) => Err(error),
    }
}

/// The strict patch that makes a template name the nodes that are wanted now; nothing if it does. It may be from an attempt whose request
/// was never made, and the Workload on other flavors since.
fn correction(known: &Value, wanted: &Value) -> Option<Value> {
    let part = |template: &Value, field: &str| template["template"]["spec"][field].clone();
    let mut spec = json!({});
    for field in ["nodeSelector", "tolerations"] {
        let (old, mut new) = (part(known, field), part(wanted, field));
        if old == new {
            continue;
        }
        if let (Some(old), Some(new)) = (old.as_object(), new.as_object_mut()) {
            for key in old.keys() {
                new.entry(key).or_insert(Value::Null);
            }
        }
        spec[field] = new;
    }
    let version = &known["metadata"]["resourceVersion"];
    (spec != json!({})).then(|| json!({"metadata": {"resourceVersion": version}, "template": {"spec": spec}}))
}

/// Whether a template is the Workload's, and stays.
fn belongs_to(template: &Value, uid: &str) -> bool {
    let metadata = &template["metadata"];
    let owners = metadata["ownerReferences"].as_array();
    metadata["deletionTimestamp"].is_null() && owners.is_some_and(|o| o.iter().any(|o| o["uid"] == uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_counts_only_if_it_is_the_workloads_and_stays() {
        let mut template = json!({"metadata": {"ownerReferences": [{"uid": "a"}]}});
        assert!(belongs_to(&template, "a"));
        assert!(!belongs_to(&template, "b"));
        template["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(!belongs_to(&template, "a"));
    }

    #[test]
    fn a_template_of_other_flavors_is_made_to_name_the_nodes_of_these() {
        let template =
            |spec: Value| json!({"metadata": {"resourceVersion": "7"}, "template": {"spec": spec}});
        let tolerates = |key: &str| json!([{"key": key, "operator": "Exists"}]);
        let wanted =
            template(json!({"nodeSelector": {"own": "x", "pool": "b"}, "tolerations": tolerates("b")}));
        assert_eq!(correction(&wanted, &wanted), None);
        let mut defaulted = wanted.clone();
        defaulted["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
        assert_eq!(correction(&defaulted, &wanted), None);
        for (spec, changes) in [
            (
                json!({"nodeSelector": {"own": "x", "zone": "a"}, "tolerations": tolerates("a")}),
                json!({"nodeSelector": {"own": "x", "pool": "b", "zone": null}, "tolerations": tolerates("b")}),
            ),
            (json!({"nodeSelector": {"own": "x", "pool": "b"}}), json!({"tolerations": tolerates("b")})),
            (json!({}), json!({"nodeSelector": {"own": "x", "pool": "b"}, "tolerations": tolerates("b")})),
        ] {
            let patch = json!({"metadata": {"resourceVersion": "7"}, "template": {"spec": changes}});
            assert_eq!(correction(&template(spec), &wanted), Some(patch));
        }
        let nothing = json!({"nodeSelector": null, "tolerations": null});
        let patch = correction(&wanted, &template(json!({}))).unwrap();
        assert_eq!(patch["template"]["spec"], nothing);
    }
}
