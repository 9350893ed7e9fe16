//! The fields into which admission puts its additions to a pod set.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use sluice_api::job::PodScheduling;

use crate::patch::{escape, set};
use crate::scheduling::{template_merge, template_operations};

/// The fields of a pod template that admission changes, by their place in it.
const FIELDS: [[&str; 2]; 6] = [
    ["spec", "nodeSelector"],
    ["spec", "tolerations"],
    ["metadata", "labels"],
    ["metadata", "annotations"],
    ["spec", "schedulingGates"],
    ["spec", "affinity"],
];
/// The place of the labels among them.
pub(super) const LABELS: usize = 2;
/// The place of the annotations.
pub(super) const ANNOTATIONS: usize = 3;
/// How many of them the declaration can put elsewhere: the first.
const MOVABLE: usize = 4;

/// The place of each field.
#[derive(Debug)]
pub(super) struct Places {
    /// Where the template is, if it is in the object.
    template: Option<Vec<String>>,
    /// Where the fields are, in the order of [`FIELDS`].
    moved: [Option<Vec<String>>; MOVABLE],
}

impl Places {
    /// The places in an object's template, unless others are given: node selector, tolerations, labels, annotations.
    pub fn new(template: Option<&[String]>, moved: [Option<Vec<String>>; MOVABLE]) -> Self {
        Self { template: template.map(<[_]>::to_vec), moved }
    }

    /// Whether there is a place for scheduling gates: the template alone has one.
    pub fn has_gates(&self) -> bool {
        self.template.is_some()
    }

    /// Whether the template is in a list: only a JSON patch changes that.
    pub fn lead_through_list(&self) -> bool {
        self.template.iter().flatten().any(|part| part.parse::<usize>().is_ok())
    }

    /// A template with the fields from their own places, which override the template.
    pub fn gathered<'a>(&self, template: Cow<'a, Value>, object: &Value) -> Cow<'a, Value> {
        let mut template = template;
        for (field, place) in FIELDS.iter().zip(&self.moved) {
            let Some(place) = place else { continue };
            match at(object, place) {
                Value::Null => {
                    if let Some(Value::Object(parent)) = template.to_mut().get_mut(field[0]) {
                        parent.remove(field[1]);
                    }
                }
                there => set(template.to_mut(), field, there.clone()),
            }
        }
        template
    }

    /// The JSON pointer of a field, by its position in [`FIELDS`]; empty if it has no place.
    pub fn pointer_of(&self, field: usize) -> String {
        let moved = self.moved.get(field).and_then(Option::as_ref);
        let inside = || {
            let (template, [parent, name]) = (self.template.as_ref()?, FIELDS.get(field)?);
            Some(format!("{}/{parent}/{name}", pointer(template)))
        };
        moved.map(|place| pointer(place)).or_else(inside).unwrap_or_default()
    }

    /// The first field of a change from one state to another that has no place, if there is one.
    pub fn missing_for(&self, from: &PodScheduling, to: &PodScheduling) -> Option<&'static str> {
        // Without a gate a pod runs before it is placed. Other fields without a place are a preference, or a label for others.
        (!self.has_gates() && from.scheduling_gates != to.scheduling_gates).then_some("schedulingGates")
    }

    /// Adds the change from one state to another to a merge patch.
    pub fn merge(&self, body: &mut Value, from: &PodScheduling, to: &PodScheduling) {
        let Some(change) = template_merge(from, to) else { return };
        for (at, field) in FIELDS.iter().enumerate() {
            let Some(value) = change.get(field[0]).and_then(|parent| parent.get(field[1])) else { continue };
            let moved = self.moved.get(at).and_then(Option::as_ref);
            let inside =
                || self.template.as_ref().map(|template| [template, &field.map(str::to_owned)[..]].concat());
            if let Some(place) = moved.cloned().or_else(inside) {
                let place: Vec<_> = place.iter().map(String::as_str).collect();
                set(body, &place, value.clone());
            }
        }
    }

    /// The operations of a JSON patch for the change from one state to another.
    pub fn operations(&self, has_metadata: bool, from: &PodScheduling, to: &PodScheduling) -> Vec<Value> {
        let Some(template) = &self.template else { return Vec::new() };
        template_operations(&pointer(template), has_metadata, from, to)
    }
}

/// The value at a path; null where there is none.
pub(super) fn at<'a>(object: &'a Value, parts: &[String]) -> &'a Value {
    let step = |value: &'a Value, part: &String| match value {
        Value::Array(items) => {
            part.parse::<usize>().map_or(&Value::Null, |index| items.get(index).unwrap_or(&Value::Null))
        }
        other => &other[part.as_str()],
    };
    parts.iter().fold(object, step)
}

/// A path as a JSON pointer.
pub(super) fn pointer(parts: &[String]) -> String {
    let mut pointer = String::new();
    for part in parts {
        pointer.extend(["/", &escape(part)]);
    }
    pointer
}

/// The operations that give a field a value, or take it away.
pub(super) fn put(path: &str, value: &Value) -> Vec<Value> {
    let add = |value: &Value| json!({"op": "add", "path": path, "value": value});
    match value {
        // A removed value has to exist: it is added first.
        Value::Null => vec![add(&Value::Object(Map::new())), json!({"op": "remove", "path": path})],
        value => vec![add(value)],
    }
}
