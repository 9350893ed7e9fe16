//! Which pod templates are equal: as a whole, or to a scheduler (docs/reference/06-algorithm.md 6.23, `podSetMergePolicy`).

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::containers_hash;

/// A stable hash of a whole template. Containers count as [`containers_hash`] has it, the rest byte for byte.
pub fn template_hash(template: &PodTemplateSpec) -> u64 {
    let metadata = template.metadata.as_ref();
    let mut rest = template.spec.clone().unwrap_or_default();
    let containers = containers_hash(&rest);
    rest.containers.clear();
    rest.init_containers = None;
    let labels = metadata.and_then(|m| m.labels.as_ref()).filter(|l| !l.is_empty());
    let annotations = metadata.and_then(|m| m.annotations.as_ref()).filter(|a| !a.is_empty());
    hash(&json!([labels, annotations, containers, rest]))
}

/// A stable hash of what decides where pods fit: the requests of the containers, the resources of the pod, node selector,
/// tolerations, affinity and resource claims.
pub fn scheduling_hash(spec: &PodSpec) -> u64 {
    let requests: Vec<_> = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
        .map(|c| c.resources.as_ref().and_then(|r| r.requests.as_ref()))
        .collect();
    hash(&json!([
        requests,
        spec.resources,
        spec.node_selector,
        spec.tolerations,
        spec.affinity,
        spec.resource_claims,
    ]))
}

fn hash(value: &Value) -> u64 {
    let digest: [u8; 32] = Sha256::digest(value.to_string()).into();
    let (head, _) = digest.split_first_chunk().expect("a SHA-256 has 32 bytes");
    u64::from_be_bytes(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(spec: &Value) -> PodTemplateSpec {
        serde_json::from_value(json!({"metadata": {"labels": {"a": "b"}}, "spec": spec})).unwrap()
    }

    #[test]
    fn templates_that_differ_only_in_their_command_are_equal_to_a_scheduler() {
        let with = |command: &str, cpu: &str| {
            template(&json!({"containers": [{"name": "c", "image": "i", "command": [command],
                "resources": {"requests": {"cpu": cpu}}}]}))
        };
        let (a, b, c) = (with("x", "1"), with("y", "1"), with("x", "2"));
        let scheduling = |t: &PodTemplateSpec| scheduling_hash(t.spec.as_ref().unwrap());
        assert_eq!(scheduling(&a), scheduling(&b));
        assert_ne!(scheduling(&a), scheduling(&c));
        assert_ne!(template_hash(&a), template_hash(&b));
        assert_eq!(template_hash(&a), template_hash(&a.clone()));
    }
}
