//! The role of a pod in its group (docs/reference/07-integrations.md 7.3 "Role hash shape").

use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use sluice_quantity::Quantity;

/// Hexadecimal digits of a role.
const DIGITS: usize = 8;

/// The fields of a term of affinity to pods, in the order of Kubernetes' type.
const POD_AFFINITY_TERM: &[&str] = &[
    "labelSelector",
    "namespaces",
    "topologyKey",
    "namespaceSelector",
    "matchLabelKeys",
    "mismatchLabelKeys",
];

/// Eight digits of the SHA-256 of the fields of a pod that matter for admission. Pods with the same digits have the same role.
///
/// The digits equal Kueue's, which hashes the JSON of Kubernetes' Go types: so fields are in the order of those types, keys of maps are sorted, and
/// quantities are canonical.
pub fn role_hash(spec: &PodSpec) -> String {
    let digest = Sha256::digest(shape(spec));
    let mut hex = String::with_capacity(DIGITS);
    for byte in &digest[..DIGITS / 2] {
        for digit in [byte >> 4, byte & 15] {
            hex.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    hex
}

fn shape(spec: &PodSpec) -> String {
    let containers = |list: &[Container]| -> Value {
        let shapes = list.iter().map(|c| {
            let requests = c.resources.as_ref().and_then(|r| r.requests.as_ref());
            json!({"ports": c.ports, "resources": {"requests": requests}})
        });
        shapes.collect()
    };
    let mut fields = json!({
        "affinity": spec.affinity,
        "containers": containers(&spec.containers),
        "initContainers": containers(spec.init_containers.as_deref().unwrap_or_default()),
        "nodeSelector": spec.node_selector,
        "overhead": spec.overhead,
        "priority": spec.priority,
        "resourceClaims": spec.resource_claims,
        "runtimeClassName": spec.runtime_class_name,
        "tolerations": spec.tolerations,
        "topologySpreadConstraints": spec.topology_spread_constraints,
    });
    let requests = spec.resources.as_ref().and_then(|r| r.requests.as_ref());
    if let Some(requests) = requests.filter(|requests| !requests.is_empty()) {
        fields["resources"] = json!({"requests": requests});
    }
    let mut text = String::from("{\"spec\":");
    write(&mut text, "", &fields);
    text.push('}');
    // Go's JSON may stand in a page.
    for (from, to) in [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028")] {
        text = text.replace(from, to);
    }
    text.replace('\u{2029}', "\\u2029")
}

/// The fields of the object or objects that a field holds, in the order of their type; `None` for a map.
fn order(field: &str) -> Option<&'static [&'static str]> {
    Some(match field {
        "ports" => &["name", "hostPort", "containerPort", "protocol", "hostIP"],
        "affinity" => &["nodeAffinity", "podAffinity", "podAntiAffinity"],
        "nodeAffinity" | "podAffinity" | "podAntiAffinity" => &[
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        ],
        "preferredDuringSchedulingIgnoredDuringExecution" => &["weight", "preference", "podAffinityTerm"],
        "podAffinityTerm" => POD_AFFINITY_TERM,
        "preference" | "nodeSelectorTerms" | "labelSelector" | "namespaceSelector" => {
            &["matchLabels", "matchExpressions", "matchFields"]
        }
        "matchExpressions" | "matchFields" => &["key", "operator", "values"],
        "tolerations" => &["key", "operator", "value", "effect", "tolerationSeconds"],
        "topologySpreadConstraints" => &[
            "maxSkew",
            "topologyKey",
            "whenUnsatisfiable",
            "labelSelector",
            "minDomains",
            "nodeAffinityPolicy",
            "nodeTaintsPolicy",
            "matchLabelKeys",
        ],
        "resourceClaims" => &["name", "resourceClaimName", "resourceClaimTemplateName"],
        _ => return None,
    })
}

/// Writes the value of a field.
fn write(text: &mut String, field: &str, value: &Value) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                text.push(if index == 0 { '[' } else { ',' });
                write(text, field, item);
            }
            text.push(']');
        }
        Value::Object(map) => write_object(text, field, map),
        // An empty list that is not omitted is written as null.
        Value::Array(_) | Value::Null => text.push_str("null"),
        Value::String(quantity) if matches!(field, "requests" | "overhead") => {
            match Quantity::parse(quantity) {
                Ok(parsed) => write_plain(text, &parsed.to_string()),
                Err(_) => write_plain(text, quantity),
            }
        }
        other => write_plain(text, other),
    }
}

fn write_object(text: &mut String, field: &str, map: &Map<String, Value>) {
    // A node selector is one object; pod affinity has several terms.
    let required = field == "requiredDuringSchedulingIgnoredDuringExecution";
    let fields = match order(field) {
        None if required && map.contains_key("nodeSelectorTerms") => Some(["nodeSelectorTerms"].as_slice()),
        None if required => Some(POD_AFFINITY_TERM),
        fields => fields,
    };
    let mut separator = '{';
    let mut entry = |text: &mut String, key: &str, below: &str, value: &Value| {
        text.push(separator);
        separator = ',';
        write_plain(text, key);
        text.push(':');
        write(text, below, value);
    };
    if let Some(fields) = fields {
        for key in fields {
            if let Some(value) = map.get(*key).filter(|value| !is_left_out(key, value)) {
                entry(text, key, key, value);
            }
        }
    } else {
        let mut sorted: Vec<_> = map.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        if sorted.is_empty() && matches!(field, "nodeSelector" | "overhead" | "requests") {
            return text.push_str("null");
        }
        for (key, value) in sorted {
            // The keys of a user's map say nothing of what is below them.
            let ours = matches!(field, "" | "containers" | "initContainers" | "resources");
            let below = if ours { key } else { field };
            entry(text, key, below, value);
        }
    }
    text.push_str(if separator == '{' { "{}" } else { "}" });
}

/// Whether a field of a type is not written at all.
fn is_left_out(field: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => field == "matchLabels" && map.is_empty(),
        Value::Number(number) => field == "hostPort" && number.as_i64() == Some(0),
        Value::Bool(_) => false,
    }
}

fn write_plain<T: Serialize + ?Sized>(text: &mut String, value: &T) {
    text.push_str(&serde_json::to_string(value).expect("texts and numbers can always be written"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(spec: Value) -> String {
        role_hash(&serde_json::from_value(spec).unwrap())
    }

    /// Computed by a Go program from Kubernetes' own types (k8s.io/api v0.36.3), not with this code.
    #[test]
    fn the_digits_are_those_of_kubernetes_own_types() {
        let c = json!([{"name": "c"}]);
        for (expected, spec) in [
            ("b18935ae", json!({"containers": []})),
            (
                "4ebdd4a6",
                json!({"containers": [{"name": "c", "image": "i",
                    "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"cpu": 2}}}]}),
            ),
            (
                "faccf9ec",
                json!({"containers": [
                    {"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "0.5"}}, "ports": [
                        {"containerPort": 80, "hostPort": 0, "protocol": "TCP", "name": "http", "hostIP": ""},
                        {"containerPort": 81, "hostPort": 8081, "hostIP": "1.2.3.4"}]},
                    {"name": "d", "resources": {"requests": {}}}],
                    "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}]}),
            ),
            (
                "f0a69057",
                json!({"containers": c, "nodeSelector": {"z": "1", "a": "<&>"}, "runtimeClassName": "kata", "priority": 7,
                    "overhead": {"memory": "120Mi", "cpu": "250m"}, "tolerations": [
                        {"effect": "NoSchedule", "key": "k", "operator": "Exists"},
                        {"key": "l", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 0}]}),
            ),
            (
                "c2bbb779",
                json!({"containers": c, "affinity": {
                    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}, "namespaces": ["n2", "n1"],
                        "mismatchLabelKeys": ["m"], "matchLabelKeys": ["k"], "labelSelector": {"matchLabels": {"x": "", "w": "1"},
                            "matchExpressions": [{"values": ["b", "a"], "operator": "In", "key": "app"}]}}}]},
                    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}],
                        "preferredDuringSchedulingIgnoredDuringExecution": []},
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {
                            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}}],
                        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": []}]}, {}]}}}}),
            ),
            (
                "1e756798",
                json!({"containers": c, "affinity": {}, "resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": 2}},
                    "resourceClaims": [{"resourceClaimTemplateName": "t", "name": "gpu"}, {"name": "fpga", "resourceClaimName": "mine"}],
                    "topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", "topologyKey": "zone", "maxSkew": 1,
                        "labelSelector": {"matchLabels": {"a": "b"}}, "minDomains": 2, "nodeAffinityPolicy": "Honor",
                        "nodeTaintsPolicy": "Ignore", "matchLabelKeys": ["k"]}]}),
            ),
            (
                "ffd9de74",
                json!({"containers": c, "tolerations": [], "nodeSelector": {}, "overhead": {}, "affinity": {"nodeAffinity": {}},
                    "resources": {"limits": {"cpu": 2}}}),
            ),
        ] {
            assert_eq!(hash(spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn a_role_is_what_admission_looks_at() {
        let base =
            json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]});
        let with = |pointer: &str, value: Value| {
            let mut spec = base.clone();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            spec.pointer_mut(parent).unwrap()[key] = value;
            hash(spec)
        };
        let role = hash(base.clone());
        for (pointer, value) in [
            ("/containers/0/image", json!("other")),
            ("/containers/0/name", json!("other")),
            ("/containers/0/args", json!(["x"])),
            ("/containers/0/resources/limits", json!({"cpu": "2"})),
            ("/containers/0/resources/requests", json!({"cpu": "1000m"})),
            ("/schedulingGates", json!([{"name": "kueue.x-k8s.io/admission"}])),
            ("/nodeName", json!("n")),
            ("/priorityClassName", json!("high")),
        ] {
            assert_eq!(with(pointer, value), role, "{pointer}");
        }
        for (pointer, value) in [
            ("/containers/0/resources/requests", json!({"cpu": "2"})),
            ("/containers/0/ports", json!([{"containerPort": 80}])),
            ("/initContainers", json!([{"name": "i"}])),
            ("/nodeSelector", json!({"a": "b"})),
            ("/tolerations", json!([{"operator": "Exists"}])),
            ("/priority", json!(1)),
            ("/resources", json!({"requests": {"cpu": "1"}})),
        ] {
            assert_ne!(with(pointer, value), role, "{pointer}");
        }
    }

    /// A user's key does not change what is below it.
    #[test]
    fn names_of_labels_are_not_names_of_fields() {
        let spec = serde_json::from_value(
            json!({"containers": [], "nodeSelector": {"ports": "", "requests": "1000m"}}),
        )
        .unwrap();
        assert!(
            shape(&spec).contains(r#""nodeSelector":{"ports":"","requests":"1000m"}"#),
            "{}",
            shape(&spec)
        );
    }
}
