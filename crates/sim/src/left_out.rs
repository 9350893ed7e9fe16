//! Objects of a cluster that cannot be played: a simulation leaves them out, and says how many they are.

use serde_json::Value;

use crate::json::text;
use crate::manifest::ManifestError;

/// Those of which it is kept why.
const MOST: usize = 20;

/// Whether an object was read from a cluster: the API server has stored it, whatever the rules for new ones are.
pub(crate) fn is_stored(object: &Value) -> bool {
    !text(&object["metadata"]["uid"]).is_empty()
}

/// What a simulation leaves out.
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

    /// Takes in what another part of the same world leaves out: an object that both parts have is one.
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
