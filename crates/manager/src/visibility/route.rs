//! Parses paths and queries.

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::visibility::{DEFAULT_LIMIT, GROUP, MAX_LIMIT, VERSIONS};
use sluice_sim::explain::{MOST_CHANGE, check_change};

use super::board::Page;
use crate::access::Attributes;
use crate::explain::Format;
use crate::journal;
use crate::percent::decoded;

/// The group of explanations.
pub(crate) const EXPLAIN_GROUP: &str = "visibility.sluice.dev";
/// Its version.
pub(crate) const EXPLAIN_VERSION: &str = "v1alpha1";

/// Stands for all ClusterQueues in place of a name. No object has such a name.
pub(super) const ALL: &str = "-";

/// The routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Whether the server works; for every caller.
    Health,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(&'static str),
    /// `/apis/GROUP/VERSION`.
    Resources(&'static str, &'static str),
    /// `/openapi/v2`.
    OpenApi2,
    /// `/openapi/v3`: which documents there are.
    OpenApi3Index,
    /// The document of a group's version.
    OpenApi3(&'static str, &'static str),
    /// The Workloads that wait in a ClusterQueue: version and name.
    ClusterQueue(&'static str, String),
    /// The Workloads that wait in a LocalQueue: version, namespace and name.
    LocalQueue(&'static str, String, String),
    /// Why a Workload waits: namespace and name.
    Explain(String, String),
    /// The effect of a change of a job: namespace and name.
    WhatIf(String, String),
    /// The journal: of a ClusterQueue, or of all ([`ALL`]).
    Journal(String),
}

impl Route {
    /// The route of a path; `None` if it is not served.
    pub(super) fn of(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let parts: Vec<String> = path.split('/').map(decoded).collect::<Option<_>>()?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let served = |group: &str, version: &str| {
            let mut all = versions();
            all.find(|(known, of_group)| *known == group && *of_group == version)
        };
        let kueues = |version: &str| VERSIONS.into_iter().find(|known| *known == version);
        let some = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        match parts[..] {
            ["healthz" | "livez" | "readyz"] => Some(Self::Health),
            ["apis"] => Some(Self::Groups),
            ["apis", group] => GROUPS.into_iter().find(|known| *known == group).map(Self::Group),
            ["apis", group, version] => {
                let (group, version) = served(group, version)?;
                Some(Self::Resources(group, version))
            }
            ["openapi", "v2"] => Some(Self::OpenApi2),
            ["openapi", "v3"] => Some(Self::OpenApi3Index),
            ["openapi", "v3", "apis", group, version] => {
                let (group, version) = served(group, version)?;
                Some(Self::OpenApi3(group, version))
            }
            ["apis", GROUP, version, "clusterqueues", name, "pendingworkloads"] => {
                Some(Self::ClusterQueue(kueues(version)?, some(name)?))
            }
            ["apis", GROUP, version, "namespaces", namespace, "localqueues", name, "pendingworkloads"] => {
                Some(Self::LocalQueue(kueues(version)?, some(namespace)?, some(name)?))
            }
            [
                "apis",
                EXPLAIN_GROUP,
                EXPLAIN_VERSION,
                "namespaces",
                namespace,
                "workloads",
                name,
                "explain",
            ] => Some(Self::Explain(some(namespace)?, some(name)?)),
            [
                "apis",
                EXPLAIN_GROUP,
                EXPLAIN_VERSION,
                "namespaces",
                namespace,
                "workloads",
                name,
                "whatif",
            ] => Some(Self::WhatIf(some(namespace)?, some(name)?)),
            ["apis", EXPLAIN_GROUP, EXPLAIN_VERSION, "clusterqueues", name, "journal"] => {
                Some(Self::Journal(some(name)?))
            }
            _ => None,
        }
    }

    /// The required right; `None` for what every authenticated user may see, as in the API server's own discovery.
    pub(super) fn attributes(&self) -> Option<Attributes> {
        let object = |group, version, resource, subresource, namespace: &str, name: &str| {
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            Some(Attributes::Object { verb: "get", group, version, resource, subresource, namespace, name })
        };
        match self {
            Self::ClusterQueue(version, name) => {
                object(GROUP, version, "clusterqueues", "pendingworkloads", "", name)
            }
            Self::LocalQueue(version, namespace, name) => {
                object(GROUP, version, "localqueues", "pendingworkloads", namespace, name)
            }
            Self::Explain(namespace, name) => {
                object(EXPLAIN_GROUP, EXPLAIN_VERSION, "workloads", "explain", namespace, name)
            }
            Self::WhatIf(namespace, name) => {
                object(EXPLAIN_GROUP, EXPLAIN_VERSION, "workloads", "whatif", namespace, name)
            }
            // The right to all queues is the right to one without a name.
            Self::Journal(name) => {
                let name = if name == ALL { "" } else { name };
                object(EXPLAIN_GROUP, EXPLAIN_VERSION, "clusterqueues", "journal", "", name)
            }
            _ => None,
        }
    }

    /// Whether clients may request the discovery of all groups in one document.
    pub(super) fn discovers(&self) -> bool {
        *self == Self::Groups
    }
}

/// The groups, in the order in which they are listed.
pub(super) const GROUPS: [&str; 2] = [GROUP, EXPLAIN_GROUP];

/// Groups and versions, the preferred version of each group first.
pub(super) fn versions() -> impl Iterator<Item = (&'static str, &'static str)> {
    VERSIONS.into_iter().map(|version| (GROUP, version)).chain([(EXPLAIN_GROUP, EXPLAIN_VERSION)])
}

/// The first value of a parameter of a query. What is unknown in a query is left alone, as API servers do.
pub(crate) fn parameter(query: &str, name: &str) -> Option<String> {
    #[cfg(test)]
    tests::note_read(name);
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let value = pairs.into_iter().find(|(key, _)| decoded(key).as_deref() == Some(name))?.1;
    decoded(&value.replace('+', " "))
}

/// The page that a query asks for, or what is wrong with it.
pub(super) fn page(query: &str) -> Result<Page, String> {
    let number = |name: &str| -> Result<Option<usize>, String> {
        let Some(text) = parameter(query, name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let number: i64 = text.parse().map_err(|_| format!("{name}: {text:?} is not a whole number"))?;
        Ok(Some(usize::try_from(number.max(0)).unwrap_or(usize::MAX)).filter(|_| number != 0))
    };
    let limit = number("limit")?.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
    Ok(Page { offset: number("offset")?.unwrap_or(0), limit })
}

/// The change that a query asks about, or what is wrong with it.
pub(super) fn change(query: &str) -> Result<Value, String> {
    let text = parameter(query, "change").unwrap_or_default();
    if text.len() > MOST_CHANGE {
        return Err(format!("change: expected at most {MOST_CHANGE} bytes"));
    }
    let change = serde_json::from_str(&text)
        .map_err(|error| format!("change: expected a JSON merge patch: {error}"))?;
    check_change(&change).map_err(|why| format!("change: {why}"))?;
    Ok(change)
}

/// How a query wants an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wishes {
    /// With the names of all namespaces.
    pub all: bool,
    /// As text or data.
    pub output: Format,
    /// The kind of the name.
    pub kind: Option<String>,
}

/// How a query wants an explanation, or what is wrong with it.
pub(super) fn wishes(query: &str) -> Result<Wishes, String> {
    let all = parameter(query, "all").is_some_and(|value| value == "true" || value == "1");
    let output = match parameter(query, "output").as_deref() {
        None | Some("" | "json") => Format::Json,
        Some("text") => Format::Text,
        Some("both") => Format::Both,
        Some(other) => return Err(format!("output: {other:?} is neither json, text nor both")),
    };
    let kind = parameter(query, "kind").filter(|kind| !kind.is_empty());
    Ok(Wishes { all, output, kind })
}

/// The page of the journal that a query asks for, or what is wrong with it.
pub(super) fn asked(query: &str) -> Result<journal::Asked, String> {
    let text = |name: &str| parameter(query, name).filter(|text| !text.is_empty());
    let since = match text("since") {
        None => Timestamp::MIN,
        Some(text) => text.parse().map_err(|_| format!("since: {text:?} is not a time as in RFC 3339"))?,
    };
    let limit = match text("limit") {
        None => 0,
        Some(text) => text.parse().map_err(|_| format!("limit: {text:?} is not a whole number"))?,
    };
    // As for places, none at all stands for the default.
    let limit = if limit == 0 { journal::MOST_LINES } else { limit };
    Ok(journal::Asked { since, limit, token: text("continue") })
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    thread_local! {
        static READ: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    }

    /// Notes that a parameter is read.
    pub(super) fn note_read(name: &str) {
        READ.with_borrow_mut(|read| read.insert(name.to_owned()));
    }

    /// The parameters of a query that are read when this is done.
    pub(in super::super) fn read_by(what: impl FnOnce()) -> BTreeSet<String> {
        READ.take();
        what();
        READ.take()
    }

    #[test]
    fn paths_name_queues_in_both_versions() {
        let path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/a/pendingworkloads";
        assert_eq!(Route::of(path), Some(Route::ClusterQueue("v1beta2", "a".to_owned())));
        let path = "/apis/visibility.kueue.x-k8s.io/v1beta1/namespaces/ns/localqueues/b/pendingworkloads";
        assert_eq!(Route::of(path), Some(Route::LocalQueue("v1beta1", "ns".to_owned(), "b".to_owned())));
        let path = "/apis/visibility.sluice.dev/v1alpha1/namespaces/ns/workloads/w/explain";
        assert_eq!(Route::of(path), Some(Route::Explain("ns".to_owned(), "w".to_owned())));
        let path = path.replace("explain", "whatif");
        assert_eq!(Route::of(&path), Some(Route::WhatIf("ns".to_owned(), "w".to_owned())));
    }

    #[test]
    fn odd_names_are_names_and_odd_paths_are_none() {
        let queue = |name: &str| {
            Route::of(&format!(
                "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/{name}/pendingworkloads"
            ))
        };
        assert_eq!(queue("a%2Fb"), Some(Route::ClusterQueue("v1beta2", "a/b".to_owned())));
        assert_eq!(queue("..").unwrap(), Route::ClusterQueue("v1beta2", "..".to_owned()));
        assert_eq!(queue("%C3%BC").unwrap(), Route::ClusterQueue("v1beta2", "ü".to_owned()));
        for name in ["", "a/b", "%zz", "%C3"] {
            assert_eq!(queue(name), None, "{name}");
        }
        for path in [
            "",
            "/",
            "//apis",
            "/apis/visibility.kueue.x-k8s.io/v1",
            "/apis/kueue.x-k8s.io",
            "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues",
            "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/a",
            "/apis/visibility.kueue.x-k8s.io/v1beta2/localqueues/a/pendingworkloads",
            "/apis/visibility.sluice.dev/v1beta2/namespaces/ns/workloads/w/explain",
            "/openapi/v3/apis/visibility.kueue.x-k8s.io/v9",
        ] {
            assert_eq!(Route::of(path), None, "{path}");
        }
        assert_eq!(Route::of("/apis/"), Some(Route::Groups));
    }

    #[test]
    fn objects_take_a_right_and_discovery_takes_none() {
        let route = Route::LocalQueue("v1beta2", "ns".to_owned(), "b".to_owned());
        let Some(Attributes::Object { namespace, name, subresource, .. }) = route.attributes() else {
            unreachable!("it is an object")
        };
        assert_eq!((namespace.as_str(), name.as_str(), subresource), ("ns", "b", "pendingworkloads"));
        assert_eq!(Route::Groups.attributes(), None);
        assert_eq!(Route::OpenApi2.attributes(), None);
    }

    #[test]
    fn pages_have_defaults_and_bounds() {
        let of = |query: &str| page(query).map(|page| (page.offset, page.limit));
        assert_eq!(of(""), Ok((0, 1000)));
        assert_eq!(of("limit=5&offset=7"), Ok((7, 5)));
        assert_eq!(of("limit=0"), Ok((0, 1000)));
        assert_eq!(of("limit=-1&offset=-9"), Ok((0, 0)));
        assert_eq!(of("limit=99999999&offset=9223372036854775807").unwrap().1, 100_000);
        assert_eq!(of("limit=2&limit=3&watch=true&pretty=1&unknown=x"), Ok((0, 2)));
        assert_eq!(of("limit=&offset"), Ok((0, 1000)));
        assert_eq!(of("%6Cimit=4"), Ok((0, 4)));
        for wrong in ["limit=x", "offset=1.5", "limit=9223372036854775808", "offset=0x1"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        let lines = |query: &str| asked(query).map(|asked| asked.limit);
        assert_eq!((lines(""), lines("limit=0")), (Ok(journal::MOST_LINES), Ok(journal::MOST_LINES)));
        assert_eq!(lines("limit=7"), Ok(7));
        assert!(lines("limit=-1").is_err() && lines("limit=x").is_err());
    }
}
