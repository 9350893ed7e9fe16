//! The job kinds that `integrations.frameworks` may name (docs/reference/07-integrations.md).

use crate::job::JobKind;

/// The kind that a name stands for.
pub(super) fn find(name: &str) -> Option<JobKind> {
    JobKind::ALL.into_iter().find(|kind| kind.framework() == name)
}

/// The sentence that names every framework that there is.
pub(super) fn supported() -> String {
    let names: Vec<_> = JobKind::ALL.into_iter().map(|kind| format!("{:?}", kind.framework())).collect();
    format!("supported values: {}", names.join(", "))
}
