//! The whole engine on large worlds, objects in and effects out: decoding, start-up, takeover, one event of each kind, a cycle with nothing to do,
//! the gauges, and memory per object.
//!
//! Each world is measured in a process of its own (`xtask engine QUEUES`). Times are CPU time and are reported; counts and allocations are the same
//! on every machine and have budgets.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sluice_engine::effect::Effect;
use sluice_engine::input::{Input, Kind, Object, ObjectRef, WriteError};
use sluice_engine::metrics::{SCRAPE_PAGE, Scrape};
use sluice_engine::{Accounting, Engine, EngineConfig, State};

use crate::apart;
use crate::case::stopwatch::Stopwatch;

/// Instructions that callgrind may count in the cycles of a small case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstructionBudget {
    /// Calibrated count.
    pub instructions: u64,
    /// How far above it a run may be, in percent.
    pub tolerance_percent: u64,
}

#[path = "../../engine/tests/big/mod.rs"]
mod big;
mod events;

/// Measure the whole engine on a world of a number of ClusterQueues, as JSON.
#[derive(clap::Args)]
pub struct Args {
    /// ClusterQueues, each with a LocalQueue and ten Workloads.
    queues: usize,
}

/// Inputs between two cycles, as the manager takes them.
const BATCH: usize = 4_096;

/// Workloads that end at once.
const MANY: usize = 1_000;

/// What a replica does before it has decided about all that there is.
const TAKEN_IN: [&str; 3] = ["0 decoding", "1 start-up of a standby", "2 takeover"];

/// What one step cost.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Step {
    /// CPU time in microseconds.
    us: f64,
    allocations: u64,
    effects: u64,
    statuses: u64,
    workloads: u64,
    evaluations: u64,
    rebuilt_nodes: u64,
    /// Of what is asked page by page: CPU time of the longest page, and what it looked at.
    longest_us: f64,
    largest_page: u64,
}

/// The figures of one world.
#[derive(Debug, Deserialize, Serialize)]
struct Figures {
    objects: usize,
    steps: BTreeMap<String, Step>,
    bytes_per_object: f64,
    peak_rss_mib: f64,
}

/// The budget of a step, in `tests/performance/budgets.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// ClusterQueues of the world.
    queues: usize,
    bytes_per_object: f64,
    /// By step.
    step: BTreeMap<String, StepBudget>,
    /// Instructions of all steps, on a world of this many queues that callgrind runs quickly.
    instructions: Option<Instructions>,
}

#[derive(Debug, Deserialize)]
struct Instructions {
    queues: usize,
    #[serde(flatten)]
    budget: InstructionBudget,
}

impl Budget {
    /// The world whose instructions are counted, and how many there may be.
    pub fn instructions(&self) -> Option<(usize, &InstructionBudget)> {
        self.instructions.as_ref().map(|counted| (counted.queues, &counted.budget))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepBudget {
    allocations: u64,
    #[serde(default)]
    effects: u64,
    #[serde(default)]
    statuses: u64,
    #[serde(default)]
    evaluations: u64,
    #[serde(default)]
    rebuilt_nodes: u64,
    /// The number of examined objects of the largest page.
    #[serde(default)]
    largest_page: u64,
    /// A goal, not a budget: of the longest page where there are pages.
    goal_ms: Option<f64>,
}

/// Measures one world.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    println!("{}", serde_json::to_string(&measure(args.queues))?);
    Ok(ExitCode::SUCCESS)
}

/// Measures the worlds of the budgets, prints a table of each, and notes exceeded budgets.
pub fn table(budgets: &BTreeMap<String, Budget>, failures: &mut Vec<String>) -> anyhow::Result<()> {
    for (name, budget) in budgets {
        let figures: Figures = apart::figures(["engine", &budget.queues.to_string()])
            .with_context(|| format!("engine {name}"))?;
        println!(
            "engine, {name}: {} ClusterQueues, {} objects; {:.0} bytes per object (at most {}), peak {:.0} MiB",
            budget.queues,
            figures.objects,
            figures.bytes_per_object,
            budget.bytes_per_object,
            figures.peak_rss_mib
        );
        if figures.bytes_per_object > budget.bytes_per_object {
            failures.push(format!("engine {name}: {:.0} bytes per object", figures.bytes_per_object));
        }
        let taken_in: f64 = TAKEN_IN.iter().filter_map(|step| Some(figures.steps.get(*step)?.us)).sum();
        println!("from the objects' JSON to decisions about all of them: {:.2} s of CPU", taken_in / 1e6);
        println!(
            "{:<28} {:>12} {:>11} | {:>22} {:>18} {:>18} {:>18} {:>18}",
            "step", "CPU", "at a time", "allocations", "effects", "statuses", "evaluations", "nodes rebuilt"
        );
        let without = figures.steps.keys().filter(|step| !budget.step.contains_key(*step));
        failures.extend(without.map(|step| format!("engine {name}, {step}: it has no budget")));
        for (step, most) in &budget.step {
            let cost = figures.steps.get(step).with_context(|| format!("the step {step}"))?;
            let counts = [
                ("allocations", cost.allocations, most.allocations),
                ("effects", cost.effects, most.effects),
                ("statuses", cost.statuses, most.statuses),
                ("evaluations", cost.evaluations, most.evaluations),
                ("nodes rebuilt", cost.rebuilt_nodes, most.rebuilt_nodes),
                ("looks for a page", cost.largest_page, most.largest_page),
            ];
            let text = counts.map(|(_, count, most)| format!("{count} ({most})"));
            let stretch = if cost.longest_us > 0.0 { cost.longest_us } else { cost.us };
            let slow = most.goal_ms.is_some_and(|goal| stretch > goal * 1_000.0);
            println!(
                "{step:<28} {:>9.2} ms {:>7.2} ms{} | {:>22} {:>18} {:>18} {:>18} {:>18}",
                cost.us / 1_000.0,
                stretch / 1_000.0,
                if slow { '*' } else { ' ' },
                text[0],
                text[1],
                text[2],
                text[3],
                text[4]
            );
            for (what, count, most) in counts.into_iter().filter(|(_, count, most)| count > most) {
                failures.push(format!("engine {name}, {step}: {count} {what}, at most {most}"));
            }
        }
    }
    Ok(())
}

/// An engine under measurement.
struct Bench {
    engine: Engine,
    steps: BTreeMap<String, Step>,
}

impl Bench {
    /// Measures what inputs cost with all cycles that follow. Writes that are withdrawn were not sent; others are not answered.
    fn step(&mut self, name: &str, inputs: Vec<Input>) {
        let before = self.engine.work();
        let mut effects = 0;
        let watch = Stopwatch::start();
        let engine = &mut self.engine;
        let allocated = allocation_counter::measure(|| {
            for (at, input) in inputs.into_iter().enumerate() {
                engine.apply(big::now(), input);
                if at % BATCH == BATCH - 1 {
                    effects += wide(engine.cycle(big::now()).len());
                }
            }
            effects += cycles(engine);
        });
        let (us, after) = (watch.elapsed().as_secs_f64() * 1e6, self.engine.work());
        let step = Step {
            us,
            allocations: allocated.count_total,
            effects,
            statuses: after.statuses - before.statuses,
            workloads: after.workloads - before.workloads,
            evaluations: after.evaluations - before.evaluations,
            rebuilt_nodes: after.rebuilt_nodes - before.rebuilt_nodes,
            ..Step::default()
        };
        self.steps.insert(name.to_owned(), step);
    }
}

/// The size of one page, as the manager requests it. Gauges have their own.
const PAGE: usize = 250;

impl Bench {
    /// The paged answers: all pages, and the longest one, with all gauges that the configuration can have.
    fn pages(&mut self) {
        let engine = &self.engine;
        // The answers are kept to the end, so that freeing their memory is not measured.
        let mut accounting = None;
        if let Some((key, _)) = engine.workloads().last() {
            let accounting =
                accounting.insert(Accounting::new(Some(Kind::Workload), &key.namespace, &key.name));
            let mut step = turn(|| engine.account_page(accounting, PAGE));
            step.largest_page = wide(accounting.largest_page());
            self.steps.insert("page explain".to_owned(), step);
        }
        let mut state = State::default();
        let mut step = turn(|| engine.state_page(&mut state, PAGE));
        step.largest_page = wide(state.largest_page());
        self.steps.insert("page /debug/state".to_owned(), step);
        let mut scrape = Scrape::default();
        let mut step = turn(|| engine.scrape(&mut scrape, SCRAPE_PAGE));
        step.largest_page = wide(scrape.largest_page());
        step.effects = wide(scrape.into_values().count());
        self.steps.insert("page gauges".to_owned(), step);
    }
}

/// Turns pages until the last.
fn turn(mut page: impl FnMut() -> bool) -> Step {
    let (mut step, mut done) = (Step::default(), false);
    let allocated = allocation_counter::measure(|| {
        while !done {
            let watch = Stopwatch::start();
            done = page();
            let us = watch.elapsed().as_secs_f64() * 1e6;
            step.us += us;
            step.longest_us = step.longest_us.max(us);
        }
    });
    step.allocations = allocated.count_total;
    step
}

/// What a watch reads of an object before there is room for the whole.
#[derive(Deserialize)]
struct Head {
    metadata: HeadMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HeadMetadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    generation: i64,
}

impl HeadMetadata {
    /// What distinguishes a version of the object from all others.
    fn identity(&self) -> (&str, &str, &str, &str, i64) {
        (&self.namespace, &self.name, &self.uid, &self.resource_version, self.generation)
    }
}

/// Decodes objects as the lists of the watches do: first what each says of itself, then all that is kept of it.
fn decode(mut documents: impl Iterator<Item = big::Document>) -> (Vec<Object>, Step) {
    let (mut objects, mut step) = (Vec::new(), Step::default());
    loop {
        let texts = documents.by_ref().take(BATCH);
        let texts: Vec<_> = texts.map(|document| (document.kind, document.text())).collect();
        if texts.is_empty() {
            return (objects, step);
        }
        objects.reserve(texts.len());
        let watch = Stopwatch::start();
        let allocated = allocation_counter::measure(|| {
            for (kind, text) in &texts {
                let head: Head = serde_json::from_slice(text).expect("the object has metadata");
                std::hint::black_box(head.metadata.identity());
                objects.push(big::decode(*kind, text));
            }
        });
        step.us += watch.elapsed().as_secs_f64() * 1e6;
        step.allocations += allocated.count_total;
    }
}

/// Cycles until nothing is left to do, and how many effects they have.
fn cycles(engine: &mut Engine) -> u64 {
    let mut count = 0;
    loop {
        let effects = engine.cycle(big::now());
        count += wide(effects.len());
        let mut again = engine.has_work();
        for effect in effects {
            if let Effect::Withdraw(id) = effect {
                engine.apply(big::now(), Input::Written { id, result: Err(WriteError::Withdrawn) });
                again = true;
            }
        }
        if !again {
            return count;
        }
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "figures")]
fn measure(queues: usize) -> Figures {
    let size = big::Size { queues, workloads: 10, admitted: 2 };
    let (objects, decoding) = decode(big::documents(size));
    let number = objects.len();
    let inputs = big::start(objects);
    // With every gauge that there can be.
    let config = EngineConfig { cluster_queue_resource_metrics: true, ..EngineConfig::default() };
    let mut bench = Bench { engine: Engine::new(config), steps: BTreeMap::new() };
    bench.steps.insert("0 decoding".to_owned(), decoding);
    bench.step("1 start-up of a standby", inputs);
    // A second start, to see the memory that stays; the input is included then.
    let mut fresh = None;
    let held = allocation_counter::measure(|| {
        let mut engine = Engine::new(EngineConfig::default());
        for input in big::start(big::objects(size)) {
            engine.apply(big::now(), input);
        }
        engine.cycle(big::now());
        fresh = Some(engine);
    });
    drop(fresh);
    bench.step("2 takeover", vec![Input::Leader(true)]);
    bench.step("3 a cycle without news", vec![Input::Tick]);
    let middle = queues / 2;
    let local =
        ObjectRef::namespaced(Kind::LocalQueue, format!("team-{}", middle / 10), format!("lq-{middle}"));
    let ended = big::workload(middle, 0, true).object().object_ref();
    let events = [
        ("event: Workload comes", Input::Applied(big::workload(middle, 99, false).object())),
        (
            "event: Workload changes",
            Input::Applied(events::urgent(big::workload(middle, 99, false).object())),
        ),
        ("event: admitted one ends", Input::Deleted { object: ended, uid: None }),
        ("event: ClusterQueue's quota", Input::Applied(big::cluster_queue(middle, 9).object())),
        ("event: flavor", Input::Applied(big::flavor(3, "b").object())),
        ("event: check", Input::Applied(big::check("checked", false).object())),
        ("event: Cohort", Input::Applied(big::cohort(1_000_000).object())),
        ("event: LocalQueue goes", Input::Deleted { object: local, uid: None }),
        ("event: LocalQueue comes", Input::Applied(big::local_queue(middle).object())),
    ];
    for (name, input) in events {
        bench.step(name, vec![input]);
    }
    bench.pages();
    // What they give back is decided on at once, across the tree.
    let ended = (0..queues.min(MANY)).map(|queue| big::workload(queue, 1, true).object().object_ref());
    let ended = ended.map(|object| Input::Deleted { object, uid: None });
    bench.step("4 a cycle that decides: 1,000 end", ended.collect());
    for (name, input) in events::of_other_kinds(middle) {
        bench.step(name, vec![input]);
    }
    Figures {
        objects: number,
        bytes_per_object: held.bytes_current as f64 / number as f64,
        steps: bench.steps,
        peak_rss_mib: crate::case::peak_rss_mib().unwrap_or(0.0),
    }
}
