//! The outcome of a run: everything that a user sees in the end, without what differs from run to run (names, times, UIDs).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PodTemplate;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use sluice_testkit::autoscaler;
use sluice_testkit::wait::{Progress, eventually};
use sluice_testkit::workloads;
use sluice_tests::history::History;
use sluice_tests::place::{DEADLINE, Place};

use super::PATIENCE;
use super::protocol::Protocol;
use super::swap;

/// The shortest and the longest pause between two looks at a play that does not rest yet. A hundred plays come to rest at a time, and each look
/// is six lists: looking is not for free.
const PAUSE: (Duration, Duration) = (Duration::from_millis(400), Duration::from_secs(2));

/// The end of a play as one value that can be compared; a difference is shown field by field.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome(BTreeMap<String, Value>);

impl Outcome {
    /// What differs from another one, a line each.
    pub fn differences(&self, from: &Self) -> Vec<String> {
        let keys: std::collections::BTreeSet<_> = self.0.keys().chain(from.0.keys()).collect();
        let nothing = Value::Null;
        let mut lines = Vec::new();
        for key in keys {
            let (is, was) = (self.0.get(key).unwrap_or(&nothing), from.0.get(key).unwrap_or(&nothing));
            match (is, was) {
                (Value::Object(is), Value::Object(was)) => {
                    let fields: std::collections::BTreeSet<_> = is.keys().chain(was.keys()).collect();
                    let differs = fields.into_iter().filter(|field| is.get(*field) != was.get(*field));
                    lines.extend(differs.map(|field| {
                        let of = |map: &serde_json::Map<String, Value>| {
                            map.get(field).cloned().unwrap_or_default()
                        };
                        format!("{key}, {field}: {} instead of {}", of(is), of(was))
                    }));
                }
                _ if is != was => lines.push(format!("{key}: {is} instead of {was}")),
                _ => {}
            }
        }
        lines
    }

    /// Whether something has just been started, or is yet to be cleaned up.
    fn is_under_way(&self) -> bool {
        let left =
            ["pod templates", "provisioning requests"].iter().any(|key| self.0.get(*key) != Some(&json!(0)));
        let starts = |value: &Value| {
            let admitted =
                value["condition Admitted"].as_str().is_some_and(|reported| reported.starts_with("True"));
            admitted && value["condition PodsReady"] == "False"
        };
        let ends = |value: &Value| value["condition Finished"].is_string() && !value["finalizers"].is_null();
        left || self.0.values().any(|value| starts(value) || ends(value))
    }

    /// Notes one thing.
    pub fn note(&mut self, key: impl Into<String>, value: Value) {
        self.0.insert(key.into(), value);
    }
}

/// Waits until what the play left behind is as `wanted` (or until two looks one after the other see the same, the queues' status is that of the
/// Workloads, and what is to run does), and gives it.
pub async fn of(
    protocol: Protocol,
    place: &Place<'_>,
    history: &History,
    wanted: Option<&Outcome>,
) -> Result<Outcome> {
    let (last, began) = (std::sync::Mutex::new(None), Instant::now());
    let rested = eventually(&format!("{} to come to rest", place.name), DEADLINE, || async {
        let now = read(protocol, place).await?;
        let before = last.lock().ok().and_then(|mut last| last.replace(now.clone()));
        let rests = if let Some(wanted) = wanted {
            now.differences(wanted).iter().all(|line| line.starts_with("account"))
        } else {
            let is_summed_up = now.0.get("queue counts") == now.0.get("counted");
            is_summed_up && !now.is_under_way() && before.as_ref() == Some(&now)
        };
        let seen = wanted.map_or_else(|| format!("{:?}", now.0), |wanted| now.differences(wanted).join("; "));
        if rests {
            return Ok(Progress::Done(now));
        }
        tokio::time::sleep((began.elapsed() / 4).clamp(PAUSE.0, PAUSE.1)).await;
        Ok(Progress::NotYet(seen))
    })
    .await;
    let mut outcome = match (rested, last.into_inner()) {
        (Ok(outcome), _) | (Err(_), Ok(Some(outcome))) => outcome,
        (Err(error), _) => return Err(error),
    };
    // Never over quota, never started without an admission, never admitted twice: at no moment of the play.
    let quota = BTreeMap::from([(place.name.clone(), u64::from(protocol.cpu()))]);
    let account = history.check(&quota, PATIENCE).await?;
    let account = [account.started, account.admissions, account.evictions];
    outcome.note("account of starts, admissions, evictions", json!(account));
    Ok(outcome)
}

async fn read(protocol: Protocol, place: &Place<'_>) -> Result<Outcome> {
    let mut outcome = Outcome(BTreeMap::new());
    if protocol == Protocol::DisplaceSwap {
        swap::read(place, &mut outcome).await?;
    }
    for job in place.jobs().list(&ListParams::default()).await.context("listing Jobs")?.items {
        outcome.note(format!("job {}", job.name_any()), of_job(&job, &place.name)?);
    }
    let all = workloads::list(&place.client, &place.name).await?;
    for workload in &all {
        let owner = workload["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or("no owner");
        outcome.note(format!("workload of {owner}"), of_workload(workload, &place.name));
    }
    outcome.note("workloads", json!(all.len()));
    let templates: Api<PodTemplate> = Api::namespaced(place.client.clone(), &place.name);
    let templates = templates.list(&ListParams::default()).await.context("listing PodTemplates")?;
    outcome.note("pod templates", json!(templates.items.len()));
    let requests = autoscaler::requests(&place.client, "v1");
    let requests = requests.list(&ListParams::default()).await.context("listing requests")?.items;
    let own = requests.iter().filter(|request| request.namespace().as_deref() == Some(&place.name));
    outcome.note("provisioning requests", json!(own.count()));
    queues(place, &all, &mut outcome).await?;
    Ok(outcome)
}

/// What the queues' status says, and what the Workloads add up to.
async fn queues(place: &Place<'_>, all: &[Value], outcome: &mut Outcome) -> Result<()> {
    let cluster = place.cluster_queues().get(&place.name).await.context("reading a ClusterQueue")?;
    let local = place.local_queues().get("lq").await.context("reading a LocalQueue")?;
    let counts = |status: &Value| {
        let count = |field: &str| status[field].as_u64().unwrap_or_default();
        json!(["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"].map(count))
    };
    let total = |status: &Value, list: &str, plain: &str| {
        let found = &status[list][0]["resources"][0]["total"];
        found.as_str().or(status[plain].as_str()).unwrap_or("0").to_owned()
    };
    let (cluster, local) = (&cluster.data["status"], &local.data["status"]);
    let reported = json!({
        "cluster": counts(cluster),
        "local": counts(local),
        "reserved": total(cluster, "flavorsReservation", ""),
        "used": total(cluster, "flavorsUsage", ""),
    });
    outcome.note("queue counts", reported);
    let finished = |workload: &&Value| workloads::holds(workload, "Finished");
    let open: Vec<_> = all.iter().filter(|workload| !finished(workload)).collect();
    let holding = |kind: &'static str| open.iter().filter(move |workload| workloads::holds(workload, kind));
    let cpu = |kind: &'static str| -> u64 {
        let sets = holding(kind).map(|w| &w["status"]["admission"]["podSetAssignments"][0]);
        sets.filter_map(|set| set["resourceUsage"]["cpu"].as_str()?.parse::<u64>().ok()).sum()
    };
    let reserving = holding("QuotaReserved").count();
    let counts = json!([open.len() - reserving, reserving, holding("Admitted").count()]);
    let counted = json!({
        "cluster": counts,
        "local": counts,
        "reserved": cpu("QuotaReserved").to_string(),
        "used": cpu("Admitted").to_string(),
    });
    outcome.note("counted", counted);
    Ok(())
}

fn of_job(job: &Job, place: &str) -> Result<Value> {
    let spec = serde_json::to_value(&job.spec).context("writing a Job")?;
    let status = job.status.clone().unwrap_or_default();
    let template = &spec["template"]["spec"];
    Ok(json!({
        "suspend": spec["suspend"],
        "parallelism": spec["parallelism"],
        "nodeSelector": template["nodeSelector"].to_string().replace(place, "PLACE"),
        "tolerations": template["tolerations"],
        "schedulingGates": template["schedulingGates"],
        "active": status.active.unwrap_or_default(),
        "complete": status.completion_time.is_some(),
    }))
}

fn of_workload(workload: &Value, place: &str) -> Value {
    let status = &workload["status"];
    let finished = workloads::holds(workload, "Finished");
    let conditions = status["conditions"].as_array().into_iter().flatten().filter_map(|condition| {
        // Whether pods were seen ready before what has finished, or ready again after a while, depends on which replica looked.
        let what = match condition["type"].as_str()? {
            "PodsReady" if finished => return None,
            "PodsReady" => condition["status"].as_str()?.to_owned(),
            _ => format!("{}/{}", condition["status"].as_str()?, condition["reason"].as_str()?),
        };
        Some((format!("condition {}", condition["type"].as_str()?), json!(what)))
    });
    let conditions: serde_json::Map<_, _> = conditions.collect();
    let checks: Vec<_> = status["admissionChecks"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|check| json!([check["state"], check["retryCount"]]))
        .collect();
    let evictions: Vec<_> = status["schedulingStats"]["evictions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|e| json!([e["reason"], e["underlyingCause"], e["count"]]))
        .collect();
    let mut admission = status["admission"].to_string();
    admission = admission.replace(place, "PLACE");
    let mut all = json!({
        "active": workload["spec"]["active"],
        "priority": workload["spec"]["priority"],
        "finalizers": workload["metadata"]["finalizers"],
        "admission": admission,
        "checks": checks,
        "evictions": evictions,
        "requeueCount": status["requeueState"]["count"],
        "unhealthyNodes": status["unhealthyNodes"].to_string().replace(place, "PLACE"),
    });
    if let Some(all) = all.as_object_mut() {
        all.extend(conditions);
    }
    all
}
