//! The search for capacity for displaced jobs when hundreds of node pools fail at once: how much the engine examines per cycle.
//!
//! The world has pools of two nodes with a JobSet each. In the first half, whose JobSets have the higher priority, all pools but one fail. With
//! `--racks` the nodes have a topology: each rack has a JobSet that needs all of it, and in each failing rack two nodes fail. Each world is measured
//! in a process of its own (`xtask hotswap POOLS`). Times are CPU time and are reported; steps have a budget.
//!
//! And the search for nodes while nothing about them changes, which costs nothing; and single events of nodes and pods, which touch one node.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_engine::{EngineConfig, Kind, ObjectRef};

use crate::apart;
use crate::beds::Bed;
use crate::case::stopwatch;

/// Measure the search for room while half of a number of node pools fail, as JSON.
#[derive(clap::Args)]
pub struct Args {
    /// Pools that fail; there is one more, and as many that stay. Or racks that fail.
    failing: usize,
    /// The number of racks of 50 nodes with a topology instead of pools, the failing ones among them.
    #[arg(long, value_name = "N")]
    racks: Option<usize>,
    /// Stop after this number of cycles and print what was measured until then.
    #[arg(long, value_name = "N", default_value_t = MAX_CYCLES)]
    cycles: u64,
    /// Nodes and Workloads that a cycle looks at, at most: the engine's own limit unless given.
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Stop when it is decided what moves and what makes room.
    #[arg(long)]
    decide: bool,
}

/// The number of cycles that are measured unless the command line says otherwise.
const MAX_CYCLES: u64 = 20_000;
/// Until it is decided what moves and what makes room: a goal, not a budget.
const DECIDED_GOAL_MS: f64 = 100.0;
/// Nodes of a rack.
const RACK: usize = 50;
/// How long after their failure nodes count as lost.
const NOT_READY_SECONDS: i64 = 30;

/// The figures of one world.
#[derive(Debug, Deserialize, Serialize)]
struct Figures {
    /// The longest cycle.
    longest_ms: f64,
    /// Cycles in all.
    cycles: u64,
    /// The world settled within the cycles allowed.
    done: bool,
    /// The most nodes and Workloads that one cycle examined.
    steps: u64,
    /// All that were looked at.
    all_steps: u64,
    /// The most passes over all nodes and displaced jobs in one cycle.
    looks: u64,
    /// All that were made.
    all_looks: u64,
    /// Lowest domains that the placement of admissions counted.
    counted: u64,
    /// JobSets that were moved.
    moved: usize,
    /// CPU time of all cycles, and of their inputs, until it was decided what moves and what makes room.
    decided_ms: f64,
    /// The time of it in cycles that looked for nodes. The others, and their inputs, are what came of it: evictions.
    looking_ms: f64,
    /// The passes over all nodes and displaced jobs in that time.
    decided_looks: u64,
    /// Allocations of the same.
    decided_allocations: u64,
    /// The most allocations of one of these cycles.
    cycle_allocations: u64,
    /// Steps of these cycles.
    decided_steps: u64,
    /// JobSets that were evicted by then.
    evicted: usize,
}

/// The budget, in `tests/performance/budgets.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    failing: usize,
    /// See [`Args::racks`].
    racks: Option<usize>,
    /// See [`Args::decide`].
    #[serde(default)]
    decide: bool,
    steps: u64,
    all_steps: u64,
    /// Allocations of the longest cycle, until it is decided what moves.
    cycle_allocations: Option<u64>,
    /// Looks in all.
    all_looks: Option<u64>,
    /// Lowest domains that are counted in all, without those of the looks.
    counted: Option<u64>,
    /// A goal, not a budget.
    goal_ms: f64,
}

impl Budget {
    /// Whether an unoptimised engine runs this world in a minute.
    pub fn is_small(&self) -> bool {
        self.failing <= 160 && self.racks.is_none_or(|racks| racks <= 64) && !self.decide
    }

    /// The command line that measures its world.
    fn arguments(&self) -> Vec<String> {
        let racks = self.racks.map(|racks| format!("--racks={racks}"));
        let decide = self.decide.then(|| "--decide".to_owned());
        ["hotswap".to_owned(), self.failing.to_string()].into_iter().chain(racks).chain(decide).collect()
    }
}

/// Measures one world.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    println!("{}", serde_json::to_string(&measure(args))?);
    Ok(ExitCode::SUCCESS)
}

/// Measures the worlds of the budgets, and notes exceeded budgets.
pub fn table(budgets: &BTreeMap<String, Budget>, failures: &mut Vec<String>) -> anyhow::Result<()> {
    for (name, budget) in budgets {
        let figures: Figures =
            apart::figures(budget.arguments()).with_context(|| format!("hotswap {name}"))?;
        println!(
            "hotswap, {name}: {} pools fail, {} JobSets moved; decided after {:.1} ms CPU{} (goal {DECIDED_GOAL_MS} ms), {:.1} ms of it in cycles with {} looks, the rest for {} evictions and what they bring, longest of {} cycles {:.1} ms{} (goal {} ms), {} steps ({}), {} allocations ({:?}), {} steps in all ({}), {} looks in all ({:?}), {} domains counted",
            budget.failing,
            figures.moved,
            figures.decided_ms,
            if figures.decided_ms > DECIDED_GOAL_MS { "*" } else { "" },
            figures.looking_ms,
            figures.decided_looks,
            figures.evicted,
            figures.cycles,
            figures.longest_ms,
            if figures.longest_ms > budget.goal_ms { "*" } else { "" },
            budget.goal_ms,
            figures.steps,
            budget.steps,
            figures.cycle_allocations,
            budget.cycle_allocations,
            figures.all_steps,
            budget.all_steps,
            figures.all_looks,
            budget.all_looks,
            figures.counted
        );
        if !figures.done {
            failures.push(format!("hotswap {name}: not done after {} cycles", figures.cycles));
        }
        for (what, count, most) in [
            ("steps in a cycle", figures.steps, budget.steps),
            (
                "allocations in a cycle",
                figures.cycle_allocations,
                budget.cycle_allocations.unwrap_or(u64::MAX),
            ),
            ("steps in all", figures.all_steps, budget.all_steps),
            ("looks in all", figures.all_looks, budget.all_looks.unwrap_or(u64::MAX)),
            ("domains counted", figures.counted, budget.counted.unwrap_or(u64::MAX)),
        ] {
            if count > most {
                failures.push(format!("hotswap {name}: {count} {what}, at most {most}"));
            }
        }
    }
    Ok(())
}

/// Pools of two nodes with one JobSet each; the pools before `half` fail, except the first.
fn pools(bed: &mut Bed, names: &[&str], half: usize) {
    bed.page_queue(i64::try_from(half * 16).unwrap_or(i64::MAX));
    bed.pools(names, 2);
    for (pool, name) in names.iter().enumerate() {
        bed.sized_jobset(name, "q", if pool < half { "high" } else { "low" }, 1, 2);
    }
    bed.settle();
    bed.fail(&names[1..half]);
}

/// Racks with one JobSet each that needs nearly all of a rack; in each of the first `failing` racks two nodes fail.
fn racks(bed: &mut Bed, names: &[&str], failing: usize) {
    bed.topology();
    bed.page_queue(i64::try_from(names.len() * RACK * 4).unwrap_or(i64::MAX));
    bed.pools(names, RACK);
    let pods = i32::try_from(RACK).unwrap_or(i32::MAX) - 1;
    for (rack, name) in names.iter().enumerate() {
        bed.placed_jobset(name, if rack < failing { "high" } else { "low" }, pods, 4);
    }
    bed.settle();
    for name in names.iter().take(failing) {
        for (node, _) in bed.assigned(name).into_iter().take(2) {
            bed.ready(&ObjectRef::cluster(Kind::Node, node.as_str()), "Unknown");
        }
    }
}

fn measure(args: &Args) -> Figures {
    let half = args.failing + 1;
    let usual = EngineConfig::default();
    let config = EngineConfig { hotswap_steps: args.steps.unwrap_or(usual.hotswap_steps), ..usual };
    let mut bed = Bed::with(config);
    bed.c.checked = false;
    let names: Vec<String> = (0..args.racks.unwrap_or(2 * half)).map(|pool| format!("p{pool:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if args.racks.is_some() {
        racks(&mut bed, &names, args.failing);
    } else {
        pools(&mut bed, &names, half);
    }
    let before = bed.c.engine.work();
    (bed.c.most_steps, bed.c.most_looks) = (0, 0);
    bed.c.cycles = 0;
    bed.c.cycles_left = Some(args.cycles);
    bed.c.clock = stopwatch::now;
    bed.c.settle();
    bed.c.meter = |work| {
        let began = stopwatch::now();
        let allocations = allocation_counter::measure(work).count_total;
        (stopwatch::now().saturating_sub(began), allocations)
    };
    (bed.c.spent, bed.c.most_allocations, bed.c.looking) = ((Duration::ZERO, 0), 0, Duration::ZERO);
    bed.c.advance(NOT_READY_SECONDS);
    let (decided, decided_allocations) = bed.c.spent;
    let looking = bed.c.looking;
    let then = bed.c.engine.work();
    let decided_steps = then.hotswap_steps - before.hotswap_steps;
    let decided_looks = then.hotswap_looks - before.hotswap_looks;
    let cycle_allocations = bed.c.most_allocations;
    let evicted = names.iter().filter(|name| !bed.evictions(name).is_empty()).count();
    if !args.decide {
        bed.pass(15);
    }
    let moved = names.iter().filter(|name| bed.runs(name) && !bed.evictions(name).is_empty()).count();
    let after = bed.c.engine.work();
    Figures {
        longest_ms: bed.c.longest.as_secs_f64() * 1e3,
        cycles: bed.c.cycles,
        done: bed.c.cycles_left != Some(0),
        steps: bed.c.most_steps,
        all_steps: after.hotswap_steps - before.hotswap_steps,
        looks: bed.c.most_looks,
        all_looks: after.hotswap_looks - before.hotswap_looks,
        counted: after.counted_domains - before.counted_domains,
        moved,
        decided_ms: decided.as_secs_f64() * 1e3,
        looking_ms: looking.as_secs_f64() * 1e3,
        decided_looks,
        decided_allocations,
        cycle_allocations,
        decided_steps,
        evicted,
    }
}

/// How many nodes of the other topology are added, one after the other.
const ROUNDS: u64 = 100;

/// StrictFIFO queues whose heads wait, each of another shape.
const HEADS: u64 = 12;

/// What placements may cost at most that were refused, asked for again and again while their nodes are as they were, in `tests/performance/budgets.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UntouchedBudget {
    /// Searches for nodes.
    searches: u64,
    /// Lowest domains that were counted.
    counted: u64,
}

/// Measures that world, and notes exceeded budgets: the refusal is cached, so nothing is searched or counted.
pub fn untouched_table(budget: &UntouchedBudget, failures: &mut Vec<String>) {
    let mut bed = untouched();
    let before = bed.c.engine.work();
    for round in 0..ROUNDS {
        let name = format!("other-{round}");
        let node = bed.c.api.put(
            Kind::Node,
            json!({"metadata": {"name": name, "labels": {"pool": "other", "kubernetes.io/hostname": name}},
                "status": {"allocatable": {"cpu": "4", "pods": "110"}}}),
        );
        bed.ready(&node, "True");
        bed.c.advance(1);
    }
    let after = bed.c.engine.work();
    let evaluations = after.evaluations - before.evaluations;
    let searches = after.placement_searches - before.placement_searches;
    let counted = after.counted_domains - before.counted_domains;
    println!(
        "{HEADS} refused placements, {evaluations} times evaluated again: {searches} searches ({}), {counted} domains counted ({})",
        budget.searches, budget.counted
    );
    if evaluations < ROUNDS * HEADS {
        let least = ROUNDS * HEADS;
        failures
            .push(format!("refused placements: evaluated {evaluations} times, expected at least {least}"));
    }
    for (what, count, most) in
        [("searches", searches, budget.searches), ("domains counted", counted, budget.counted)]
    {
        if count > most {
            failures.push(format!("refused placements: {count} {what}, at most {most}"));
        }
    }
}

/// StrictFIFO queues whose heads need more of one pool than a pool has, each with other pods; meanwhile nodes of another topology come.
fn untouched() -> Bed {
    let mut bed = Bed::new();
    bed.c.checked = false;
    bed.topology();
    bed.pools(&["a", "b", "c"], 2);
    for (head, chips) in (0..HEADS).zip(1..) {
        let queue = format!("q{head}");
        bed.queue(&queue, 1_000, &json!({"enable": false}), &json!({"queueingStrategy": "StrictFIFO"}));
        bed.placed_jobset_in((&format!("large{head}"), &queue, "high"), 9, chips);
    }
    let levels = json!({"levels": [{"nodeLabel": "kubernetes.io/hostname"}]});
    bed.c.api.put(Kind::Topology, json!({"metadata": {"name": "hosts"}, "spec": levels}));
    bed.c.api.flavor("other", &[("pool", "other")]);
    let flavor = ObjectRef::cluster(Kind::ResourceFlavor, "other");
    bed.c.api.edit(&flavor, &json!({"spec": {"topologyName": "hosts"}}));
    bed.c.api.cluster_queue("other", "other", "1000", &json!({}));
    bed.settle();
    bed
}
