//! The search for nodes that the cohort has lent out: many slices lose a node at the same moment, and all racks that are large enough are borrowed.
//!
//! The nodes have three levels: blocks of five racks, racks of 50 nodes, and nodes with room for one pod. Jobs of the highest priority have two slices
//! each, and a slice takes a rack. All other racks have Workloads of two pods, of two lower priorities, in queues without quota of their own: no
//! priority alone makes room. Each job loses a node, and gets another rack back. The nodes have no pods: how long pods take to end
//! is not measured.
//!
//! Each world is measured in a process of its own (`xtask lent JOBS RACKS`). CPU time is reported; counts and allocations have budgets.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_api::conversion::topology::decode;
use sluice_api::v1beta2::PodSetTopologyRequest;
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose};

use crate::apart;
use crate::case::stopwatch;
use crate::model::Cluster;
use crate::model::build::job;

/// Measure the search for lent nodes while jobs lose a node each, as JSON.
#[derive(clap::Args)]
pub struct Args {
    /// Jobs of two slices; a slice takes a rack. Each job loses a node.
    jobs: usize,
    /// The number of racks of 50 nodes, those of the jobs among them.
    racks: usize,
}

/// Nodes of a rack, and pods of a slice.
const RACK: i32 = 50;
/// Racks of a block.
const BLOCK: usize = 5;
/// Workloads that borrow in each rack, and pods of each of them: they fill it.
const BORROWERS: usize = 25;
const PODS: i32 = 2;
/// The number of queues that borrow.
const QUEUES: usize = 20;
/// After this many simulated seconds the slices that have not moved are not waited for any more.
const MOST_SECONDS: u32 = 60;
/// The largest world that an unoptimised engine runs in seconds.
const SMALL_RACKS: usize = 64;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// The figures of one world.
#[derive(Debug, Deserialize, Serialize)]
struct Figures {
    /// Workloads that borrow.
    workloads: usize,
    /// Slices that moved.
    moved: usize,
    /// CPU time of all cycles, and of their inputs, until all had other nodes.
    decided_ms: f64,
    /// The longest cycle.
    longest_ms: f64,
    cycles: u64,
    /// Workloads that were evicted.
    evictions: u64,
    /// Searches for the nodes of placements: trials without Workloads that borrow, and those for what was evicted.
    searches: u64,
    /// Lowest domains that were counted for these.
    counted: u64,
    allocations: u64,
    /// The most allocations of one cycle.
    cycle_allocations: u64,
}

/// The budget of one world, in `tests/performance/budgets.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// See [`Args::jobs`].
    jobs: usize,
    /// See [`Args::racks`].
    racks: usize,
    cycles: u64,
    evictions: u64,
    searches: u64,
    counted: u64,
    allocations: u64,
    cycle_allocations: u64,
    /// Of the longest cycle: a goal, not a budget.
    goal_ms: f64,
}

impl Budget {
    /// Whether an unoptimised engine runs this world in seconds.
    pub fn is_small(&self) -> bool {
        self.racks <= SMALL_RACKS
    }
}

/// Measures one world.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    println!("{}", serde_json::to_string(&measure(args)?)?);
    Ok(ExitCode::SUCCESS)
}

/// Measures the worlds of the budgets, and notes exceeded budgets.
pub fn table(budgets: &BTreeMap<String, Budget>, failures: &mut Vec<String>) -> anyhow::Result<()> {
    for (name, budget) in budgets {
        let [jobs, racks] = [budget.jobs, budget.racks].map(|count| count.to_string());
        let figures: Figures =
            apart::figures(["lent", &jobs, &racks]).with_context(|| format!("lent {name}"))?;
        let counts = [
            ("cycles", figures.cycles, budget.cycles),
            ("evictions", figures.evictions, budget.evictions),
            ("searches", figures.searches, budget.searches),
            ("domains counted", figures.counted, budget.counted),
            ("allocations", figures.allocations, budget.allocations),
            ("allocations in a cycle", figures.cycle_allocations, budget.cycle_allocations),
        ];
        let text = counts.map(|(what, count, most)| format!("{count} {what} ({most})"));
        println!(
            "lent, {name}: {} of {} slices move to nodes of {} Workloads that borrow; decided after {:.1} ms CPU, longest cycle {:.1} ms{} (goal {} ms), {}",
            figures.moved,
            budget.jobs,
            figures.workloads,
            figures.decided_ms,
            figures.longest_ms,
            if figures.longest_ms > budget.goal_ms { "*" } else { "" },
            budget.goal_ms,
            text.join(", ")
        );
        if figures.moved != budget.jobs {
            failures.push(format!("lent {name}: {} slices move, expected {}", figures.moved, budget.jobs));
        }
        for (what, count, most) in counts.into_iter().filter(|(_, count, most)| count > most) {
            failures.push(format!("lent {name}: {count} {what}, at most {most}"));
        }
    }
    Ok(())
}

/// The name of a job with slices.
fn sliced(number: usize) -> String {
    format!("sliced-{number:03}")
}

/// The name of a queue that borrows.
fn borrowing_queue(number: usize) -> String {
    format!("lent-{number:02}")
}

/// Racks that are full: those of the jobs, and those of Workloads that borrow.
fn world(args: &Args) -> Cluster {
    let mut c = Cluster::new(EngineConfig::default());
    c.checked = false;
    c.api.namespace("team-a", &[]);
    for (class, value) in [("high", 2), ("low", 1), ("lower", 0)] {
        c.api.priority_class(class, value);
    }
    let levels = ["block", "rack", HOSTNAME].map(|label| json!({"nodeLabel": label}));
    c.api.put(Kind::Topology, json!({"metadata": {"name": "dc"}, "spec": {"levels": levels}}));
    let flavor = json!({"topologyName": "dc", "nodeLabels": {"pool": "tas"}});
    c.api.put(Kind::ResourceFlavor, json!({"metadata": {"name": "tas"}, "spec": flavor}));
    for rack in 0..args.racks {
        for node in 0..RACK {
            add_node(&mut c, rack, node);
        }
    }
    let reclaims = json!({"cohortName": "co", "preemption": {"reclaimOutOfCohort": {"enable": true}}});
    c.api.cluster_queue("own", "tas", "1000000", &reclaims);
    c.api.local_queue("team-a", "own", "own");
    for name in (0..QUEUES).map(borrowing_queue) {
        c.api.cluster_queue(&name, "tas", "0", &json!({"cohortName": "co"}));
        c.api.local_queue("team-a", &name, &name);
    }
    c.settle();
    for number in 0..args.jobs {
        let request = PodSetTopologyRequest {
            pod_set_slice_required_topology: Some("rack".to_owned()),
            pod_set_slice_size: Some(RACK),
            ..PodSetTopologyRequest::default()
        };
        submit(&mut c, (&sliced(number), "own", "high"), 2 * RACK, request);
    }
    c.settle();
    c.advance(1);
    // One rack after the other, so that each has Workloads of both priorities.
    for rack in 2 * args.jobs..args.racks {
        for number in 0..BORROWERS {
            let class = ["low", "lower"][(rack + number) % 2];
            let request = PodSetTopologyRequest {
                required: Some("rack".to_owned()),
                ..PodSetTopologyRequest::default()
            };
            let name = format!("small-{rack:03}-{number:02}");
            submit(&mut c, (&name, &borrowing_queue(number % QUEUES), class), PODS, request);
        }
        c.settle();
        c.advance(1);
    }
    c
}

/// A node that is ready, with room for one pod.
fn add_node(c: &mut Cluster, rack: usize, node: i32) {
    let name = format!("r{rack:03}-{node:02}");
    let block = format!("b{:02}", rack / BLOCK);
    let labels = json!({"pool": "tas", "block": block, "rack": format!("r{rack:03}"), HOSTNAME: name});
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let status = json!({"allocatable": {"cpu": "1", "pods": "110"}, "conditions": ready});
    c.api.put(Kind::Node, json!({"metadata": {"name": name, "labels": labels}, "status": status}));
}

/// A job of this name, queue and priority, with that many pods of one cpu each.
fn submit(
    c: &mut Cluster,
    (name, queue, priority): (&str, &str, &str),
    pods: i32,
    request: PodSetTopologyRequest,
) {
    let mut view = job("team-a", name, queue, pods, "1");
    view.workload_priority_class = Some(priority.to_owned());
    view.pod_sets[0].topology_request = Some(Box::new(request));
    c.api.add_job(view);
}

/// The first node that a job is assigned.
fn first_node(c: &Cluster, job: &str) -> Option<ObjectRef> {
    let admission = c.workload(job).status?.admission?;
    let assigned = admission.pod_set_assignments.first()?.topology_assignment.as_ref()?;
    let rows = decode(assigned).ok()?;
    let node = rows.domains.first()?.values.last()?;
    Some(ObjectRef::cluster(Kind::Node, node.as_str()))
}

/// How many slices have moved.
fn moved(c: &Cluster) -> usize {
    c.notes("SliceMoved").len()
}

fn measure(args: &Args) -> anyhow::Result<Figures> {
    ensure!(args.racks >= 3 * args.jobs, "each job needs two racks, and another one that is lent");
    let mut c = world(args);
    let all = c.api.jobs().count();
    let running = c.api.jobs().filter(|(_, job)| !job.view.suspended).count();
    ensure!(running == all, "{running} of {all} jobs run");
    let lost: Option<Vec<ObjectRef>> = (0..args.jobs).map(|number| first_node(&c, &sliced(number))).collect();
    let lost = lost.context("the nodes of each job")?;
    let (before, evictions) = (c.engine.work(), c.written(Purpose::Evict));
    (c.cycles, c.most_allocations) = (0, 0);
    (c.longest, c.spent) = (Duration::ZERO, (Duration::ZERO, 0));
    c.clock = stopwatch::now;
    c.meter = |work| {
        let began = stopwatch::now();
        let allocations = allocation_counter::measure(work).count_total;
        (stopwatch::now().saturating_sub(began), allocations)
    };
    for node in &lost {
        c.api.delete(node);
    }
    c.settle();
    for _ in 0..MOST_SECONDS {
        if moved(&c) == args.jobs {
            break;
        }
        c.advance(1);
    }
    let after = c.engine.work();
    let (decided, allocations) = c.spent;
    Ok(Figures {
        workloads: all - args.jobs,
        moved: moved(&c),
        decided_ms: decided.as_secs_f64() * 1e3,
        longest_ms: c.longest.as_secs_f64() * 1e3,
        cycles: c.cycles,
        evictions: u64::try_from(c.written(Purpose::Evict) - evictions).unwrap_or(u64::MAX),
        searches: after.placement_searches - before.placement_searches,
        counted: after.counted_domains - before.counted_domains,
        allocations,
        cycle_allocations: c.most_allocations,
    })
}
