//! The job kinds that `integrations.frameworks` may name (docs/reference/07-integrations.md).

use std::collections::BTreeSet;

use super::types::Integrations;
use crate::job::JobKind;

impl Integrations {
    /// The kinds that other controllers manage. A kind that is listed in several versions has the first; a kind that is enabled here is not external.
    pub fn external_kinds(&self) -> BTreeSet<JobKind> {
        let mut kinds = BTreeSet::new();
        for kind in self.external_frameworks.iter().filter_map(|entry| JobKind::external(entry)) {
            if !self.lists(kind) {
                // An existing entry stays.
                kinds.insert(kind);
            }
        }
        kinds
    }
}

/// The kind that a name stands for.
pub(super) fn find(name: &str) -> Option<JobKind> {
    JobKind::ALL.into_iter().find(|kind| kind.framework() == name)
}

/// The sentence that names every framework that there is.
pub(super) fn supported() -> String {
    let names: Vec<_> = JobKind::ALL.into_iter().map(|kind| format!("{:?}", kind.framework())).collect();
    format!("supported values: {}", names.join(", "))
}
