//! Plays the job controllers and the kubelets: a started job runs for its run time, a stopped one loses its pods after a while.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice_api::labels;
use sluice_engine::{Kind, ObjectRef};

use crate::json::text;
use crate::observed::RunTimes;
use crate::random::{Distribution, Stream};
use crate::scenario::RunTimeRule;

/// How long a job runs in all, in seconds: on the job. On its pod template: how long each of its pods runs.
pub const RUN_SECONDS: &str = "sluice.dev/run-seconds";
/// How long after the beginning a job of the manifests is submitted, in seconds.
pub const SUBMIT_AFTER_SECONDS: &str = "sluice.dev/submit-after-seconds";

/// How long a job runs without an annotation or rule.
pub const DEFAULT_RUN_TIME: Distribution = Distribution::Fixed(SignedDuration::from_secs(600));

/// Where a job's run time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Basis {
    /// A rule of the scenario, or its stream of arrivals.
    Scenario,
    /// The annotation of the job or its pods.
    Annotation,
    /// From ended jobs of its queue.
    Observed,
    /// A bound: it will not run for longer.
    Bound,
    /// The default: nothing is known.
    Default,
}

/// Where a job's pods are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// They run.
    Running {
        /// Since when.
        since: Timestamp,
    },
    /// Some of them are on machines that do not answer: nothing gets on.
    Broken,
    /// They are being stopped.
    Stopping,
}

/// A job that has pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Names this start of this job.
    pub attempt: u64,
    /// Where its pods are.
    pub phase: Phase,
}

/// The jobs that have pods, and how long jobs run.
#[derive(Clone, Debug)]
pub(crate) struct Pods {
    pub seed: u64,
    pub rules: Vec<RunTimeRule>,
    pub default: Distribution,
    pub termination: SignedDuration,
    pub startup: SignedDuration,
    /// The run time of jobs that arrive in streams which say so.
    pub drawn: BTreeMap<ObjectRef, Distribution>,
    /// How long jobs took that have ended.
    pub observed: RunTimes,
    runs: BTreeMap<ObjectRef, Run>,
    attempts: u64,
}

/// How long a job may run, as it says itself.
pub(crate) fn deadline(job: &ObjectRef, value: &Value) -> Option<SignedDuration> {
    let Kind::Job(kind) = job.kind else { return None };
    sluice_jobs::deadline_seconds(kind, value).map(SignedDuration::from_secs)
}

impl Pods {
    /// No pods.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            rules: Vec::new(),
            default: DEFAULT_RUN_TIME,
            termination: SignedDuration::from_secs(1),
            startup: SignedDuration::ZERO,
            drawn: BTreeMap::new(),
            observed: RunTimes::default(),
            runs: BTreeMap::new(),
            attempts: 0,
        }
    }

    /// A job's pods, if it has any.
    pub fn run(&self, job: &ObjectRef) -> Option<Run> {
        self.runs.get(job).copied()
    }

    /// A job's pods, if they belong to this start.
    pub fn attempt(&self, job: &ObjectRef, attempt: u64) -> Option<Run> {
        self.run(job).filter(|run| run.attempt == attempt)
    }

    /// A job's pods start; gives the name of this start.
    pub fn start(&mut self, job: &ObjectRef, since: Timestamp) -> u64 {
        self.attempts += 1;
        let run = Run { attempt: self.attempts, phase: Phase::Running { since } };
        self.runs.insert(job.clone(), run);
        self.attempts
    }

    /// Some pods of a job have stopped.
    pub fn interrupt(&mut self, job: &ObjectRef) {
        if let Some(run) = self.runs.get_mut(job) {
            run.phase = Phase::Broken;
        }
    }

    /// A job's pods are being stopped.
    pub fn stop(&mut self, job: &ObjectRef) {
        if let Some(run) = self.runs.get_mut(job) {
            run.phase = Phase::Stopping;
        }
    }

    /// A job has no pods any more.
    pub fn end(&mut self, job: &ObjectRef) {
        self.runs.remove(job);
    }

    /// The jobs that have pods.
    pub fn jobs(&self) -> Vec<ObjectRef> {
        self.runs.keys().cloned().collect()
    }

    /// How many jobs have pods.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// How long a job runs from its start to its end, and whether it then succeeds.
    pub fn run_time(&self, job: &ObjectRef, value: &Value) -> (SignedDuration, bool) {
        self.run_time_by(self.seed, job, value)
    }

    /// The same with another seed.
    pub fn run_time_by(&self, seed: u64, job: &ObjectRef, value: &Value) -> (SignedDuration, bool) {
        let wanted = self.wanted_run_time(seed, job, value);
        match deadline(job, value) {
            Some(deadline) if deadline < wanted => (deadline, false),
            _ => (wanted, true),
        }
    }

    /// Where a job's run time comes from.
    pub fn basis(&self, job: &ObjectRef, value: &Value) -> Basis {
        let queue = queue_of(value);
        if self.rules.iter().any(|r| r.matches(&job.namespace, queue, &job.name))
            || self.drawn.contains_key(job)
        {
            Basis::Scenario
        } else if annotated(&value["metadata"]).is_some() || pods_run_time(job.kind, value).is_some() {
            Basis::Annotation
        } else if self.observed.knows(&job.namespace, queue) {
            Basis::Observed
        } else if value["spec"]["activeDeadlineSeconds"].is_i64() || longest(job.kind, value).is_some() {
            Basis::Bound
        } else {
            Basis::Default
        }
    }

    /// Whether a job is taken to run for no longer than its Workload may be admitted: nothing says more of it.
    pub fn rests_on_bound(&self, job: &ObjectRef, value: &Value) -> bool {
        longest(job.kind, value).is_some() && matches!(self.basis(job, value), Basis::Observed | Basis::Bound)
    }

    fn wanted_run_time(&self, seed: u64, job: &ObjectRef, value: &Value) -> SignedDuration {
        let name = format!("run time {}/{}", job.namespace, job.name);
        let draw = |distribution: &Distribution| distribution.draw(&mut Stream::new(seed, &name));
        let queue = queue_of(value);
        if let Some(rule) = self.rules.iter().find(|r| r.matches(&job.namespace, queue, &job.name)) {
            return draw(&rule.run_time);
        }
        if let Some(distribution) = self.drawn.get(job) {
            return draw(distribution);
        }
        if let Some(whole) = annotated(&value["metadata"]) {
            return whole;
        }
        if let Some(longest) = pods_run_time(job.kind, value) {
            return longest;
        }
        let bound = longest(job.kind, value).or_else(|| value["spec"]["activeDeadlineSeconds"].as_i64());
        let bound = bound.filter(|s| (1..=10_000_000_000).contains(s)).map(SignedDuration::from_secs);
        if let Some(seen) = self.observed.draw(&job.namespace, queue, &mut Stream::new(seed, &name)) {
            return bound.map_or(seen, |bound| seen.min(bound));
        }
        // If only a job's bound is known, it is used as the run time.
        if let Some(bound) = bound {
            return bound;
        }
        draw(&self.default)
    }
}

/// The LocalQueue that an object names.
pub fn queue_of(value: &Value) -> &str {
    let of = |part: &'static str| text(&value["metadata"][part][labels::QUEUE_NAME]);
    let named = of("labels");
    if !named.is_empty() {
        return named;
    }
    let named = of("annotations");
    if named.is_empty() { text(&value["spec"]["queueName"]) } else { named }
}

/// How many seconds a Workload may be admitted in all, as it says itself or its job does.
fn longest(kind: Kind, value: &Value) -> Option<i64> {
    match kind {
        Kind::Workload => value["spec"]["maximumExecutionTimeSeconds"].as_i64(),
        _ => text(&value["metadata"]["labels"][labels::MAX_EXEC_TIME_SECONDS]).parse().ok(),
    }
}

fn annotated(metadata: &Value) -> Option<SignedDuration> {
    let value: f64 = text(&metadata["annotations"][RUN_SECONDS]).parse().ok()?;
    let bounded = value.is_finite() && (0.0..1e10).contains(&value);
    bounded.then(|| SignedDuration::from_secs_f64(value))
}

/// The run time of pods that run one after the other, if their template has one: the longest pod set counts.
fn pods_run_time(kind: Kind, value: &Value) -> Option<SignedDuration> {
    let of_group = |group: sluice_jobs::PodGroup<'_>| {
        let each = annotated(&group.template["metadata"])?;
        let (parallel, completions) = (i64::from(group.parallel.max(1)), i64::from(group.completions.max(1)));
        let waves = (completions + parallel - 1) / parallel;
        i32::try_from(waves).ok().and_then(|waves| each.checked_mul(waves))
    };
    if let Kind::Job(kind) = kind {
        return sluice_jobs::pod_groups(kind, value).into_iter().filter_map(of_group).max();
    }
    let sets = value["spec"]["podSets"].as_array()?;
    sets.iter().filter_map(|set| annotated(&set["template"]["metadata"])).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_api::job::JobKind;

    fn job() -> ObjectRef {
        ObjectRef::namespaced(Kind::Job(JobKind::JOB), "ns", "a")
    }

    fn seconds_of(pods: &Pods, value: &Value) -> i64 {
        pods.run_time(&job(), value).0.as_secs()
    }

    #[test]
    fn pods_run_in_waves_and_the_job_may_say_it_all() {
        let pods = Pods::new(1);
        let template = json!({"metadata": {"annotations": {RUN_SECONDS: "10"}}});
        let mut value = json!({"spec": {"parallelism": 2, "completions": 5, "template": template}});
        assert_eq!(seconds_of(&pods, &value), 30);
        value["metadata"] = json!({"annotations": {RUN_SECONDS: "7"}});
        assert_eq!(seconds_of(&pods, &value), 7);
        value["spec"]["activeDeadlineSeconds"] = json!(3);
        assert_eq!(pods.run_time(&job(), &value), (SignedDuration::from_secs(3), false));
        value["metadata"] = json!({"annotations": {RUN_SECONDS: "many"}});
        assert_eq!(seconds_of(&pods, &json!({"spec": {}})), 600);
    }

    #[test]
    fn a_rule_comes_before_annotations() {
        let mut pods = Pods::new(1);
        let rule = json!({"name": "a*", "runTime": "1m"});
        pods.rules.push(serde_json::from_value(rule).unwrap());
        let value = json!({"metadata": {"annotations": {RUN_SECONDS: "7"}}});
        assert_eq!(seconds_of(&pods, &value), 60);
    }
}
