//! Properties of the core that need no oracle: the same inputs give the same outputs, a restart changes nothing, and with the loop guard the core
//! settles.

use crate::oracle::random::{Random, workload, world};
use crate::oracle::world::{Name, Workload, World};
use crate::pair::scheduler;
use crate::random_worlds::for_seeds;
use crate::translate;
use sluice_core::{Admission, CycleReport, Gates, Outcome, Scheduler, TopologyState, WorkloadState};
use std::collections::{BTreeMap, BTreeSet};

/// A core, and what the API server would know.
struct Alone {
    world: World,
    core: Scheduler,
    workloads: BTreeMap<Name, Workload>,
    holders: BTreeMap<Name, (Admission, i64)>,
    evicted: BTreeSet<Name>,
    now: i64,
}

impl Alone {
    fn new(world: World, gates: Gates) -> Alone {
        let core = scheduler(&world, gates);
        Alone {
            world,
            core,
            workloads: BTreeMap::new(),
            holders: BTreeMap::new(),
            evicted: BTreeSet::new(),
            now: 2_000_000,
        }
    }

    fn submit(&mut self, workload: Workload) {
        let spec = translate::workload(&workload, WorkloadState::PENDING);
        self.core.set_workload(spec, translate::time(self.now));
        self.workloads.insert(workload.key.clone(), workload);
    }

    fn cycle(&mut self) -> CycleReport {
        self.now += 1;
        let report = self.core.cycle(translate::time(self.now));
        for entry in &report.entries {
            match &entry.outcome {
                Outcome::Admitted { admission, .. } => {
                    self.holders.insert(Name::from(entry.key.to_string()), (admission.clone(), self.now));
                }
                Outcome::Preempting { victims, .. } => {
                    self.evicted.extend(victims.iter().map(|victim| Name::from(victim.key.to_string())));
                }
                _ => {}
            }
        }
        report
    }

    /// A workload stops and waits again, or is gone.
    fn release(&mut self, key: &Name, requeue: bool) {
        self.holders.remove(key);
        self.evicted.remove(key);
        let workload = self.workloads.remove(key).expect("it was submitted");
        if requeue {
            self.submit(workload);
        } else {
            self.core.remove_workload(&translate::key(key), translate::time(self.now));
        }
    }

    fn random_step(&mut self, random: &mut Random, arrivals: &mut usize) -> Option<CycleReport> {
        match random.below(10) {
            0..4 => {
                let next = workload(random, &self.world, *arrivals);
                *arrivals += 1;
                self.submit(next);
            }
            4 if !self.holders.is_empty() => {
                let holders: Vec<Name> = self.holders.keys().cloned().collect();
                self.release(&random.pick(&holders).clone(), false);
            }
            5 => {
                for key in std::mem::take(&mut self.evicted) {
                    self.release(&key, random.chance(80));
                }
            }
            _ => return Some(self.cycle()),
        }
        None
    }

    /// What a new leader would load: the same objects, in another order.
    fn rebuilt(&self) -> Scheduler {
        let mut core = scheduler(&self.world, Gates::default());
        for workload in self.workloads.values().rev() {
            let state = match self.holders.get(&workload.key) {
                None => WorkloadState::PENDING,
                Some((admission, at)) => WorkloadState::Reserved {
                    admission: admission.clone(),
                    reserved_at: translate::time(*at),
                    admitted: true,
                    evicted: self.evicted.contains(&workload.key),
                    pods_ready: true,
                    topology: TopologyState::default(),
                },
            };
            core.set_workload(translate::workload(workload, state), translate::time(self.now));
        }
        core
    }
}

#[test]
fn the_same_events_give_the_same_reports() {
    let reports = |seed: u64| {
        let mut random = Random::new(seed);
        let mut alone = Alone::new(world(&mut random), Gates::default());
        let mut arrivals = 0;
        let steps = (0..40).map(|_| format!("{:?}", alone.random_step(&mut random, &mut arrivals)));
        steps.collect::<Vec<String>>()
    };
    for_seeds(
        300,
        |seed| {
            if reports(seed) == reports(seed) { Ok(()) } else { Err("two runs differ".to_owned()) }
        },
    );
}

#[test]
fn a_core_rebuilt_from_the_objects_has_the_same_figures() {
    for_seeds(500, |seed| {
        let mut random = Random::new(seed);
        let mut alone = Alone::new(world(&mut random), Gates::default());
        let mut arrivals = 0;
        for _ in 0..40 {
            alone.random_step(&mut random, &mut arrivals);
        }
        let rebuilt = alone.rebuilt();
        rebuilt.audit().map_err(|differences| format!("{differences:?}"))?;
        for queue in alone.world.queues.keys() {
            let figures = |core: &Scheduler| {
                core.cluster_queue_status(queue).map(|status| {
                    let pending = status.pending_active + status.pending_inadmissible;
                    (status.reservation, status.reserving, pending, status.weighted_share)
                })
            };
            let (kept, new) = (figures(&alone.core), figures(&rebuilt));
            if kept != new || kept.is_none() {
                return Err(format!("{queue}: {kept:?} became {new:?}"));
            }
        }
        for cohort in alone.world.cohorts.keys() {
            let (kept, new) = (alone.core.cohort_status(cohort), rebuilt.cohort_status(cohort));
            if kept != new {
                return Err(format!("{cohort}: {kept:?} became {new:?}"));
            }
        }
        Ok(())
    });
}

/// The reference allows endless preemption (A evicts B, and B, or someone else, takes the room before A does); the
/// guard must end it, in classical preemption and under fair sharing.
#[test]
fn with_the_loop_guard_everything_comes_to_rest() {
    for_seeds(3000, |seed| {
        let mut random = Random::new(seed);
        let mut alone = Alone::new(world(&mut random), Gates::default());
        for number in 0..2 + random.below(9) {
            let next = workload(&mut random, &alone.world, number);
            alone.submit(next);
        }
        let mut quiet = 0;
        for _ in 0..400 {
            let report = alone.cycle();
            let moved = report
                .entries
                .iter()
                .any(|entry| matches!(entry.outcome, Outcome::Admitted { .. } | Outcome::Preempting { .. }));
            for key in std::mem::take(&mut alone.evicted) {
                alone.release(&key, true);
            }
            quiet = if moved { 0 } else { quiet + 1 };
            if quiet > 8 || !alone.core.has_heads() {
                return Ok(());
            }
        }
        Err("still moving after 400 cycles".to_owned())
    });
}
