//! Four worlds, each ten times the one before: does the time per event grow with the world?
//!
//! Each world is measured in a process of its own (`xtask scale N`): single events while everything waits, the drain of
//! all that is pending, and single events while the quota is used up (one workload ends, the next one takes its place).

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sluice_core::{Outcome, Scheduler, Time};

use crate::case::format::Case;
use crate::case::plan::{self, CLOCK_EPOCH, PlannedQueue, PlannedWorkload};
use crate::case::world::World;

/// Measure one world of the table of sizes, in this process, and print it as JSON.
#[derive(clap::Args)]
pub struct Args {
    /// Which world: 1 (smallest) to 4.
    #[arg(value_parser = clap::value_parser!(u8).range(1..=4))]
    size: u8,
}

/// Fan-out of the cohort tree, and queues per leaf cohort.
const SIZES: [(&str, usize); 4] = [("[1]", 10), ("[5]", 20), ("[5, 10]", 20), ("[5, 4, 5, 5]", 20)];
/// Workloads per queue that wait, in every world.
const PENDING: usize = 100;
/// Workloads per queue that hold quota from the start, in every world.
const ADMITTED: usize = 20;
/// Single events that are timed in each world.
const EVENTS: usize = 4_000;

/// The figures of one world. Times in microseconds.
#[derive(Debug, Deserialize, Serialize)]
struct Row {
    queues: usize,
    pending: usize,
    admitted: usize,
    event_p50_us: f64,
    event_p99_us: f64,
    full_p50_us: f64,
    full_p99_us: f64,
    drain_per_second: f64,
    peak_rss_mib: f64,
}

/// Measures one world.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let row = measure(usize::from(args.size) - 1)?;
    println!("{}", serde_json::to_string(&row)?);
    Ok(ExitCode::SUCCESS)
}

/// Measures all worlds, each in a process of its own, and prints the table.
pub fn table() -> anyhow::Result<()> {
    println!();
    println!(
        "{:>7} {:>9} {:>9} | {:>21} | {:>21} | {:>12} {:>9}",
        "queues", "pending", "admitted", "event p50 / p99", "full p50 / p99", "drain/s", "peak RSS"
    );
    for size in 1..=SIZES.len() {
        let output = Command::new(std::env::current_exe()?)
            .args(["scale", &size.to_string()])
            .stderr(Stdio::inherit())
            .output()
            .context("measure a world")?;
        let row: Row = serde_json::from_slice(&output.stdout).context("the figures of a world")?;
        println!(
            "{:>7} {:>9} {:>9} | {:>7.1} / {:>8.1} µs | {:>7.1} / {:>8.1} µs | {:>12.0} {:>5.0} MiB",
            row.queues,
            row.pending,
            row.admitted,
            row.event_p50_us,
            row.event_p99_us,
            row.full_p50_us,
            row.full_p99_us,
            row.drain_per_second,
            row.peak_rss_mib
        );
    }
    Ok(())
}

fn measure(size: usize) -> anyhow::Result<Row> {
    let (tree, per_cohort) = SIZES[size];
    // The quota holds what is admitted at first and half of what waits: the drain ends with all quota used.
    let nominal = ADMITTED + PENDING / 2;
    let case = Case::parse(&format!(
        "schema: kueue-core-bench/v1\nname: scale\ncohorts: {{tree: {tree}}}\n\
         clusterQueues: {{perCohort: {per_cohort}, quota: {{cpu: {{nominal: {nominal}}}}}}}\n\
         workloads:\n- {{class: held, countPerCQ: {ADMITTED}, pods: 1, request: {{cpu: '1'}}, preadmitted: true}}\n\
         - {{class: waits, countPerCQ: {PENDING}, pods: 1, request: {{cpu: '1'}}}}\n\
         - {{class: extra, countPerCQ: 1, pods: 1, request: {{cpu: '1'}}}}\nmaxCycles: 1\n"
    ))?;
    let (cohorts, leaves) = plan::cohorts(&case);
    let queues: Vec<PlannedQueue> = plan::queues(&case, &leaves);
    let planned = plan::workloads(&case, &queues);
    let (world, mut scheduler) = World::build(&case, &cohorts, &queues)?;
    let now = Time::from_seconds(CLOCK_EPOCH);
    for queue in &queues {
        scheduler.set_local_queue(world.local_queue(&queue.name));
    }
    let (mut held, mut extra) = (Vec::new(), Vec::new());
    for (seq, &workload) in planned.iter().enumerate() {
        match workload.class {
            0 => {
                scheduler.set_workload(world.preadmitted(workload, seq), now);
                held.push(workload);
            }
            1 => scheduler.set_workload(world.pending(workload, seq), now),
            _ => extra.push((workload, seq)),
        }
    }
    let events = single_events(&world, &mut scheduler, &held, &extra, now);
    let drain_per_second = drain(&mut scheduler, now);
    let full = events_when_full(&world, &mut scheduler, &held, now);
    Ok(Row {
        queues: queues.len(),
        pending: PENDING * queues.len(),
        admitted: ADMITTED * queues.len(),
        event_p50_us: percentile(&events, 50),
        event_p99_us: percentile(&events, 99),
        full_p50_us: percentile(&full, 50),
        full_p99_us: percentile(&full, 99),
        drain_per_second,
        peak_rss_mib: crate::case::peak_rss_mib().unwrap_or(0.0),
    })
}

/// A fixed walk over all places of a list, far apart from one another.
fn scattered(count: usize, index: usize) -> usize {
    index.wrapping_mul(7_919) % count
}

/// Arrivals and deletions of waiting workloads, ends of running ones; no cycle in between.
fn single_events(
    world: &World<'_>,
    scheduler: &mut Scheduler,
    held: &[PlannedWorkload],
    extra: &[(PlannedWorkload, usize)],
    now: Time,
) -> Vec<Duration> {
    let mut times = Vec::with_capacity(EVENTS);
    let mut timed = |event: &mut dyn FnMut()| {
        let start = Instant::now();
        event();
        times.push(start.elapsed());
    };
    for index in 0..EVENTS / 4 {
        let (workload, seq) = extra[scattered(extra.len(), index)];
        let (spec, key) = (world.pending(workload, seq), world.key(workload));
        let mut spec = Some(spec);
        timed(&mut || {
            if let Some(spec) = spec.take() {
                scheduler.set_workload(spec, now);
            }
        });
        timed(&mut || scheduler.remove_workload(&key, now));
        // A running workload ends, and comes back as it was, so that the world stays the same.
        let at = scattered(held.len(), index);
        let (key, mut spec) = (world.key(held[at]), Some(world.preadmitted(held[at], at)));
        timed(&mut || scheduler.remove_workload(&key, now));
        timed(&mut || {
            if let Some(spec) = spec.take() {
                scheduler.set_workload(spec, now);
            }
        });
    }
    times
}

/// Runs cycles until no head can move; admissions per second.
fn drain(scheduler: &mut Scheduler, now: Time) -> f64 {
    let (start, mut admitted) = (Instant::now(), 0_u32);
    while scheduler.has_heads() {
        let report = scheduler.cycle(now);
        let of_cycle =
            report.entries.iter().filter(|entry| matches!(entry.outcome, Outcome::Admitted { .. })).count();
        admitted += u32::try_from(of_cycle).unwrap_or(0);
    }
    f64::from(admitted) / start.elapsed().as_secs_f64()
}

/// With all quota used: a workload ends and everything that follows from it is decided.
fn events_when_full(
    world: &World<'_>,
    scheduler: &mut Scheduler,
    held: &[PlannedWorkload],
    now: Time,
) -> Vec<Duration> {
    let mut times = Vec::with_capacity(EVENTS / 4);
    for index in 0..(EVENTS / 4).min(held.len()) {
        let key = world.key(held[scattered(held.len(), index)]);
        let start = Instant::now();
        scheduler.remove_workload(&key, now);
        while scheduler.has_heads() {
            std::hint::black_box(scheduler.cycle(now));
        }
        times.push(start.elapsed());
    }
    times
}

fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len().saturating_sub(1) * percent).div_ceil(100);
    sorted.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}
