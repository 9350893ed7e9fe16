//! Identity of a pod template's containers, for the comparison of a job with its Workload (docs/reference/06-algorithm.md 6.20).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use serde_json::Value;
use sha2::{Digest, Sha256};
use sluice_quantity::Quantity;

/// A stable hash of `initContainers` and `containers`.
///
/// Equal for templates that mean the same: it does not depend on the order of fields, on absent against empty, on the
/// spelling of quantities, on an absent port protocol (TCP), or on environment variables given twice (see
/// [`dedupe_env`]). 64 bits of a SHA-256, so that no user can craft a template that passes for another.
pub fn containers_hash(spec: &PodSpec) -> u64 {
    let mut hash = Sha256::new();
    for (role, list) in [
        ("initContainers", spec.init_containers.as_deref()),
        ("containers", Some(spec.containers.as_slice())),
    ] {
        hash.update(role);
        for container in list.unwrap_or_default() {
            hash.update([0x1e]);
            feed_container(&mut hash, container);
        }
    }
    let digest: [u8; 32] = hash.finalize().into();
    let (head, _) = digest.split_first_chunk().expect("a SHA-256 has 32 bytes");
    u64::from_be_bytes(*head)
}

/// A stable hash of a pod's requests, independent of its programs: the resources of its containers, its own resources, its overhead, its claims.
///
/// Equal for templates from which the API server makes equal pods: it rounds amounts up to thousandths.
pub fn requests_hash(spec: &PodSpec) -> u64 {
    let bare = |container: &Container| Container {
        resources: container.resources.as_ref().map(counted),
        restart_policy: container.restart_policy.clone(),
        ..Container::default()
    };
    let pod = serde_json::json!({
        "overhead": spec.overhead.as_ref().map(thousandths),
        "resources": spec.resources.as_ref().map(counted),
        "runtimeClassName": spec.runtime_class_name,
        "resourceClaims": spec.resource_claims,
    });
    let mut hash = Sha256::new();
    let lists = [spec.init_containers.as_deref().unwrap_or_default(), &spec.containers];
    for list in lists {
        hash.update([0x1e]);
        for container in list {
            feed_container(&mut hash, &bare(container));
        }
    }
    feed(&mut hash, "", &pod, false);
    let digest: [u8; 32] = hash.finalize().into();
    let (head, _) = digest.split_first_chunk().expect("a SHA-256 has 32 bytes");
    u64::from_be_bytes(*head)
}

/// The resources that count for quota: a limit replaces a missing request.
fn counted(resources: &ResourceRequirements) -> ResourceRequirements {
    let requests = resources.requests.as_ref().map(thousandths).unwrap_or_default();
    let mut limits = resources.limits.as_ref().map(thousandths).unwrap_or_default();
    limits.retain(|resource, _| !requests.contains_key(resource));
    ResourceRequirements { limits: Some(limits), requests: Some(requests), claims: None }
}

/// Amounts as the API server stores them in a pod.
fn thousandths(amounts: &BTreeMap<String, Text>) -> BTreeMap<String, Text> {
    let round = |text: &Text| {
        let Ok(amount) = Quantity::parse(&text.0) else { return text.clone() };
        let (whole, rest) = (amount.nano() / 1_000_000, amount.nano() % 1_000_000);
        Text(format!("{}m", whole + i128::from(rest > 0)))
    };
    amounts.iter().map(|(resource, amount)| (resource.clone(), round(amount))).collect()
}

/// Removes environment variables that occur twice in a container: the last value wins, in the place of the first.
///
/// The API server refuses duplicate keys of a list map, so that a Workload could otherwise not be written
/// (docs/reference/07-integrations.md 7.1).
pub fn dedupe_env(spec: &mut PodSpec) {
    let containers = spec.init_containers.iter_mut().flatten().chain(spec.containers.iter_mut());
    for env in containers.filter_map(|container| container.env.as_mut()) {
        dedupe(env);
    }
}

fn dedupe(env: &mut Vec<EnvVar>) {
    let mut at = BTreeMap::new();
    let mut kept: Vec<EnvVar> = Vec::with_capacity(env.len());
    for variable in env.drain(..) {
        if let Some(&index) = at.get(&variable.name) {
            let place: &mut EnvVar = &mut kept[index];
            *place = variable;
        } else {
            at.insert(variable.name.clone(), kept.len());
            kept.push(variable);
        }
    }
    *env = kept;
}

fn feed_container(hash: &mut Sha256, container: &Container) {
    let mut container = container.clone();
    if let Some(env) = container.env.as_mut() {
        dedupe(env);
    }
    for port in container.ports.iter_mut().flatten() {
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
    }
    let value = serde_json::to_value(&container).expect("a container has only string keys");
    feed(hash, "", &value, false);
}

/// Feeds a value in a form that does not depend on the order of keys, nor on absent against empty. `quantity` says that the strings below are
/// quantities.
fn feed(hash: &mut Sha256, key: &str, value: &Value, quantity: bool) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().filter(|(key, value)| !means_absent(key, value)).collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            hash.update(b"{");
            let quantities = matches!(key, "limits" | "requests" | "overhead");
            for (key, value) in entries {
                feed_text(hash, key);
                feed(hash, key, value, quantities || key == "divisor");
            }
            hash.update(b"}");
        }
        Value::Array(items) => {
            hash.update(b"[");
            for item in items {
                feed(hash, "", item, false);
            }
            hash.update(b"]");
        }
        Value::String(text) if quantity => match Quantity::parse(text) {
            Ok(quantity) => feed_text(hash, &quantity.nano().to_string()),
            Err(_) => feed_text(hash, text),
        },
        Value::String(text) => feed_text(hash, text),
        Value::Number(number) => {
            hash.update(b"#");
            feed_text(hash, &number.to_string());
        }
        Value::Bool(value) => hash.update(if *value { b"t" } else { b"f" }),
        Value::Null => hash.update(b"n"),
    }
}

/// Length first, so that no two sequences of texts feed the same bytes.
fn feed_text(hash: &mut Sha256, text: &str) {
    hash.update(b"\"");
    hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
    hash.update(text);
}

/// Numbers that are omitted if they are 0, as by Kubernetes' types.
const ABSENT_IF_ZERO: [&str; 6] = [
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "hostPort",
];

/// Whether a field means the same as if it were left out. Booleans and numbers only where Kubernetes' type is not a pointer.
fn means_absent(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.iter().all(|(key, value)| means_absent(key, value)),
        Value::Bool(value) => !value && matches!(key, "readOnly" | "stdin" | "stdinOnce" | "tty"),
        Value::Number(number) => number.as_i64() == Some(0) && ABSENT_IF_ZERO.contains(&key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hash(containers: &Value) -> u64 {
        containers_hash(&serde_json::from_value(json!({ "containers": containers })).unwrap())
    }

    #[test]
    fn what_a_pod_asks_for_is_the_same_whatever_it_does_with_it() {
        let hash = |container: serde_json::Value, overhead: &str| {
            let spec = json!({"containers": [container], "overhead": {"cpu": overhead}});
            requests_hash(&serde_json::from_value(spec).unwrap())
        };
        let of = |cpu: &str| json!({"name": "c", "image": "a", "resources": {"requests": {"cpu": cpu}}});
        let same = json!({"name": "d", "image": "b", "env": [{"name": "A"}], "resources": {"requests": {"cpu": "1000m"}}});
        assert_eq!(hash(of("1"), "100m"), hash(same, "0.1"));
        assert_ne!(hash(of("1"), "100m"), hash(of("2"), "100m"));
        assert_ne!(hash(of("1"), "100m"), hash(of("1"), "200m"));
        let limited = json!({"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "8"}}});
        assert_eq!(hash(of("1"), "1"), hash(limited, "1"), "the limit counts for nothing");
        // The API server rounds amounts up.
        assert_eq!(hash(of("1m"), "1"), hash(of("0.0005"), "999999999n"));
        assert_ne!(hash(of("1m"), "1"), hash(of("0.0011"), "1"));
    }

    #[test]
    fn whatever_counts_for_quota_changes_what_a_pod_asks_for() {
        let amounts = json!({"requests": {"cpu": "1"}});
        let claims = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        let variants = [
            json!({"containers": [{"name": "c"}]}),
            json!({"containers": [{"name": "c"}, {"name": "d"}]}),
            json!({"containers": [{"name": "c", "resources": amounts}]}),
            json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}),
            json!({"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]}),
            json!({"containers": [{"name": "c"}], "initContainers": [{"name": "i", "restartPolicy": "Always"}]}),
            json!({"containers": [{"name": "c"}], "resources": amounts}),
            json!({"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "1"}}}),
            json!({"containers": [{"name": "c"}], "overhead": {"cpu": "1"}}),
            json!({"containers": [{"name": "c"}], "runtimeClassName": "r"}),
            json!({"containers": [{"name": "c"}], "resourceClaims": claims(&["a"])}),
            json!({"containers": [{"name": "c"}], "resourceClaims": claims(&["a", "b"])}),
            json!({"containers": [{"name": "c"}], "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}]}),
        ];
        let mut seen = BTreeMap::new();
        for variant in variants {
            let hash = requests_hash(&serde_json::from_value(variant.clone()).unwrap());
            let previous = seen.insert(hash, variant.clone());
            assert_eq!(previous, None, "{variant}");
        }
    }

    #[test]
    fn spelling_does_not_change_the_hash() {
        let long = json!([{"name": "c", "image": "i", "command": [], "tty": false, "securityContext": {"capabilities": {"add": []}},
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}, {"name": "A", "value": "2"}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "resources": {"requests": {"memory": "1024Mi", "cpu": "1000m"}}}]);
        let short = json!([{"resources": {"requests": {"cpu": 1, "memory": "1Gi"}}, "ports": [{"containerPort": 80}],
            "env": [{"name": "A", "value": "2"}, {"name": "B"}], "image": "i", "name": "c"}]);
        assert_eq!(hash(&long), hash(&short));
    }

    #[test]
    fn a_zero_that_kubernetes_drops_does_not_change_the_hash() {
        let probe = json!({"httpGet": {"path": "/", "port": 80}});
        let mut zeros = probe.clone();
        for field in ABSENT_IF_ZERO.iter().filter(|field| **field != "hostPort") {
            zeros[*field] = json!(0);
        }
        let with = |probe: &Value, port: Value| {
            hash(&json!([{"name": "c", "livenessProbe": probe, "startupProbe": probe, "ports": [port]}]))
        };
        let port = json!({"containerPort": 80});
        let known = with(&probe, port.clone());
        assert_eq!(with(&zeros, json!({"containerPort": 80, "hostPort": 0})), known);
        let mut other = probe.clone();
        other["periodSeconds"] = json!(1);
        assert_ne!(with(&other, port.clone()), known);
        // Of a pointer zero is a value.
        other = probe.clone();
        other["terminationGracePeriodSeconds"] = json!(0);
        assert_ne!(with(&other, port), known);
    }

    #[test]
    fn every_difference_in_meaning_changes_the_hash() {
        let variants = [
            json!([{"name": "c"}]),
            json!([{"name": "d"}]),
            json!([{"name": "c", "image": "i"}]),
            json!([{"name": "c", "args": ["a", "b"]}]),
            json!([{"name": "c", "args": ["b", "a"]}]),
            json!([{"name": "c", "args": ["ab"]}]),
            json!([{"name": "c", "args": [""]}]),
            json!([{"name": "c", "tty": true}]),
            json!([{"name": "c", "securityContext": {"privileged": true}}]),
            json!([{"name": "c", "securityContext": {"runAsUser": 0}}]),
            json!([{"name": "c", "resources": {"requests": {"cpu": "1"}}}]),
            json!([{"name": "c", "resources": {"requests": {"cpu": "2"}}}]),
            json!([{"name": "c", "resources": {"limits": {"cpu": "1"}}}]),
            json!([{"name": "c"}, {"name": "c"}]),
        ];
        let mut seen = BTreeMap::new();
        for variant in variants {
            let previous = seen.insert(hash(&variant), variant.clone());
            assert_eq!(previous, None, "{variant}");
        }
    }

    #[test]
    fn init_containers_are_not_containers() {
        let one: PodSpec =
            serde_json::from_value(json!({"initContainers": [{"name": "a"}], "containers": [{"name": "b"}]}))
                .unwrap();
        let other: PodSpec =
            serde_json::from_value(json!({"initContainers": [{"name": "b"}], "containers": [{"name": "a"}]}))
                .unwrap();
        assert_ne!(containers_hash(&one), containers_hash(&other));
    }

    #[test]
    // Computed with another language from the rule in `feed`.
    fn the_hash_never_changes_between_releases() {
        assert_eq!(hash(&json!([])), containers_hash(&PodSpec::default()));
        let known = hash(&json!([{"name": "c", "image": "i"}]));
        assert_eq!(format!("{known:016x}"), "248a470ab53d6db9");
    }

    #[test]
    fn last_variable_wins_in_the_place_of_the_first() {
        let mut spec: PodSpec = serde_json::from_value(json!({
            "initContainers": [{"name": "i", "env": [{"name": "X", "value": "1"}, {"name": "X", "value": "2"}]}],
            "containers": [{"name": "c", "env": [
                {"name": "A", "value": "1"}, {"name": "B", "value": "2"},
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}]}))
        .unwrap();
        dedupe_env(&mut spec);
        assert_eq!(
            serde_json::to_value(&spec).unwrap(),
            json!({
                "initContainers": [{"name": "i", "env": [{"name": "X", "value": "2"}]}],
                "containers": [{"name": "c", "env": [
                    {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "B", "value": "2"}]}]})
        );
    }
}
