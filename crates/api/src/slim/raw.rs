//! An object as JSON, for those who read what no type of ours names.

use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// An object as JSON, whatever it looks like, but for `metadata.managedFields`: that is passed over, as every slim type does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Raw(pub Value);

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Part::Object.deserialize(deserializer).map(Self)
    }
}

/// Which part of an object is read.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Metadata,
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
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(Field(name)) = map.next_key_seed(Name(self))? {
            let Some(name) = name else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = match self {
                Self::Object if name == "metadata" => map.next_value_seed(Self::Metadata)?,
                Self::Object | Self::Metadata => map.next_value()?,
            };
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }

    // What is no object is read as it is: parts of objects are written by users.
    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(list))
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
}

/// Reads the name of a field of a part.
struct Name(Part);

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
        let passed = matches!(self.0, Part::Metadata) && name == "managedFields";
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
}
