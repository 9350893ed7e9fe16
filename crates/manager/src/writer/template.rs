//! Creates the PodTemplate of a pod set: the engine keeps no whole templates, so the Workload is read first.

use axum::http::Method;
use kube::Client;
use serde_json::Value;
use sluice_api::v1beta2::Workload;
use sluice_engine::TemplateSource;
use sluice_engine::input::{ObjectRef, WriteError};

use super::persist;
use super::request::{collection, decode, failure, uri};
use crate::api_call::{Call, Content};

/// Reads the Workload, makes the template and creates it. One that is there already and belongs to the same Workload will
/// do; one of somebody else's is a conflict: it is about to go, or in the way.
pub async fn create(client: &Client, object: &ObjectRef, source: &TemplateSource) -> Result<(), WriteError> {
    let version = object.kind.version();
    let workload = Call::get(uri(&source.workload, source.workload.kind.version(), None));
    let answer = persist(client, &workload).await.map_err(|error| failure(&error))?;
    let workload: Workload = decode(&answer)?;
    let template = source.build(&workload).map_err(WriteError::Refused)?;
    let call = Call::with_body(Method::POST, collection(object, version), Content::Json, &template);
    match persist(client, &call).await.map_err(|error| failure(&error)) {
        Ok(_) => Ok(()),
        Err(WriteError::AlreadyExists(why)) => {
            let known = persist(client, &Call::get(uri(object, version, None))).await;
            let known: Value = decode(&known.map_err(|error| failure(&error))?)?;
            if belongs_to(&known, &source.uid) { Ok(()) } else { Err(WriteError::Conflict(why)) }
        }
        Err(error) => Err(error),
    }
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
    use serde_json::json;

    #[test]
    fn a_template_counts_only_if_it_is_the_workloads_and_stays() {
        let mut template = json!({"metadata": {"ownerReferences": [{"uid": "a"}]}});
        assert!(belongs_to(&template, "a"));
        assert!(!belongs_to(&template, "b"));
        template["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(!belongs_to(&template, "a"));
    }
}
