//! JSON documents that are only sent: their text, without a tree of it before.

use serde::Serialize;
use serde_json::Value;

/// A JSON document as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonText(Box<str>);

impl JsonText {
    /// Writes a value, whose maps have text as keys.
    pub(crate) fn of(value: &impl Serialize) -> Self {
        let text = serde_json::to_string(value);
        Self(text.expect("maps have text as keys, and nothing here fails to serialize").into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The document, for the simulator and tests: the manager sends the text alone.
    ///
    /// # Errors
    ///
    /// If it is nested too deeply to be read.
    pub fn value(&self) -> serde_json::Result<Value> {
        serde_json::from_str(&self.0)
    }
}

impl From<Value> for JsonText {
    fn from(document: Value) -> Self {
        Self(document.to_string().into())
    }
}
