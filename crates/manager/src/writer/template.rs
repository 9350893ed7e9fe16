//! Creates the PodTemplate of a pod set: the engine keeps no whole templates, so the Workload is read first.

use axum::http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize as _;
use serde_json::{Value, json};
use sluice_api::slim::Raw;
use sluice_api::v1beta2::Workload;
use sluice_engine::TemplateSource;
use sluice_engine::input::{ObjectRef, WriteError};

use super::request::{collection, decode, uri};
use super::{Sending, persist};
use crate::api_call::{Call, Content};

/// Reads the Workload, makes the template and creates it. An existing template of the same Workload is fine if it names the same nodes. A leftover
/// template is deleted: if it were changed instead, the garbage collector, which identifies it by its UID, might still delete it. A template of
/// another owner is a conflict.
pub async fn create(
    sending: &Sending,
    object: &ObjectRef,
    source: &TemplateSource,
) -> Result<(), WriteError> {
    let version = object.kind.version();
    let workload = Call::get(uri(&source.workload, source.workload.kind.version(), None));
    let answer = persist(sending, &workload).await?;
    let workload: Workload = decode(&answer)?;
    let template = source.build(&workload).map_err(WriteError::Refused)?;
    let template = serde_json::to_value(template).map_err(|error| WriteError::Refused(error.to_string()))?;
    let call = Call::with_body(Method::POST, collection(object, version), Content::Json, &template);
    match persist(sending, &call).await {
        Ok(_) => Ok(()),
        Err(WriteError::AlreadyExists(why)) => {
            let here = uri(object, version, None);
            let Raw(known) = decode(&persist(sending, &Call::get(here.clone())).await?)?;
            let then = if belongs_to(&known, &source.uid) {
                let Some(patch) = correction(&known, &template) else { return Ok(()) };
                Call::with_body(Method::PATCH, here, Content::MergePatch, &patch)
            } else if let Some(options) = removal(&known, source) {
                let remove = Call::with_body(Method::DELETE, here, Content::Json, &options);
                match persist(sending, &remove).await {
                    Ok(_) | Err(WriteError::NotFound(_)) => call,
                    Err(error) => return Err(error),
                }
            } else {
                return Err(WriteError::Conflict(why));
            };
            persist(sending, &then).await.map(drop)
        }
        Err(error) => Err(error),
    }
}

/// How a leftover template is deleted: in the version that was seen; `None` if it is not ours to delete.
fn removal(known: &Value, source: &TemplateSource) -> Option<Value> {
    let metadata = ObjectMeta::deserialize(&known["metadata"]).ok()?;
    let seen = json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version});
    source.replaces(&metadata).then(|| json!({"propagationPolicy": "Background", "preconditions": seen}))
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
    use sluice_engine::input::Kind;

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
    fn only_a_template_that_is_left_over_is_deleted_and_only_as_it_was_seen() {
        let source = TemplateSource {
            workload: ObjectRef::namespaced(Kind::Workload, "ns", "w"),
            uid: "u2".to_owned(),
            pod_set: "main".to_owned(),
            name: "ppt-w-check-1-main".to_owned(),
            node_selector: Vec::new(),
            tolerations: Vec::new(),
        };
        let template = |label: &str, kind: &str, name: &str, uid: &str| {
            let owner =
                json!({"apiVersion": "x/v1", "kind": kind, "name": name, "uid": uid, "controller": true});
            json!({"metadata": {"uid": "t", "resourceVersion": "7", "labels": {label: "true"}, "ownerReferences": [owner]}})
        };
        let managed = sluice_api::labels::MANAGED;
        let left = template(managed, "ProvisioningRequest", "w-check-1", "gone");
        let options = removal(&left, &source).unwrap();
        assert_eq!(options["preconditions"], json!({"uid": "t", "resourceVersion": "7"}));
        assert!(removal(&template(managed, "Workload", "w", "u1"), &source).is_some(), "a former namesake's");
        let mut going = left.clone();
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        for other in [
            template("own", "ProvisioningRequest", "w-check-1", "gone"),
            template(managed, "ProvisioningRequest", "w-check-2", "other"),
            template(managed, "Workload", "w", "u2"),
            template(managed, "Workload", "v", "u1"),
            template(managed, "Job", "w", "u1"),
            json!({"metadata": {"uid": "t", "labels": {managed: "true"}}}),
            going,
        ] {
            assert_eq!(removal(&other, &source), None, "{other}");
        }
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
