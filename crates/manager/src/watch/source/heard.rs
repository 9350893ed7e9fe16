//! What lines of a watch and items of a list say, before the objects in them are decoded.
//!
//! Only the beginning of each is read here: the API server writes the metadata before everything that is long. An object that is needed is read once
//! more, as its type.

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::event::{Error, Event};

/// The metadata that every object has.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Meta {
    /// Its name.
    pub name: String,
    /// Its namespace, if it has one.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// The version of its spec.
    pub generation: i64,
    /// Where in a list the next page begins.
    #[serde(rename = "continue")]
    pub(super) next_page: String,
}

impl Meta {
    /// The metadata of an object; nothing after it is read, and need not be JSON.
    ///
    /// # Errors
    ///
    /// If there is none before the text stops to be JSON, or it has another form.
    pub fn of(text: &[u8]) -> serde_json::Result<Self> {
        let mut found = None;
        let read = UpToMetadata(&mut found).deserialize(&mut serde_json::Deserializer::from_slice(text));
        // Where it was found, the rest is still to come, which counts as a failure here.
        match (found, read) {
            (Some(meta), _) => Ok(meta),
            (None, read) => read.map(|()| Self::default()),
        }
    }
}

/// Something with metadata.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Head {
    pub metadata: Meta,
    // Of a Status. Other objects may have anything there.
    code: Value,
    message: Value,
}

/// A line of a watch.
#[derive(Deserialize)]
struct Line<T> {
    #[serde(rename = "type", default)]
    said: Said,
    object: T,
}

/// What a line says of its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(field_identifier, rename_all = "UPPERCASE")]
enum Said {
    Bookmark,
    Deleted,
    Error,
    /// It was added or modified.
    #[default]
    #[serde(other)]
    Changed,
}

/// The fields that are looked for.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Field {
    Type,
    Object,
    Metadata,
    #[serde(other)]
    Other,
}

/// Reads an object until its metadata was found.
struct UpToMetadata<'a>(&'a mut Option<Meta>);

impl<'de> DeserializeSeed<'de> for UpToMetadata<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for UpToMetadata<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key()? {
            if let Field::Metadata = field {
                *self.0 = Some(map.next_value()?);
                return Ok(());
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Reads a line until it is known what it says of which object.
#[derive(Default)]
struct Beginning {
    said: Option<Said>,
    meta: Option<Meta>,
}

impl<'de> Visitor<'de> for &mut Beginning {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a line of a watch")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key()? {
            match field {
                Field::Type => self.said = Some(map.next_value()?),
                Field::Object => return map.next_value_seed(UpToMetadata(&mut self.meta)),
                Field::Metadata | Field::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

impl Beginning {
    /// What a line says of which object, if it says it in this order, and is no error.
    fn of(text: &[u8]) -> Option<(Said, Meta)> {
        let mut beginning = Self::default();
        // The rest is still to come, which counts as a failure here.
        let _ = serde_json::Deserializer::from_slice(text).deserialize_map(&mut beginning);
        beginning.said.filter(|said| *said != Said::Error).zip(beginning.meta)
    }
}

/// An object that was not decoded yet.
#[derive(Debug)]
pub struct Seen {
    /// Its metadata.
    pub meta: Meta,
    text: Vec<u8>,
    /// The text is a line of a watch.
    line: bool,
}

impl Seen {
    /// An item of a list, of which only the metadata is read.
    pub(super) fn item(text: Vec<u8>) -> Result<Self, Error> {
        let meta = Meta::of(&text).map_err(Error::Malformed)?;
        Ok(Self { meta, text, line: false })
    }

    /// The length of its text.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Decodes it.
    ///
    /// # Errors
    ///
    /// If the text is not JSON of this type.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        if self.line {
            serde_json::from_slice::<Line<T>>(&self.text).map(|line| line.object)
        } else {
            serde_json::from_slice(&self.text)
        }
    }
}

/// The content of a line of a watch.
pub(super) enum Heard {
    Event(Event),
    Bookmark(String),
    Error(Error),
}

impl Heard {
    /// The version up to which everything is known.
    pub fn version(&self) -> Option<String> {
        match self {
            Self::Event(Event::Apply(seen) | Event::Delete(seen)) => Some(seen.meta.resource_version.clone()),
            Self::Bookmark(version) => Some(version.clone()),
            Self::Event(_) | Self::Error(_) => None,
        }
    }
}

/// Reads a line: its beginning, and all of it only if that does not tell.
pub(super) fn heard(text: Vec<u8>) -> Result<Heard, Error> {
    let (said, meta) = if let Some(beginning) = Beginning::of(&text) {
        beginning
    } else {
        let Line { said, object: Head { metadata, code, message } } =
            serde_json::from_slice(&text).map_err(Error::Malformed)?;
        if said == Said::Error {
            let message = message.as_str().unwrap_or_default().to_owned();
            return Ok(Heard::Error(Error::Ended { code: code.as_u64().unwrap_or(0), message }));
        }
        (said, metadata)
    };
    if meta.resource_version.is_empty() {
        return Err(Error::NoVersion);
    }
    Ok(match said {
        Said::Bookmark => Heard::Bookmark(meta.resource_version),
        Said::Deleted => Heard::Event(Event::Delete(Seen { meta, text, line: true })),
        Said::Changed | Said::Error => Heard::Event(Event::Apply(Seen { meta, text, line: true })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> String {
        match heard(line.as_bytes().to_vec()) {
            Ok(Heard::Event(Event::Apply(seen))) => {
                let Meta { name, namespace, uid, resource_version, generation, .. } = seen.meta;
                format!("applied {namespace}/{name} {uid} @{resource_version} of {generation}")
            }
            Ok(Heard::Event(Event::Delete(seen))) => format!("deleted {}", seen.meta.name),
            Ok(Heard::Event(other)) => format!("{other:?}"),
            Ok(Heard::Bookmark(version)) => format!("bookmark {version}"),
            Ok(Heard::Error(error)) | Err(error) => format!("error: {error}"),
        }
    }

    const META: &str = r#"{"annotations": {"metadata": "}"}, "generation": 3, "managedFields": [{}], "name": "a", "namespace": "ns", "resourceVersion": "7", "uid": "u"}"#;

    #[test]
    fn of_a_line_nothing_after_the_metadata_is_read() {
        for (type_, expected) in [
            ("ADDED", "applied ns/a u @7 of 3"),
            ("MODIFIED", "applied ns/a u @7 of 3"),
            ("DELETED", "deleted a"),
            ("BOOKMARK", "bookmark 7"),
        ] {
            let before = r#""apiVersion": "v1", "kind": "Pod", "extra": {"metadata": 1}"#;
            let line = format!(r#"{{"type": "{type_}", "object": {{{before}, "metadata": {META}, no JSON"#);
            assert_eq!(said(&line), expected);
        }
        let item = format!(r#"{{"kind": "Pod", "metadata": {META}, no JSON"#);
        assert_eq!(Seen::item(item.into_bytes()).unwrap().meta.resource_version, "7");
    }

    #[test]
    fn a_line_is_understood_in_any_order() {
        let late = format!(r#"{{"object": {{"spec": {{}}, "metadata": {META}}}, "type": "DELETED"}}"#);
        assert_eq!(said(&late), "deleted a");
        let untyped = format!(r#"{{"object": {{"metadata": {META}}}}}"#);
        assert_eq!(said(&untyped), "applied ns/a u @7 of 3");
        let status = r#"{"type": "ERROR", "object": {"kind": "Status", "metadata": {}, "message": "too old", "code": 410}}"#;
        assert_eq!(said(status), "error: the watch ended: too old (410)");
        let late = r#"{"object": {"metadata": {}, "code": 410}, "type": "ERROR"}"#;
        assert_eq!(said(late), "error: the watch ended:  (410)");
    }

    #[test]
    fn what_has_no_metadata_of_their_form_is_an_error() {
        let malformed = "error: the answer cannot be read";
        for (line, expected) in [
            (r#"{"type": "ADDED", "object": {}}"#, "error: the answer has no resourceVersion"),
            (
                r#"{"type": "ADDED", "object": {"metadata": {"name": "a"}}}"#,
                "error: the answer has no resourceVersion",
            ),
            (r#"{"type": "ADDED", "object": {"metadata": {"resourceVersion": 7}}}"#, malformed),
            (r#"{"type": "ADDED"}"#, malformed),
            (r#"{"type": "ADDED", "obj"#, malformed),
            ("", malformed),
        ] {
            assert_eq!(said(line), expected, "{line}");
        }
        assert_eq!(Meta::of(b"{\"kind\": \"Pod\"}").unwrap(), Meta::default());
        Meta::of(b"{\"metadata\": {\"name\": 1}}").unwrap_err();
        Meta::of(b"no JSON").unwrap_err();
    }
}
