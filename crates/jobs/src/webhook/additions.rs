//! A JSON patch that only adds.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::patch::escape;

/// A JSON patch of an object in the making: maps and lists on the way to what is added are made as they are needed.
pub(super) struct Additions<'a> {
    object: &'a Value,
    operations: Vec<Value>,
    /// Maps and lists that are there by now.
    made: BTreeSet<String>,
}

impl<'a> Additions<'a> {
    /// Nothing yet.
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

    /// Makes a map or a list that the object does not have, and what is above it; says whether it is there then. Where something else is, the
    /// object stays as it is: the API server says what is wrong with it.
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
