//! Fair sharing converges: for any order of arrivals, in the end no waiting queue could take a unit from a queue with a higher share, and no quota is
//! free that a workload waits for.

use crate::oracle::random::Random;
use crate::oracle::world::{
    Cohort, FairStrategy, Flavor, Fungibility, Group, PodSet, Policy, PreemptionPolicies, Queue, Quota,
    Strategy, Time, Workload, World, name,
};
use crate::pair::scheduler;
use crate::random_worlds::for_seeds;
use crate::translate;
use sluice_core::{Gates, Outcome, Scheduler, WorkloadState};
use sluice_quantity::Amount;
use std::collections::BTreeMap;

/// One cohort; queues that take from those that have too much. The weights are powers of two, so that shares are exact.
fn cohort(random: &mut Random, strategies: &[FairStrategy]) -> World {
    let mut world = World { fair: Some(strategies.to_vec()), ..World::default() };
    world.flavors.insert(name("f"), Flavor::default());
    world.cohorts.insert(name("all"), Cohort { parent: None, groups: Vec::new(), weight: 1.0 });
    for index in 0..2 + random.below(4) {
        let nominal = Amount(i64::try_from(random.below(6)).expect("small"));
        let quota = Quota { nominal, borrowing_limit: None, lending_limit: None };
        let flavors = vec![(name("f"), BTreeMap::from([(name("gpu"), quota)]))];
        let queue = Queue {
            cohort: Some(name("all")),
            groups: vec![Group { covered: vec![name("gpu")], flavors }],
            strategy: Strategy::BestEffortFifo,
            preemption: PreemptionPolicies {
                within_cluster_queue: Policy::Never,
                reclaim_within_cohort: Policy::Any,
                borrow_within_cohort: None,
            },
            fungibility: Fungibility::default(),
            weight: *random.pick(&[0.5, 1.0, 2.0, 4.0]),
            active: true,
        };
        world.queues.insert(name(&format!("q{index}")), queue);
    }
    world
}

/// A core, its workloads, and how many units each queue holds.
struct Run {
    core: Scheduler,
    workloads: BTreeMap<String, Workload>,
    held: BTreeMap<String, i64>,
    now: Time,
}

impl Run {
    fn arrive(&mut self, queue: &str, number: usize) {
        let workload = Workload {
            key: name(&format!("{queue}/w{number:02}")),
            uid: name(&format!("{queue}-{number:02}")),
            queue: name(queue),
            priority: 0,
            created: self.now,
            pod_sets: vec![PodSet {
                name: name("main"),
                count: 1,
                requests: BTreeMap::from([(name("gpu"), Amount(1))]),
                ..PodSet::default()
            }],
            gated: false,
            replaces: None,
        };
        let spec = translate::workload(&workload, WorkloadState::PENDING);
        self.core.set_workload(spec, translate::time(self.now));
        self.workloads.insert(workload.key.to_string(), workload);
    }

    /// Cycles until nothing moves; victims leave at once and wait again. False if it does not end.
    fn rest(&mut self) -> bool {
        for _ in 0..2000 {
            self.now += 1;
            let report = self.core.cycle(translate::time(self.now));
            let mut moved = false;
            let mut victims = Vec::new();
            for entry in &report.entries {
                match &entry.outcome {
                    Outcome::Admitted { .. } => {
                        *self.held.entry(entry.cluster_queue.to_string()).or_default() += 1;
                        moved = true;
                    }
                    Outcome::Preempting { victims: chosen, .. } => {
                        victims.extend(chosen.iter().map(|victim| victim.key.to_string()));
                        moved = true;
                    }
                    _ => {}
                }
            }
            for key in victims {
                let workload = &self.workloads[&key];
                *self.held.entry(workload.queue.to_string()).or_default() -= 1;
                let spec = translate::workload(workload, WorkloadState::PENDING);
                self.core.set_workload(spec, translate::time(self.now));
            }
            if !moved {
                return true;
            }
        }
        false
    }

    /// Thousandths of the cohort's quota that a queue borrows when it holds so much, by its weight.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn share(world: &World, queue: &str, held: i64) -> f64 {
        let nominal = |queue: &Queue| queue.groups[0].flavors[0].1[&name("gpu")].nominal.get();
        let all: i64 = world.queues.values().map(nominal).sum();
        let spec = &world.queues[queue];
        (held - nominal(spec)).max(0) as f64 * 1000.0 / all as f64 / spec.weight
    }
}

#[test]
fn fair_sharing_converges_from_any_order_of_arrival() {
    use FairStrategy::{LessThanInitialShare, LessThanOrEqualToFinalShare};
    let choices: [&[FairStrategy]; 3] = [
        &[LessThanOrEqualToFinalShare, LessThanInitialShare],
        &[LessThanOrEqualToFinalShare],
        &[LessThanInitialShare],
    ];
    for_seeds(600, |seed| {
        let mut random = Random::new(seed);
        let strategies = *random.pick(&choices);
        let world = cohort(&mut random, strategies);
        let capacity: i64 =
            world.queues.values().map(|queue| queue.groups[0].flavors[0].1[&name("gpu")].nominal.get()).sum();
        if capacity == 0 {
            return Ok(());
        }
        let core = scheduler(&world, Gates::default());
        let mut run = Run { core, workloads: BTreeMap::new(), held: BTreeMap::new(), now: 2_000_000 };
        let mut queues: Vec<String> = world.queues.keys().map(ToString::to_string).collect();
        queues.rotate_left(seed.try_into().unwrap_or(0) % world.queues.len());
        // Each queue could use all, and finds that those before it have taken everything.
        for queue in &queues {
            for number in 0..usize::try_from(capacity).expect("small") {
                run.arrive(queue, number);
            }
            if !run.rest() {
                return Err(format!("{queue} came, and there is no end"));
            }
        }
        let held = |queue: &str| run.held.get(queue).copied().unwrap_or(0);
        let total: i64 = queues.iter().map(|queue| held(queue)).sum();
        if total != capacity {
            return Err(format!("{total} of {capacity} are used: {:?}", run.held));
        }
        for taker in &queues {
            let after = Run::share(&world, taker, held(taker) + 1);
            for giver in queues.iter().filter(|giver| *giver != taker && held(giver) > 0) {
                let (before, left) =
                    (Run::share(&world, giver, held(giver)), Run::share(&world, giver, held(giver) - 1));
                let unfair = strategies.iter().any(|strategy| match strategy {
                    LessThanOrEqualToFinalShare => before > 0.0 && after <= left,
                    LessThanInitialShare => after < before,
                });
                if unfair {
                    return Err(format!(
                        "{taker} waits though {giver} has more than its share: {:?}",
                        run.held
                    ));
                }
            }
        }
        Ok(())
    });
}
