//! Template objects: jobs of some kinds name one, which says what pods they have.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What a kind of template objects is.
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

    /// Whether its objects are in a namespace, and only jobs of that one may name them.
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

/// Names one template object.
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

/// What a job takes from a template object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateUse {
    /// The object.
    pub object: TemplateRef,
    /// What of the job decides, with that object, what pods it has: JSON, which its adapter reads. Empty once the job ended.
    pub outline: Arc<str>,
}

/// A template object, as far as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Which one.
    pub object: TemplateRef,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// What of it decides what pods a job has: JSON; nothing if that is longer than [`Template::LONGEST`].
    pub content: Option<Arc<str>>,
}

impl Template {
    /// So many bytes of a template are kept at most.
    pub const LONGEST: usize = 256 << 10;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_sorted_and_told_apart() {
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
