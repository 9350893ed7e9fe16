//! Fields of a JSON object.

use serde_json::{Map, Value};

/// An object.
pub(super) type Object = Map<String, Value>;

/// The text in a field, if there is one.
pub(super) fn text<'a>(object: &'a Object, field: &str) -> Option<&'a str> {
    object.get(field).and_then(Value::as_str)
}

/// The object in a field, if there is one.
pub(super) fn part<'a>(object: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    object.get_mut(field).and_then(Value::as_object_mut)
}

/// Renames a field, unless the new name exists already: nothing is overwritten.
pub(super) fn rename(object: &mut Object, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.entry(to).or_insert(value);
    }
}
