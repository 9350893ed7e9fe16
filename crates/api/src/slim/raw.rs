//! An object as JSON, for those who read what no type of ours names.

use std::fmt;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// How many levels an object may have. `serde_json` reads 127 of a text, with those around the object; the API server takes 10,000.
pub const LEVELS: usize = 100;
/// How many levels of a document are read: those of an object, and those of what it is in.
const ALL_LEVELS: usize = LEVELS + 8;

/// An object as JSON, whatever it looks like, but for `metadata.managedFields`: that is passed over, as every slim type does. Objects and lists below
/// the lowest level that is allowed are read as empty ones, so that [`is_too_deep`] is true of the value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Raw(pub Value);

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Part { place: Place::Object, levels: LEVELS }.deserialize(deserializer).map(Self)
    }
}

/// A document that has objects of others in it, whatever they look like: an object, or a list of some. [`is_too_deep`] is true of an object of which not
/// all levels were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnyJson(pub Value);

impl<'de> Deserialize<'de> for AnyJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Part { place: Place::Other, levels: ALL_LEVELS }.deserialize(deserializer).map(Self)
    }
}

/// Whether an object has more than [`LEVELS`] levels.
pub fn is_too_deep(object: &Value) -> bool {
    fn exceeds(value: &Value, levels: usize) -> bool {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
            Value::Array(list) => levels == 0 || list.iter().any(|value| exceeds(value, levels - 1)),
            Value::Object(map) => levels == 0 || map.values().any(|value| exceeds(value, levels - 1)),
        }
    }
    exceeds(object, LEVELS)
}

/// Which part of a document is read.
#[derive(Clone, Copy)]
struct Part {
    place: Place,
    /// How many levels are read, with its own.
    levels: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Object,
    Metadata,
    Other,
}

impl Part {
    /// What is in it.
    const fn below(self, place: Place) -> Self {
        Self { place, levels: self.levels.saturating_sub(1) }
    }
}

/// The name of a field, or that it is passed over: its name takes no memory then.
struct Field(Option<String>);

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        if self.levels == 0 {
            // What is ignored may have any number of levels.
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Object(fields));
        }
        while let Some(Field(name)) = map.next_key_seed(Name(self.place))? {
            let Some(name) = name else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let is_metadata = self.place == Place::Object && name == "metadata";
            let place = if is_metadata { Place::Metadata } else { Place::Other };
            let value = map.next_value_seed(self.below(place))?;
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        if self.levels == 0 {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Array(values));
        }
        while let Some(value) = list.next_element_seed(self.below(Place::Other))? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }
}

/// Reads the name of a field of a part at this place.
struct Name(Place);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Field;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Field, E> {
        let passed = self.0 == Place::Metadata && name == "managedFields";
        Ok(Field((!passed).then(|| name.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_read_whole_but_for_its_managed_fields() {
        let mut object = json!({
            "kind": "Job", "managedFields": [1],
            "metadata": {"name": "a\"b", "labels": {"managedFields": "kept"}, "generation": 3},
            "spec": {"metadata": {"managedFields": [{}]}, "numbers": [1, -1, 0.5, null, true]},
        });
        let wanted = object.clone();
        object["metadata"]["managedFields"] = json!([{"manager": "m", "fieldsV1": {"f:spec": {"f:a": {}}}}]);
        assert_eq!(serde_json::from_str::<Raw>(&object.to_string()).unwrap(), Raw(wanted.clone()));
        assert_eq!(serde_json::from_value::<Raw>(object).unwrap(), Raw(wanted));
    }

    #[test]
    fn what_looks_otherwise_is_read_as_it_is() {
        for odd in
            [json!(null), json!(true), json!(-7), json!(7), json!(0.5), json!("text"), json!([{"a": 1}])]
        {
            for object in [odd.clone(), json!({"metadata": odd})] {
                assert_eq!(serde_json::from_str::<Raw>(&object.to_string()).unwrap(), Raw(object));
            }
        }
        assert!(serde_json::from_str::<Raw>(r#"{"metadata": {"managedFields": [}"#).is_err());
    }

    /// An object with this many levels.
    fn deep(levels: usize) -> String {
        // Below the object and its spec.
        let [begin, end] = ["[", "]"].map(|bracket| bracket.repeat(levels - 2));
        format!(r#"{{"metadata": {{"name": "a"}}, "spec": {{"x": {begin}{end}, "last": 1}}}}"#)
    }

    #[test]
    fn an_object_of_any_depth_is_read_and_known_to_be_too_deep() {
        for levels in [3, LEVELS, LEVELS + 1, 200, 10_000] {
            let is_deep = levels > LEVELS;
            let Raw(object) = serde_json::from_str(&deep(levels)).unwrap();
            assert_eq!(is_too_deep(&object), is_deep, "{levels}");
            assert_eq!((&object["metadata"]["name"], &object["spec"]["last"]), (&json!("a"), &json!(1)));
            // What is read of it says so, too.
            assert_eq!(serde_json::from_value::<Raw>(object.clone()).unwrap(), Raw(object.clone()));
            assert_eq!(serde_json::from_str::<Raw>(&object.to_string()).unwrap(), Raw(object));
            let list = format!(r#"{{"items": [{}, {{"metadata": {{"name": "b"}}}}]}}"#, deep(levels));
            let AnyJson(list) = serde_json::from_str(&list).unwrap();
            assert_eq!(is_too_deep(&list["items"][0]), is_deep, "{levels}");
            assert_eq!(list["items"][1]["metadata"]["name"], "b");
        }
        let maps = format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
        let Raw(object) = serde_json::from_str(&maps).unwrap();
        assert!(is_too_deep(&object));
    }

    #[test]
    fn a_document_is_read_whole() {
        let document = json!({
            "metadata": {"managedFields": [{"manager": "m"}], "continue": "t"},
            "items": [{"metadata": {"managedFields": [1]}, "numbers": [1, -1, 0.5, null, true, "a"]}],
        });
        assert_eq!(serde_json::from_str::<AnyJson>(&document.to_string()).unwrap(), AnyJson(document));
    }
}
