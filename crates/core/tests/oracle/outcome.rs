//! The outcome of a head.

use super::world::{Admitted, Name, Target};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Admitted(Admitted),
    /// Preemptions are issued; the targets in the order of the search.
    Preempting(Vec<Target>),
    NoFit,
    NoCandidates,
    Gated,
    /// Fits once the preemptions that others issued in this cycle are done.
    Deferred,
    Overlaps,
    NoLongerFits,
}

/// What became of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Name,
    pub queue: Name,
    pub outcome: Outcome,
}
