//! Common parts of the tests of elastic jobs: the slices of a job, and the quota that they count.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::workloads;
use sluice_tests::place::{DEADLINE, Place, create, reported};

/// The annotation that makes a job elastic, and the gate of its pods.
pub const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";

pub fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| gates.iter().any(|gate| gate.name == ELASTIC))
}

/// How many pods of each pod set a slice has, and where it stands.
fn line(slice: &Value) -> String {
    let finished = reported(slice, "Finished");
    let reason = finished.split([':', '/']).nth(1).unwrap_or_default();
    let state = match reason {
        "" if workloads::holds(slice, "Admitted") => "runs",
        "" if workloads::holds(slice, "QuotaReserved") => "reserved",
        "" => "waits",
        reason => reason,
    };
    let counts = slice["spec"]["podSets"].as_array().unwrap().iter().map(|set| set["count"].to_string());
    format!("{} {state}", counts.collect::<Vec<_>>().join("+"))
}

/// The slices of a job, those that are over too.
async fn of(place: &Place<'_>, job: &str) -> Vec<Value> {
    let mut all = workloads::list(&place.client, &place.name).await.unwrap();
    all.retain(|workload| workload["metadata"]["ownerReferences"][0]["name"] == *job);
    all
}

/// Waits until a job has these slices, in any order.
pub async fn wait_for(place: &Place<'_>, job: &str, wanted: &[&str]) {
    let mut wanted: Vec<_> = wanted.iter().map(|line| (*line).to_owned()).collect();
    wanted.sort();
    eventually(&format!("the slices of {}/{job} to be {wanted:?}", place.name), DEADLINE, || async {
        let all = of(place, job).await;
        let mut lines: Vec<_> = all.iter().map(line).collect();
        lines.sort();
        let reported =
            all.iter().map(|slice| (line(slice), reported(slice, "QuotaReserved"))).collect::<Vec<_>>();
        Ok(progress(lines == wanted, format!("{reported:?}")))
    })
    .await
    .unwrap();
}

/// The slice of a job that stands so.
pub async fn standing(place: &Place<'_>, job: &str, stands: &str) -> Value {
    of(place, job).await.into_iter().find(|slice| line(slice) == stands).unwrap()
}

/// How many processors the ClusterQueue says are reserved, and are used, in both flavors together.
async fn used(place: &Place<'_>) -> Result<[u64; 2]> {
    let status = place.cluster_queues().get(&place.name).await?.data["status"].clone();
    Ok(["flavorsReservation", "flavorsUsage"].map(|field| {
        let flavors = status[field].as_array().into_iter().flatten();
        let resources = flavors.flat_map(|flavor| flavor["resources"].as_array().into_iter().flatten());
        let of_cpu = resources.filter(|resource| resource["name"] == "cpu");
        of_cpu.map(|cpu| cpu["total"].as_str().map_or(0, |total| total.parse().unwrap())).sum()
    }))
}

/// How many processors a Workload holds: without those of pods that gave their quota back.
fn held(workload: &Value) -> u64 {
    let status = &workload["status"];
    let count = |all: &Value, set: &Value| -> u64 {
        let of_set = all.as_array().into_iter().flatten().filter(|one| one["name"] == set["name"]);
        of_set.filter_map(|one| one["count"].as_u64()).sum()
    };
    let sets = status["admission"]["podSetAssignments"].as_array().into_iter().flatten();
    sets.map(|set| {
        let pods = set["count"].as_u64().unwrap();
        let cpu: u64 = set["resourceUsage"]["cpu"].as_str().map_or(0, |total| total.parse().unwrap());
        let asked = count(&workload["spec"]["podSets"], set);
        cpu / pods.max(1) * pods.min(asked.saturating_sub(count(&status["reclaimablePods"], set)))
    })
    .sum()
}

/// How many processors all Workloads of a place hold.
async fn held_by_all(place: &Place<'_>) -> Result<u64> {
    let all = workloads::list(&place.client, &place.name).await?;
    let hold = |one: &&Value| workloads::holds(one, "QuotaReserved") && !workloads::holds(one, "Finished");
    Ok(all.iter().filter(hold).map(held).sum())
}

/// How long a count must last: for longer than the pause between two writes of a status.
const LASTS: Duration = Duration::from_secs(2);

/// Waits until the Workloads hold so many processors, and the ClusterQueue counts as many for a while. Its status may be one that was written before
/// the last change, and say the same by chance: what it says next is waited for.
pub async fn wait_for_usage(place: &Place<'_>, cpu: u64) {
    let since = Mutex::new(None::<Instant>);
    eventually(&format!("{cpu} processors of {} to be used for {LASTS:?}", place.name), DEADLINE, || async {
        let held = held_by_all(place).await?;
        let used = used(place).await?;
        let mut since = since.lock().unwrap();
        *since = (held == cpu && used == [cpu; 2]).then(|| since.unwrap_or_else(Instant::now));
        Ok(progress(since.is_some_and(|since| since.elapsed() >= LASTS), format!("{held} held, {used:?}")))
    })
    .await
    .unwrap();
}

/// Makes a Job that goes before all others of its place.
pub async fn make_urgent(place: &Place<'_>, mut job: Value) {
    let class = json!({"metadata": {"name": place.name}, "value": 1_000});
    create(&place.global("WorkloadPriorityClass", "workloadpriorityclasses"), class).await.unwrap();
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(place.name);
    place.make_job(&job).await.unwrap();
}
