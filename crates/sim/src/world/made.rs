//! The objects that the controller of provisioning checks makes: requests for nodes, and the templates that they name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize as _;
use serde_json::Value;
use sluice_api::v1beta2::Workload;
use sluice_engine::provisioning::template::TemplateSource;
use sluice_engine::{ObjectRef, WriteError};

use super::World;

impl World {
    /// Creates an object as its document says.
    pub(super) fn create_document(
        &mut self,
        reference: &ObjectRef,
        document: &Value,
    ) -> Result<(), WriteError> {
        if self.objects.contains_key(reference) {
            return Err(WriteError::AlreadyExists(reference.to_string()));
        }
        let mut value = document.clone();
        value["apiVersion"] = Value::from(reference.kind.api_version());
        value["kind"] = Value::from(reference.kind.as_str());
        self.insert_new(reference, value);
        Ok(())
    }

    /// Creates the PodTemplate of a Workload's pod set. An existing one of the same Workload is used; a leftover one is replaced.
    pub(super) fn create_template(
        &mut self,
        reference: &ObjectRef,
        source: &TemplateSource,
    ) -> Result<(), WriteError> {
        let missing = || WriteError::NotFound(source.workload.to_string());
        let workload = self.get(&source.workload).ok_or_else(missing)?;
        let refused = |error: serde_json::Error| WriteError::Refused(error.to_string());
        let workload = Workload::deserialize(workload).map_err(refused)?;
        let template = source.build(&workload).map_err(WriteError::Refused)?;
        if let Some(known) = self.get(reference) {
            let owners = known["metadata"]["ownerReferences"].as_array();
            let own = owners.is_some_and(|all| all.iter().any(|owner| owner["uid"] == *source.uid));
            if own {
                return Ok(());
            }
            if !source.replaces(&ObjectMeta::deserialize(&known["metadata"]).map_err(refused)?) {
                return Err(WriteError::Conflict(reference.to_string()));
            }
            self.delete(reference);
        }
        self.create_document(reference, &serde_json::to_value(template).map_err(refused)?)
    }
}
