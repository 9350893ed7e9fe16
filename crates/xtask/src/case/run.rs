//! The bench format's loop around `sluice_core::Scheduler`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sluice_core::{Admission, Outcome as Decision, Scheduler, Time};

use super::format::Case;
use super::plan::{self, CLOCK_EPOCH, PlannedQueue, PlannedWorkload};
use super::stopwatch::Stopwatch;
use super::world::World;

/// Non-idle cycles without any progress after which a case counts as stalled.
const STALLED_AFTER: u64 = 200;

/// The result of a run.
pub struct RunResult {
    /// Counts by the names of `expected`.
    pub counts: BTreeMap<&'static str, u64>,
    /// How it ended: `drained`, `stalled`, `maxCycles` or `snapshotOnly`.
    pub end: &'static str,
    /// Admissions in sequence: (cycle, sequence number of the workload).
    pub admissions: Vec<(u64, usize)>,
    /// The nodes of each admission, in the order of `admissions`, `node=pods,…` sorted by node; empty without a topology.
    pub nodes: Vec<String>,
    /// Evictions in sequence.
    pub evictions: Vec<(u64, usize)>,
    /// The workloads that hold quota at the end.
    pub holding: Vec<usize>,
    /// CPU time of each non-idle cycle.
    pub cycle_times: Vec<Duration>,
    /// Allocations inside cycles.
    pub allocations: u64,
    /// CPU time spent feeding events to the core, outside the cycles.
    pub event_time: Duration,
    /// Events fed outside the cycles.
    pub events: u64,
    /// Wall time of each snapshot taken beside the cycles, or of each of a series when `snapshotOnly`.
    pub snapshot_times: Vec<Duration>,
}

/// Where a workload of the case is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    ToArrive,
    Pending,
    Running { finish: Option<u64> },
    Finished,
}

struct Loop<'a> {
    world: World<'a>,
    scheduler: Scheduler,
    planned: Vec<PlannedWorkload>,
    phases: Vec<Phase>,
    arrivals: BTreeMap<u64, Vec<usize>>,
    finishing: BTreeMap<u64, BTreeSet<(String, usize)>>,
    out: RunResult,
    finished: u64,
    idle: u64,
    cycles: u64,
    admitted_ever: Vec<bool>,
}

/// Runs one case.
///
/// # Errors
/// If the case has a quantity, policy or gate that the core does not know.
pub fn run(case: &Case) -> anyhow::Result<(RunResult, Vec<String>)> {
    let (cohorts, leaves) = plan::cohorts(case);
    let queues: Vec<PlannedQueue> = plan::queues(case, &leaves);
    let planned = plan::workloads(case, &queues);
    let (world, mut scheduler) = World::build(case, &cohorts, &queues)?;
    for queue in &queues {
        scheduler.set_local_queue(world.local_queue(&queue.name));
    }
    let mut state = Loop {
        phases: vec![Phase::ToArrive; planned.len()],
        admitted_ever: vec![false; planned.len()],
        arrivals: BTreeMap::new(),
        finishing: BTreeMap::new(),
        out: RunResult {
            counts: BTreeMap::new(),
            end: "maxCycles",
            admissions: Vec::new(),
            nodes: Vec::new(),
            evictions: Vec::new(),
            holding: Vec::new(),
            cycle_times: Vec::new(),
            allocations: 0,
            event_time: Duration::ZERO,
            events: 0,
            snapshot_times: Vec::new(),
        },
        finished: 0,
        idle: 0,
        cycles: 0,
        world,
        scheduler,
        planned,
    };
    state.deliver_initial();
    // Cohort trees and quota are computed when they are first needed; in an operator by then long ago.
    state.scheduler.take_changed();
    if case.snapshot_only {
        state.check_snapshot(case)?;
        state.snapshots(case.max_cycles);
    } else {
        state.drive(case)?;
    }
    Ok(state.close())
}

impl Loop<'_> {
    fn key_line(&self, seq: usize) -> String {
        self.world.key_line(self.planned[seq])
    }

    fn deliver_initial(&mut self) {
        for seq in 0..self.planned.len() {
            let class = self.world.class(self.planned[seq]);
            if class.preadmitted {
                self.phases[seq] = Phase::Running { finish: None };
                let spec = self.world.preadmitted(self.planned[seq], seq);
                self.feed(|scheduler| scheduler.set_workload(spec, Time(CLOCK_EPOCH * 1_000_000_000)));
            } else if class.arrival_cycle > 1 {
                self.arrivals.entry(class.arrival_cycle).or_default().push(seq);
            } else {
                self.pend(seq, Time(CLOCK_EPOCH * 1_000_000_000));
            }
        }
    }

    fn feed<T>(&mut self, event: impl FnOnce(&mut Scheduler) -> T) -> T {
        let watch = Stopwatch::start();
        let out = event(&mut self.scheduler);
        self.out.event_time += watch.elapsed();
        self.out.events += 1;
        out
    }

    fn pend(&mut self, seq: usize, now: Time) {
        self.phases[seq] = Phase::Pending;
        let spec = self.world.pending(self.planned[seq], seq);
        self.feed(|scheduler| scheduler.set_workload(spec, now));
    }

    fn snapshots(&mut self, count: u64) {
        for _ in 0..count {
            let start = Instant::now();
            std::hint::black_box(self.scheduler.snapshot());
            self.out.snapshot_times.push(start.elapsed());
        }
        self.out.end = "snapshotOnly";
    }

    /// A snapshot holds what the case's workloads hold: what is timed is the snapshot of this world.
    fn check_snapshot(&self, case: &Case) -> anyhow::Result<()> {
        let mut held: BTreeMap<(usize, &str), i64> = BTreeMap::new();
        for (seq, &planned) in self.planned.iter().enumerate() {
            if matches!(self.phases[seq], Phase::Running { .. }) {
                for (resource, amount) in self.world.total(planned) {
                    *held.entry((planned.queue, resource)).or_insert(0) += amount.get();
                }
            }
        }
        let snapshot = self.scheduler.snapshot();
        for (at, queue) in self.world.queue_names().iter().enumerate() {
            for (resource, flavor) in case.first_flavors() {
                let expected = held.get(&(at, resource)).copied().unwrap_or(0);
                let used = snapshot.used(&self.scheduler, queue, flavor, resource);
                anyhow::ensure!(
                    used.map(sluice_core::Amount::get) == Some(expected),
                    "the snapshot has {used:?} of {resource} for {queue}, its workloads hold {expected}"
                );
            }
        }
        Ok(())
    }

    fn drive(&mut self, case: &Case) -> anyhow::Result<()> {
        let mut quiet = 0;
        for n in 1..=case.max_cycles {
            let now = Time((CLOCK_EPOCH + i64::try_from(n)?) * 1_000_000_000);
            for seq in self.arrivals.remove(&n).unwrap_or_default() {
                self.pend(seq, now);
            }
            let outstanding = !self.finishing.is_empty() || !self.arrivals.is_empty();
            let mut progress = false;
            let idle = !self.scheduler.has_heads();
            if idle {
                if !outstanding {
                    self.out.end = "drained";
                    return Ok(());
                }
                self.idle += 1;
            } else {
                progress |= self.one_cycle(n, now)?;
            }
            progress |= self.finish(n, now);
            if case.snapshot_every > 0 && n % case.snapshot_every == 0 {
                let start = Instant::now();
                std::hint::black_box(self.scheduler.snapshot());
                self.out.snapshot_times.push(start.elapsed());
            }
            if progress {
                quiet = 0;
            } else if !idle {
                quiet += 1;
            }
            if quiet >= STALLED_AFTER && self.finishing.is_empty() && self.arrivals.is_empty() {
                self.out.end = "stalled";
                return Ok(());
            }
        }
        Ok(())
    }

    /// Step 3: one cycle, then its admissions and evictions in uid order.
    fn one_cycle(&mut self, n: u64, now: Time) -> anyhow::Result<bool> {
        let mut report = None;
        let watch = Stopwatch::start();
        let allocated = allocation_counter::measure(|| report = Some(self.scheduler.cycle(now)));
        self.out.cycle_times.push(watch.elapsed());
        self.out.allocations += allocated.count_total;
        self.cycles += 1;
        let report = report.context("the cycle was run")?;
        let (mut admitted, mut evicted) = (Vec::new(), Vec::new());
        for entry in &report.entries {
            match &entry.outcome {
                Decision::Admitted { admission, .. } => {
                    admitted.push((seq_of(&entry.uid)?, nodes_line(admission)));
                }
                Decision::Preempting { victims, .. } => {
                    for victim in victims {
                        evicted.push(seq_of(&victim.uid)?);
                    }
                }
                _ => {}
            }
        }
        admitted.sort_unstable();
        evicted.sort_unstable();
        evicted.dedup();
        for &(seq, ref nodes) in &admitted {
            self.out.nodes.push(nodes.clone());
            anyhow::ensure!(self.phases[seq] == Phase::Pending, "{} was admitted twice", self.key_line(seq));
            let runtime = self.world.class(self.planned[seq]).runtime_cycles;
            let finish = (runtime > 0).then(|| n + runtime - 1);
            self.phases[seq] = Phase::Running { finish };
            if let Some(at) = finish {
                let key = self.key_line(seq);
                self.finishing.entry(at).or_default().insert((key, seq));
            }
            self.admitted_ever[seq] = true;
            self.out.admissions.push((n, seq));
        }
        for &seq in &evicted {
            if let Phase::Running { finish: Some(at) } = self.phases[seq] {
                let key = self.key_line(seq);
                if let Some(set) = self.finishing.get_mut(&at) {
                    set.remove(&(key, seq));
                    if set.is_empty() {
                        self.finishing.remove(&at);
                    }
                }
            }
            self.out.evictions.push((n, seq));
            self.pend(seq, now);
        }
        Ok(!admitted.is_empty() || !evicted.is_empty())
    }

    /// Step 4: removes workloads whose run time has passed, in key order.
    fn finish(&mut self, n: u64, now: Time) -> bool {
        let Some(due) = self.finishing.remove(&n) else { return false };
        for (_, seq) in due {
            self.phases[seq] = Phase::Finished;
            self.finished += 1;
            let key = self.world.key(self.planned[seq]);
            self.feed(|scheduler| scheduler.remove_workload(&key, now));
        }
        true
    }

    fn close(mut self) -> (RunResult, Vec<String>) {
        let (mut active, mut inadmissible) = (0, 0);
        for name in self.world.queue_names() {
            if let Some(status) = self.scheduler.cluster_queue_status(name) {
                active += status.pending_active as u64;
                inadmissible += status.pending_inadmissible as u64;
            }
        }
        let holds = |phase: &Phase| matches!(phase, Phase::Running { .. });
        self.out.holding = (0..self.phases.len()).filter(|&seq| holds(&self.phases[seq])).collect();
        let distinct = self.admitted_ever.iter().filter(|ever| **ever).count();
        self.out.counts = BTreeMap::from([
            ("cycles", self.cycles),
            ("idleCycles", self.idle),
            ("admissions", self.out.admissions.len() as u64),
            ("distinctAdmitted", distinct as u64),
            ("evictions", self.out.evictions.len() as u64),
            ("finished", self.finished),
            ("holdingAtEnd", self.out.holding.len() as u64),
            ("pendingActive", active),
            ("pendingInadmissible", inadmissible),
            ("evaluations", self.scheduler.stats().evaluations),
            ("preemptionSearches", self.scheduler.stats().preemption_searches),
            ("comparedDomains", self.scheduler.stats().compared_domains),
        ]);
        let lines = (0..self.planned.len()).map(|seq| self.key_line(seq)).collect();
        (self.out, lines)
    }
}

/// `node=pods,…` of an admission, sorted by node.
fn nodes_line(admission: &Admission) -> String {
    let assignments = admission.pod_sets.iter().filter_map(|pod_set| pod_set.topology.as_ref());
    let domains = assignments.flat_map(|assignment| &assignment.domains);
    let mut nodes: Vec<String> =
        domains.filter_map(|domain| Some(format!("{}={}", domain.values.last()?, domain.count))).collect();
    nodes.sort_unstable();
    nodes.join(",")
}

/// The sequence number in a uid (`u00000042`).
fn seq_of(uid: &str) -> anyhow::Result<usize> {
    uid.strip_prefix('u')
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| anyhow::anyhow!("the core reported an unknown uid {uid:?}"))
}
