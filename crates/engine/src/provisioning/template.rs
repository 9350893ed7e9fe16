//! The PodTemplate of a pod set: what the autoscaler simulates (docs/reference/06-algorithm.md 6.23).

use k8s_openapi::api::core::v1::{Container, PodTemplate, PodTemplateSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sluice_api::labels;
use sluice_api::v1beta2::Workload;

use super::names::template_name;
use crate::input::{Kind, ObjectRef};

/// A PodTemplate to create: the engine keeps no whole templates, so the writer reads the Workload first.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateSource {
    /// The Workload.
    pub workload: ObjectRef,
    /// Its UID: a namesake has other templates.
    pub uid: String,
    /// The pod set.
    pub pod_set: String,
    /// The name of the PodTemplate.
    pub name: String,
    /// What the assigned flavors add to the node selector.
    pub node_selector: Vec<(String, String)>,
    /// The tolerations that the assigned flavors add.
    pub tolerations: Vec<Toleration>,
}

impl TemplateSource {
    /// The additions of the flavors, as text: to compare them.
    pub(crate) fn added(&self) -> String {
        format!("{:?} {:?}", self.node_selector, self.tolerations)
    }

    /// The PodTemplate.
    ///
    /// # Errors
    ///
    /// If the Workload was replaced, has no such pod set, or has a node selector there that contradicts the flavor's.
    pub fn build(&self, workload: &Workload) -> Result<PodTemplate, String> {
        if workload.metadata.uid.as_deref() != Some(&self.uid) {
            return Err("the Workload was replaced".to_owned());
        }
        let set = workload.spec.pod_sets.iter().find(|s| s.name == self.pod_set);
        let set = set.ok_or_else(|| format!("the Workload has no pod set {:?}", self.pod_set))?;
        let mut template = PodTemplateSpec::clone(&set.template);
        let spec = template.spec.get_or_insert_default();
        let selector = spec.node_selector.get_or_insert_default();
        for (key, value) in &self.node_selector {
            let known = selector.insert(key.clone(), value.clone());
            if let Some(known) = known.filter(|known| known != value) {
                return Err(format!("the node selector {key:?} is {known:?}, the flavor's {value:?}"));
            }
        }
        if selector.is_empty() {
            spec.node_selector = None;
        }
        for toleration in &self.tolerations {
            let known = spec.tolerations.get_or_insert_default();
            if !known.contains(toleration) {
                known.push(toleration.clone());
            }
        }
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            request_limits(container);
        }
        Ok(PodTemplate {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.workload.namespace.to_string()),
                labels: Some([(labels::MANAGED.to_owned(), "true".to_owned())].into()),
                owner_references: Some(vec![self.owner()]),
                ..ObjectMeta::default()
            },
            template: Some(template),
        })
    }

    /// Whether a template of that name is left over: from an attempt of that name before, or a Workload. Its owner is gone, and the garbage
    /// collector, which would remove it at some time, is not waited for (docs/reference/11-observed.md 11.1.16).
    pub fn replaces(&self, known: &ObjectMeta) -> bool {
        let managed =
            known.labels.as_ref().is_some_and(|l| l.get(labels::MANAGED).is_some_and(|v| v == "true"));
        let owner = known.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let left = owner.is_some_and(|owner| match &*owner.kind {
            "ProvisioningRequest" => template_name(&owner.name, &self.pod_set) == self.name,
            "Workload" => *owner.name == *self.workload.name && owner.uid != self.uid,
            _ => false,
        });
        managed && left && known.deletion_timestamp.is_none()
    }

    /// The Workload owns the template until its ProvisioningRequest exists.
    fn owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: Workload::API_VERSION.to_owned(),
            kind: Kind::Workload.as_str().to_owned(),
            name: self.workload.name.to_string(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
}

/// A container requests what it has a limit for and no request.
fn request_limits(container: &mut Container) {
    let Some(resources) = container.resources.as_mut() else { return };
    let Some(limits) = resources.limits.as_ref().filter(|l| !l.is_empty()) else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workload() -> Workload {
        serde_json::from_value(json!({
            "metadata": {"name": "w", "namespace": "ns", "uid": "u"},
            "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {
                "nodeSelector": {"a": "1"},
                "containers": [{"name": "c", "image": "i", "resources":
                    {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "gpu": "4"}}}]}}}]},
        }))
        .unwrap()
    }

    fn source(pod_set: &str, selector: (&str, &str)) -> TemplateSource {
        TemplateSource {
            workload: ObjectRef::namespaced(Kind::Workload, "ns", "w"),
            uid: "u".to_owned(),
            pod_set: pod_set.to_owned(),
            name: "ppt-w-prov-1-main".to_owned(),
            node_selector: vec![(selector.0.to_owned(), selector.1.to_owned())],
            tolerations: vec![Toleration { key: Some("gpu".to_owned()), ..Toleration::default() }],
        }
    }

    #[test]
    fn the_template_has_the_flavors_additions_and_requests_its_limits() {
        let template = source("main", ("b", "2")).build(&workload()).unwrap();
        assert_eq!(template.metadata.owner_references.as_ref().unwrap()[0].uid, "u");
        assert_eq!(template.metadata.labels.as_ref().unwrap()["kueue.x-k8s.io/managed"], "true");
        let spec = template.template.unwrap().spec.unwrap();
        assert_eq!(json!(spec.node_selector), json!({"a": "1", "b": "2"}));
        assert_eq!(spec.tolerations.unwrap().len(), 1);
        let requests = spec.containers[0].resources.clone().unwrap().requests;
        assert_eq!(json!(requests), json!({"cpu": "1", "gpu": "4"}));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let wrong = source("main", ("a", "2")).build(&workload()).unwrap_err();
        assert_eq!(wrong, "the node selector \"a\" is \"1\", the flavor's \"2\"");
        assert!(source("other", ("b", "2")).build(&workload()).is_err());
        let replaced = TemplateSource { uid: "v".to_owned(), ..source("main", ("b", "2")) };
        assert!(replaced.build(&workload()).is_err());
    }
}
