//! What a request asks for: which pod sets, in which groups, with which parameters (docs/reference/06-algorithm.md 6.23).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::v1beta2::{
    ProvisioningRequestConfigSpec, ProvisioningRequestPodSetMergePolicy as MergePolicy, WorkloadStatus,
};
use sluice_api::{labels, slim};

use super::names::template_name;

/// Pod sets that are asked for together: they share the template of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// The names of the pod sets.
    pub pod_sets: Vec<String>,
    /// Pods in all.
    pub count: i64,
}

/// A request for nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The class.
    pub class: String,
    /// The parameters of the configuration, overridden by those of the Workload.
    pub parameters: BTreeMap<String, String>,
    /// The pods.
    pub groups: Vec<Group>,
}

/// Whether a pod set requests one of the managed resources; an empty list means any.
fn uses(set: &slim::PodSet, managed: &[String]) -> bool {
    let template = &set.template;
    managed.is_empty()
        || template.init_containers.iter().chain(&template.containers).any(|container| {
            let resources = &container.resources;
            managed.iter().any(|r| resources.requests.contains_key(r) || resources.limits.contains_key(r))
        })
}

/// What two pod sets must have in common to be requested together.
type Likeness<'a> = (usize, u64, Vec<&'a String>);

impl Plan {
    /// The needs of a Workload with quota; `None` if no pod set needs anything.
    pub fn of(
        object: &slim::Workload,
        status: &WorkloadStatus,
        config: &ProvisioningRequestConfigSpec,
    ) -> Option<Self> {
        let assignments = status.admission.as_ref().map(|a| &a.pod_set_assignments[..]).unwrap_or_default();
        let mut groups: Vec<(Likeness<'_>, Group)> = Vec::new();
        let sets = object.spec.pod_sets.iter().enumerate();
        for (at, set) in sets.filter(|(_, s)| s.count > 0 && uses(s, &config.managed_resources)) {
            let Some(assignment) = assignments.get(at) else { continue };
            let count = i64::from(assignment.count.unwrap_or(set.count));
            if count <= 0 {
                continue;
            }
            let (unique, hash) = match config.pod_set_merge_policy {
                None => (at, 0),
                Some(MergePolicy::IdenticalPodTemplates) => (usize::MAX, set.template.template_hash),
                Some(MergePolicy::IdenticalWorkloadSchedulingRequirements) => {
                    (usize::MAX, set.template.scheduling_hash)
                }
            };
            // Equal templates on different flavors get different node labels.
            let mut flavors: Vec<_> = assignment.flavors.values().collect();
            flavors.sort_unstable();
            flavors.dedup();
            let likeness = (unique, hash, flavors);
            if let Some((_, group)) = groups.iter_mut().find(|(known, _)| *known == likeness) {
                group.pod_sets.push(set.name.clone());
                group.count += count;
            } else {
                groups.push((likeness, Group { pod_sets: vec![set.name.clone()], count }));
            }
        }
        if groups.is_empty() {
            return None;
        }
        Some(Self {
            class: config.provisioning_class_name.clone(),
            parameters: parameters(object, config),
            groups: groups.into_iter().map(|(_, group)| group).collect(),
        })
    }

    /// Whether a request asks for this.
    pub fn matches(&self, request: &slim::ProvisioningRequest) -> bool {
        request.spec.provisioning_class_name == self.class && request.spec.parameters == self.parameters
    }

    /// The request, without version and kind: what is served decides those.
    pub fn request(&self, name: &str, object: &slim::Workload) -> Value {
        let sets: Vec<_> = self
            .groups
            .iter()
            .map(|group| {
                json!({
                    "podTemplateRef": {"name": template_name(name, &group.pod_sets[0])},
                    "count": group.count,
                })
            })
            .collect();
        let mut spec = json!({"provisioningClassName": self.class, "podSets": sets});
        if !self.parameters.is_empty() {
            spec["parameters"] = json!(self.parameters);
        }
        json!({
            "metadata": {
                "name": name,
                "namespace": object.metadata.namespace,
                "labels": {labels::MANAGED: "true"},
                "ownerReferences": [owner(object)],
            },
            "spec": spec,
        })
    }
}

/// The parameters of the configuration; annotations of the Workload win.
fn parameters(object: &slim::Workload, config: &ProvisioningRequestConfigSpec) -> BTreeMap<String, String> {
    let mut parameters = config.parameters.clone();
    for (key, value) in object.metadata.annotations.iter().flatten() {
        if let Some(name) = key.strip_prefix(labels::PROVISIONING_REQUEST_PREFIX) {
            parameters.insert(name.to_owned(), value.clone());
        }
    }
    parameters
}

/// The reference that makes a Workload the controller of what was made for it.
pub(crate) fn owner(object: &slim::Workload) -> Value {
    use sluice_api::v1beta2::Workload;
    json!({
        "apiVersion": Workload::API_VERSION,
        "kind": Workload::KIND,
        "name": object.metadata.name,
        "uid": object.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(sets: &Value, assigned: &Value) -> slim::Workload {
        serde_json::from_value(json!({
            "metadata": {"name": "w", "namespace": "ns", "uid": "u",
                "annotations": {"provreq.kueue.x-k8s.io/A": "mine", "other": "x"}},
            "spec": {"podSets": sets},
            "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": assigned}},
        }))
        .unwrap()
    }

    fn set(name: &str, command: &str, resource: &str) -> Value {
        json!({"name": name, "count": 2, "template": {"spec": {"containers": [
            {"name": "c", "image": "i", "command": [command], "resources": {"requests": {resource: "1"}}}]}}})
    }

    fn assigned(name: &str, flavor: &str, count: i32) -> Value {
        json!({"name": name, "flavors": {"cpu": flavor}, "count": count})
    }

    fn config(more: &Value) -> ProvisioningRequestConfigSpec {
        let mut spec = json!({"provisioningClassName": "c", "parameters": {"A": "theirs", "B": "2"}});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    fn groups(w: &slim::Workload, more: &Value) -> Vec<(Vec<String>, i64)> {
        let plan = Plan::of(w, &w.status, &config(more));
        plan.map(|p| p.groups).unwrap_or_default().into_iter().map(|g| (g.pod_sets, g.count)).collect()
    }

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn annotations_of_the_workload_win_over_the_configuration() {
        let w = workload(&json!([set("a", "x", "cpu")]), &json!([assigned("a", "f", 2)]));
        let plan = Plan::of(&w, &w.status, &config(&json!({}))).unwrap();
        let expected = [("A", "mine"), ("B", "2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(plan.parameters, expected.into());
        let request = plan.request("w-prov-1", &w);
        assert_eq!(
            request["spec"],
            json!({"provisioningClassName": "c", "parameters": {"A": "mine", "B": "2"},
                "podSets": [{"podTemplateRef": {"name": "ppt-w-prov-1-a"}, "count": 2}]})
        );
        assert_eq!(request["metadata"]["ownerReferences"][0]["uid"], "u");
        let seen: slim::ProvisioningRequest = serde_json::from_value(request).unwrap();
        assert!(plan.matches(&seen));
        let other = Plan { class: "d".to_owned(), ..plan };
        assert!(!other.matches(&seen));
    }

    #[test]
    fn only_pod_sets_with_managed_resources_and_pods_are_asked_for() {
        let sets = json!([set("a", "x", "gpu"), set("b", "x", "cpu"), set("c", "x", "gpu")]);
        let w =
            workload(&sets, &json!([assigned("a", "f", 1), assigned("b", "f", 2), assigned("c", "f", 0)]));
        assert_eq!(groups(&w, &json!({"managedResources": ["gpu"]})), [(names(&["a"]), 1)]);
        assert_eq!(groups(&w, &json!({})), [(names(&["a"]), 1), (names(&["b"]), 2)]);
        assert!(groups(&w, &json!({"managedResources": ["tpu"]})).is_empty());
    }

    #[test]
    fn pod_sets_merge_as_far_as_the_policy_says_and_flavors_agree() {
        let sets =
            json!([set("a", "x", "cpu"), set("b", "x", "cpu"), set("c", "y", "cpu"), set("d", "x", "cpu")]);
        let w = workload(
            &sets,
            &json!([
                assigned("a", "f", 1),
                assigned("b", "f", 2),
                assigned("c", "f", 3),
                assigned("d", "g", 4)
            ]),
        );
        assert_eq!(groups(&w, &json!({})).len(), 4);
        assert_eq!(
            groups(&w, &json!({"podSetMergePolicy": "IdenticalPodTemplates"})),
            [(names(&["a", "b"]), 3), (names(&["c"]), 3), (names(&["d"]), 4)]
        );
        assert_eq!(
            groups(&w, &json!({"podSetMergePolicy": "IdenticalWorkloadSchedulingRequirements"})),
            [(names(&["a", "b", "c"]), 6), (names(&["d"]), 4)]
        );
    }
}
