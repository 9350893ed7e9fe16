//! The two-step protocols, each played by users and administrators who do not know of a cut: they wait for statuses and continue.

use anyhow::{Context as _, Result};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::workloads::holds;
use sluice_tests::history::History;
use sluice_tests::place::{Place, create, job};
use sluice_tests::reviewed::answered;

use super::{PATIENCE, swap};

/// The priority class that pushes others out.
pub const HIGH: &str = "matrix-high";
/// The label by which a job names its priority class.
pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";

/// The processors of a play's Jobs; a queue has no more than one needs.
const CPU: u32 = 2;

/// Something that is decided by one write and carried out by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// A Job is admitted, started, and finishes.
    AdmitStart,
    /// A Job is preempted by another one, releases its quota, and runs again.
    EvictRelease,
    /// A drained queue's Job is stopped, and runs again when the queue continues.
    DrainResume,
    /// A check asks for a retry, then lets the Job start.
    CheckStart,
    /// A provisioning request fails, a second one brings nodes.
    ProvisionStart,
    /// A JobSet loses a node, and takes the place of a lesser one.
    DisplaceSwap,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::AdmitStart,
        Self::EvictRelease,
        Self::DrainResume,
        Self::CheckStart,
        Self::ProvisionStart,
        Self::DisplaceSwap,
    ];

    /// The name for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::AdmitStart => "admit → start → finish",
            Self::EvictRelease => "evict → release → start again",
            Self::DrainResume => "drain → release → start again",
            Self::CheckStart => "check: retry → ready → start",
            Self::ProvisionStart => "provision: failed → provisioned → start",
            Self::DisplaceSwap => "displace → swap",
        }
    }

    /// The beginning of its namespaces' names.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::AdmitStart => "admit",
            Self::EvictRelease => "evict",
            Self::DrainResume => "drain",
            Self::CheckStart => "check",
            Self::ProvisionStart => "provision",
            Self::DisplaceSwap => "swap",
        }
    }

    /// The fewest steps that it can have: a Workload is made, admitted, started, finished and put away, and what goes between.
    pub const fn least_steps(self) -> usize {
        match self {
            Self::AdmitStart => 4,
            Self::DrainResume => 6,
            Self::CheckStart | Self::ProvisionStart | Self::DisplaceSwap => 7,
            Self::EvictRelease => 11,
        }
    }

    /// How many processors the ClusterQueue of a play has.
    pub const fn cpu(self) -> u32 {
        match self {
            Self::DisplaceSwap => swap::CPU,
            _ => CPU,
        }
    }

    /// Makes the queues, and waits until they are active.
    pub async fn prepare(self, place: &Place<'_>) -> Result<()> {
        let name = place.name.as_str();
        let checked = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": name}]}});
        let more = match self {
            Self::AdmitStart | Self::DrainResume | Self::DisplaceSwap => json!({}),
            Self::EvictRelease => json!({"preemption": {"withinClusterQueue": "LowerPriority"}}),
            Self::CheckStart => {
                external_check(place).await?;
                checked
            }
            Self::ProvisionStart => {
                provisioning_check(place).await?;
                checked
            }
        };
        if self == Self::DisplaceSwap {
            swap::prepare(place).await?;
        } else {
            place.flavor(name).await?;
            place.cluster_queue(name, CPU, &more).await?;
        }
        place.local_queue("lq", name).await?;
        place.wait_for_queue(&place.cluster_queues(), name, "True/Ready").await?;
        place.wait_for_queue(&place.local_queues(), "lq", "True/Ready").await
    }

    /// Watches a place that is prepared and in which nothing has been submitted yet, and brings about what is there before the play.
    pub async fn begin(self, place: &Place<'_>) -> Result<History> {
        let client = place.client.clone();
        if self != Self::DisplaceSwap {
            return History::start(client, &place.name).await;
        }
        let history = History::of_jobsets(client, &place.name).await?;
        swap::begin(place, &history).await?;
        Ok(history)
    }

    /// Plays it to its end.
    pub async fn play(self, place: &Place<'_>, seen: &History) -> Result<()> {
        match self {
            Self::AdmitStart => {
                submit(place, &job("a", "lq", CPU, 1, 1)).await?;
                finished(seen, "a").await
            }
            Self::EvictRelease => {
                submit(place, &job("low", "lq", CPU, 1, 3_600)).await?;
                running(seen, "low").await?;
                let mut high = job("high", "lq", CPU, 1, 1);
                high["metadata"]["labels"][PRIORITY_CLASS] = json!(HIGH);
                submit(place, &high).await?;
                finished(seen, "high").await?;
                running(seen, "low").await
            }
            Self::DrainResume => {
                submit(place, &job("a", "lq", CPU, 1, 3_600)).await?;
                running(seen, "a").await?;
                stop_policy(place, "HoldAndDrain").await?;
                let released = |w: &Value| !holds(w, "QuotaReserved") && holds(w, "Evicted");
                workload(seen, "a", "released", released).await?;
                stop_policy(place, "None").await?;
                running(seen, "a").await
            }
            Self::CheckStart => {
                submit(place, &job("a", "lq", CPU, 1, 1)).await?;
                for (state, retries) in [("Retry", 0), ("Ready", 1)] {
                    answer_check(place, seen, state, retries).await?;
                }
                finished(seen, "a").await
            }
            Self::ProvisionStart => {
                let mut job = job("a", "lq", CPU, 1, 1);
                let script = "Failed;Accepted,Provisioned";
                job["metadata"]["annotations"] = json!({"provreq.kueue.x-k8s.io/play": script});
                submit(place, &job).await?;
                finished(seen, "a").await
            }
            Self::DisplaceSwap => swap::play(place, seen).await,
        }
    }
}

/// A check that an administrator's own controller answers.
async fn external_check(place: &Place<'_>) -> Result<()> {
    let checks = place.global("AdmissionCheck", "admissionchecks");
    let spec = json!({"controllerName": "example.com/matrix"});
    create(&checks, json!({"metadata": {"name": place.name}, "spec": spec})).await?;
    let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = Patch::Merge(json!({"status": {"conditions": [active]}}));
    checks.patch_status(&place.name, &PatchParams::default(), &status).await.context("activating a check")?;
    Ok(())
}

async fn provisioning_check(place: &Place<'_>) -> Result<()> {
    let plural = "provisioningrequestconfigs";
    let configs = place.global("ProvisioningRequestConfig", plural);
    let config = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ProvisioningRequestConfig",
        "metadata": {"name": place.name},
        "spec": {
            "provisioningClassName": "queued-provisioning.gke.io",
            "retryStrategy": {"backoffBaseSeconds": 1},
        },
    });
    let config: DynamicObject = serde_json::from_value(config).context("reading a config")?;
    let params = PostParams::default();
    answered("making a config", || configs.create(&params, &config)).await?;
    let checks = place.global("AdmissionCheck", "admissionchecks");
    let parameters =
        json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": place.name});
    let spec = json!({"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters});
    create(&checks, json!({"metadata": {"name": place.name}, "spec": spec})).await
}

/// A user who tries again while the webhooks do not answer.
async fn submit(place: &Place<'_>, job: &Value) -> Result<()> {
    eventually("a Job to be taken", PATIENCE, || async {
        let made = place.make_job_once(job).await;
        let there = made.as_ref().is_err_and(|error| format!("{error:#}").contains("already exists"));
        Ok(progress(made.is_ok() || there, format!("{made:?}")))
    })
    .await
}

/// An administrator who does.
async fn stop_policy(place: &Place<'_>, policy: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"stopPolicy": policy}}));
    eventually("a ClusterQueue to be changed", PATIENCE, || async {
        place.cluster_queues().patch(&place.name, &PatchParams::default(), &patch).await?;
        Ok(Progress::Done(()))
    })
    .await
}

/// Waits until a Job's Workload is as wanted. It looks at what is watched, so that a hundred waiting plays send no requests.
pub async fn workload(seen: &History, job: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
    seen.workload_until(job, what, PATIENCE, wanted).await.map(drop)
}

async fn finished(seen: &History, job: &str) -> Result<()> {
    workload(seen, job, "finished", |w| holds(w, "Finished")).await
}

/// Waits until a Job's pods run, and its Workload says so.
async fn running(seen: &History, job: &str) -> Result<()> {
    let runs = |w: &Value| holds(w, "Admitted") && holds(w, "PodsReady") && !holds(w, "Evicted");
    workload(seen, job, "running", runs).await?;
    seen.job_until(job, "have a pod", PATIENCE, |job| job["status"]["ready"] == 1).await.map(drop)
}

/// Sets the check once the Workload holds quota after `retries` retries, as that check's controller would.
async fn answer_check(place: &Place<'_>, seen: &History, state: &str, retries: u64) -> Result<()> {
    eventually(&format!("the check of {} to be set {state}", place.name), PATIENCE, || async {
        let asked = |w: &Value| {
            let check = &w["status"]["admissionChecks"][0];
            holds(w, "QuotaReserved")
                && !holds(w, "Evicted")
                && check["state"] == "Pending"
                && check["retryCount"].as_u64().unwrap_or_default() == retries
        };
        let found = seen.workload_until("a", "checked", PATIENCE, asked).await?;
        let mut next: DynamicObject = serde_json::from_value(found).context("reading a Workload")?;
        next.data["status"]["admissionChecks"][0]["state"] = json!(state);
        let name = next.metadata.name.clone().unwrap_or_default();
        // Pinned to what was seen: a conflict is a reason to look again.
        place.workloads().replace_status(&name, &PostParams::default(), &next).await?;
        Ok(Progress::Done(()))
    })
    .await
}
