//! Merging a patch into a Job's template as Kubernetes' strategic merge does it, for the fields that a patch of a runtime may have.

use std::collections::BTreeMap;

use serde_json::Value;

/// The deepest nesting that is merged; deeper values are replaced.
const DEEPEST: usize = 32;

/// The key that identifies the items of a list; a list without one is replaced.
fn key_of(field: &str) -> Option<&'static str> {
    match field {
        "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets" | "schedulingGates" => {
            Some("name")
        }
        "volumeMounts" => Some("mountPath"),
        _ => None,
    }
}

/// Merges a patch in.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    merge_field("", target, patch, 0);
}

fn merge_field(field: &str, target: &mut Value, patch: &Value, depth: usize) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) if depth < DEEPEST => {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(key);
                } else {
                    merge_field(key, target.entry(key.clone()).or_insert(Value::Null), value, depth + 1);
                }
            }
        }
        (Value::Array(target), Value::Array(patch)) if key_of(field).is_some() && depth < DEEPEST => {
            let Some(key) = key_of(field) else { return };
            let mut known = BTreeMap::new();
            for (at, item) in target.iter().enumerate().filter(|(_, item)| !item[key].is_null()) {
                known.entry(item[key].to_string()).or_insert(at);
            }
            for item in patch {
                let name = item[key].to_string();
                if let Some(at) = known.get(&name) {
                    merge_field("", &mut target[*at], item, depth + 1);
                    continue;
                }
                if !item[key].is_null() {
                    known.insert(name, target.len());
                }
                target.push(item.clone());
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn maps_and_keyed_lists_are_merged_and_other_lists_replaced() {
        let mut target = json!({"spec": {
            "nodeSelector": {"a": "1", "b": "2"},
            "tolerations": [{"key": "old"}],
            "containers": [{"name": "node", "image": "i", "env": [{"name": "A", "value": "1"}]}],
            "schedulingGates": [{"name": "g"}],
        }});
        let patch = json!({"spec": {
            "nodeSelector": {"b": "3"},
            "tolerations": [{"key": "new"}],
            "containers": [{"name": "node", "env": [{"name": "A", "value": "2"}, {"name": "B"}]}],
            "schedulingGates": [{"name": "h"}],
        }});
        merge(&mut target, &patch);
        let merged = json!({"spec": {
            "nodeSelector": {"a": "1", "b": "3"},
            "tolerations": [{"key": "new"}],
            "containers": [{"name": "node", "image": "i", "env": [{"name": "A", "value": "2"}, {"name": "B"}]}],
            "schedulingGates": [{"name": "g"}, {"name": "h"}],
        }});
        assert_eq!(target, merged);
    }

    #[test]
    fn what_does_not_fit_is_replaced() {
        for odd in [json!(null), json!([1]), json!("a"), json!(1)] {
            let mut target = json!({"spec": odd});
            merge(&mut target, &json!({"spec": {"containers": [{"name": 1}, {}]}}));
            assert_eq!(target["spec"]["containers"].as_array().unwrap().len(), 2);
        }
    }
}
