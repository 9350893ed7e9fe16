//! A JSON patch that only adds.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::patch::escape;

/// A JSON patch of an object: missing maps and lists above an addition are created.
pub(super) struct Additions<'a> {
    object: &'a Value,
    operations: Vec<Value>,
    /// Maps and lists that exist by now.
    made: BTreeSet<String>,
}

impl<'a> Additions<'a> {
    /// An empty patch.
    pub fn to(object: &'a Value) -> Self {
        Self { object, operations: Vec::new(), made: BTreeSet::new() }
    }

    /// The patch.
    pub fn operations(self) -> Vec<Value> {
        self.operations
    }

    fn add(&mut self, path: &str, value: &Value) {
        self.operations.push(json!({"op": "add", "path": path, "value": value}));
    }

    /// Creates a missing map or list, and what is above it; returns whether it exists then. If something else is in its place, the object stays
    /// unchanged: the API server reports what is wrong with it.
    fn make(&mut self, pointer: &str, empty: &Value) -> bool {
        if self.made.contains(pointer) {
            return true;
        }
        if let Some(there) = self.object.pointer(pointer).filter(|there| !there.is_null()) {
            return there.is_object() == empty.is_object() && there.is_array() == empty.is_array();
        }
        if pointer.rsplit_once('/').is_some_and(|(above, _)| !self.make(above, &json!({}))) {
            return false;
        }
        self.made.insert(pointer.to_owned());
        self.add(pointer, empty);
        true
    }

    /// Sets a key of a map, unless it has the value.
    pub fn set(&mut self, map: &str, key: &str, value: &str) {
        if self.object.pointer(map).and_then(|map| map[key].as_str()) == Some(value) {
            return;
        }
        if self.make(map, &json!({})) {
            self.add(&format!("{map}/{}", escape(key)), &json!(value));
        }
    }

    /// Puts an item at the end of a list, unless it is in there.
    pub fn push(&mut self, list: &str, item: &Value) {
        let items = self.object.pointer(list).and_then(Value::as_array);
        if items.is_some_and(|items| items.contains(item)) {
            return;
        }
        if self.make(list, &json!([])) {
            self.add(&format!("{list}/-"), item);
        }
    }
}
