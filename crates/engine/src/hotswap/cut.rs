//! A search that takes more than one cycle: it goes on where it was, for as long as nothing has changed; else it begins anew.

use sluice_core::{Answers, WorkloadKey};

/// A search that was cut in so many cycles is given up.
pub(super) const MOST_PARTS: u32 = 64;

/// A search that is to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CutSearch {
    /// The Workload.
    pub(super) key: WorkloadKey,
    /// In how many cycles it was searched, those before a change included.
    pub(super) parts: u32,
    /// How far it is.
    pub(super) progress: Progress,
}

impl CutSearch {
    /// A search that begins.
    pub(super) fn of(key: WorkloadKey) -> Self {
        Self { key, parts: 0, progress: Progress::default() }
    }
}

/// How far a search is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// So many choices have no room as their nodes are.
    pub(super) spares: usize,
    /// With so many of them, victims do not make room either.
    pub(super) ways: usize,
    /// What the search for victims knows with the next one.
    pub(super) answers: Answers,
    /// In this cycle it has looked at something.
    pub(super) went_on: bool,
}
