//! Jobs of thousands of pods: the time until all run, and the cost of one event then.
//!
//! Each world is measured in a process of its own (`xtask pods KIND PODS`). CPU time is reported; counts and allocations have budgets. A world with a
//! quarter of the pods shows whether something visits all pods for each event.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_engine::EngineConfig;

use crate::apart;
use crate::case::stopwatch::Stopwatch;
use crate::model::Cluster;
use crate::model::build::job;
use crate::model::pods::{member, pod};

/// Measure jobs that are made of a number of pods, as JSON.
#[derive(clap::Args)]
pub struct Args {
    /// What the pods are.
    kind: Pods,
    /// How many there are.
    pods: usize,
}

/// What pods are.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Pods {
    /// One group.
    Group,
    /// One group that is admitted as soon as its first pod exists.
    Fast,
    /// Each is queued alone.
    Single,
    /// Each is queued alone, and there is quota for one.
    Backlog,
    /// Those of one Deployment.
    Deployment,
    /// Those of one StatefulSet.
    Statefulset,
}

/// The cost of a step.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Step {
    /// CPU time in milliseconds.
    ms: f64,
    allocations: u64,
    writes: u64,
    /// Jobs that were looked at.
    jobs: u64,
    /// Workloads that were looked at.
    workloads: u64,
}

/// The budget of a step, in `tests/performance/budgets.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepBudget {
    allocations: u64,
    writes: u64,
    jobs: u64,
    workloads: u64,
}

/// The budget of one world.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    kind: Pods,
    pods: usize,
    /// By step.
    step: BTreeMap<String, StepBudget>,
    growth: Growth,
}

impl Budget {
    /// Whether an unoptimised engine runs this world in seconds.
    pub fn is_small(&self) -> bool {
        self.pods <= 2_000
    }
}

/// How much more instructions a pod may take where there are four times as many.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Growth {
    /// The pods of the larger world, which callgrind runs quickly.
    pods: usize,
    percent: u64,
}

/// How many times more pods the larger world of a growth test has.
const TIMES: usize = 4;
/// Pods that come between two cycles.
const BATCH: usize = 50;

/// Measures one world.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    println!("{}", serde_json::to_string(&measure(args.kind, args.pods)?)?);
    Ok(ExitCode::SUCCESS)
}

/// Measures the worlds of the budgets, and notes exceeded budgets.
pub fn table(budgets: &BTreeMap<String, Budget>, failures: &mut Vec<String>) -> anyhow::Result<()> {
    println!(
        "{:<44} {:>12} | {:>22} {:>16} {:>16} {:>16}",
        "pods, and step", "CPU", "allocations", "writes", "jobs", "Workloads"
    );
    for (name, budget) in budgets {
        let steps: BTreeMap<String, Step> =
            apart::figures(budget.kind.arguments(budget.pods)).with_context(|| format!("pods {name}"))?;
        for (step, cost) in &steps {
            let most =
                budget.step.get(step).with_context(|| format!("pods {name}: a budget of the step {step}"))?;
            let counts = [
                ("allocations", cost.allocations, most.allocations),
                ("writes", cost.writes, most.writes),
                ("jobs", cost.jobs, most.jobs),
                ("Workloads", cost.workloads, most.workloads),
            ];
            let [allocations, writes, jobs, workloads] =
                counts.map(|(_, count, most)| format!("{count} ({most})"));
            println!(
                "{:<44} {:>9.2} ms | {allocations:>22} {writes:>16} {jobs:>16} {workloads:>16}",
                format!("{name}, {} pods: {step}", budget.pods),
                cost.ms,
            );
            for (what, count, most) in counts.into_iter().filter(|(_, count, most)| count > most) {
                failures.push(format!("pods {name}, {step}: {count} {what}, at most {most}"));
            }
        }
    }
    Ok(())
}

/// Compares the instructions of each world with those of a world with a quarter of the pods; `count` counts the instructions of a command line.
pub fn check_growth(
    budgets: &BTreeMap<String, Budget>,
    failures: &mut Vec<String>,
    count: impl Fn(&[String]) -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    for (name, Budget { kind, growth, .. }) in budgets {
        let many = count(&kind.arguments(growth.pods))?;
        let few = count(&kind.arguments(growth.pods / TIMES))?;
        let percent = many * 100 / (few * TIMES as u64);
        println!(
            "pods, {name:<16} {many:>12} instructions with {} pods: {percent} % of {TIMES} times those with {} (at most {} %)",
            growth.pods,
            growth.pods / TIMES,
            growth.percent
        );
        if percent > growth.percent {
            failures.push(format!(
                "pods {name}: with {TIMES} times the pods a pod takes {percent} % of the instructions, at most {} %",
                growth.percent
            ));
        }
    }
    Ok(())
}

impl Pods {
    fn arguments(self, pods: usize) -> [String; 3] {
        let kind = match self {
            Self::Group => "group",
            Self::Fast => "fast",
            Self::Single => "single",
            Self::Backlog => "backlog",
            Self::Deployment => "deployment",
            Self::Statefulset => "statefulset",
        };
        ["pods".to_owned(), kind.to_owned(), pods.to_string()]
    }

    /// A pod after the webhook, one of `total`; `owner` is the UID of the object that makes it.
    fn pod(self, name: &str, total: usize, owner: &str) -> Value {
        let mut made = match self {
            Self::Group | Self::Fast => member(name, "g", total, "main"),
            Self::Single | Self::Backlog | Self::Deployment | Self::Statefulset => pod(name, "lq", "1"),
        };
        let metadata = &mut made["metadata"];
        match self {
            Self::Group | Self::Single | Self::Backlog => {}
            Self::Fast => metadata["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = json!("true"),
            Self::Deployment => Self::owned(metadata, "ReplicaSet", "deployment", owner),
            Self::Statefulset => Self::owned(metadata, "StatefulSet", "statefulset", owner),
        }
        made
    }

    fn owned(metadata: &mut Value, kind: &str, framework: &str, owner: &str) {
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("finalizers");
        }
        metadata["annotations"]["kueue.x-k8s.io/pod-suspending-parent"] = json!(framework);
        metadata["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": owner, "controller": true}]);
    }
}

/// A cluster under measurement.
struct Bench {
    c: Cluster,
    kind: Pods,
    pods: usize,
    owner: String,
    steps: BTreeMap<String, Step>,
}

impl Bench {
    /// A queue with quota for `pods` pods, or for one of them, and what makes them.
    fn new(kind: Pods, pods: usize) -> Self {
        let mut config = EngineConfig::default();
        config.frameworks.insert(JobKind::POD);
        let mut c = Cluster::new(config);
        c.checked = false;
        c.meter = |work| {
            let watch = Stopwatch::start();
            let allocated = allocation_counter::measure(work);
            (watch.elapsed(), allocated.count_total)
        };
        c.api.namespace("team-a", &[]);
        let room = if kind == Pods::Backlog { 1 } else { pods };
        c.api.simple(&room.to_string(), &json!({}));
        let mut owner = "uid-web".to_owned();
        if kind == Pods::Statefulset {
            let mut view = job("team-a", "web", "lq", i32::try_from(pods).unwrap_or(i32::MAX), "1");
            view.job.kind = JobKind::STATEFUL_SET;
            view.on_hold = Some(false);
            c.api.add_job(view);
            owner = c.api.job("web").view.job.uid.to_string();
        }
        Self { c, kind, pods, owner, steps: BTreeMap::new() }
    }

    /// All come, as fast as an API server takes them.
    fn come(&mut self) {
        for at in 0..self.pods {
            self.add(&name(at));
            if at % BATCH == BATCH - 1 {
                self.c.advance(1);
            }
        }
        self.c.advance(2);
    }

    fn add(&mut self, name: &str) {
        self.c.api.add_pod(self.kind.pod(name, self.pods, &self.owner));
    }

    /// Measures the engine until nothing happens any more.
    fn step(&mut self, name: &str, happens: impl FnOnce(&mut Self)) {
        self.c.spent = (Duration::ZERO, 0);
        let (before, writes) = (self.c.engine.work(), self.c.writes.len());
        happens(self);
        self.c.settle();
        let after = self.c.engine.work();
        let step = Step {
            ms: self.c.spent.0.as_secs_f64() * 1e3,
            allocations: self.c.spent.1,
            writes: u64::try_from(self.c.writes.len() - writes).unwrap_or(u64::MAX),
            jobs: after.jobs - before.jobs,
            workloads: after.workloads - before.workloads,
        };
        self.steps.insert(name.to_owned(), step);
    }
}

/// The name of a pod.
fn name(at: usize) -> String {
    format!("p{at:05}")
}

fn measure(kind: Pods, pods: usize) -> anyhow::Result<BTreeMap<String, Step>> {
    let mut bench = Bench::new(kind, pods);
    if kind == Pods::Backlog {
        return backlog(bench);
    }
    bench.step("1 all come, and may run", Bench::come);
    ensure!((0..pods).all(|at| bench.c.api.is_free(&name(at))), "all pods may run");
    bench.step("2 all run", |bench| {
        for at in 0..pods {
            bench.c.api.run_pod(&name(at), "Running");
            if at % BATCH == BATCH - 1 {
                bench.c.settle();
            }
        }
    });
    let one = name(pods / 2);
    bench.step("3 one says something", |bench| {
        bench.c.api.edit_pod(&one, &json!({"metadata": {"labels": {"example.com/x": "y"}}}));
    });
    bench.step("4 one fails", |bench| bench.c.api.run_pod(&one, "Failed"));
    bench.step("5 one is deleted", |bench| bench.c.api.delete_queued_pod(&one));
    bench.step("6 another one comes", |bench| {
        bench.add("other");
        bench.c.advance(2);
    });
    ensure!(bench.c.api.is_free("other"), "the other pod may run");
    Ok(bench.steps)
}

/// Pods of which all but one wait for quota.
fn backlog(mut bench: Bench) -> anyhow::Result<BTreeMap<String, Step>> {
    bench.step("1 all come, and one may run", Bench::come);
    ensure!(bench.c.api.is_free(&name(0)) && !bench.c.api.is_free(&name(1)), "one pod may run");
    bench.step("2 it runs", |bench| bench.c.api.run_pod(&name(0), "Running"));
    let one = name(bench.pods / 2);
    bench.step("3 one that waits says something", |bench| {
        bench.c.api.edit_pod(&one, &json!({"metadata": {"labels": {"example.com/x": "y"}}}));
    });
    bench.step("4 it is deleted", |bench| bench.c.api.delete_queued_pod(&one));
    bench.step("5 the one that runs succeeds, and the next may run", |bench| {
        bench.c.api.run_pod(&name(0), "Succeeded");
        bench.c.advance(2);
    });
    ensure!(bench.c.api.is_free(&name(1)), "the next pod may run");
    bench.step("6 another one comes", |bench| {
        bench.add("other");
        bench.c.advance(2);
    });
    ensure!(!bench.c.api.is_free("other"), "the other pod waits");
    Ok(bench.steps)
}
