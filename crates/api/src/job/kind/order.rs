//! Kinds are identified and ordered by the names of their frameworks.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use super::JobKind;

impl fmt::Debug for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.kind)
    }
}

impl PartialEq for JobKind {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for JobKind {}

impl PartialOrd for JobKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for JobKind {
    fn cmp(&self, other: &Self) -> Ordering {
        // Most comparisons are of a kind with itself.
        if std::ptr::eq(self.0, other.0) {
            return Ordering::Equal;
        }
        self.0.framework.cmp(other.0.framework)
    }
}

impl Hash for JobKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.framework.hash(state);
    }
}
