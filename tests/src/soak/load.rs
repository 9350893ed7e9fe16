//! The users: they act as planned, and retry what an outage refuses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use sluice_testkit::workloads;

use super::checker::{Account, FAILS, LET_RUN, job_key, jobset_key};
use super::plan::{Act, JobPlan, Shape};
use super::recorder::Recorder;
use super::report::least_partly;
use super::world::{NAMESPACES, QUEUES};
use crate::place::QUEUE_NAME;

/// How long a user tries again.
const PATIENCE: Duration = Duration::from_mins(3);
const PAUSE: Duration = Duration::from_millis(100);
/// How long a user waits for one answer.
const ANSWER: Duration = Duration::from_secs(35);
/// How long a user looks for a job that has partly completed.
const PARTLY: Duration = Duration::from_secs(20);
/// How long users try in the end to stop as many of these as there have to be.
const ENOUGH: Duration = Duration::from_mins(10);
/// For how many seconds the driver of a job runs that stays partly completed.
const DRIVES: &str = "0.2";
/// How long a user waits until it holds no quota.
const RELEASE: Duration = Duration::from_secs(30);
/// For how many seconds a pod runs.
pub(super) const RUNS: &str = "sluice.dev/run-seconds";
/// For how many seconds a pod with this runs at most, and at least as many as [`RUNS`] says.
pub(super) const AT_MOST: &str = "sluice.dev/run-seconds-at-most";
/// How many seconds a pod with this takes to stop.
const STOPS: &str = "sluice.dev/stop-seconds";

/// What users need.
pub(super) struct Users<'a> {
    pub client: Client,
    pub recorder: &'a Recorder,
    /// How many jobs may be open at a time.
    pub window: usize,
    /// Finished jobs go away by themselves after this many seconds.
    pub ttl: Option<u32>,
    /// How many times they tried to let a job run.
    pub attempts: AtomicUsize,
}

/// What came of a request in the end.
enum Outcome<T> {
    Done(T),
    /// The API server does not want it; trying again is of no use.
    Refused(String),
}

impl Users<'_> {
    /// Does everything, in order; stops making jobs at the deadline. The jobs that were made.
    pub async fn work(&self, acts: Vec<Act>, deadline: Instant) -> Result<Vec<JobPlan>> {
        let mut made: Vec<JobPlan> = Vec::new();
        let mut late = false;
        for act in acts {
            late = late || Instant::now() > deadline;
            // What was stopped is resumed in any case.
            if late && !matches!(act, Act::Activate { .. } | Act::Resume { .. }) {
                continue;
            }
            match act {
                Act::Make(job) => {
                    self.wait_for_room().await?;
                    self.make(&job).await?;
                    made.push(job);
                }
                Act::Delete { job, foreground } => self.delete(&made[job], foreground).await?,
                Act::Reprioritize { job, priority } => {
                    let patch = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": priority}}});
                    let api = self.jobs(&made[job]);
                    self.patch(&api, &made[job].name, &patch).await?;
                }
                Act::Deactivate { job } => self.set_active(&made[job], false).await?,
                Act::Activate { job } if job < made.len() => self.set_active(&made[job], true).await?,
                Act::Activate { .. } => {}
                Act::Unsuspend { job } => self.let_run(&made[job]).await?,
                Act::Requeue { job, queue } => {
                    let patch = json!({"metadata": {"labels": {QUEUE_NAME: queue}}});
                    self.patch(&self.jobs(&made[job]), &made[job].name, &patch).await?;
                }
                Act::DeleteWorkload { job } => {
                    if let Some((api, name)) = self.workload_of(&made[job]).await? {
                        let params = DeleteParams::background();
                        self.try_until("deleting a Workload", || api.delete(&name, &params)).await?;
                    }
                }
                Act::StopPartly => self.stop_partly(PARTLY).await?,
                Act::Hold { queue, drain } => {
                    self.stop_policy(queue, if drain { "HoldAndDrain" } else { "Hold" }).await?;
                }
                Act::Resume { queue } => self.stop_policy(queue, "None").await?,
            }
        }
        Ok(made)
    }

    /// Deletes all jobs that are left.
    pub async fn delete_all(&self) -> Result<()> {
        let all = ListParams::default();
        for namespace in NAMESPACES {
            for (api, is_set) in
                [(jobs(&self.client, namespace), false), (sets(&self.client, namespace), true)]
            {
                let listed = self.try_until("listing jobs", || api.list(&all)).await?;
                let Outcome::Done(listed) = listed else { continue };
                for job in listed.items.iter().filter(|job| job.labels().contains_key(QUEUE_NAME)) {
                    let name = job.name_any();
                    let key = if is_set { jobset_key } else { job_key };
                    self.recorder.expect_deletion(key(namespace, &name))?;
                    let params = DeleteParams::background();
                    self.try_until("deleting a job", || api.delete(&name, &params)).await?;
                }
            }
        }
        Ok(())
    }

    async fn wait_for_room(&self) -> Result<()> {
        loop {
            self.recorder.check()?;
            if self.recorder.checker(|checker| checker.open().len()) < self.window {
                return Ok(());
            }
            tokio::time::sleep(PAUSE / 4).await;
        }
    }

    fn jobs(&self, job: &JobPlan) -> Api<DynamicObject> {
        if job.is_set() { sets(&self.client, job.namespace) } else { jobs(&self.client, job.namespace) }
    }

    async fn make(&self, job: &JobPlan) -> Result<()> {
        let manifest = manifest(job, self.ttl);
        let object: DynamicObject = serde_json::from_value(manifest.clone())?;
        if !job.is_set() {
            // A typing mistake here would make the load lighter than it looks.
            serde_json::from_value::<Job>(manifest)?;
        }
        let (api, params) = (self.jobs(job), PostParams::default());
        match self.try_until("making a job", || api.create(&params, &object)).await? {
            Outcome::Refused(why) if !why.contains("AlreadyExists") => {
                bail!("{} is refused: {why}", job.name)
            }
            _ => Ok(()),
        }
    }

    async fn delete(&self, job: &JobPlan, foreground: bool) -> Result<()> {
        self.recorder.expect_deletion(key(job))?;
        let params = if foreground { DeleteParams::foreground() } else { DeleteParams::background() };
        let api = self.jobs(job);
        self.try_until("deleting a job", || api.delete(&job.name, &params)).await?;
        Ok(())
    }

    async fn set_active(&self, job: &JobPlan, active: bool) -> Result<()> {
        let Some((api, name)) = self.workload_of(job).await? else { return Ok(()) };
        self.patch(&api, &name, &json!({"spec": {"active": active}})).await
    }

    /// Where the Workload of a job is, and its name.
    async fn workload_of(&self, job: &JobPlan) -> Result<Option<(Api<DynamicObject>, String)>> {
        let api = workloads::namespaced(&self.client, job.namespace, "Workload", "workloads");
        let all = ListParams::default();
        let Outcome::Done(listed) = self.try_until("listing Workloads", || api.list(&all)).await? else {
            return Ok(None);
        };
        let owned =
            |workload: &DynamicObject| workload.owner_references().iter().any(|owner| owner.name == job.name);
        let workload = listed.items.into_iter().find(owned);
        Ok(workload.map(|workload| (api, workload.name_any())))
    }

    /// Lets a job run by hand. Every attempt says so itself: the one before may have been carried out, and the job stopped since.
    async fn let_run(&self, job: &JobPlan) -> Result<()> {
        let (api, params) = (self.jobs(job), PatchParams::default());
        let attempt = || {
            let number = self.attempts.fetch_add(1, Ordering::Relaxed).to_string();
            let annotations = json!({LET_RUN: number});
            let patch = json!({"metadata": {"annotations": annotations}, "spec": {"suspend": false}});
            let (api, params) = (&api, &params);
            async move { api.patch(&job.name, params, &Patch::Merge(patch)).await }
        };
        self.try_until("letting a job run", attempt).await?;
        Ok(())
    }

    /// Stops jobs that had partly completed, until there were as many of these as there have to be. On a slow machine others may end before they are
    /// stopped: those that are made for this do not. Gives these jobs.
    pub async fn stop_enough_partly(&self) -> Result<Vec<JobPlan>> {
        let began = Instant::now();
        let lacks = || {
            let Account { jobs, evictions_of_partly_completed, .. } =
                self.recorder.checker(|checker| checker.account());
            evictions_of_partly_completed < least_partly(jobs)
        };
        let mut made = Vec::new();
        while lacks() && began.elapsed() < ENOUGH {
            let job = JobPlan::half(made.len());
            self.make(&job).await?;
            self.stop_partly(ENOUGH).await?;
            self.delete(&job, false).await?;
            made.push(job);
        }
        Ok(made)
    }

    /// Stops a job some of whose pods have completed. One that ends before it is stopped is none of these: another is tried, for that long.
    async fn stop_partly(&self, within: Duration) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < within {
            self.recorder.check()?;
            match self.recorder.checker(|checker| checker.partly_completed()) {
                Some(workload) => {
                    if self.stop_for_a_moment(&workload).await? {
                        break;
                    }
                }
                None => tokio::time::sleep(PAUSE / 4).await,
            }
        }
        Ok(())
    }

    /// Deactivates a Workload until it holds no quota. Whether that was before it had finished.
    async fn stop_for_a_moment(&self, workload: &str) -> Result<bool> {
        let (namespace, name) = workload.split_once('/').unwrap_or_default();
        let api = workloads::namespaced(&self.client, namespace, "Workload", "workloads");
        self.patch(&api, name, &json!({"spec": {"active": false}})).await?;
        let began = Instant::now();
        while began.elapsed() < RELEASE && self.recorder.checker(|checker| checker.holds_quota(workload)) {
            self.recorder.check()?;
            tokio::time::sleep(PAUSE).await;
        }
        let stopped = self.recorder.checker(|checker| checker.waits(workload));
        self.patch(&api, name, &json!({"spec": {"active": true}})).await?;
        Ok(stopped)
    }

    async fn stop_policy(&self, queue: &str, policy: &str) -> Result<()> {
        let queues = workloads::all(&self.client, "ClusterQueue", "clusterqueues");
        debug_assert!(QUEUES.contains(&queue));
        self.patch(&queues, queue, &json!({"spec": {"stopPolicy": policy}})).await
    }

    /// A change that may be refused, as that of a job which is gone.
    async fn patch(&self, api: &Api<DynamicObject>, name: &str, patch: &Value) -> Result<()> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.try_until("changing an object", || api.patch(name, &params, &patch)).await?;
        Ok(())
    }

    async fn try_until<T, F>(&self, what: &str, attempt: impl Fn() -> F) -> Result<Outcome<T>>
    where
        F: Future<Output = kube::Result<T>>,
    {
        let started = Instant::now();
        loop {
            let seen = match tokio::time::timeout(ANSWER, attempt()).await {
                Ok(Ok(done)) => return Ok(Outcome::Done(done)),
                Ok(Err(kube::Error::Api(status))) if [400, 403, 404, 422].contains(&status.code) => {
                    return Ok(Outcome::Refused(format!("{}: {}", status.reason, status.message)));
                }
                Ok(Err(kube::Error::Api(status))) if status.reason == "AlreadyExists" => {
                    return Ok(Outcome::Refused(status.reason.clone()));
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            if started.elapsed() > PATIENCE {
                bail!("{what}: not within {PATIENCE:?}: {seen}");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn key(job: &JobPlan) -> String {
    if job.is_set() { jobset_key(job.namespace, &job.name) } else { job_key(job.namespace, &job.name) }
}

fn jobs(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("batch", "v1", "Job"), "jobs");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

fn sets(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("jobset.x-k8s.io", "v1alpha2", "JobSet");
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, "jobsets"))
}

fn seconds(thousandths: u64) -> String {
    format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
}

fn template(job: &JobPlan) -> Value {
    let mut annotations = json!({RUNS: seconds(job.runs)});
    if job.stops > 0 {
        annotations[STOPS] = json!(job.stops.to_string());
    }
    if let Some((name, value)) = job.placement {
        annotations[name] = json!(value);
    }
    match job.shape {
        Shape::Ragged => annotations[AT_MOST] = json!(seconds(job.runs * 5)),
        Shape::Fails => annotations[FAILS] = json!(seconds(job.runs)),
        _ => {}
    }
    let requests = json!({"cpu": format!("{}m", job.cpu), "memory": "64Mi"});
    json!({
        "metadata": {"annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": job.stops,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}],
        },
    })
}

fn manifest(job: &JobPlan, ttl: Option<u32>) -> Value {
    let mut metadata =
        json!({"name": job.name, "namespace": job.namespace, "labels": {QUEUE_NAME: job.queue}});
    if let Some(priority) = job.priority {
        metadata["labels"]["kueue.x-k8s.io/priority-class"] = json!(priority);
    }
    // Pods that are stopped to make room must not count as failures of the job.
    let limit = if job.shape == Shape::Fails { 0 } else { 1_000 };
    let one = |pods: u64| {
        json!({
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": limit,
            "template": template(job),
        })
    };
    if job.is_set() {
        let (mut driver, workers) = (one(1), one(job.pods - 1));
        if job.shape == Shape::Half {
            driver["template"]["metadata"]["annotations"][RUNS] = json!(DRIVES);
        }
        let spec = json!({"replicatedJobs": [
            {"name": "driver", "replicas": 1, "template": {"spec": driver}},
            {"name": "workers", "replicas": 1, "template": {"spec": workers}},
        ]});
        let mut set = json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec,
        });
        if let Some(ttl) = ttl {
            set["spec"]["ttlSecondsAfterFinished"] = json!(ttl);
        }
        return set;
    }
    let mut spec = one(job.pods);
    match job.shape {
        Shape::Waves => spec["completions"] = json!(job.pods * 2 + 1),
        Shape::Indexed => spec["completionMode"] = json!("Indexed"),
        Shape::Partial => metadata["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "1"}),
        _ => {}
    }
    if let Some(ttl) = ttl {
        spec["ttlSecondsAfterFinished"] = json!(ttl);
    }
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_stays_partly_completed_has_a_driver_that_completes_and_workers_that_do_not() {
        let made = manifest(&JobPlan::half(0), None);
        let runs = |at: usize| {
            let job = &made["spec"]["replicatedJobs"][at]["template"]["spec"];
            (job["completions"].as_u64(), job["template"]["metadata"]["annotations"][RUNS].as_str())
        };
        assert_eq!((made["kind"].as_str(), runs(0)), (Some("JobSet"), (Some(1), Some("0.2"))));
        assert_eq!(runs(1), (Some(2), Some("3600.000")));
    }
}
