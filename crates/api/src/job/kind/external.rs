//! Kinds that other controllers manage (`integrations.externalFrameworks`). Their objects are parents of jobs, and are not jobs themselves: only
//! their metadata is read, and nothing is written.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};

use super::JobKind;
use super::integration::{Integration, PLAIN};
use crate::names::{dns1123_label_error, dns1123_subdomain_error};

/// The external kinds that were named. A name is kept as long as the process runs.
static NAMED: RwLock<Vec<JobKind>> = RwLock::new(Vec::new());

/// The longest name of a kind.
const MAX_KIND: usize = 63;

/// The parts of an entry `Kind.version.group`; none if it has another form.
pub fn parse_external(entry: &str) -> Option<[&str; 3]> {
    let mut parts = entry.splitn(3, '.');
    let names = [parts.next()?, parts.next()?, parts.next()?];
    let [kind, version, group] = names;
    let is_kind = kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind.len() <= MAX_KIND
        && kind.chars().all(|letter| letter.is_ascii_alphanumeric());
    let right = is_kind && dns1123_label_error(version).is_none() && dns1123_subdomain_error(group).is_none();
    right.then_some(names)
}

/// The plural of a kind, unless its CRD chooses another one.
fn usual_plural(kind: &str) -> String {
    let singular = kind.to_ascii_lowercase();
    if singular.ends_with('s') {
        return format!("{singular}es");
    }
    match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{singular}s"),
    }
}

impl JobKind {
    /// The kind of an entry `Kind.version.group`. Its plural is the usual one: see [`with_plural`](Self::with_plural).
    ///
    /// A built-in kind keeps the name of its framework: both are equal, whatever their other properties.
    pub fn external(entry: &str) -> Option<Self> {
        let [kind, version, group] = parse_external(entry)?;
        let built = Self::ALL.into_iter().find(|built| built.group() == group && built.kind() == kind);
        let plural = built.map_or_else(|| usual_plural(kind), |built| built.plural().to_owned());
        Some(Self::named_external([kind, version, group], &plural))
    }

    /// An external kind with the plural that its CRD chose.
    #[must_use]
    pub fn with_plural(self, plural: &str) -> Self {
        Self::named_external([self.kind(), self.version(), self.group()], plural)
    }

    fn named_external([kind, version, group]: [&str; 3], plural: &str) -> Self {
        let mut named = NAMED.write().unwrap_or_else(PoisonError::into_inner);
        let same = |one: &&Self| {
            [one.kind(), one.version(), one.group(), one.plural()] == [kind, version, group, plural]
        };
        if let Some(known) = named.iter().find(same) {
            return *known;
        }
        let kept = |name: &str| -> &'static str { String::from(name).leak() };
        let built = Self::ALL.into_iter().find(|built| built.group() == group && built.kind() == kind);
        let framework = match built {
            Some(built) => built.framework(),
            None => kept(&format!("{group}/{}", kind.to_ascii_lowercase())),
        };
        let integration = Integration {
            framework,
            group: kept(group),
            version: kept(version),
            api_version: kept(&format!("{group}/{version}")),
            kind: kept(kind),
            plural: kept(plural),
            controller: framework,
            about: "managed by a controller that is not Sluice's",
            reporter: framework,
            external: true,
            ..PLAIN
        };
        let made = Self(Box::leak(Box::new(integration)));
        named.push(made);
        made
    }

    /// The external kinds that were named so far.
    pub fn named_externals() -> Vec<Self> {
        NAMED.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether others manage it.
    pub const fn is_external(self) -> bool {
        self.0.external
    }

    /// Whether an owner reference names this kind (any version of the group).
    pub fn is_named_by(self, api_version: &str, kind: &str) -> bool {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.group() == group && self.kind() == kind
    }

    /// The kind of an owner reference, if it is a known one or one of these external ones (any version of the group).
    pub fn from_owner_or(external: &BTreeSet<Self>, api_version: &str, kind: &str) -> Option<Self> {
        let own = Self::from_owner(api_version, kind);
        own.or_else(|| external.iter().find(|one| one.is_named_by(api_version, kind)).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_a_kind_by_kind_version_and_group() {
        for (entry, plural, framework) in [
            ("Errand.v1.named.example.com", "errands", "named.example.com/errand"),
            ("Policy.v1beta1.named.example.com", "policies", "named.example.com/policy"),
            ("Class.v2.named.example.com", "classes", "named.example.com/class"),
            ("CronJob.v1.batch", "cronjobs", "batch/cronjob"),
            // Built-in kinds keep their names.
            ("MPIJob.v1.kubeflow.org", "mpijobs", "kubeflow.org/mpijob"),
            ("Deployment.v1.apps", "deployments", "deployment"),
        ] {
            let kind = JobKind::external(entry).unwrap();
            assert_eq!((kind.plural(), kind.framework()), (plural, framework), "{entry}");
            assert!(kind.is_external() && !JobKind::all().iter().any(|known| known.is_external()));
            assert_eq!(format!("{}.{}.{}", kind.kind(), kind.version(), kind.group()), entry);
            // The same object each time.
            assert!(std::ptr::eq(kind.integration(), JobKind::external(entry).unwrap().integration()));
        }
        let external = JobKind::external("MPIJob.v1.kubeflow.org").unwrap();
        assert!(external == JobKind::MPI_JOB && !JobKind::MPI_JOB.is_external());
    }

    #[test]
    fn other_forms_are_refused() {
        for entry in [
            "",
            "Foo",
            "Foo.v1",
            "Foo.v1.",
            "Pod.v1.",
            ".v1.example.com",
            "foo.v1.example.com",
            "Foo.V1.example.com",
            "Foo..example.com",
            "Foo.v1.example.com/x",
            "Foo.v1.example..com",
            "Fo/o.v1.example.com",
            "F?.v1.example.com",
        ] {
            assert_eq!(parse_external(entry), None, "{entry}");
        }
        assert!(JobKind::external(&format!("{}.v1.example.com", "A".repeat(MAX_KIND + 1))).is_none());
    }

    #[test]
    fn a_plural_of_its_own_makes_no_other_kind_of_it() {
        let usual = JobKind::external("Datum.v1.plural.example.com").unwrap();
        let own = usual.with_plural("data");
        assert_eq!((usual.plural(), own.plural()), ("datums", "data"));
        assert!(usual == own && own == own.with_plural("data"));
    }

    #[test]
    fn owners_are_known_in_any_version_and_in_no_other_group() {
        let kind = JobKind::external("Errand.v1.owners.example.com").unwrap();
        let external = BTreeSet::from([kind]);
        let from = |api_version: &str, kind: &str| JobKind::from_owner_or(&external, api_version, kind);
        assert_eq!(from("owners.example.com/v7", "Errand"), Some(kind));
        assert_eq!(from("batch/v1", "Job"), Some(JobKind::JOB));
        assert_eq!(from("other.example.com/v1", "Errand"), None);
        assert_eq!(from("owners.example.com/v1", "Other"), None);
        assert_eq!(JobKind::from_owner("owners.example.com/v1", "Errand"), None, "it is not a kind of job");
    }
}
