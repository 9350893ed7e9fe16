//! What of a cluster could not be read.

/// A kind of objects that could not be read, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The plural name of the kind, as in paths.
    pub what: &'static str,
    /// Why.
    pub why: String,
}
