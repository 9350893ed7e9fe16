//! The history of the Jobs (or JobSets) and Workloads of a namespace, in the order of the API server's resource versions, and the invariants at each
//! moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use kube::Client;
use kube::ResourceExt as _;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, VersionMatch, WatchEvent, WatchParams,
};
use serde_json::Value;
use sluice_testkit::wait::{Progress, progress};
use tokio::sync::watch;
use tokio::task::JoinHandle;

mod replay;

use replay::check;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Job,
    JobSet,
    Workload,
}

impl Kind {
    fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        let (group, version, kind, plural) = match self {
            Self::Job => ("batch", "v1", "Job", "jobs"),
            Self::JobSet => ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
            Self::Workload => ("kueue.x-k8s.io", "v1beta2", "Workload", "workloads"),
        };
        let kind = GroupVersionKind::gvk(group, version, kind);
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, plural))
    }
}

#[derive(Clone, Debug)]
struct Moment {
    kind: Kind,
    deleted: bool,
    object: Value,
}

/// All moments of one etcd are in one order, whatever their kind. A task that waits for one is woken by it.
type Moments = Arc<watch::Sender<BTreeMap<u64, Moment>>>;

/// Watches until it is dropped.
pub struct History {
    client: Client,
    namespace: String,
    /// The kind of jobs that own the Workloads.
    jobs: Kind,
    moments: Moments,
    tasks: Vec<JoinHandle<()>>,
}

/// The totals of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Jobs that were started.
    pub started: usize,
    /// Times that a Workload was admitted.
    pub admissions: usize,
    /// The number of evictions.
    pub evictions: usize,
}

impl Drop for History {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl History {
    /// Begins to watch the Jobs of an empty namespace.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached, or there is a Job or a Workload in the namespace.
    pub async fn start(client: Client, namespace: &str) -> Result<Self> {
        Self::start_with(client, namespace, Kind::Job).await
    }

    /// Begins to watch the JobSets of an empty namespace; their Jobs are not watched.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached or does not know JobSets, or there is a JobSet or a Workload in the namespace.
    pub async fn of_jobsets(client: Client, namespace: &str) -> Result<Self> {
        Self::start_with(client, namespace, Kind::JobSet).await
    }

    async fn start_with(client: Client, namespace: &str, jobs: Kind) -> Result<Self> {
        let moments = Moments::new(watch::Sender::default());
        let mut tasks = Vec::new();
        for kind in [jobs, Kind::Workload] {
            let api = kind.api(&client, namespace);
            let list = api.list(&ListParams::default()).await.context("listing")?;
            ensure!(list.items.is_empty(), "{namespace} is not empty, and what was before is not known");
            let version = list.metadata.resource_version.unwrap_or_default();
            tasks.push(tokio::spawn(follow(api, kind, version, Arc::clone(&moments))));
        }
        Ok(Self { client, namespace: namespace.to_owned(), jobs, moments, tasks })
    }

    /// Waits until everything that happened until now has been seen, and checks all of it: see `check` in `replay`. `quota` is what
    /// each ClusterQueue may use, in processors.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached, what there is has not been seen within `deadline`, or something held that must never hold.
    pub async fn check(&self, quota: &BTreeMap<String, u64>, deadline: Duration) -> Result<Account> {
        for kind in [self.jobs, Kind::Workload] {
            let now = kind
                .api(&self.client, &self.namespace)
                .list(&ListParams::default())
                .await
                .context("listing")?;
            let newest = now.items.iter().filter_map(version).max().unwrap_or_default();
            self.until("the history to be complete", deadline, |moments| {
                let last = moments.iter().rev().find(|(_, moment)| moment.kind == kind).map(|(v, _)| *v);
                progress(last.unwrap_or_default() >= newest, format!("{last:?} of {newest}"))
            })
            .await?;
        }
        check(&self.moments.borrow(), quota)
    }

    /// Waits until the Workload of a Job is as wanted, and returns it; null stands for a missing one.
    ///
    /// # Errors
    ///
    /// If that does not happen within `deadline`. The error has the last seen status.
    pub async fn workload_until(
        &self,
        job: &str,
        what: &str,
        deadline: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let of_job = |workload: &Value| {
            let owners = workload["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|o| o["name"] == job && o["controller"] == true))
        };
        let what = format!("the Workload of {job} to be {what}");
        self.latest_until(Kind::Workload, of_job, &what, deadline, wanted).await
    }

    /// Waits until a Job (or JobSet) is as wanted, and returns it; null stands for a missing one.
    ///
    /// # Errors
    ///
    /// If that does not happen within `deadline`. The error has the last seen status.
    pub async fn job_until(
        &self,
        name: &str,
        what: &str,
        deadline: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let named = |job: &Value| job["metadata"]["name"] == name;
        self.latest_until(self.jobs, named, &format!("{name} to {what}"), deadline, wanted).await
    }

    async fn latest_until(
        &self,
        kind: Kind,
        is: impl Fn(&Value) -> bool,
        what: &str,
        deadline: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        self.until(what, deadline, |moments| {
            let last = moments.values().rev().find(|moment| moment.kind == kind && is(&moment.object));
            let now = last.filter(|last| !last.deleted).map_or(&Value::Null, |last| &last.object);
            if wanted(now) {
                Progress::Done(now.clone())
            } else {
                Progress::NotYet(now["status"].to_string())
            }
        })
        .await
    }

    /// Examines each change until the wanted state is reached. The error has the last seen state.
    async fn until<T>(
        &self,
        what: &str,
        deadline: Duration,
        wanted: impl Fn(&BTreeMap<u64, Moment>) -> Progress<T>,
    ) -> Result<T> {
        let mut changes = self.moments.subscribe();
        let mut seen = String::new();
        let found = tokio::time::timeout(deadline, async {
            loop {
                match wanted(&changes.borrow_and_update()) {
                    Progress::Done(found) => return Ok(found),
                    Progress::NotYet(now) => seen = now,
                    Progress::Never(why) => bail!("{what}: never, because {why}"),
                }
                changes.changed().await.context("no watch is left")?;
            }
        })
        .await;
        found.unwrap_or_else(|_| bail!("{what}: not within {deadline:?}; last seen: {seen}"))
    }
}

fn version(object: &DynamicObject) -> Option<u64> {
    object.metadata.resource_version.as_deref()?.parse().ok()
}

fn note(moments: &Moments, kind: Kind, deleted: bool, object: &DynamicObject) -> Result<String> {
    let at = version(object).context("reading a resource version")?;
    let moment = Moment { kind, deleted, object: serde_json::to_value(object).context("reading an object")? };
    moments.send_modify(|moments| {
        moments.insert(at, moment);
    });
    Ok(at.to_string())
}

/// Continues where it left off when a watch breaks: nothing is missed, whatever happens to the API server.
async fn follow(api: Api<DynamicObject>, kind: Kind, mut from: String, moments: Moments) {
    loop {
        let mut expired = false;
        match api.watch(&WatchParams::default().timeout(290), &from).await {
            Ok(stream) => {
                let mut stream = std::pin::pin!(stream);
                while let Some(Ok(event)) = stream.next().await {
                    let noted = match event {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                            note(&moments, kind, false, &object)
                        }
                        WatchEvent::Deleted(object) => note(&moments, kind, true, &object),
                        WatchEvent::Bookmark(mark) => Ok(mark.metadata.resource_version),
                        WatchEvent::Error(status) => {
                            expired = status.code == 410;
                            break;
                        }
                    };
                    if let Ok(at) = noted {
                        from = at;
                    }
                }
            }
            Err(kube::Error::Api(status)) => expired = status.code == 410,
            Err(_) => {}
        }
        if expired && let Ok(at) = fill(&api, kind, &from, &moments).await {
            from = at;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Reads the history after a version that the API server no longer watches, such as one from before its restart: etcd still has the state at each
/// version, so they are read one by one.
async fn fill(api: &Api<DynamicObject>, kind: Kind, from: &str, moments: &Moments) -> Result<String> {
    let now = api.list(&ListParams::default().limit(1)).await.context("listing")?;
    let until = now.metadata.resource_version.context("reading the newest version")?;
    let from: u64 = from.parse().context("reading the version to begin with")?;
    let mut before = at_version(api, from).await?;
    for version in from + 1..=until.parse().context("reading the newest version")? {
        let objects = at_version(api, version).await?;
        for (name, object) in &objects {
            if before
                .get(name)
                .is_none_or(|old| old.metadata.resource_version != object.metadata.resource_version)
            {
                note(moments, kind, false, object)?;
            }
        }
        for (_, mut gone) in before.into_iter().filter(|(name, _)| !objects.contains_key(name)) {
            gone.metadata.resource_version = Some(version.to_string());
            note(moments, kind, true, &gone)?;
        }
        before = objects;
    }
    Ok(until)
}

/// All objects as they were at a version.
async fn at_version(api: &Api<DynamicObject>, version: u64) -> Result<BTreeMap<String, DynamicObject>> {
    let exactly = ListParams::default().at(&version.to_string()).matching(VersionMatch::Exact);
    let objects = api.list(&exactly).await.with_context(|| format!("listing version {version}"))?;
    Ok(objects.items.into_iter().map(|object| (object.name_any(), object)).collect())
}
