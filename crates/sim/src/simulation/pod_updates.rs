//! What the API server lets its user change in the spec of a pod.

use std::collections::BTreeSet;

use serde_json::Value;

/// Where the required node affinity is in an affinity.
const TERMS: &str = "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

/// Why the API server refuses that the spec of a pod becomes another, if it does. Tolerations may be added, scheduling gates taken away, and images and
/// the deadline changed. As long as there are gates, fewer nodes may be asked for.
pub(super) fn refused(old: &Value, new: &Value) -> Option<String> {
    let gated = items(&old["schedulingGates"]).next().is_some();
    let fields: BTreeSet<&str> =
        [old, new].into_iter().filter_map(Value::as_object).flatten().map(|(key, _)| key.as_str()).collect();
    let changed = fields.into_iter().find(|field| {
        let (old, new) = (&old[*field], &new[*field]);
        let allowed = match *field {
            "activeDeadlineSeconds" => true,
            "tolerations" => is_part(old, new),
            "schedulingGates" => is_part(new, old),
            "containers" | "initContainers" => without_images(old) == without_images(new),
            "nodeSelector" => gated && keeps_labels(old, new),
            "affinity" => gated && keeps_affinity(old, new),
            _ => false,
        };
        old != new && !allowed
    })?;
    Some(format!("spec.{changed}: Forbidden: it cannot be changed in this way after the pod was created"))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Whether a list has each item of another.
fn is_part(list: &Value, whole: &Value) -> bool {
    items(list).all(|item| items(whole).any(|other| other == item))
}

/// Containers without the field that may always change.
fn without_images(containers: &Value) -> Vec<Value> {
    let mut all: Vec<Value> = items(containers).cloned().collect();
    for container in all.iter_mut().filter_map(Value::as_object_mut) {
        container.remove("image");
    }
    all
}

fn keeps_labels(old: &Value, new: &Value) -> bool {
    old.as_object().into_iter().flatten().all(|(key, value)| new.get(key) == Some(value))
}

/// Whether an affinity asks for no other nodes than before: each term of its required node affinity stays, and may get requirements.
fn keeps_affinity(old: &Value, new: &Value) -> bool {
    let same = |field: &str| old[field] == new[field];
    let [before, after] = [old, new].map(|affinity| affinity.pointer(TERMS).unwrap_or(&Value::Null));
    let kept = |(old, new): (&Value, &Value)| {
        ["matchExpressions", "matchFields"].iter().all(|list| is_part(&old[*list], &new[*list]))
    };
    let terms = items(before).count();
    same("podAffinity")
        && same("podAntiAffinity")
        && (terms == 0 || terms == items(after).count() && items(before).zip(items(after)).all(kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_nodes_of_a_pod_may_only_become_fewer_and_only_while_it_has_gates() {
        let affinity = |values: &[&str]| {
            let one = |value: &&str| json!({"key": "kind", "operator": "In", "values": [value]});
            let terms = json!([{"matchExpressions": values.iter().map(one).collect::<Vec<_>>()}]);
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
        };
        let gates = json!([{"name": "kueue.x-k8s.io/admission"}]);
        let pod = |selector: Value, affinity: Value, gates: &Value| json!({"nodeSelector": selector, "affinity": affinity, "schedulingGates": gates});
        let old = pod(json!({"kind": "spot"}), affinity(&["a"]), &gates);
        let more = json!({"kind": "spot", "zone": "z"});
        for (selector, affinity, allowed) in [
            (more.clone(), affinity(&["a"]), true),
            (json!({"zone": "z"}), affinity(&["a"]), false),
            (json!({"kind": "reserved"}), affinity(&["a"]), false),
            (json!({"kind": "spot"}), affinity(&["a", "b"]), true),
            (json!({"kind": "spot"}), affinity(&["b"]), false),
            (json!({"kind": "spot"}), Value::Null, false),
        ] {
            let new = pod(selector, affinity, &gates);
            assert_eq!(refused(&old, &new).is_none(), allowed, "{new}");
        }
        let free = pod(json!({"kind": "spot"}), affinity(&["a"]), &json!([]));
        assert_eq!(refused(&old, &free), None);
        assert!(refused(&free, &old).is_some());
        assert!(refused(&free, &pod(more, affinity(&["a"]), &json!([]))).unwrap().contains("nodeSelector"));
    }

    #[test]
    fn of_the_rest_tolerations_are_added_and_images_change() {
        let pod = |image: &str, cpu: u32, keys: &[&str]| {
            let tolerations: Vec<_> =
                keys.iter().map(|key| json!({"key": key, "operator": "Exists"})).collect();
            let container = json!({"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}});
            json!({"containers": [container], "tolerations": tolerations})
        };
        let old = pod("i", 1, &["a"]);
        assert_eq!(refused(&old, &pod("other", 1, &["a", "b"])), None);
        assert!(refused(&old, &pod("i", 1, &["b"])).unwrap().contains("tolerations"));
        assert!(refused(&old, &pod("i", 2, &["a"])).unwrap().contains("containers"));
    }
}
