//! Job kinds as data: their names, and their properties outside their adapters in `sluice-jobs`.

mod declared;
mod external;
mod integration;
mod order;
mod pods_at;
mod table;

use super::template::TemplateKind;

pub use declared::DeclaredNames;
pub use external::parse_external;
pub use integration::{CleanUp, Integration, PartNames, Parts};
pub use pods_at::{CountAt, PartsAt, PodPlace, PodsAt};

/// A job kind. Ordered by the names of the frameworks.
#[derive(Clone, Copy)]
pub struct JobKind(&'static Integration);

impl JobKind {
    /// The kinds whose objects are jobs. If each pod of a kind is a job, nothing is done about its objects.
    pub fn jobs() -> impl Iterator<Item = Self> {
        Self::all().iter().copied().filter(|kind| !kind.0.pods_are_jobs)
    }

    /// The kind whose jobs are made of pods.
    pub const fn of_pods() -> Self {
        let mut at = 0;
        while !Self::ALL[at].0.of_pods {
            at += 1;
        }
        Self::ALL[at]
    }

    /// Whether its pods wait for admission themselves, and all of them, or those of each group, are one job.
    pub const fn gathers_pods(self) -> bool {
        self.0.suspends_pods && !self.0.pods_are_jobs
    }

    /// Whether its pods are in groups, each of which is a job.
    pub const fn has_groups(self) -> bool {
        self.0.group_label.is_some()
    }

    /// Whether a pod of this name belongs to an object of a kind in which each pod is a job, by its controller's naming: `<object>-<hash of the
    /// ReplicaSet>-<the pod's own>`.
    pub fn names_pod(self, object: &str, pod: &str) -> bool {
        let rest = pod.strip_prefix(object).and_then(|rest| rest.strip_prefix('-'));
        let parts = rest.and_then(|rest| rest.split_once('-')).filter(|_| self.0.pods_are_jobs);
        let is_word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        parts.is_some_and(|(hash, own)| is_word(hash) && is_word(own))
    }

    /// Its properties.
    pub const fn integration(self) -> &'static Integration {
        self.0
    }

    /// The API group.
    pub const fn group(self) -> &'static str {
        self.0.group
    }

    /// The API version inside the group.
    pub const fn version(self) -> &'static str {
        self.0.version
    }

    /// `group/version`, as owner references have it.
    pub const fn api_version(self) -> &'static str {
        self.0.api_version
    }

    /// The kind's name.
    pub const fn kind(self) -> &'static str {
        self.0.kind
    }

    /// The plural resource name.
    pub const fn plural(self) -> &'static str {
        self.0.plural
    }

    /// Whether a user may mean it by this word in lower case: its singular, plural or a short name.
    pub fn goes_by(self, word: &str) -> bool {
        self.kind().eq_ignore_ascii_case(word) || self.plural() == word || self.0.short_names.contains(&word)
    }

    /// The name in `integrations.frameworks`.
    pub const fn framework(self) -> &'static str {
        self.0.framework
    }

    /// The kinds of the jobs that its controller makes.
    pub fn parts(self) -> impl Iterator<Item = Self> {
        self.0.parts.iter().filter_map(|parts| Self::named(parts.framework))
    }

    /// The kinds of the jobs below its jobs, at any depth.
    pub fn descendants(self) -> Vec<Self> {
        let mut found: Vec<Self> = self.parts().collect();
        let mut at = 0;
        while let Some(kind) = found.get(at) {
            let more: Vec<_> = kind.parts().filter(|part| !found.contains(part)).collect();
            found.extend(more);
            at += 1;
        }
        found
    }

    /// The kinds of the template objects that its jobs name.
    pub const fn templates(self) -> &'static [TemplateKind] {
        self.0.templates
    }

    /// How its controller makes jobs of the other kind.
    pub fn parts_of(self, kind: Self) -> Option<&'static Parts> {
        self.0.parts.iter().find(|parts| parts.framework == kind.framework())
    }

    /// Whether its controller writes the names of what it makes of this kind into the job's status.
    pub fn names_parts_of(self, kind: Self) -> bool {
        self.parts_of(kind).is_some_and(|parts| matches!(parts.names, PartNames::Generated))
    }

    /// Whether its controller writes the names of any jobs that it makes into the job's status.
    pub fn names_parts(self) -> bool {
        self.0.parts.iter().any(|parts| matches!(parts.names, PartNames::Generated))
    }

    /// Whether a job of this kind that its controller makes plays all pod sets of the job.
    pub fn is_played_by(self, kind: Self) -> bool {
        self.parts_of(kind).is_some_and(|parts| matches!(parts.names, PartNames::Same))
    }

    /// Whether its controller calls jobs that it makes after the job's pod sets.
    pub fn parts_called_after_pod_sets(self) -> bool {
        self.0.parts.iter().any(|parts| parts.names.is_of_one())
    }

    /// Whether its controller makes jobs.
    pub const fn has_parts(self) -> bool {
        !self.0.parts.is_empty()
    }

    /// Whether its controller makes jobs of other kinds.
    pub const fn makes_jobs(self) -> bool {
        self.has_parts() || self.0.wraps_objects
    }

    /// Whether jobs that its controller makes are changed besides the job itself.
    pub fn changes_parts(self) -> bool {
        self.0.resumes_parts_as_made || self.0.leaves_parts || self.names_parts()
    }

    /// The label with the job's name on all pods of a job, if its controller sets one.
    pub fn label_of_pods(self) -> Option<&'static str> {
        self.0.pod_label.or(self.0.group_label).or(self.0.listing_label)
    }

    /// The kind with this name of a framework.
    pub fn named(framework: &str) -> Option<Self> {
        Self::all().iter().copied().find(|kind| kind.framework() == framework)
    }

    /// The kind of an owner reference, if it is a known one (any version of the group).
    pub fn from_owner(api_version: &str, kind: &str) -> Option<Self> {
        Self::all().iter().copied().find(|k| k.is_named_by(api_version, kind))
    }
}

#[cfg(test)]
mod tests;
