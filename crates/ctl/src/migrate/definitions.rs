//! The definitions in the cluster, and those of Sluice.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use sluice_api::GROUP;

use super::error::MigrateError;

/// A definition that Sluice brings, and what the cluster has of it.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The plural that stands in URLs.
    pub plural: String,
    /// The kind.
    pub kind: String,
    /// The cluster's definition; `None` if it does not know the kind.
    pub found: Option<Found>,
}

/// A definition in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The version in which objects are written.
    pub storage: String,
    /// The versions in which objects may be stored (`status.storedVersions`).
    pub stored: Vec<String>,
    /// The versions that clients may use.
    pub served: Vec<String>,
    /// The definition's resourceVersion.
    pub resource_version: String,
}

impl Found {
    fn of(crd: &CustomResourceDefinition) -> Self {
        let versions = &crd.spec.versions;
        let storage = versions.iter().find(|version| version.storage).map(|version| version.name.clone());
        let stored = crd.status.as_ref().and_then(|status| status.stored_versions.clone());
        Self {
            storage: storage.unwrap_or_default(),
            stored: stored.unwrap_or_default(),
            served: versions.iter().filter(|v| v.served).map(|v| v.name.clone()).collect(),
            resource_version: crd.metadata.resource_version.clone().unwrap_or_default(),
        }
    }

    /// Whether every object is known to be stored in the current storage version.
    pub fn is_clean(&self) -> bool {
        self.stored.as_slice() == [self.storage.as_str()]
    }
}

impl Definition {
    /// The definition's name.
    pub fn name(&self) -> String {
        format!("{}.{GROUP}", self.plural)
    }

    /// Every object of the kind, in this version.
    pub fn objects(&self, client: &Client, version: &str) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource(version))
    }

    /// The objects of one namespace, or all of a cluster-scoped kind.
    pub fn objects_in(&self, client: &Client, version: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource(version)),
            None => self.objects(client, version),
        }
    }

    fn resource(&self, version: &str) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, version, &self.kind), &self.plural)
    }

    /// Reads the definition again.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached or refuses. A definition that does not exist is no error.
    pub async fn refresh(&mut self, client: &Client) -> Result<(), MigrateError> {
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        let name = self.name();
        let crd =
            api.get_opt(&name).await.map_err(MigrateError::api(format!("reading the definition {name}")))?;
        self.found = crd.as_ref().map(Found::of);
        Ok(())
    }
}

/// All kinds of Kueue's API, with the cluster's definition of each.
///
/// # Errors
///
/// If the API server cannot be reached, or refuses to show one of them.
pub async fn definitions(client: &Client) -> Result<Vec<Definition>, MigrateError> {
    let mut all = Vec::new();
    for crd in sluice_api::crds() {
        let names = crd.spec.names;
        let mut definition = Definition { plural: names.plural, kind: names.kind, found: None };
        definition.refresh(client).await?;
        all.push(definition);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(storage: &str, stored: &[&str]) -> Found {
        let version =
            |name: &str| json!({"name": name, "served": true, "storage": name == storage, "schema": {}});
        let crd = json!({
            "metadata": {"name": "a", "resourceVersion": "7"},
            "spec": {
                "group": GROUP, "scope": "Cluster", "names": {"kind": "A", "plural": "as"},
                "versions": [version("v1beta1"), version("v1beta2")],
            },
            "status": {"storedVersions": stored, "conditions": [], "acceptedNames": {"kind": "A", "plural": "as"}},
        });
        Found::of(&serde_json::from_value(crd).unwrap())
    }

    #[test]
    fn a_definition_is_clean_when_only_the_written_version_is_stored() {
        assert!(found("v1beta2", &["v1beta2"]).is_clean());
        assert!(!found("v1beta2", &["v1beta1", "v1beta2"]).is_clean());
        assert!(!found("v1beta2", &["v1beta1"]).is_clean());
        let both = found("v1beta1", &["v1beta1"]);
        assert_eq!((both.storage.as_str(), both.resource_version.as_str()), ("v1beta1", "7"));
        assert_eq!(both.served, ["v1beta1", "v1beta2"]);
    }
}
