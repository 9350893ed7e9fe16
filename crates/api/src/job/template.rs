//! Template objects: jobs of some kinds refer to one, which determines their pods.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The description of a kind of template objects.
#[derive(Debug)]
struct Description {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
}

/// trainer.kubeflow.org/v1alpha1 ClusterTrainingRuntime.
static CLUSTER_TRAINING_RUNTIME: Description = Description {
    group: "trainer.kubeflow.org",
    version: "v1alpha1",
    kind: "ClusterTrainingRuntime",
    plural: "clustertrainingruntimes",
    namespaced: false,
};

/// trainer.kubeflow.org/v1alpha1 TrainingRuntime.
static TRAINING_RUNTIME: Description = Description {
    group: "trainer.kubeflow.org",
    version: "v1alpha1",
    kind: "TrainingRuntime",
    plural: "trainingruntimes",
    namespaced: true,
};

/// A kind of template objects. Ordered by kind and group.
#[derive(Clone, Copy)]
pub struct TemplateKind(&'static Description);

impl TemplateKind {
    /// `trainer.kubeflow.org/v1alpha1` ClusterTrainingRuntime.
    pub const CLUSTER_TRAINING_RUNTIME: Self = Self(&CLUSTER_TRAINING_RUNTIME);
    /// `trainer.kubeflow.org/v1alpha1` TrainingRuntime.
    pub const TRAINING_RUNTIME: Self = Self(&TRAINING_RUNTIME);

    /// Every kind, in order.
    pub const ALL: [Self; 2] = [Self::CLUSTER_TRAINING_RUNTIME, Self::TRAINING_RUNTIME];

    /// The API group.
    pub const fn group(self) -> &'static str {
        self.0.group
    }

    /// The API version inside the group.
    pub const fn version(self) -> &'static str {
        self.0.version
    }

    /// The kind's name.
    pub const fn kind(self) -> &'static str {
        self.0.kind
    }

    /// The plural resource name.
    pub const fn plural(self) -> &'static str {
        self.0.plural
    }

    /// Whether its objects are namespaced, and only jobs of the same namespace may refer to them.
    pub const fn namespaced(self) -> bool {
        self.0.namespaced
    }

    fn order(self) -> (&'static str, &'static str) {
        (self.0.kind, self.0.group)
    }
}

impl fmt::Debug for TemplateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.kind)
    }
}

impl PartialEq for TemplateKind {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for TemplateKind {}

impl PartialOrd for TemplateKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TemplateKind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl Hash for TemplateKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.order().hash(state);
    }
}

/// Identifies one template object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateRef {
    /// Its kind.
    pub kind: TemplateKind,
    /// Its namespace, empty for a kind without.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl fmt::Display for TemplateRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = (self.kind.kind(), &self.name);
        match &*self.namespace {
            "" => write!(f, "{kind} {name}"),
            namespace => write!(f, "{kind} {namespace}/{name}"),
        }
    }
}

/// How a job uses a template object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateUse {
    /// The object.
    pub object: TemplateRef,
    /// The part of the job that determines its pods together with that object: JSON, which its adapter reads. Empty once the job has ended.
    pub outline: Arc<str>,
}

/// The kept part of a template object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its identity.
    pub object: TemplateRef,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// The part of it that determines the pods of a job, as JSON; nothing if that is longer than [`Template::LONGEST`].
    pub content: Option<Arc<str>>,
}

impl Template {
    /// The most bytes of a template that are kept.
    pub const LONGEST: usize = 256 << 10;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_sorted_and_distinguished() {
        assert!(TemplateKind::ALL.is_sorted());
        assert_ne!(TemplateKind::CLUSTER_TRAINING_RUNTIME, TemplateKind::TRAINING_RUNTIME);
        let of = |kind: TemplateKind, namespace: &str| TemplateRef {
            kind,
            namespace: namespace.into(),
            name: "a".into(),
        };
        assert_eq!(of(TemplateKind::TRAINING_RUNTIME, "ns").to_string(), "TrainingRuntime ns/a");
        assert_eq!(of(TemplateKind::CLUSTER_TRAINING_RUNTIME, "").to_string(), "ClusterTrainingRuntime a");
    }
}
