//! Four worlds, each ten times the one before: does the time per event grow with the world?
//!
//! Each world is measured in a process of its own (`xtask scale N`): single events while everything waits, the admission of all waiting workloads,
//! and single events while the quota is used up: one workload ends, all inadmissible workloads of its cohort tree are tried again
//! (docs/reference/06-algorithm.md 6.4 "Flush"), and the next one takes its place. Such an event touches the heads of that tree, so the table has the
//! time per head, too. Times are CPU time.

use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_core::{Outcome, Scheduler, Time};

use crate::apart;
use crate::case::format::Case;
use crate::case::plan::{self, CLOCK_EPOCH, PlannedQueue, PlannedWorkload};
use crate::case::stopwatch::Stopwatch;
use crate::case::world::World;

/// Measure worlds of four sizes, and print a table.
#[derive(clap::Args)]
pub struct Args {
    /// Only this world, 1 (smallest) to 4: in this process, as JSON.
    #[arg(value_parser = clap::value_parser!(u8).range(1..=4))]
    size: Option<u8>,
}

/// Fan-out of the cohort tree, and queues per leaf cohort.
const SIZES: [(&str, usize); 4] = [("[1]", 10), ("[5]", 20), ("[5, 10]", 20), ("[5, 4, 5, 5]", 20)];
/// Workloads per queue that wait, in every world.
const PENDING: usize = 100;
/// Workloads per queue that hold quota from the start, in every world.
const ADMITTED: usize = 20;
/// Single events that are timed in each world.
const EVENTS: usize = 4_000;
/// The goals for the largest world: the 99th percentile of a single event in µs, admissions per second of a drain, and
/// peak memory in MiB.
const GOALS: (f64, f64, f64) = (100.0, 100_000.0, 2_048.0);

/// The figures of one world. Times in microseconds.
#[derive(Debug, Deserialize, Serialize)]
struct Row {
    queues: usize,
    pending: usize,
    admitted: usize,
    event_p50_us: f64,
    event_p99_us: f64,
    /// Heads decided per event while the quota is used up.
    full_heads: f64,
    full_p50_us: f64,
    full_p99_us: f64,
    full_us_per_head: f64,
    drain_per_second: f64,
    peak_rss_mib: f64,
}

/// Measures one world, or all.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args.size {
        Some(size) => println!("{}", serde_json::to_string(&measure(usize::from(size) - 1)?)?),
        None => table()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures all worlds, each in a process of its own, and prints the table.
pub fn table() -> anyhow::Result<()> {
    println!(
        "{:>7} {:>9} {:>9} | {:>20} | {:>8} {:>22} {:>11} | {:>12} {:>9}",
        "queues",
        "pending",
        "admitted",
        "event p50 / p99",
        "heads",
        "end when full p50/p99",
        "per head",
        "drain/s",
        "peak RSS"
    );
    for size in 1..=SIZES.len() {
        let row: Row = apart::figures(["scale", &size.to_string()])?;
        println!(
            "{:>7} {:>9} {:>9} | {:>6.1} / {:>8.1} µs | {:>8.1} {:>8.0} / {:>8.0} µs {:>8.2} µs | {:>12.0} {:>5.0} MiB",
            row.queues,
            row.pending,
            row.admitted,
            row.event_p50_us,
            row.event_p99_us,
            row.full_heads,
            row.full_p50_us,
            row.full_p99_us,
            row.full_us_per_head,
            row.drain_per_second,
            row.peak_rss_mib
        );
        let missed =
            row.event_p99_us > GOALS.0 || row.drain_per_second < GOALS.1 || row.peak_rss_mib > GOALS.2;
        if size == SIZES.len() {
            println!(
                "goals of the largest: event p99 < {} µs, drain > {}/s, peak < {} MiB: {}",
                GOALS.0,
                GOALS.1,
                GOALS.2,
                if missed { "MISSED on this machine" } else { "reached" }
            );
        }
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
    // Cohort trees and quota are computed when they are first needed.
    scheduler.take_changed();
    let events = single_events(&world, &mut scheduler, &held, &extra, now);
    let drain_per_second = drain(&mut scheduler, now);
    let (full, heads) = events_when_full(&world, &mut scheduler, &held, now);
    let ends = u32::try_from(full.len()).map_or(f64::INFINITY, f64::from);
    let total: Duration = full.iter().sum();
    Ok(Row {
        queues: queues.len(),
        pending: PENDING * queues.len(),
        admitted: ADMITTED * queues.len(),
        event_p50_us: percentile(&events, 50),
        event_p99_us: percentile(&events, 99),
        full_heads: f64::from(heads) / ends,
        full_p50_us: percentile(&full, 50),
        full_p99_us: percentile(&full, 99),
        full_us_per_head: total.as_secs_f64() * 1e6 / f64::from(heads.max(1)),
        drain_per_second,
        peak_rss_mib: crate::case::peak_rss_mib().unwrap_or(0.0),
    })
}

/// A fixed order of all places of a list in which neighbours are far apart.
fn scattered(count: usize, index: usize) -> usize {
    index.wrapping_mul(7_919) % count
}

/// Arrivals and deletions of waiting workloads and ends of running ones, without a cycle in between.
fn single_events(
    world: &World<'_>,
    scheduler: &mut Scheduler,
    held: &[PlannedWorkload],
    extra: &[(PlannedWorkload, usize)],
    now: Time,
) -> Vec<Duration> {
    let mut times = Vec::with_capacity(EVENTS);
    let mut measured = |event: &mut dyn FnMut()| {
        let watch = Stopwatch::start();
        event();
        times.push(watch.elapsed());
    };
    for index in 0..EVENTS / 4 {
        let (workload, seq) = extra[scattered(extra.len(), index)];
        let (spec, key) = (world.pending(workload, seq), world.key(workload));
        let mut spec = Some(spec);
        measured(&mut || {
            if let Some(spec) = spec.take() {
                scheduler.set_workload(spec, now);
            }
        });
        measured(&mut || scheduler.remove_workload(&key, now));
        // A running workload ends, and comes back as it was, so that the world stays the same.
        let at = scattered(held.len(), index);
        let (key, mut spec) = (world.key(held[at]), Some(world.preadmitted(held[at], at)));
        measured(&mut || scheduler.remove_workload(&key, now));
        measured(&mut || {
            if let Some(spec) = spec.take() {
                scheduler.set_workload(spec, now);
            }
        });
    }
    times
}

/// Runs cycles until no head can move; admissions per second.
fn drain(scheduler: &mut Scheduler, now: Time) -> f64 {
    let (watch, mut admitted) = (Stopwatch::start(), 0_u32);
    while scheduler.has_heads() {
        let report = scheduler.cycle(now);
        let of_cycle =
            report.entries.iter().filter(|entry| matches!(entry.outcome, Outcome::Admitted { .. })).count();
        admitted += u32::try_from(of_cycle).unwrap_or(0);
    }
    f64::from(admitted) / watch.elapsed().as_secs_f64()
}

/// With all quota used: a workload ends and everything that follows from it is decided. Times, and the heads decided.
fn events_when_full(
    world: &World<'_>,
    scheduler: &mut Scheduler,
    held: &[PlannedWorkload],
    now: Time,
) -> (Vec<Duration>, u32) {
    let mut times = Vec::with_capacity(EVENTS / 4);
    let mut heads = 0;
    for index in 0..(EVENTS / 4).min(held.len()) {
        let key = world.key(held[scattered(held.len(), index)]);
        let watch = Stopwatch::start();
        scheduler.remove_workload(&key, now);
        while scheduler.has_heads() {
            let report = std::hint::black_box(scheduler.cycle(now));
            heads += u32::try_from(report.entries.len()).unwrap_or(0);
        }
        times.push(watch.elapsed());
    }
    (times, heads)
}

fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len().saturating_sub(1) * percent).div_ceil(100);
    sorted.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}
