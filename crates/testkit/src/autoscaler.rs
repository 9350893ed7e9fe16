//! A **stand-in** for the cluster autoscaler's side of ProvisioningRequests: it answers each request at once, by a script. For tests and the demo
//! only.
//!
//! The script is the parameter `play` of a request, which a job sets by its annotation `provreq.kueue.x-k8s.io/play`: the
//! states that an attempt goes through, separated by commas; the attempts separated by semicolons, the last one for all that
//! follow. Without it nodes come at once: `Accepted,Provisioned`. The states: `Waiting` (says nothing), `Accepted` (with the
//! time when nodes come), `Provisioned`, `QuotaExceeded`, `Failed`, `BookingExpired`, `CapacityRevoked`.
//!
//! A request with a template that does not exist fails, since its requests are unknown.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodTemplate;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::runtime::Controller;
use kube::runtime::controller::{Action, Config};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::plane::client_of;

const CRD: &str = include_str!("../../../tests/control-plane/provisioningrequest-crd.yaml");
/// The text of a request that the provider's quota keeps waiting.
pub const QUOTA_EXCEEDED: &str = "Quota 'NVIDIA_P4_GPUS' exceeded. Limit: 1.0 in region europe-west4.";
/// The text of a request that failed.
pub const FAILED: &str = "There are no machines of this kind.";
/// When to look again after a failure.
const RETRY: Duration = Duration::from_millis(200);

/// Which versions of ProvisioningRequest are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// v1 and v1beta1.
    Both,
    /// Only v1beta1, as older autoscalers have it.
    Older,
}

/// The stand-in's CustomResourceDefinition.
///
/// # Errors
/// The file is malformed.
pub fn crd(served: Served) -> Result<CustomResourceDefinition> {
    let mut crd: CustomResourceDefinition =
        serde_saphyr::from_str(CRD).context("reading the stand-in's CRD of ProvisioningRequest")?;
    if served == Served::Older {
        crd.spec.versions.retain(|version| version.name == "v1beta1");
        for version in &mut crd.spec.versions {
            version.storage = true;
        }
    }
    Ok(crd)
}

/// The API of ProvisioningRequests in all namespaces, in a version.
pub fn requests(client: &Client, version: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource(version))
}

fn resource(version: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk("autoscaling.x-k8s.io", version, "ProvisioningRequest");
    ApiResource::from_gvk_with_plural(&kind, "provisioningrequests")
}

/// One state of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    Waiting,
    Accepted,
    Provisioned,
    QuotaExceeded,
    Failed,
    BookingExpired,
    CapacityRevoked,
}

impl RequestState {
    fn parse(name: &str) -> Option<Self> {
        Some(match name.trim() {
            "Waiting" => Self::Waiting,
            "Accepted" => Self::Accepted,
            "Provisioned" => Self::Provisioned,
            "QuotaExceeded" => Self::QuotaExceeded,
            "Failed" => Self::Failed,
            "BookingExpired" => Self::BookingExpired,
            "CapacityRevoked" => Self::CapacityRevoked,
            _ => return None,
        })
    }

    /// The conditions that it sets: type, status, reason, message.
    const fn conditions(self) -> &'static [(&'static str, &'static str, &'static str, &'static str)] {
        match self {
            Self::Waiting => &[],
            Self::Accepted => &[
                ("Accepted", "True", "Accepted", "The request is accepted."),
                ("Provisioned", "False", "NotProvisioned", "Nodes are expected at once."),
            ],
            Self::Provisioned => &[("Provisioned", "True", "Provisioned", "The nodes are ready.")],
            Self::QuotaExceeded => &[("Provisioned", "False", "QuotaExceeded", QUOTA_EXCEEDED)],
            Self::Failed => &[("Failed", "True", "Failed", FAILED)],
            Self::BookingExpired => {
                &[("BookingExpired", "True", "BookingExpired", "The nodes were not used in time.")]
            }
            Self::CapacityRevoked => {
                &[("CapacityRevoked", "True", "CapacityRevoked", "The nodes were taken away.")]
            }
        }
    }
}

/// The states of an attempt.
fn script(play: Option<&str>, attempt: usize) -> Result<Vec<RequestState>> {
    let attempts: Vec<_> = play.unwrap_or("Accepted,Provisioned").split(';').collect();
    let states = attempts.get(attempt.saturating_sub(1)).or(attempts.last()).copied().unwrap_or_default();
    states
        .split(',')
        .map(|name| RequestState::parse(name).ok_or_else(|| anyhow!("no such state: {name:?}")))
        .collect()
}

/// The number at the end of a request's name.
fn attempt_of(name: &str) -> usize {
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(1)
}

/// An error that the runtime can print.
#[derive(Debug)]
struct Failure(anyhow::Error);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for Failure {}

/// The running stand-in, on a thread and runtime of its own so that tests with different runtimes can share it. It stops
/// when this is dropped.
#[derive(Debug)]
pub struct StandIn {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StandIn {
    /// Installs the CRD and starts the stand-in with the rights of this kubeconfig.
    ///
    /// # Errors
    /// The API server's.
    pub async fn start(kubeconfig: &Path, served: Served) -> Result<Self> {
        let client = client_of(kubeconfig).await?;
        crate::crds::apply(&client, &[crd(served)?]).await?;
        let version = if served == Served::Older { "v1beta1" } else { "v1" };
        let kubeconfig = kubeconfig.to_path_buf();
        let (stop, stopped) = oneshot::channel();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("making a runtime")?;
        let thread = std::thread::Builder::new().name("autoscaler-stand-in".to_owned()).spawn(move || {
            runtime.block_on(async move {
                match client_of(&kubeconfig).await {
                    Ok(client) => run(client, version, stopped).await,
                    Err(error) => tracing::warn!(%error, "autoscaler stand-in: cannot connect"),
                }
            });
        });
        Ok(Self { stop: Some(stop), thread: Some(thread.context("starting the autoscaler stand-in")?) })
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // Dropping the sender is the signal.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A stand-in that panicked has failed its test already.
            let _ = thread.join();
        }
    }
}

async fn run(client: Client, version: &'static str, stop: oneshot::Receiver<()>) {
    let api = requests(&client, version);
    let loops = Controller::new_with(api, watcher::Config::default(), resource(version))
        .with_config(Config::default().concurrency(1))
        .run(
            move |request, client| async move {
                Box::pin(answer(&request, version, &client)).await.map_err(Failure)
            },
            |_, _, _| Action::requeue(RETRY),
            Arc::new(client),
        )
        .for_each(|result| async move {
            if let Err(error) = result {
                tracing::debug!(%error, "autoscaler stand-in: will try again");
            }
        });
    tokio::select! {
        () = loops => {}
        _ = stop => {}
    }
}

/// Plays the next state of a request that has not ended.
async fn answer(request: &DynamicObject, version: &str, client: &Client) -> Result<Action> {
    let (name, namespace) = (request.name_any(), request.namespace().unwrap_or_default());
    let play = request.data.pointer("/spec/parameters/play").and_then(Value::as_str);
    let known = request.data.pointer("/status/conditions").and_then(Value::as_array).cloned();
    let mut conditions = known.unwrap_or_default();
    let states = if missing_template(request, &namespace, client).await? {
        vec![RequestState::Failed]
    } else {
        script(play, attempt_of(&name))?
    };
    let done = request.data.pointer("/status/provisioningClassDetails/played").and_then(Value::as_str);
    let done: usize = done.and_then(|number| number.parse().ok()).unwrap_or(0);
    let Some(next) = states.get(done) else { return Ok(Action::await_change()) };
    for (type_, status, reason, message) in next.conditions() {
        conditions.retain(|known| known["type"] != *type_);
        conditions.push(json!({
            "type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }));
    }
    let details = json!({"played": (done + 1).to_string(), "zone": "stand-in-a"});
    let body = json!({"status": {"conditions": conditions, "provisioningClassDetails": details}});
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource(version));
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(body))
        .await
        .with_context(|| format!("answering {name}"))?;
    Ok(Action::await_change())
}

async fn missing_template(request: &DynamicObject, namespace: &str, client: &Client) -> Result<bool> {
    let templates: Api<PodTemplate> = Api::namespaced(client.clone(), namespace);
    let sets = request.data.pointer("/spec/podSets").and_then(Value::as_array);
    for set in sets.into_iter().flatten() {
        let name = set["podTemplateRef"]["name"].as_str().unwrap_or_default();
        if templates.get_opt(name).await.with_context(|| format!("reading {name}"))?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_its_states_per_attempt() {
        use RequestState::{Accepted, Failed, Provisioned};
        assert_eq!(script(None, 1).unwrap(), [Accepted, Provisioned]);
        let play = Some("Failed;Accepted,Failed;Provisioned");
        assert_eq!(script(play, 1).unwrap(), [Failed]);
        assert_eq!(script(play, 2).unwrap(), [Accepted, Failed]);
        assert_eq!(script(play, 9).unwrap(), [Provisioned]);
        assert!(script(Some("Perhaps"), 1).is_err());
        assert_eq!(attempt_of("job-a-12345-prov-12"), 12);
    }

    #[test]
    fn an_older_autoscaler_serves_only_the_older_version() {
        let names = |served| -> Vec<(String, bool)> {
            crd(served).unwrap().spec.versions.into_iter().map(|v| (v.name, v.storage)).collect()
        };
        assert_eq!(names(Served::Both), [("v1".to_owned(), true), ("v1beta1".to_owned(), false)]);
        assert_eq!(names(Served::Older), [("v1beta1".to_owned(), true)]);
    }
}
