//! Which kinds the API server serves.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use serde::Deserialize;
use sluice_client::error_chain::Chain;
use tokio::sync::Mutex;
use tracing::debug;

use crate::api_call::{Call, CallError};

const TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer about all groups is used again.
const FRESH: Duration = Duration::from_secs(1);

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
        Self { client, last: Mutex::default(), fresh: FRESH }
    }

    /// Whether a kind is served; `None` if that is not known.
    pub async fn serves(&self, group: &str, version: &str, plural: &str) -> Option<bool> {
        if !self.versions().await?.contains(&format!("{group}/{version}")) {
            return Some(false);
        }
        // A group that is listed and not found is about to come or to go.
        match resources(&self.client, group, version).await {
            Ok(all) => Some(all.iter().any(|one| one.name == plural)),
            Err(error) => {
                debug!(error = %Chain(&error), "a CRD cannot be looked up");
                None
            }
        }
    }

    /// The plural of a kind: `Some(None)` if it is not served, `None` if that is not known.
    pub async fn plural(&self, group: &str, version: &str, kind: &str) -> Option<Option<String>> {
        if !self.versions().await?.contains(&format!("{group}/{version}")) {
            return Some(None);
        }
        match resources(&self.client, group, version).await {
            // Subresources have a slash in their names.
            Ok(all) => Some(
                all.into_iter().find(|one| one.kind == kind && !one.name.contains('/')).map(|one| one.name),
            ),
            Err(error) => {
                debug!(error = %Chain(&error), "a CRD cannot be looked up");
                None
            }
        }
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
    async fn a_group_that_is_listed_and_not_found_says_nothing_of_its_kinds() {
        let groups = json!({"groups": [{"name": "a.io", "versions": [{"groupVersion": "a.io/v1"}]}]});
        let client = fake_api::client(move |_: Method, uri: Uri, _| {
            let answer = if uri.path() == "/apis" { found(&groups) } else { failed(404, "page not found") };
            std::future::ready(answer)
        });
        let discovery = Discovery::new(client.clone());
        assert_eq!(discovery.serves("a.io", "v1", "foos").await, None);
        assert_eq!(discovery.plural("a.io", "v1", "Foo").await, None);
        assert_eq!(served(&client, "a.io", "v1").await.unwrap(), BTreeSet::new());
    }

    #[test]
    fn missing_crds_are_named_in_full() {
        let served = BTreeSet::from(["workloads".to_owned(), "workloads/status".to_owned()]);
        assert_eq!(missing(&served, &["cohorts", "workloads"], "kueue.x-k8s.io"), ["cohorts.kueue.x-k8s.io"]);
    }
}
