//! The job kinds that `integrations.frameworks` may name (reference 07).

use crate::job::JobKind;

/// Names of Kueue's frameworks that Sluice has not built.
const NOT_BUILT: [&str; 16] = [
    "deployment",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "pod",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "statefulset",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
];

/// The lists that Kueue's chart and manifests come with, by release: an installation that takes them over unchanged has chosen nothing.
const DEFAULTS: [&[&str]; 4] = [
    // The oldest.
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
    // With AppWrappers.
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
        "workload.codeflare.dev/appwrapper",
    ],
    // With the Trainer and JAX.
    &[
        "batch/job",
        "jobset.x-k8s.io/jobset",
        "kubeflow.org/jaxjob",
        "kubeflow.org/mpijob",
        "kubeflow.org/paddlejob",
        "kubeflow.org/pytorchjob",
        "kubeflow.org/tfjob",
        "kubeflow.org/xgboostjob",
        "ray.io/raycluster",
        "ray.io/rayjob",
        "trainer.kubeflow.org/trainjob",
        "workload.codeflare.dev/appwrapper",
    ],
    // With pods, and what is made of them.
    &[
        "batch/job",
        "deployment",
        "jobset.x-k8s.io/jobset",
        "kubeflow.org/jaxjob",
        "kubeflow.org/mpijob",
        "kubeflow.org/paddlejob",
        "kubeflow.org/pytorchjob",
        "kubeflow.org/tfjob",
        "kubeflow.org/xgboostjob",
        "leaderworkerset.x-k8s.io/leaderworkerset",
        "pod",
        "ray.io/raycluster",
        "ray.io/rayjob",
        "statefulset",
        "trainer.kubeflow.org/trainjob",
        "workload.codeflare.dev/appwrapper",
    ],
];

/// Whether a list is one that Kueue comes with, in any order.
pub(super) fn is_default(frameworks: &[String]) -> bool {
    let mut names: Vec<_> = frameworks.iter().map(String::as_str).collect();
    // Later releases add kinds that are extensions, too.
    names.retain(|name| !["ray.io/rayservice", "sparkoperator.k8s.io/sparkapplication"].contains(name));
    names.sort_unstable();
    DEFAULTS.contains(&names.as_slice())
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
        None if NOT_BUILT.contains(&name) => Framework::NotBuilt,
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
    fn every_default_list_is_sorted_and_names_known_frameworks_alone() {
        for list in DEFAULTS {
            assert!(list.is_sorted());
            assert!(list.iter().all(|name| find(name) != Framework::Unknown), "{list:?}");
        }
    }
}
