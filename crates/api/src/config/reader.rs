//! Strict reading of a configuration file: all errors are collected with their paths, and every unknown field is one.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::duration::Duration;
use super::errors::FieldError;

/// The mistakes found so far.
pub(super) type Errors = RefCell<Vec<FieldError>>;

/// One object of the file. Fields that no setting has read are reported when it is dropped.
pub(super) struct Reader<'a> {
    path: String,
    map: &'a Map<String, Value>,
    known: BTreeSet<&'static str>,
    errors: &'a Errors,
}

impl<'a> Reader<'a> {
    /// The whole file.
    pub(super) fn root(value: &'a Value, errors: &'a Errors) -> Option<Self> {
        let Value::Object(map) = value else {
            report(errors, "", format!("expected an object, found {}", type_name(value)));
            return None;
        };
        Some(Self { path: String::new(), map, known: BTreeSet::new(), errors })
    }

    /// The path of a field of this object.
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Reports a mistake in a field.
    pub(super) fn error(&self, key: &str, message: impl Into<String>) {
        report(self.errors, &self.path(key), message);
    }

    /// A field's raw value; `null` counts as absent.
    pub(super) fn value(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.insert(key);
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Whether a field exists.
    pub(super) fn has(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|value| !value.is_null())
    }

    /// Whether a field exists and is `null`.
    pub(super) fn is_null(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(Value::is_null)
    }

    fn typed<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(key)?;
        let result = read(value);
        if result.is_none() {
            self.error(key, format!("expected {expected}, found {}", describe(value)));
        }
        result
    }

    pub(super) fn string(&mut self, key: &'static str) -> Option<String> {
        self.typed(key, "a string", Value::as_str).map(str::to_owned)
    }

    pub(super) fn bool(&mut self, key: &'static str) -> Option<bool> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(super) fn i32(&mut self, key: &'static str) -> Option<i32> {
        self.typed(key, "a 32-bit integer", |value| {
            value.as_i64().and_then(|number| i32::try_from(number).ok())
        })
    }

    pub(super) fn i64(&mut self, key: &'static str) -> Option<i64> {
        self.typed(key, "an integer", Value::as_i64)
    }

    pub(super) fn f64(&mut self, key: &'static str) -> Option<f64> {
        self.typed(key, "a number", Value::as_f64)
    }

    pub(super) fn port(&mut self, key: &'static str) -> Option<u16> {
        self.typed(key, "a port from 1 to 65535", |value| {
            value.as_u64().and_then(|number| u16::try_from(number).ok()).filter(|port| *port > 0)
        })
    }

    pub(super) fn duration(&mut self, key: &'static str) -> Option<Duration> {
        self.typed(key, "a duration such as \"5m\"", |value| value.as_str().and_then(Duration::parse))
    }

    /// One of these names.
    pub(super) fn one_of<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.string(key)?;
        self.choose(key, &text, choices)
    }

    /// A list of a few names.
    pub(super) fn some_of<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Option<Vec<T>> {
        let texts = self.strings(key)?;
        Some(
            texts
                .iter()
                .enumerate()
                .filter_map(|(index, text)| self.choose(&format!("{key}[{index}]"), text, choices))
                .collect(),
        )
    }

    fn choose<T: Copy>(&self, key: &str, text: &str, choices: &[(&str, T)]) -> Option<T> {
        let found = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        if found.is_none() {
            let names: Vec<_> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
            self.error(key, format!("unsupported value {text:?}: supported values: {}", names.join(", ")));
        }
        found
    }

    pub(super) fn strings(&mut self, key: &'static str) -> Option<Vec<String>> {
        let items = self.typed(key, "a list of strings", Value::as_array)?;
        let mut strings = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match item.as_str() {
                Some(text) => strings.push(text.to_owned()),
                None => {
                    self.error(
                        &format!("{key}[{index}]"),
                        format!("expected a string, found {}", describe(item)),
                    );
                }
            }
        }
        Some(strings)
    }

    /// A map whose values `read` understands; `expected` names what it takes.
    pub(super) fn map_of<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<BTreeMap<String, T>> {
        let map = self.typed(key, "a map", Value::as_object)?;
        let mut result = BTreeMap::new();
        for (name, value) in map {
            if let Some(value) = read(value) {
                result.insert(name.clone(), value);
            } else {
                let message = format!("expected {expected}, found {}", describe(value));
                self.error(&format!("{key}[{name}]"), message);
            }
        }
        Some(result)
    }

    /// A nested object.
    pub(super) fn object(&mut self, key: &'static str) -> Option<Reader<'a>> {
        let map = self.typed(key, "an object", Value::as_object)?;
        Some(Reader { path: self.path(key), map, known: BTreeSet::new(), errors: self.errors })
    }

    /// A list of nested objects.
    pub(super) fn objects(&mut self, key: &'static str) -> Option<Vec<Reader<'a>>> {
        let items = self.typed(key, "a list of objects", Value::as_array)?;
        let mut readers = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = format!("{key}[{index}]");
            match item {
                Value::Object(map) => readers.push(Reader {
                    path: self.path(&path),
                    map,
                    known: BTreeSet::new(),
                    errors: self.errors,
                }),
                other => self.error(&path, format!("expected an object, found {}", describe(other))),
            }
        }
        Some(readers)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        for key in self.map.keys().filter(|key| !self.known.contains(key.as_str())) {
            report(self.errors, &self.path(key), "unknown field");
        }
    }
}

pub(super) fn report(errors: &Errors, path: &str, message: impl Into<String>) {
    errors.borrow_mut().push(FieldError { path: path.to_owned(), message: message.into() });
}

/// A field of a section that may be absent.
pub(super) fn field<'a, T>(
    reader: &mut Option<Reader<'a>>,
    read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
) -> Option<T> {
    reader.as_mut().and_then(read)
}

/// A duration that must not be negative.
pub(super) fn not_negative(reader: &mut Reader<'_>, key: &'static str) -> Option<Duration> {
    let value = reader.duration(key);
    if value.is_some_and(|duration| duration < Duration::ZERO) {
        reader.error(key, "must be greater than or equal to 0");
    }
    value
}

/// An integer that must be at least `least`.
pub(super) fn at_least(reader: &mut Reader<'_>, key: &'static str, least: i32) -> Option<i32> {
    let value = reader.i32(key);
    if value.is_some_and(|number| number < least) {
        reader.error(key, format!("must be greater than or equal to {least}"));
    }
    value
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value as a message shows it: scalars themselves, the rest by type.
fn describe(value: &Value) -> String {
    match value {
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        _ => type_name(value).to_owned(),
    }
}
