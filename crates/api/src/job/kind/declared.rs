//! Job kinds that the configuration declares.

use std::sync::{PoisonError, RwLock};

use super::JobKind;
use super::integration::{Integration, PLAIN};
use super::pods_at::PodsAt;

/// Every kind that there is.
static KNOWN: RwLock<&'static [JobKind]> = RwLock::new(&JobKind::ALL);

/// The names of a declared kind.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredNames<'a> {
    /// The API group.
    pub group: &'a str,
    /// The API version inside the group.
    pub version: &'a str,
    /// The kind's name.
    pub kind: &'a str,
    /// The plural resource name.
    pub plural: &'a str,
    /// The path of the field that suspends its jobs.
    pub suspend: &'a [&'a str],
    /// Whether its jobs end by themselves.
    pub ends: bool,
    /// Whether its pods wait for admission in its place.
    pub suspends_pods: bool,
    /// The names of its pod sets whose pods no scheduling gate can hold back.
    pub ungated: &'a [&'a str],
    /// The label of its pods with their number, where they wait in its place.
    pub pod_index: Option<&'a str>,
    /// Where its pod templates are, as far as the declaration says that by paths.
    pub pods: &'a [PodsAt],
    /// Why that list is incomplete, if it is.
    pub pods_by_adapter: Option<&'static str>,
}

impl DeclaredNames<'_> {
    /// The properties of the kind. Its names are kept as long as the process runs.
    pub(super) fn integration(&self) -> Integration {
        let Self { group, version, kind, plural, suspend, ends, suspends_pods, pod_index, .. } = self;
        let kept = |name: &str| -> &'static str { String::from(name).leak() };
        let all = |names: &[&str]| -> &'static [&'static str] {
            names.iter().map(|name| kept(name)).collect::<Vec<_>>().leak()
        };
        let framework = kept(&format!("{group}/{}", kind.to_ascii_lowercase()));
        Integration {
            framework,
            group: kept(group),
            version: kept(version),
            api_version: kept(&format!("{group}/{version}")),
            kind: kept(kind),
            plural: kept(plural),
            // The names of the built-in kinds are single words.
            controller: framework,
            about: kept(&format!("{group}/{version} {kind}, as declared in the configuration")),
            reporter: kept(&format!("{framework}-kueue-controller")),
            follows_changes: true,
            observes_generation: true,
            suspend: all(suspend),
            ungated: all(self.ungated),
            ends: *ends,
            suspends_pods: *suspends_pods,
            pod_index: pod_index.map(kept),
            pods: self.pods.to_vec().leak(),
            pods_by_adapter: self.pods_by_adapter,
            declared: true,
            ..PLAIN
        }
    }
}

impl JobKind {
    /// Every kind, including those that the configuration declares, in the order of the frameworks' names.
    pub fn all() -> &'static [Self] {
        *KNOWN.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kind that the configuration declares. Until it is made [known](Self::make_known) nothing else sees it.
    pub fn declared(names: &DeclaredNames<'_>) -> Self {
        Self(Box::leak(Box::new(names.integration())))
    }

    /// Makes a declared kind known, as long as the process runs.
    ///
    /// The list is replaced: that happens a few times when a process starts, and it is read all the time.
    pub fn make_known(self) {
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(at) = known.binary_search(&self) {
            let mut kinds = known.to_vec();
            kinds.insert(at, self);
            *known = kinds.leak();
        }
    }

    /// Whether the configuration declares it.
    pub const fn is_declared(self) -> bool {
        self.0.declared
    }
}
