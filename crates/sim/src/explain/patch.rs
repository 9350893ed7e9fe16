//! Merge patches of objects.

use serde::Serialize;
use serde_json::Value;
use sluice_engine::ObjectRef;

/// A merge patch of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    /// The object's kind.
    pub kind: String,
    /// Its namespace, empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The patch.
    pub merge: Value,
}

/// The merge patch that turns one document into the other: the differing fields of objects; lists are replaced as a whole.
pub(super) fn difference(from: &Value, to: &Value) -> Value {
    let (Some(before), Some(after)) = (from.as_object(), to.as_object()) else { return to.clone() };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    let changed = changed.map(|(key, value)| (key.clone(), difference(&from[key], value)));
    Value::Object(gone.chain(changed).collect())
}

/// A merge patch of an object.
pub(super) fn patch_of(object: &ObjectRef, merge: Value) -> Patch {
    Patch {
        kind: object.kind.as_str().to_owned(),
        namespace: object.namespace.to_string(),
        name: object.name.to_string(),
        merge,
    }
}
