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

/// The sentence that names every known framework.
pub(super) fn supported() -> String {
    let built = JobKind::ALL.into_iter().map(JobKind::framework);
    let names: Vec<_> = built.chain(NOT_BUILT).map(|name| format!("{name:?}")).collect();
    format!("supported values: {}", names.join(", "))
}
