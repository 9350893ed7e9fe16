//! The job kinds that `integrations.frameworks` may name (docs/reference/07-integrations.md).

use crate::job::JobKind;

/// A framework of Kueue's that Sluice has not built.
#[derive(Clone, Copy, Debug)]
pub struct NotBuilt {
    /// Its name.
    pub framework: &'static str,
    /// The API group of its objects.
    pub group: &'static str,
    /// Their plural resource name.
    pub resource: &'static str,
}

impl NotBuilt {
    const fn new(framework: &'static str, group: &'static str, resource: &'static str) -> Self {
        Self { framework, group, resource }
    }
}

/// The frameworks of Kueue that Sluice has not built.
pub const NOT_BUILT: [NotBuilt; 1] = [NotBuilt::new(
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "leaderworkerset.x-k8s.io",
    "leaderworkersets",
)];

/// What each release added to the list that Kueue's chart and manifests come with: an installation that takes such a list over unchanged has
/// chosen nothing.
const ADDED: [&[&str]; 4] = [
    // The oldest list.
    &[
        "batch/job",
        "jobset.x-k8s.io/jobset",
        "kubeflow.org/mpijob",
        "kubeflow.org/paddlejob",
        "kubeflow.org/pytorchjob",
        "kubeflow.org/tfjob",
        "kubeflow.org/xgboostjob",
        "ray.io/raycluster",
        "ray.io/rayjob",
    ],
    &["workload.codeflare.dev/appwrapper"],
    &["kubeflow.org/jaxjob", "trainer.kubeflow.org/trainjob"],
    &["deployment", "leaderworkerset.x-k8s.io/leaderworkerset", "pod", "statefulset"],
];

/// Whether a list is one that Kueue comes with, in any order.
pub(super) fn is_default(frameworks: &[String]) -> bool {
    let mut names: Vec<_> = frameworks.iter().map(String::as_str).collect();
    // Later releases add kinds that are extensions, too.
    names.retain(|name| !["ray.io/rayservice", "sparkoperator.k8s.io/sparkapplication"].contains(name));
    names.sort_unstable();
    let mut list = Vec::new();
    ADDED.iter().any(|added| {
        list.extend_from_slice(added);
        list.sort_unstable();
        list == names
    })
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framework {
    /// A kind that Sluice serves.
    Built(JobKind),
    /// A kind that Kueue serves and Sluice does not yet.
    NotBuilt,
    /// No kind at all.
    Unknown,
}

pub(super) fn find(name: &str) -> Framework {
    match JobKind::ALL.into_iter().find(|kind| kind.framework() == name) {
        Some(kind) => Framework::Built(kind),
        None if NOT_BUILT.iter().any(|known| known.framework == name) => Framework::NotBuilt,
        None => Framework::Unknown,
    }
}

/// The sentence that names every framework that there is.
pub(super) fn supported() -> String {
    let names: Vec<_> = JobKind::ALL.into_iter().map(|kind| format!("{:?}", kind.framework())).collect();
    format!("supported values: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_list_is_known_in_any_order_and_names_known_frameworks_alone() {
        let mut list = Vec::new();
        for added in ADDED {
            assert!(added.iter().all(|name| find(name) != Framework::Unknown), "{added:?}");
            list.extend(added.iter().rev().map(ToString::to_string));
            assert!(is_default(&list));
            assert!(!is_default(&list[1..]));
        }
    }
}
