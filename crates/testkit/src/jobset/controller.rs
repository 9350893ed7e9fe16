//! The stand-in's control loop: one JobSet at a time, always from what the API server has now.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::runtime::Controller;
use kube::runtime::controller::{Action, Config};
use kube::runtime::watcher;
use serde_json::json;
use tokio::sync::oneshot;

use super::children::{self, JOB_INDEX, JOBSET_NAME, REPLICATED_JOB_NAME, RESTART_ATTEMPT};
use super::status::{finish, finished_at, set};
use super::types::{FailurePolicy, JobSet, JobSetStatus, ReplicatedJob};

/// The value of `managedBy` that means JobSet itself.
const MYSELF: &str = "jobset.sigs.k8s.io/jobset-controller";
/// When to look again after a failure.
const RETRY: Duration = Duration::from_millis(200);

/// An error that the runtime can print.
#[derive(Debug)]
struct Failure(anyhow::Error);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for Failure {}

/// Runs until `stop` is dropped or sent to.
pub async fn run(client: Client, stop: oneshot::Receiver<()>) {
    let jobsets: Api<JobSet> = Api::all(client.clone());
    let jobs: Api<Job> = Api::all(client.clone());
    // Many JobSets start at once in some tests, and each takes several requests.
    let config = Config::default().concurrency(8);
    let loops = Controller::new(jobsets, watcher::Config::default())
        .owns(jobs, watcher::Config::default().labels(JOBSET_NAME))
        .with_config(config)
        .run(
            |jobset, client| async move { Box::pin(reconcile(&jobset, &client)).await.map_err(Failure) },
            |_, _, _| Action::requeue(RETRY),
            Arc::new(client),
        )
        .for_each(|result| async move {
            if let Err(error) = result {
                tracing::debug!(%error, "JobSet stand-in: will try again");
            }
        });
    tokio::select! {
        () = loops => {}
        _ = stop => {}
    }
}

/// What one reconciliation works on.
struct Work {
    jobset: JobSet,
    jobs: Api<Job>,
    status: JobSetStatus,
    /// The children of this attempt.
    current: Vec<Job>,
    /// Names of children that are still being deleted.
    going: Vec<String>,
}

async fn reconcile(seen: &JobSet, client: &Client) -> anyhow::Result<Action> {
    let namespace = seen.metadata.namespace.as_deref().unwrap_or_default();
    let name = seen.metadata.name.as_deref().unwrap_or_default();
    let jobsets: Api<JobSet> = Api::namespaced(client.clone(), namespace);
    // The watch may lag behind our own writes, and a restart counted twice would be wrong for good.
    let Some(jobset) = jobsets.get_opt(name).await.context("reading the JobSet")? else {
        return Ok(Action::await_change());
    };
    let managed_by = jobset.spec.managed_by.as_deref().unwrap_or(MYSELF);
    if jobset.metadata.deletion_timestamp.is_some() || managed_by != MYSELF {
        return Ok(Action::await_change());
    }
    let mut work = Work::load(jobset, client).await?;
    if finished_at(&work.jobset).is_some() {
        return work.clean_up(&jobsets).await;
    }
    work.delete_leftovers().await?;
    work.judge();
    if work.status.terminal_state.is_none() && work.status.restarts == work.attempt() {
        Box::pin(work.bring_about()).await?;
    }
    work.count();
    if work.jobset.status.as_ref() != Some(&work.status) {
        let patch = Patch::Merge(json!({ "status": work.status }));
        jobsets.patch_status(name, &PatchParams::default(), &patch).await.context("writing the status")?;
    }
    Ok(Action::await_change())
}

impl Work {
    async fn load(jobset: JobSet, client: &Client) -> anyhow::Result<Self> {
        let namespace = jobset.metadata.namespace.as_deref().unwrap_or_default();
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        let selector = format!("{JOBSET_NAME}={}", jobset.metadata.name.as_deref().unwrap_or_default());
        let mut current =
            jobs.list(&ListParams::default().labels(&selector)).await.context("listing children")?.items;
        let uid = jobset.metadata.uid.clone().unwrap_or_default();
        current.retain(|job| job.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid));
        let status = jobset.status.clone().unwrap_or_default();
        Ok(Self { jobset, jobs, status, current, going: Vec::new() })
    }

    fn attempt(&self) -> i32 {
        self.jobset.status.as_ref().map_or(0, |status| status.restarts)
    }

    /// Sorts out children of former attempts and of groups that shrank, and deletes them.
    async fn delete_leftovers(&mut self) -> anyhow::Result<()> {
        let attempt = self.attempt().to_string();
        let is_wanted = |job: &Job| {
            let group = children::label(job, REPLICATED_JOB_NAME);
            let index: Option<i32> = children::label(job, JOB_INDEX).parse().ok();
            let groups = &self.jobset.spec.replicated_jobs;
            let exists =
                groups.iter().any(|one| one.name == group && index.is_some_and(|index| index < one.replicas));
            exists
                && children::label(job, RESTART_ATTEMPT) == attempt
                && job.metadata.deletion_timestamp.is_none()
        };
        let (current, leftovers): (Vec<Job>, Vec<Job>) = self.current.drain(..).partition(is_wanted);
        self.current = current;
        for job in leftovers {
            self.delete(&job).await?;
            self.going.push(job.metadata.name.unwrap_or_default());
        }
        Ok(())
    }

    async fn delete(&self, job: &Job) -> anyhow::Result<()> {
        if job.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        // The name is free again only when the pods are gone.
        let how = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            ..DeleteParams::default()
        };
        match self.jobs.delete(job.metadata.name.as_deref().unwrap_or_default(), &how).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error).context("deleting a child"),
        }
    }

    /// A finished JobSet keeps no running child, and goes away by itself if it has a time to live.
    async fn clean_up(mut self, jobsets: &Api<JobSet>) -> anyhow::Result<Action> {
        for job in self.current.iter().filter(|job| !children::is_finished(job)) {
            self.delete(job).await?;
        }
        self.current.retain(|job| job.metadata.deletion_timestamp.is_none());
        self.count();
        let name = self.jobset.metadata.name.clone().unwrap_or_default();
        if self.jobset.status.as_ref() != Some(&self.status) {
            let patch = Patch::Merge(json!({ "status": self.status }));
            jobsets
                .patch_status(&name, &PatchParams::default(), &patch)
                .await
                .context("writing the status")?;
        }
        let (Some(ttl), Some(ended)) =
            (self.jobset.spec.ttl_seconds_after_finished, finished_at(&self.jobset))
        else {
            return Ok(Action::await_change());
        };
        let left = ended.as_second() + ttl - Timestamp::now().as_second();
        if let Ok(left) = u64::try_from(left)
            && left > 0
        {
            return Ok(Action::requeue(Duration::from_secs(left)));
        }
        jobsets
            .delete(&name, &DeleteParams::foreground())
            .await
            .context("deleting a JobSet whose time is over")?;
        Ok(Action::await_change())
    }

    /// Failure and success policy.
    fn judge(&mut self) {
        if let Some(failed) = self.current.iter().find(|job| children::has_condition(job, "Failed")) {
            let reason = children::condition_reason(failed, "Failed").unwrap_or_default().to_owned();
            let (name, group) =
                (failed.metadata.name.clone(), children::label(failed, REPLICATED_JOB_NAME).to_owned());
            self.on_failure(&name.unwrap_or_default(), &group, &reason);
            return;
        }
        let policy = self.jobset.spec.success_policy.clone().unwrap_or_default();
        let targets = &policy.target_replicated_jobs;
        let counts = |group: &str| targets.is_empty() || targets.iter().any(|one| one == group);
        let of_groups = self.jobset.spec.replicated_jobs.iter().filter(|group| counts(&group.name));
        let wanted: i32 = of_groups.map(|group| group.replicas).sum();
        let done = self.current.iter().filter(|job| counts(children::label(job, REPLICATED_JOB_NAME)));
        let done = i32::try_from(done.filter(|job| children::has_condition(job, "Complete")).count())
            .unwrap_or(i32::MAX);
        if (policy.operator == "Any" && done > 0) || (done == wanted && wanted > 0) {
            finish(&mut self.status, "Completed", "AllJobsCompleted", "jobset completed successfully");
        }
    }

    fn on_failure(&mut self, job: &str, group: &str, reason: &str) {
        let Some(policy) = self.jobset.spec.failure_policy.clone() else {
            let message = format!("jobset failed due to one or more job failures (first failed job: {job})");
            return finish(&mut self.status, "Failed", "FailedJobs", &message);
        };
        match action(&policy, group, reason) {
            "FailJobSet" => {
                let message = format!(
                    "jobset failed due to FailJobSet failure policy action (first failed job: {job})"
                );
                finish(&mut self.status, "Failed", "FailJobSetFailurePolicyAction", &message);
            }
            "RestartJobSetAndIgnoreMaxRestarts" => self.status.restarts += 1,
            _ if self.status.restarts_count_towards_max >= policy.max_restarts => {
                let message =
                    format!("jobset failed due to reaching max number of restarts (first failed job: {job})");
                finish(&mut self.status, "Failed", "ReachedMaxRestarts", &message);
            }
            _ => {
                self.status.restarts += 1;
                self.status.restarts_count_towards_max += 1;
            }
        }
    }

    /// Makes, resumes and suspends children.
    async fn bring_about(&mut self) -> anyhow::Result<()> {
        let strategy =
            self.jobset.spec.failure_policy.as_ref().map(|policy| policy.restart_strategy.as_str());
        if strategy == Some("BlockingRecreate") && !self.going.is_empty() {
            return Ok(());
        }
        let suspend = self.jobset.spec.suspend;
        let in_order = self
            .jobset
            .spec
            .startup_policy
            .as_ref()
            .is_some_and(|policy| policy.startup_policy_order == "InOrder");
        if suspend {
            set(&mut self.status, "Suspended", true, "SuspendedJobs", "jobset is suspended");
        } else {
            set(&mut self.status, "Suspended", false, "ResumeJobs", "jobset is resumed");
        }
        let mut all_ready = true;
        for group in self.jobset.spec.replicated_jobs.clone() {
            if !suspend && !self.may_start(&group) {
                all_ready = false;
                continue;
            }
            for index in 0..group.replicas {
                self.bring_about_child(&group, index, suspend).await?;
            }
            all_ready &= self.ready_children(&group.name) == group.replicas;
            if in_order && !suspend && !all_ready {
                break;
            }
        }
        if in_order && !suspend && all_ready {
            let message = "all replicated jobs have started";
            set(&mut self.status, "StartupPolicyCompleted", true, "StartupPolicyCompleted", message);
        }
        Ok(())
    }

    /// Whether the groups that this one depends on are as far as it wants.
    fn may_start(&self, group: &ReplicatedJob) -> bool {
        group.depends_on.iter().all(|on| {
            let groups = &self.jobset.spec.replicated_jobs;
            let replicas = groups.iter().find(|one| one.name == on.name).map_or(0, |one| one.replicas);
            if on.status == "Complete" {
                children::count(&on.name, self.current.iter()).succeeded == replicas
            } else {
                self.ready_children(&on.name) == replicas
            }
        })
    }

    fn ready_children(&self, group: &str) -> i32 {
        let counts = children::count(group, self.current.iter());
        counts.ready + counts.succeeded
    }

    async fn bring_about_child(
        &mut self,
        group: &ReplicatedJob,
        index: i32,
        suspend: bool,
    ) -> anyhow::Result<()> {
        let name =
            children::name(self.jobset.metadata.name.as_deref().unwrap_or_default(), &group.name, index);
        if self.going.contains(&name) {
            return Ok(());
        }
        let wanted = children::wanted(&self.jobset, group, index, suspend);
        let position = self.current.iter().position(|job| job.metadata.name.as_deref() == Some(&name));
        let Some(position) = position else {
            let made = self.jobs.create(&PostParams::default(), &wanted).await.context("making a child")?;
            self.current.push(made);
            return Ok(());
        };
        let job = self.current[position].clone();
        if children::is_finished(&job) || children::is_suspended(&job) == suspend {
            return Ok(());
        }
        let changed = if suspend {
            let patch = Patch::Merge(json!({ "spec": { "suspend": true } }));
            self.jobs.patch(&name, &PatchParams::default(), &patch).await.context("suspending a child")?
        } else {
            self.resume(job, &wanted).await?
        };
        self.current[position] = changed;
        Ok(())
    }

    /// Starts a suspended child with the JobSet's templates as they are now.
    async fn resume(&self, mut job: Job, wanted: &Job) -> anyhow::Result<Job> {
        let name = job.metadata.name.clone().unwrap_or_default();
        if job.status.as_ref().is_some_and(|status| status.start_time.is_some()) {
            // A template that has been started may not change before this is forgotten.
            let patch = Patch::Merge(json!({ "status": { "startTime": null } }));
            job = self
                .jobs
                .patch_status(&name, &PatchParams::default(), &patch)
                .await
                .context("resetting startTime")?;
        }
        if let (Some(spec), Some(wanted)) = (job.spec.as_mut(), &wanted.spec) {
            children::follow(&mut spec.template, &wanted.template);
            spec.suspend = Some(false);
        }
        self.jobs.replace(&name, &PostParams::default(), &job).await.context("resuming a child")
    }

    fn count(&mut self) {
        let groups = self.jobset.spec.replicated_jobs.iter();
        self.status.replicated_jobs_status =
            groups.map(|group| children::count(&group.name, self.current.iter())).collect();
    }
}

/// The action of the first rule that fits.
fn action<'a>(policy: &'a FailurePolicy, group: &str, reason: &str) -> &'a str {
    let has = |all: &[String], one: &str| all.is_empty() || all.iter().any(|entry| entry == one);
    let rule = policy
        .rules
        .iter()
        .find(|rule| has(&rule.on_job_failure_reasons, reason) && has(&rule.target_replicated_jobs, group));
    rule.map_or("RestartJobSet", |rule| rule.action.as_str())
}
