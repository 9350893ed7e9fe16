//! Which kinds the API server serves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use serde::Deserialize;
use sluice_client::error_chain::Chain;
use tokio::sync::Mutex;
use tracing::{debug, warn};

use crate::api_call::{Call, CallError};

const TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer about all groups is used again.
const FRESH: Duration = Duration::from_secs(1);
/// A group that is listed and was not found in so many looks in a row is not served. There is a look each 3 s.
const LOOKS: u32 = 10;

#[derive(Deserialize)]
struct GroupList {
    groups: Vec<ApiGroup>,
}

#[derive(Deserialize)]
struct ApiGroup {
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
}

#[derive(Deserialize)]
struct ResourceList {
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
    #[serde(default)]
    kind: String,
}

/// Looks for kinds whose CRDs may never come. However many kinds are looked for, the list of groups is asked for once: most clusters have
/// few of them.
pub struct Discovery {
    client: Client,
    last: Mutex<Option<Discovered>>,
    /// How long that answer is used again.
    fresh: Duration,
    /// By group with version, and by kind: how many looks in a row did not find the group, although it is listed.
    not_found: std::sync::Mutex<BTreeMap<(String, String), u32>>,
}

/// The API server's last answer.
struct Discovered {
    at: Instant,
    /// Every group with each of its versions, as `group/version`; `None` if there was no answer.
    versions: Option<Arc<BTreeSet<String>>>,
}

impl Discovery {
    /// Asks this API server.
    pub fn new(client: Client) -> Self {
        Self { client, last: Mutex::default(), fresh: FRESH, not_found: std::sync::Mutex::default() }
    }

    /// Whether a kind is served; `None` if that is not known.
    pub async fn serves(&self, group: &str, version: &str, plural: &str) -> Option<bool> {
        let all = self.resources(group, version, plural).await?;
        Some(all.iter().any(|one| one.name == plural))
    }

    /// The plural of a kind: `Some(None)` if it is not served, `None` if that is not known.
    pub async fn plural(&self, group: &str, version: &str, kind: &str) -> Option<Option<String>> {
        let all = self.resources(group, version, kind).await?;
        // Subresources have a slash in their names.
        let found = all.into_iter().find(|one| one.kind == kind && !one.name.contains('/'));
        Some(found.map(|one| one.name))
    }

    /// The resources among which one is `wanted`: none if their group is not served, `None` if that is not known.
    async fn resources(&self, group: &str, version: &str, wanted: &str) -> Option<Vec<ApiResource>> {
        let look = (format!("{group}/{version}"), wanted.to_owned());
        if !self.versions().await?.contains(&look.0) {
            self.not_found().remove(&look);
            return Some(Vec::new());
        }
        let error = match resources(&self.client, group, version).await {
            Ok(all) => {
                self.not_found().remove(&look);
                return Some(all);
            }
            Err(error) => error,
        };
        debug!(error = %Chain(&error), "a CRD cannot be looked up");
        if error.code() != Some(404) {
            return None;
        }
        // A group that is listed and not found is about to come or to go, mostly; one whose CRDs are never established stays so.
        let mut not_found = self.not_found();
        let looks = not_found.entry(look).or_default();
        *looks = looks.saturating_add(1);
        if *looks == LOOKS {
            warn!(group, version, wanted, "the API server lists this group, and has none of its resources");
        }
        (*looks >= LOOKS).then(Vec::new)
    }

    fn not_found(&self) -> MutexGuard<'_, BTreeMap<(String, String), u32>> {
        self.not_found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn versions(&self) -> Option<Arc<BTreeSet<String>>> {
        // Calls that come meanwhile wait for the answer.
        let mut last = self.last.lock().await;
        if let Some(look) = last.as_ref().filter(|look| look.at.elapsed() < self.fresh) {
            return look.versions.clone();
        }
        let versions = match Call::get("/apis".to_owned()).send_as::<GroupList>(&self.client, TIMEOUT).await {
            Ok(all) => {
                let versions = all.groups.into_iter().flat_map(|group| group.versions);
                Some(Arc::new(versions.map(|version| version.group_version).collect()))
            }
            Err(error) => {
                debug!(error = %Chain(&error), "the API groups cannot be looked up");
                None
            }
        };
        *last = Some(Discovered { at: Instant::now(), versions: versions.clone() });
        versions
    }
}

/// The plurals of a group and version; empty if the group is unknown.
///
/// # Errors
///
/// If the API server cannot be reached, refuses for a reason other than a missing group, or does not answer within 10 s.
pub async fn served(client: &Client, group: &str, version: &str) -> Result<BTreeSet<String>, CallError> {
    match resources(client, group, version).await {
        Ok(all) => Ok(all.into_iter().map(|resource| resource.name).collect()),
        Err(error) if error.code() == Some(404) => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

async fn resources(client: &Client, group: &str, version: &str) -> Result<Vec<ApiResource>, CallError> {
    let call = Call::get(format!("/apis/{group}/{version}"));
    Ok(call.send_as::<ResourceList>(client, TIMEOUT).await?.resources)
}

/// Which of `wanted` are not served, as CRD names.
pub fn missing(served: &BTreeSet<String>, wanted: &[&str], group: &str) -> Vec<String> {
    wanted
        .iter()
        .filter(|&&plural| !served.contains(plural))
        .map(|plural| format!("{plural}.{group}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::{Method, Uri};
    use serde_json::json;

    use super::*;
    use crate::fake_api::{self, failed, found};

    /// An API server with one group, and counters of the requests for all groups and for that one.
    fn server(answers: bool) -> (Discovery, Arc<[AtomicUsize; 2]>) {
        let asked = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let counts = Arc::clone(&asked);
        let client = fake_api::client(move |_: Method, uri: Uri, _| {
            let all = uri.path() == "/apis";
            counts[usize::from(!all)].fetch_add(1, Ordering::Relaxed);
            let groups = json!({"groups": [{"name": "a.io", "versions": [{"groupVersion": "a.io/v1"}]}]});
            let resources = json!({"resources": [
                {"name": "foos/status", "kind": "Foo"}, {"name": "foos", "kind": "Foo"}, {"name": "oddities", "kind": "Odd"}]});
            async move {
                if !answers {
                    return failed(503, "ServiceUnavailable");
                }
                found(if all { &groups } else { &resources })
            }
        });
        let discovery = Discovery { fresh: Duration::from_hours(1), ..Discovery::new(client) };
        (discovery, asked)
    }

    #[tokio::test]
    async fn many_that_look_for_groups_that_are_not_there_ask_once() {
        let (discovery, asked) = server(true);
        let looks = (0..20).map(|n| {
            let discovery = &discovery;
            async move { discovery.serves(&format!("g{n}.io"), "v1", "foos").await }
        });
        assert!(futures::future::join_all(looks).await.iter().all(|served| *served == Some(false)));
        assert_eq!([0, 1].map(|n| asked[n].load(Ordering::Relaxed)), [1, 0]);
        assert_eq!(discovery.serves("a.io", "v2", "foos").await, Some(false));
        assert_eq!(discovery.serves("a.io", "v1", "foos").await, Some(true));
        assert_eq!(discovery.serves("a.io", "v1", "bars").await, Some(false));
        assert_eq!([0, 1].map(|n| asked[n].load(Ordering::Relaxed)), [1, 2]);
    }

    #[tokio::test]
    async fn a_kind_is_not_taken_for_absent_when_there_is_no_answer() {
        let (discovery, asked) = server(false);
        assert_eq!(discovery.serves("a.io", "v1", "foos").await, None);
        assert_eq!(discovery.serves("b.io", "v1", "foos").await, None);
        assert_eq!(asked[0].load(Ordering::Relaxed), 1, "a failure is shared, too");
    }

    #[tokio::test]
    async fn the_plural_of_a_kind_is_that_of_its_crd() {
        let (discovery, _) = server(true);
        let plural = async |version: &str, kind: &str| discovery.plural("a.io", version, kind).await;
        assert_eq!(plural("v1", "Foo").await, Some(Some("foos".to_owned())));
        assert_eq!(plural("v1", "Odd").await, Some(Some("oddities".to_owned())));
        assert_eq!(plural("v1", "Bar").await, Some(None));
        assert_eq!(plural("v2", "Foo").await, Some(None));
        let (silent, _) = server(false);
        assert_eq!(silent.plural("a.io", "v1", "Foo").await, None);
    }

    #[tokio::test]
    async fn a_group_that_is_listed_and_not_found_says_nothing_of_its_kinds_for_some_looks() {
        let groups = json!({"groups": [{"name": "a.io", "versions": [{"groupVersion": "a.io/v1"}]}]});
        let code = Arc::new(AtomicUsize::new(404));
        let answered = Arc::clone(&code);
        let client = fake_api::client(move |_: Method, uri: Uri, _| {
            let answer = match answered.load(Ordering::Relaxed) {
                _ if uri.path() == "/apis" => found(&groups),
                200 => found(&json!({"resources": [{"name": "bars", "kind": "Bar"}]})),
                code => failed(u16::try_from(code).unwrap(), "page not found"),
            };
            std::future::ready(answer)
        });
        let discovery = Discovery::new(client.clone());
        let serves = async || discovery.serves("a.io", "v1", "foos").await;
        let plural = async || discovery.plural("a.io", "v1", "Foo").await;
        for _ in 1..LOOKS {
            assert_eq!((serves().await, plural().await), (None, None));
        }
        code.store(503, Ordering::Relaxed);
        assert_eq!((serves().await, plural().await), (None, None), "it may be away");
        code.store(404, Ordering::Relaxed);
        for _ in 0..2 {
            assert_eq!((serves().await, plural().await), (Some(false), Some(None)), "it stays so");
        }
        code.store(200, Ordering::Relaxed);
        assert_eq!((serves().await, plural().await), (Some(false), Some(None)));
        code.store(404, Ordering::Relaxed);
        assert_eq!((serves().await, plural().await), (None, None), "it was there meanwhile");
        assert_eq!(served(&client, "a.io", "v1").await.unwrap(), BTreeSet::new());
    }

    #[test]
    fn missing_crds_are_named_in_full() {
        let served = BTreeSet::from(["workloads".to_owned(), "workloads/status".to_owned()]);
        assert_eq!(missing(&served, &["cohorts", "workloads"], "kueue.x-k8s.io"), ["cohorts.kueue.x-k8s.io"]);
    }
}
