//! Objects of a cluster that cannot be simulated: they are left out and counted.

use serde_json::Value;

use crate::json::text;
use crate::manifest::ManifestError;

/// For how many of them the reason is kept.
const MOST: usize = 20;

/// Whether an object was read from a cluster: the API server has stored it, even if today's rules for new objects forbid it.
pub(crate) fn is_stored(object: &Value) -> bool {
    !text(&object["metadata"]["uid"]).is_empty()
}

/// The objects that a simulation leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// How many objects.
    pub count: usize,
    /// Why, of the first few. It names objects of every namespace.
    pub first: Vec<ManifestError>,
}

impl LeftOut {
    pub(crate) fn add(&mut self, why: ManifestError) {
        self.count += 1;
        if self.first.len() < MOST {
            self.first.push(why);
        }
    }

    /// Merges the left-out objects of another part of the same world; an object of both parts counts once.
    pub(crate) fn join(&mut self, other: Self) {
        let unnamed = other.count - other.first.len();
        for why in other.first {
            if !self.first.contains(&why) {
                self.add(why);
            }
        }
        self.count += unnamed;
    }
}
