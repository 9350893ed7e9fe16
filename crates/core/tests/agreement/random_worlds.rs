//! Random worlds and events. `SLUICE_WORLDS` is their number, `SLUICE_SEED` the first seed.

use crate::oracle::random::{Random, workload, world};
use crate::oracle::world::{Name, Reservation, Slice, Workload};
use crate::pair::{Check, Decisions, Pair, decided_enough};
use sluice_core::Gates;
use std::cell::RefCell;

pub fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is not a number"))
    })
}

/// The gates as upstream has them: the loop guard is ours, and the oracle has none. With or without our gate
/// `AdmitOnlyFreeQuota`.
pub fn upstream(only_free: bool) -> Gates {
    Gates {
        preemption_loop_guard: false,
        admit_only_free_quota: only_free,
        requeue_reclaimers_on_borrowing: false,
        ..Gates::default()
    }
}

/// Runs `check` on many seeds; reports how many fail, and the first.
pub fn for_seeds(default: u64, check: impl Fn(u64) -> Check) {
    let first = variable("SLUICE_SEED", 0);
    let seeds = first..first + variable("SLUICE_WORLDS", default);
    let failures: Vec<(u64, String)> =
        seeds.clone().filter_map(|seed| check(seed).err().map(|why| (seed, why))).collect();
    if let Some((seed, why)) = failures.first() {
        let others: Vec<u64> = failures.iter().map(|(seed, _)| *seed).take(20).collect();
        panic!("{} of {} seeds fail ({others:?}); seed {seed}: {why}", failures.len(), seeds.count());
    }
}

/// Makes the workload a slice that takes over from one that holds quota, with other numbers of pods.
fn grow(random: &mut Random, pair: &Pair, next: &mut Workload) {
    let held: Vec<&Reservation> = pair.oracle.held.values().collect();
    if held.is_empty() {
        return;
    }
    let of = (*random.pick(&held)).clone();
    let flavors = of.admitted.pod_sets.iter().map(|(name, _, flavors)| (name.clone(), flavors.clone()));
    let slice = Slice { key: of.workload.key.clone(), flavors: flavors.collect() };
    let name = next.key.split_once('/').expect("keys have a namespace").1;
    next.key = format!("{}/{name}", of.workload.queue).into();
    (next.queue, next.pod_sets) = (of.workload.queue, of.workload.pod_sets);
    for pod_set in &mut next.pod_sets {
        pod_set.count = i64::try_from(1 + random.below(6)).expect("small");
        pod_set.min_count = pod_set.min_count.map(|least| least.min(pod_set.count));
    }
    next.replaces = Some(slice);
}

/// One random event: an arrival, an end, victims leaving, a deletion or another priority of what waits, a changed quota or
/// policy, a queue stopped or resumed; mostly a cycle.
fn step(random: &mut Random, pair: &mut Pair, arrivals: &mut usize, slices: usize) -> Check {
    match random.below(100) {
        0..35 => {
            let mut next = workload(random, &pair.oracle.world, *arrivals);
            if random.chance(slices) {
                grow(random, pair, &mut next);
            }
            *arrivals += 1;
            pair.submit(next);
        }
        35..45 => {
            let held: Vec<Name> = pair.oracle.held.keys().cloned().collect();
            if !held.is_empty() {
                let key = random.pick(&held).clone();
                pair.release(&key, false);
            }
        }
        45..57 => {
            for key in pair.evicted() {
                if random.chance(70) {
                    let requeue = random.chance(85);
                    pair.release(&key, requeue);
                }
            }
        }
        57..60 => {
            let pending: Vec<(Name, Name)> = pair
                .oracle
                .queues
                .iter()
                .flat_map(|(queue, of)| of.pending.keys().map(move |key| (queue.clone(), key.clone())))
                .collect();
            if !pending.is_empty() {
                let (queue, key) = random.pick(&pending).clone();
                if random.chance(40) {
                    pair.delete(&queue, &key);
                } else {
                    let priority = i32::try_from(random.below(4)).expect("small") - 1;
                    pair.reprioritize(&queue, &key, priority);
                }
            }
        }
        60..65 => {
            let names: Vec<Name> = pair.oracle.world.queues.keys().cloned().collect();
            let name = random.pick(&names).clone();
            let mut spec = pair.oracle.world.queues[&name].clone();
            if random.chance(30) {
                spec.active = !spec.active;
            } else if random.chance(15) {
                spec.fungibility.try_next_when_borrowing = !spec.fungibility.try_next_when_borrowing;
            } else {
                for (_, quotas) in spec.groups.iter_mut().flat_map(|group| &mut group.flavors) {
                    for quota in quotas.values_mut().filter(|quota| quota.lending_limit.is_none()) {
                        if random.chance(50) {
                            quota.nominal = random.amount(6);
                        }
                    }
                }
            }
            pair.redeclare(&name, spec);
        }
        _ => pair.cycle()?,
    }
    Ok(())
}

/// Worlds with `slices` slices in a hundred arrivals.
fn compare(slices: usize) {
    const SEEDS: u64 = 2_000;
    let decisions = RefCell::new(Decisions::default());
    for_seeds(SEEDS, |seed| {
        let mut random = Random::new(seed);
        let mut pair = Pair::new(world(&mut random), &upstream(seed % 2 == 1));
        let mut arrivals = 0;
        for number in 0..40 {
            step(&mut random, &mut pair, &mut arrivals, slices)
                .and_then(|()| pair.same_places())
                .map_err(|why| format!("step {number}: {why}"))?;
        }
        pair.settle(30)?;
        decisions.borrow_mut().iter_mut().zip(pair.decisions).for_each(|(all, decided)| *all += decided);
        Ok(())
    });
    decided_enough(decisions.into_inner(), variable("SLUICE_WORLDS", SEEDS));
}

#[test]
fn the_core_decides_as_the_oracle() {
    compare(0);
}

#[test]
fn the_core_decides_as_the_oracle_about_slices() {
    compare(40);
}
