//! Patches of JSON documents, as the API server applies them.

use json_patch::PatchOperation;
use serde::Deserialize as _;
use serde_json::Value;

/// Prefix of the field with the names that a list of names loses.
const LOSES: &str = "$deleteFromPrimitiveList/";

/// A strategic merge patch. Conditions of a status are merged by type, and gates of a pod are removed by name; everything else is merged as by RFC
/// 7386.
pub(crate) fn merge_strategically(target: &mut Value, patch: &Value) {
    let mut merged = patch.clone();
    if let Some(patched) = patch.pointer("/status/conditions").and_then(Value::as_array) {
        let mut conditions = target["status"]["conditions"].as_array().cloned().unwrap_or_default();
        for condition in patched {
            match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
                Some(known) => json_patch::merge(known, condition),
                None => conditions.push(condition.clone()),
            }
        }
        merged["status"]["conditions"] = Value::Array(conditions);
    }
    if let Some(patched) = patch.pointer("/spec/schedulingGates").and_then(Value::as_array) {
        let known = target["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
        let stays = |gate: &Value| !patched.iter().any(|lost| lost["name"] == gate["name"]);
        merged["spec"]["schedulingGates"] = known.into_iter().filter(stays).collect();
    }
    if let Some(metadata) = merged["metadata"].as_object_mut() {
        let lists: Vec<_> =
            metadata.keys().filter_map(|key| key.strip_prefix(LOSES)).map(str::to_owned).collect();
        for list in lists {
            let lost = metadata.remove(&format!("{LOSES}{list}")).unwrap_or_default();
            let known = target["metadata"][&list].as_array().cloned().unwrap_or_default();
            let gone = lost.as_array().cloned().unwrap_or_default();
            metadata.insert(list, known.into_iter().filter(|item| !gone.contains(item)).collect());
        }
    }
    json_patch::merge(target, &merged);
}

/// A JSON patch (RFC 6902), all of it or nothing. The error says which operation has no place in the object.
pub(crate) fn apply(target: &mut Value, operations: &[Value]) -> Result<(), String> {
    let operations: Result<Vec<_>, _> = operations.iter().map(PatchOperation::deserialize).collect();
    let operations = operations.map_err(|error| error.to_string())?;
    json_patch::patch(target, &operations).map_err(|error| error.to_string())
}

/// The text of a field, empty if it is none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_strategic_patch_takes_gates_off_by_name() {
        let gates = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        let mut pod = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"schedulingGates": gates(&["x", "y"])}});
        let lost = json!([{"$patch": "delete", "name": "x"}]);
        merge_strategically(
            &mut pod,
            &json!({"metadata": {"labels": {"a": null}}, "spec": {"schedulingGates": lost}}),
        );
        assert_eq!(
            pod,
            json!({"metadata": {"labels": {"b": "2"}}, "spec": {"schedulingGates": gates(&["y"])}})
        );
    }

    #[test]
    fn operations_reach_into_escaped_keys_and_lists() {
        let mut object = json!({"metadata": {"labels": {"a/b": "1"}}, "list": ["x"]});
        let operations = [
            json!({"op": "replace", "path": "/metadata/labels/a~1b", "value": "2"}),
            json!({"op": "add", "path": "/list/-", "value": "y"}),
            json!({"op": "remove", "path": "/list/0"}),
        ];
        apply(&mut object, &operations).unwrap();
        assert_eq!(object, json!({"metadata": {"labels": {"a/b": "2"}}, "list": ["y"]}));
        let remove = |path: &str| json!({"op": "remove", "path": path});
        let why = apply(&mut object, &[remove("/list/0"), remove("/nope")]).unwrap_err();
        assert!(why.contains("/nope"), "{why}");
        assert_eq!(object["list"], json!(["y"]), "all or nothing");
    }
}
