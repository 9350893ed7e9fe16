//! Random worlds from a seed: small enough to collide often, wide enough to reach every rule.

use super::world::{
    BorrowWithinCohort, Cohort, FairStrategy, Flavor, Fungibility, Group, Name, PodSet, Policy,
    PreemptionPolicies, Queue, Quota, Strategy, Time, Workload, World, name,
};
use sluice_quantity::Amount;
use std::collections::BTreeMap;

/// A small generator of pseudo-random numbers (SplitMix64): the same seed gives the same world everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("small");
        usize::try_from(self.next() % bound).expect("below a usize")
    }

    /// True in `percent` of all cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }

    pub fn amount(&mut self, most: usize) -> Amount {
        Amount(i64::try_from(self.below(most + 1)).expect("small"))
    }
}

/// How the resources of a world are grouped, and which flavors exist.
struct Layout {
    groups: Vec<(Vec<Name>, Vec<Name>)>,
}

fn layout(random: &mut Random, world: &mut World) -> Layout {
    let resources: Vec<Name> = ["cpu", "gpu", "memory"][..=random.below(3)].iter().map(|r| name(r)).collect();
    let two_groups = resources.len() > 1 && random.chance(40);
    let mut parts: Vec<Vec<Name>> =
        if two_groups { vec![resources[..1].to_vec(), resources[1..].to_vec()] } else { vec![resources] };
    if random.chance(15) {
        parts[0].push(name("pods"));
    }
    let mut groups = Vec::new();
    for (group, covered) in parts.into_iter().enumerate() {
        let mut flavors = Vec::new();
        for index in 0..=random.below(3) {
            let flavor = name(&format!("f{group}{index}"));
            let mut spec = Flavor::default();
            if random.chance(30) {
                spec.labels.insert(name("zone"), name(["a", "b"][random.below(2)]));
            }
            if random.chance(15) {
                spec.taints.insert(name("spot"));
            }
            world.flavors.insert(flavor.clone(), spec);
            flavors.push(flavor);
        }
        groups.push((covered, flavors));
    }
    Layout { groups }
}

fn quotas(random: &mut Random, layout: &Layout, most: usize, limits: bool) -> Vec<Group> {
    let mut groups = Vec::new();
    for (covered, flavors) in &layout.groups {
        let mut flavors = flavors.clone();
        if flavors.len() > 1 && random.chance(20) {
            flavors.swap(0, 1);
        }
        if flavors.len() > 1 && random.chance(20) {
            flavors.pop();
        }
        let mut of_flavor = |flavor: Name| {
            let quotas = covered.iter().map(|resource| {
                let nominal = if random.chance(2) { Amount::UNLIMITED } else { random.amount(most) };
                let mut limit = || (limits && random.chance(30)).then(|| random.amount(most));
                let quota = Quota {
                    nominal,
                    borrowing_limit: limit(),
                    lending_limit: limit().map(|limit| limit.min(nominal)),
                };
                (resource.clone(), quota)
            });
            (flavor, quotas.collect::<BTreeMap<_, _>>())
        };
        let flavors = flavors.into_iter().map(&mut of_flavor).collect();
        groups.push(Group { covered: covered.clone(), flavors });
    }
    groups
}

fn weight(random: &mut Random) -> f64 {
    *random.pick(&[1.0, 1.0, 1.0, 2.0, 0.5, 3.0, 0.0])
}

fn policies(random: &mut Random) -> PreemptionPolicies {
    let reclaim = *random.pick(&[Policy::Never, Policy::LowerPriority, Policy::Any, Policy::Any]);
    PreemptionPolicies {
        within_cluster_queue: *random.pick(&[
            Policy::Never,
            Policy::LowerPriority,
            Policy::LowerOrNewerEqualPriority,
        ]),
        reclaim_within_cohort: reclaim,
        borrow_within_cohort: (reclaim != Policy::Never && random.chance(40))
            .then(|| random.chance(50).then(|| i32::try_from(random.below(3)).expect("small") - 1))
            .map(|threshold| BorrowWithinCohort { threshold }),
    }
}

/// A world with up to five cohorts and six queues.
pub fn world(random: &mut Random) -> World {
    let mut world = World::default();
    let layout = layout(random, &mut world);
    if random.chance(40) {
        let both = [FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];
        world.fair = Some(match random.below(4) {
            0 => both[..1].to_vec(),
            1 => both[1..].to_vec(),
            _ => both.to_vec(),
        });
    }
    let cohorts: Vec<Name> = (0..random.below(6)).map(|index| name(&format!("co{index}"))).collect();
    for (index, cohort) in cohorts.iter().enumerate() {
        let parent = (index > 0 && random.chance(70)).then(|| cohorts[random.below(index)].clone());
        // Some cohorts have no object of their own, but those with a parent need one.
        if parent.is_none() && random.chance(30) {
            continue;
        }
        let groups =
            if random.chance(40) { quotas(random, &layout, 3, parent.is_some()) } else { Vec::new() };
        world.cohorts.insert(cohort.clone(), Cohort { parent, groups, weight: weight(random) });
    }
    for index in 0..=random.below(6) {
        let cohort = (!cohorts.is_empty() && random.chance(90)).then(|| random.pick(&cohorts).clone());
        let queue = Queue {
            groups: quotas(random, &layout, 6, cohort.is_some()),
            cohort,
            strategy: *random.pick(&[
                Strategy::StrictFifo,
                Strategy::BestEffortFifo,
                Strategy::BestEffortFifo,
            ]),
            preemption: policies(random),
            fungibility: Fungibility {
                try_next_when_borrowing: random.chance(50),
                try_next_when_preempting: random.chance(50),
                preemption_over_borrowing: random.chance(30),
            },
            weight: weight(random),
            active: true,
        };
        world.queues.insert(name(&format!("q{index}")), queue);
    }
    world
}

/// The workload with this number, in some queue of the world. Numbers give creation times.
pub fn workload(random: &mut Random, world: &World, number: usize) -> Workload {
    let queues: Vec<&Name> = world.queues.keys().collect();
    let queue = (*random.pick(&queues)).clone();
    let covered: Vec<Name> =
        world.queues[&queue].groups.iter().flat_map(|group| group.covered.clone()).collect();
    let pod_sets = 1 + usize::from(random.chance(20));
    let pod_set = |random: &mut Random, index: usize| {
        let count = 1 + random.below(3);
        let mut pod_set = PodSet {
            name: name(&format!("ps{index}")),
            count: i64::try_from(count).expect("small"),
            min_count: random.chance(20).then(|| i64::try_from(1 + random.below(count)).expect("small")),
            ..PodSet::default()
        };
        for resource in covered.iter().filter(|resource| &***resource != "pods") {
            if random.chance(85) {
                pod_set.requests.insert(resource.clone(), random.amount(3));
            }
        }
        if random.chance(15) {
            pod_set.node_selector.insert(name("zone"), name(["a", "b"][random.below(2)]));
        }
        if random.chance(60) {
            pod_set.tolerated.insert(name("spot"));
        }
        pod_set
    };
    Workload {
        key: name(&format!("{queue}/w{number:02}")),
        // Not in the order of creation, so that a wrong tie-break shows.
        uid: name(&format!("u{:02}-{number:02}", random.below(100))),
        priority: i32::try_from(random.below(4)).expect("small") - 1,
        created: 1000 + Time::try_from(number).expect("small"),
        pod_sets: (0..pod_sets).map(|index| pod_set(random, index)).collect(),
        gated: random.chance(4),
        replaces: None,
        queue,
    }
}
