//! Records the moments at which Workloads are admitted, preempted and finished.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use futures::StreamExt as _;
use kube::api::{Api, DynamicObject, ListParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use serde_json::Value;

/// One event, as `expected.yaml` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// `admitted`, `preempted`, `evicted` or `finished`.
    pub what: String,
    /// `namespace/name` of the job.
    pub job: String,
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.job)
    }
}

#[derive(Default)]
struct Seen {
    happened: Vec<Happened>,
    /// (uid, what, lastTransitionTime): a condition that stays true is one event.
    known: BTreeSet<(String, &'static str, String)>,
    /// (uid, what): conditions that are true at the moment.
    holding: BTreeSet<(String, &'static str)>,
}

/// Watches all Workloads until it is dropped.
pub struct Recorder {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The API of Workloads in all namespaces.
pub fn api(client: &Client) -> Api<DynamicObject> {
    Api::all_with(
        client.clone(),
        &super::state::resource("kueue.x-k8s.io", "v1beta2", "Workload", "workloads"),
    )
}

/// All Workloads.
///
/// # Errors
/// The API server's.
pub async fn workloads(client: &Client) -> Result<Vec<DynamicObject>> {
    Ok(api(client).list(&ListParams::default()).await?.items)
}

impl Recorder {
    /// Starts to watch; what happened before is not recorded.
    ///
    /// # Errors
    /// The API server's.
    pub async fn start(client: Client) -> Result<Self> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        for workload in workloads(&client).await? {
            note(&seen, &workload, false);
        }
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut stream = std::pin::pin!(watcher(api(&client), watcher::Config::default()));
            while let Some(event) = stream.next().await {
                if let Ok(watcher::Event::Apply(workload) | watcher::Event::InitApply(workload)) = event {
                    note(&shared, &workload, true);
                }
            }
        });
        Ok(Self { seen, task })
    }

    /// Everything that happened until now, in order.
    pub fn so_far(&self) -> Vec<Happened> {
        self.seen.lock().map(|seen| seen.happened.clone()).unwrap_or_default()
    }
}

/// The job that owns a Workload, or the Workload's own name if no job does.
fn job_of(workload: &DynamicObject) -> String {
    let namespace = workload.namespace().unwrap_or_default();
    let owner = workload.owner_references().iter().find(|owner| owner.controller == Some(true));
    format!("{namespace}/{}", owner.map_or_else(|| workload.name_any(), |owner| owner.name.clone()))
}

fn note(seen: &Mutex<Seen>, workload: &DynamicObject, record: bool) {
    let Ok(mut seen) = seen.lock() else { return };
    let uid = workload.uid().unwrap_or_default();
    let conditions = workload.data.pointer("/status/conditions").and_then(Value::as_array);
    let any: fn(&Value) -> bool = |_| true;
    for (what, type_, reason) in [
        ("preempted", "Evicted", (|reason| reason == "Preempted") as fn(&Value) -> bool),
        ("evicted", "Evicted", |reason| reason != "Preempted"),
        ("admitted", "Admitted", any),
        ("finished", "Finished", any),
    ] {
        let condition = conditions.into_iter().flatten().find(|condition| condition["type"] == type_);
        let since = condition
            .filter(|condition| condition["status"] == "True" && reason(&condition["reason"]))
            .and_then(|condition| condition["lastTransitionTime"].as_str());
        let Some(since) = since else {
            seen.holding.remove(&(uid.clone(), what));
            continue;
        };
        let held = !seen.holding.insert((uid.clone(), what));
        // Either the condition was seen false in between, or (a quick flip that the watch skipped) its time moved on.
        let moved = seen.known.insert((uid.clone(), what, since.to_owned()));
        if record && (!held || moved) {
            seen.happened.push(Happened { what: what.to_owned(), job: job_of(workload) });
        }
    }
}
