//! Any events in any order: no panic, and the accounting stays correct.

use crate::oracle::random::{Random, workload, world};
use crate::oracle::world::{Name, World, name};
use crate::random_worlds::for_seeds;
use crate::translate;
use sluice_core::{
    Admission, Amount, CohortSpec, Gates, Outcome, PodSetAssignment, Scheduler, Time, TopologyState,
    WorkloadKey, WorkloadSpec, WorkloadState,
};

fn amount(random: &mut Random) -> Amount {
    let extremes = [i64::MIN, i64::MIN + 1, -1, 0, 1, 2, i64::MAX / 2, i64::MAX - 1, i64::MAX];
    if random.chance(30) { Amount(*random.pick(&extremes)) } else { random.amount(6) }
}

fn a_workload(random: &mut Random, world: &World, now: Time) -> WorkloadSpec {
    let number = random.below(12);
    let plain = workload(random, world, number);
    let mut spec = translate::workload(&plain, WorkloadState::PENDING);
    for pod_set in &mut spec.pod_sets {
        if random.chance(15) {
            pod_set.count = *random.pick(&[i64::MIN, -1, 0, 10_000, i64::MAX]);
        }
        if random.chance(10) {
            pod_set.min_count = Some(*random.pick(&[i64::MIN, -1, 0, 10_000, i64::MAX]));
        }
        for (_, request) in &mut pod_set.requests {
            *request = amount(random);
        }
    }
    if random.chance(10) {
        let twin = spec.pod_sets[0].clone();
        spec.pod_sets.push(twin);
    }
    spec.state = match random.below(10) {
        0 => WorkloadState::Inactive,
        1 => WorkloadState::Pending {
            requeue_at: random.chance(50).then(|| Time(now.0 + 3_000_000_000)),
            keeps_place: random.chance(50),
            requeued_false: random.chance(50),
            failed_checks: random.chance(20),
            invalid: random.chance(20).then(|| "requests must not exceed its limits".to_owned()),
        },
        2..4 => reserved(random, world, &spec, now),
        _ => WorkloadState::PENDING,
    };
    spec
}

/// A reservation as someone may have written it: in any queue, of any flavor, of any amount.
fn reserved(random: &mut Random, world: &World, spec: &WorkloadSpec, now: Time) -> WorkloadState {
    let mut queues: Vec<Name> = world.queues.keys().cloned().collect();
    queues.push(name("gone"));
    let mut flavors: Vec<Name> = world.flavors.keys().cloned().collect();
    flavors.push(name("gone"));
    let pod_sets = spec.pod_sets.iter().map(|pod_set| PodSetAssignment {
        name: pod_set.name.clone(),
        flavors: pod_set.requests.iter().map(|(r, _)| (r.clone(), random.pick(&flavors).clone())).collect(),
        usage: pod_set.requests.iter().map(|(r, _)| (r.clone(), amount(random))).collect(),
        count: pod_set.count,
        topology: None,
        topology_delayed: false,
    });
    let admission = Admission { pod_sets: pod_sets.collect(), cluster_queue: name("") };
    WorkloadState::Reserved {
        admission: Admission { cluster_queue: random.pick(&queues).clone(), ..admission },
        reserved_at: now,
        admitted: random.chance(80),
        evicted: random.chance(20),
        pods_ready: random.chance(50),
        topology: TopologyState::default(),
    }
}

fn redeclare(random: &mut Random, core: &mut Scheduler, world: &World) {
    let queues: Vec<&Name> = world.queues.keys().collect();
    let queue = *random.pick(&queues);
    let cohort = name(&format!("co{}", random.below(6)));
    let flavors: Vec<&Name> = world.flavors.keys().collect();
    let flavor = *random.pick(&flavors);
    match random.below(10) {
        0 => core.remove_cluster_queue(queue),
        1 => core.remove_flavor(flavor),
        2 => core.set_flavor(translate::flavor(flavor, &world.flavors[flavor])),
        3 => core.remove_cohort(&cohort),
        4 => core.remove_local_queue(queue, "lq"),
        5 => core.set_local_queue(translate::local_queue(queue)),
        6 => {
            // Any parent: cycles of cohorts come and go.
            let parent = random.chance(80).then(|| name(&format!("co{}", random.below(6))));
            let groups = translate::queue(queue, &world.queues[queue]).resource_groups;
            let resource_groups = if random.chance(30) { groups } else { Vec::new() };
            let fair_weight = sluice_core::Weight::from_milli([0, 500, 1000][random.below(3)]);
            core.set_cohort(CohortSpec { name: cohort, parent, resource_groups, fair_weight });
        }
        _ => {
            let mut spec = translate::queue(queue, &world.queues[queue]);
            if random.chance(30) {
                spec.cohort = random.chance(80).then_some(cohort);
            }
            for quotas in spec.resource_groups.iter_mut().flat_map(|group| &mut group.flavors) {
                for quota in &mut quotas.resources {
                    quota.nominal = amount(random);
                    quota.borrowing_limit = random.chance(30).then(|| amount(random));
                    quota.lending_limit = random.chance(30).then(|| amount(random));
                }
            }
            if random.chance(5) {
                let twin = spec.resource_groups[0].clone();
                spec.resource_groups.push(twin);
            }
            core.set_cluster_queue(spec);
        }
    }
}

#[test]
fn hostile_events_in_any_order_never_break_the_accounting() {
    for_seeds(1500, |seed| {
        let mut random = Random::new(seed);
        let world = world(&mut random);
        let mut core = crate::pair::scheduler(&world, Gates::default());
        let mut known: Vec<WorkloadKey> = Vec::new();
        for step in 0..60 {
            let now = translate::time(2_000_000 + step);
            match random.below(10) {
                0..4 => {
                    let spec = a_workload(&mut random, &world, now);
                    known.push(spec.key.clone());
                    core.set_workload(spec, now);
                }
                4 if !known.is_empty() => core.remove_workload(&random.pick(&known).clone(), now),
                5 if !known.is_empty() => core.admission_failed(&random.pick(&known).clone(), now),
                6..8 => redeclare(&mut random, &mut core, &world),
                _ => {
                    core.wake(now);
                    let report = core.cycle(now);
                    let held =
                        report.entries.iter().filter(|e| matches!(e.outcome, Outcome::Admitted { .. }));
                    known.extend(held.map(|entry| entry.key.clone()));
                }
            }
            core.audit().map_err(|differences| format!("step {step}: {differences:?}"))?;
        }
        Ok(())
    });
}
