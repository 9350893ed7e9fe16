//! Jobs whose pods have all ended while the Job controller was paused, and that are stopped meanwhile.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use sluice_testkit::kubectl::apply;
use sluice_testkit::wait::{Progress, eventually};
use sluice_testkit::{ControlPlane, Manager};
use sluice_tests::place::{DEADLINE, Place, job, reported};

use super::{end_one, pods, set_active, set_of_two, wait_for, wait_for_all};

/// A Job, its pods, and how they end.
struct Ending {
    job: &'static str,
    pods: usize,
    phase: &'static str,
}

/// The Jobs of the story; the last two are those of the JobSet "set".
const JOBS: [Ending; 6] = [
    Ending { job: "one", pods: 1, phase: "Succeeded" },
    Ending { job: "two", pods: 2, phase: "Succeeded" },
    Ending { job: "indexed", pods: 2, phase: "Succeeded" },
    Ending { job: "fails", pods: 1, phase: "Failed" },
    Ending { job: "set-first-0", pods: 1, phase: "Succeeded" },
    Ending { job: "set-second-0", pods: 1, phase: "Succeeded" },
];

impl Ending {
    fn fails(&self) -> bool {
        self.phase == "Failed"
    }

    /// How many of its pods the Job controller has counted.
    fn counted(&self, job: &Value) -> usize {
        let count = job["status"][if self.fails() { "failed" } else { "succeeded" }].as_u64();
        usize::try_from(count.unwrap_or(0)).unwrap()
    }

    /// Whether the job is over, all its pods are counted, and nothing is left of its stop.
    fn is_over(&self, job: &Value) -> bool {
        let over = if self.fails() { "Failed" } else { "Complete" };
        let conditions = job["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|c| c["type"] == over && c["status"] == "True"))
            && job["metadata"]["annotations"]["kueue.x-k8s.io/stopping"].is_null()
            && job["status"]["startTime"].is_string()
            && self.counted(job) == self.pods
    }

    /// Whether the job is over; otherwise it is stopped, and has to run again.
    ///
    /// The Job controller counts a pod as ended if it knows that when it learns of the suspension. Otherwise it deletes the pod as one that runs, and
    /// counts it nowhere. Both come over watches of their own, in either order.
    async fn settles(&self, place: &Place<'_>) -> bool {
        let own = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={}", self.job));
        eventually(&format!("{}/{} to settle", place.name, self.job), DEADLINE, || async {
            let job = serde_json::to_value(place.jobs().get(self.job).await?)?;
            if self.is_over(&job) {
                return Ok(Progress::Done(true));
            }
            let left =
                Api::<Pod>::namespaced(place.client.clone(), &place.name).list(&own).await?.items.len();
            let stopped = job["spec"]["suspend"] == true
                && job["metadata"]["annotations"]["kueue.x-k8s.io/stopping"].is_null()
                && job["status"]["active"].as_i64().unwrap_or(0) == 0;
            let counted = self.counted(&job);
            if stopped && counted < self.pods && counted == left {
                return Ok(Progress::Done(false));
            }
            Ok(Progress::NotYet(format!("{} {}, {left} pods", job["spec"]["suspend"], job["status"])))
        })
        .await
        .unwrap()
    }

    /// Its pods that are left to run end.
    async fn end(&self, place: &Place<'_>) {
        for _ in 0..pods(place, self.job).await.unwrap().len() {
            end_one(place, self.job, self.phase).await.unwrap();
        }
    }
}

async fn make(place: &Place<'_>) {
    place.flavor(&place.name).await.unwrap();
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    place.cluster_queue(&place.name, 8, &preemption).await.unwrap();
    place.local_queue("lq", &place.name).await.unwrap();
    for (name, pods, mode) in [("one", 1, "NonIndexed"), ("two", 2, "NonIndexed"), ("indexed", 2, "Indexed")]
    {
        let mut object = job(name, "lq", 1, pods, 3_600);
        object["spec"]["completionMode"] = json!(mode);
        place.make_job(&object).await.unwrap();
    }
    let mut fails = job("fails", "lq", 1, 1, 3_600);
    fails["spec"]["backoffLimit"] = json!(0);
    place.make_job(&fails).await.unwrap();
    let mut set = set_of_two("set", "lq", "3600");
    set["metadata"]["namespace"] = json!(place.name);
    apply(place.plane, &set.to_string()).await.unwrap();
    for Ending { job, pods, .. } in &JOBS {
        wait_for(place, job, "to run", |job| job["status"]["ready"] == *pods).await;
    }
}

/// All pods of these jobs have ended while the Job controller stands still, and the jobs are stopped meanwhile, by hand and to make room: they complete
/// or fail once it continues, whether the manager was killed in between or not.
pub async fn over_meanwhile(control: &ControlPlane, mut manager: Manager, killed: bool) -> Manager {
    let place = Place::bare(control, if killed { "still-killed" } else { "still" }).await.unwrap();
    make(&place).await;
    control.pause_controllers().unwrap();
    for ending in &JOBS {
        ending.end(&place).await;
    }
    set_active(&place, "one", false).await;
    place.make_urgent(&place.name, 8).await.unwrap();
    let is = |workload: &Value, kind: &str, begins: &str| reported(workload, kind).starts_with(begins);
    wait_for_all(&place, &["set"], "to be evicted", |workload| is(workload, "Evicted", "True")).await;
    for job in ["one", "two", "indexed", "fails"] {
        place.wait_for_condition(job, "Evicted", "True").await.unwrap();
        wait_for(&place, job, "to be stopped", |job| job["spec"]["suspend"] == true).await;
    }
    if killed {
        manager = manager.restart(control).await.unwrap();
    }
    control.resume_controllers().unwrap();
    let mut again = Vec::new();
    for ending in &JOBS {
        if !ending.settles(&place).await {
            again.push(ending);
        }
    }
    wait_for(&place, "urgent", "to run", |job| job["status"]["ready"] == 1).await;
    place.delete_job("urgent").await.unwrap();
    for ending in again {
        if ending.job == "one" {
            set_active(&place, "one", true).await;
        }
        wait_for(&place, ending.job, "to run the rest", |job| {
            job["status"]["ready"].as_u64() == u64::try_from(ending.pods - ending.counted(job)).ok()
        })
        .await;
        ending.end(&place).await;
        wait_for(&place, ending.job, "to end at last", |job| ending.is_over(job)).await;
    }
    for ending in &JOBS {
        assert_eq!(pods(&place, ending.job).await.unwrap().len(), 0, "{} runs on", ending.job);
    }
    let ends = [
        ("fails", "True/Failed"),
        ("one", "True/Succeeded"),
        ("two", "True/Succeeded"),
        ("indexed", "True/Succeeded"),
    ];
    for (job, end) in ends {
        place.wait_for_condition(job, "Finished", end).await.unwrap();
    }
    wait_for_all(&place, &["set"], "to be over", |workload| is(workload, "Finished", "True/Succeeded")).await;
    place.wait_for_counts([0, 0, 0]).await.unwrap();
    manager
}
