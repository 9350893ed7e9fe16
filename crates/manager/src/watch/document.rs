//! Keeps the documents of objects beside their decoded form, while the decisions are recorded ([`crate::record`]).
//!
//! Otherwise nothing is kept: a watch decodes what decisions need, and drops the rest before it is stored.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sluice_api::slim::Raw;

/// The document of an object, while documents are kept.
pub type Document = Option<Box<Value>>;

/// Decoding has no other way to get this setting. Set once, before the first watch.
static KEPT: AtomicBool = AtomicBool::new(false);

/// Documents are kept from now on.
pub fn keep() {
    KEPT.store(true, Ordering::Relaxed);
}

/// Whether documents are kept.
pub fn kept() -> bool {
    KEPT.load(Ordering::Relaxed)
}

/// The document of an answer, if documents are kept.
pub fn of(body: &[u8]) -> Document {
    if !kept() {
        return None;
    }
    serde_json::from_slice(body).ok().map(|Raw(document)| Box::new(document))
}

/// An object, and its document if documents are kept.
#[derive(Clone, Debug)]
pub struct Documented<K> {
    /// The decoded object.
    pub object: K,
    /// From what.
    pub document: Document,
}

impl<K> From<K> for Documented<K> {
    fn from(object: K) -> Self {
        Self { object, document: None }
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Documented<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !kept() {
            return Ok(K::deserialize(deserializer)?.into());
        }
        let Raw(document) = Raw::deserialize(deserializer)?;
        let object = K::deserialize(&document).map_err(D::Error::custom)?;
        Ok(Self { object, document: Some(Box::new(document)) })
    }
}
