//! The state of a cluster as a kubeconfig's user may read it, from lists that are repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_client::list::{Pages, items};
use sluice_engine::Name;
use sluice_engine::input::{Input, Kind, Object, ObjectRef};

use super::source::View;
use super::store::Store;
use super::viewer::Viewer;
use crate::api_call::{Call, CallError, Content};

/// The number of objects in one answer.
const PAGE: usize = 500;
/// The timeout of one answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between two rounds: at least this, and this many times the duration of a round; at most this.
const LEAST: Duration = Duration::from_secs(3);
const TIMES: u32 = 10;
const MOST: Duration = Duration::from_mins(1);
/// The kinds, in the order in which they are read: a Workload's ClusterQueue is known when the Workload is first seen.
const KINDS: [Kind; 7] = [
    Kind::ResourceFlavor,
    Kind::Topology,
    Kind::Cohort,
    Kind::ClusterQueue,
    Kind::LocalQueue,
    Kind::Workload,
    Kind::Node,
];

/// What the user may read.
#[derive(Clone, Debug, Default)]
struct Rights {
    viewer: Viewer,
    missing: BTreeMap<View, String>,
}

/// Reads a cluster.
pub struct Polled {
    client: Client,
    /// The context's namespace, for users who may not read all.
    namespace: String,
    store: Arc<Store>,
    rights: Mutex<Rights>,
}

/// How much of a kind could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    All,
    OneNamespace,
    Nothing,
}

impl Polled {
    /// Reads into the store with the rights of the client's user.
    pub fn new(client: Client, namespace: String, store: Arc<Store>) -> Self {
        Self { client, namespace, store, rights: Mutex::default() }
    }

    /// The LocalQueues of a ClusterQueue, namespace and name, in the namespaces whose Workloads are read.
    pub fn local_queues_of(&self, queue: &str) -> Vec<(Name, Name)> {
        let (viewer, Some(snapshot)) = (self.viewer(), self.store.snapshot()) else { return Vec::new() };
        let all = snapshot.local_queues.iter();
        let own = all.filter(|((namespace, _), target)| ***target == *queue && viewer.sees(namespace));
        own.map(|(key, _)| key.clone()).collect()
    }

    fn rights(&self) -> Rights {
        self.rights.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The user.
    pub fn viewer(&self) -> Viewer {
        self.rights().viewer
    }

    /// Why a view cannot be shown.
    pub fn missing(&self, view: View) -> Option<String> {
        self.rights().missing.get(&view).cloned()
    }

    /// A round failed: the data of the previous one stays.
    pub fn failed(&self) {
        self.store.cut_off();
    }

    /// Reads everything once; how long to wait before the next time.
    ///
    /// # Errors
    /// When the API server does not answer, or does not know the user.
    pub async fn round(&self) -> Result<Duration, CallError> {
        let (began, at) = (Instant::now(), Timestamp::now());
        let mut rights = Rights { viewer: self.viewer(), ..Rights::default() };
        if rights.viewer.user.is_empty() {
            rights.viewer.user = self.user().await?;
        }
        for kind in KINDS {
            let read = self.read(kind).await?;
            note(&mut rights, kind, read, &self.namespace);
        }
        self.store.partial(!rights.viewer.all);
        *self.rights.lock().unwrap_or_else(PoisonError::into_inner) = rights;
        self.store.synced();
        self.store.alive(at);
        Ok((began.elapsed() * TIMES).clamp(LEAST, MOST))
    }

    /// The user's name, as the API server knows it.
    async fn user(&self) -> Result<String, CallError> {
        let uri = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let call = Call::with_body(axum::http::Method::POST, uri, Content::Json, &review);
        match call.send_as::<Value>(&self.client, TIMEOUT).await {
            Ok(review) => {
                let name = review["status"]["userInfo"]["username"].as_str();
                Ok(name.filter(|name| !name.is_empty()).unwrap_or("you").to_owned())
            }
            // Before Kubernetes 1.28, or not for this user.
            Err(error) if matches!(error.code(), Some(403 | 404)) => Ok("you".to_owned()),
            Err(error) => Err(error),
        }
    }

    /// Reads a kind: all of it, or what is in the namespace of the context.
    async fn read(&self, kind: Kind) -> Result<Read, CallError> {
        let mut outcome = Read::All;
        let mut present = self.list(kind, None).await?;
        if present.is_none() && kind.namespaced() {
            present = self.list(kind, Some(&self.namespace)).await?;
            outcome = Read::OneNamespace;
        }
        let outcome = if present.is_some() { outcome } else { Read::Nothing };
        let present = present.unwrap_or_default();
        self.store.note(&Input::Listed { kind, present, as_of: None });
        Ok(outcome)
    }

    /// Reads the objects of a kind, page by page; `None` if they may not be listed. A kind that the cluster does not serve has no objects.
    async fn list(&self, kind: Kind, namespace: Option<&str>) -> Result<Option<Vec<ObjectRef>>, CallError> {
        let mut present = Vec::new();
        let mut pages = Pages::new(&kind.collection(kind.version(), namespace), "", PAGE);
        while let Some(uri) = pages.uri() {
            let page: Value = match Call::get(uri).send_as(&self.client, TIMEOUT).await {
                Ok(page) => page,
                Err(error) if error.code() == Some(403) => return Ok(None),
                Err(error) if error.code() == Some(404) => break,
                Err(error) => return Err(error),
            };
            pages.answered(&page);
            for object in items(page).into_iter().filter_map(|object| decoded(kind, object)) {
                present.push(object.object_ref());
                self.store.note(&Input::Applied(object));
            }
        }
        Ok(Some(present))
    }
}

fn decoded(kind: Kind, object: Value) -> Option<Object> {
    fn typed<T: for<'de> Deserialize<'de>>(object: Value) -> Option<Box<T>> {
        serde_json::from_value(object).ok().map(Box::new)
    }
    match kind {
        Kind::ResourceFlavor => typed(object).map(Object::ResourceFlavor),
        Kind::Topology => typed(object).map(Object::Topology),
        Kind::Cohort => typed(object).map(Object::Cohort),
        Kind::ClusterQueue => typed(object).map(Object::ClusterQueue),
        Kind::LocalQueue => typed(object).map(Object::LocalQueue),
        Kind::Workload => typed(object).map(Object::Workload),
        Kind::Node => typed(object).map(Object::Node),
        _ => None,
    }
}

/// Records what the user may read, which decides what is shown.
fn note(rights: &mut Rights, kind: Kind, read: Read, namespace: &str) {
    match kind {
        Kind::Workload => {
            rights.viewer.all = read == Read::All;
            rights.viewer.namespaces = if read == Read::OneNamespace {
                BTreeSet::from([Name::from(namespace)])
            } else {
                BTreeSet::new()
            };
        }
        Kind::Node => rights.viewer.nodes = read == Read::All,
        Kind::ClusterQueue => rights.viewer.queues = read == Read::All,
        _ => {}
    }
    let view = match kind {
        Kind::Workload => View::Workloads,
        Kind::ClusterQueue => View::Queues,
        Kind::ResourceFlavor => View::Nodes,
        _ => return,
    };
    if read == Read::Nothing {
        let plural = kind.plural();
        rights.missing.insert(view, format!("the user of the kubeconfig may not list {plural}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::query::Page;
    use crate::dashboard::views::items::{Search, search};
    use crate::dashboard::views::now::now;
    use crate::fake_api::{client, failed, found, list};
    use axum::body::Bytes;
    use axum::http::{Method, Uri};

    /// A cluster with a ClusterQueue and a Workload in each of two namespaces; a user who may list the `allowed` paths.
    fn cluster(allowed: &'static [&'static str]) -> Client {
        client(move |_: Method, uri: Uri, _: Bytes| async move {
            let path = uri.path();
            if path.ends_with("/selfsubjectreviews") {
                return found(&json!({"status": {"userInfo": {"username": "eve"}}}));
            }
            if !allowed.contains(&path) && !allowed.contains(&"*") {
                return failed(403, "Forbidden");
            }
            let workload = |namespace: &str| json!({"metadata": {"name": "w", "namespace": namespace}, "spec": {"queueName": "lq"}});
            let items = match path.rsplit_once('/').unwrap_or_default().1 {
                "workloads" if path.contains("/namespaces/a/") => vec![workload("a")],
                // An object that cannot be read is left out.
                "workloads" => vec![workload("a"), workload("b"), json!({"metadata": {"name": 1}})],
                "clusterqueues" => {
                    vec![json!({"metadata": {"name": "cq"}, "status": {"pendingWorkloads": 5}})]
                }
                "topologies" => return failed(404, "NotFound"),
                _ => Vec::new(),
            };
            found(&list("1", &items))
        })
    }

    fn polled(allowed: &'static [&'static str]) -> Polled {
        Polled::new(cluster(allowed), "a".to_owned(), Arc::default())
    }

    #[tokio::test]
    async fn an_administrator_s_kubeconfig_shows_everything() {
        let polled = polled(&["*"]);
        assert!(polled.round().await.unwrap() >= LEAST);
        let viewer = polled.viewer();
        assert!(viewer.all && viewer.nodes && viewer.queues && viewer.user == "eve");
        let snapshot = polled.store.snapshot().unwrap();
        let page = Page { offset: 0, limit: 10 };
        let found = search(&snapshot, &viewer, &Search::default(), page);
        assert_eq!(found.shown(&viewer, &BTreeMap::new())["total"], 2);
        assert_eq!(polled.missing(View::Queues), None);
        let before = polled.store.revisions().borrow().all;
        polled.round().await.unwrap();
        assert_eq!(polled.store.revisions().borrow().all, before, "nothing has changed");
    }

    #[tokio::test]
    async fn a_user_who_may_read_one_namespace_sees_that_and_what_queues_say_of_themselves() {
        let polled = polled(&[
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads",
            "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
        ]);
        polled.round().await.unwrap();
        let viewer = polled.viewer();
        assert!(!viewer.all && viewer.sees("a") && !viewer.sees("b"));
        let snapshot = polled.store.snapshot().unwrap();
        assert_eq!(snapshot.workloads.len(), 1);
        let now = now(&snapshot, &viewer, None);
        assert_eq!(
            now["clusterQueues"][0]["pending"], 5,
            "the sum of what this user may read would be wrong"
        );
        assert!(polled.missing(View::Nodes).unwrap().contains("may not list resourceflavors"));
    }

    #[tokio::test]
    async fn an_api_server_that_does_not_know_the_user_is_an_error() {
        let refuses = client(|_: Method, _: Uri, _: Bytes| async { failed(401, "Unauthorized") });
        let polled = Polled::new(refuses, "a".to_owned(), Arc::default());
        assert_eq!(polled.round().await.unwrap_err().code(), Some(401));
        assert!(polled.store.snapshot().is_none());
    }
}
