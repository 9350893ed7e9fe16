//! Worlds that random generation hardly ever makes, and in which a mutant or a bug of the core once survived.

use crate::loops::{NO_PREEMPTION, queue, workload};
use crate::oracle::world::{
    Cohort, Flavor, PodSet, Policy, PreemptionPolicies, Queue, Workload, World, name,
};
use crate::pair::Pair;
use crate::random_worlds::upstream;

/// A queue at its nominal quota of one resource does not reclaim another one, though it is below its nominal quota of
/// that: "strictly under nominal in every needed FR" (docs/reference/06-algorithm.md 6.7 "Attempts").
#[test]
fn a_queue_at_nominal_of_one_needed_resource_reclaims_nothing() {
    let victims = |gpu: i64| {
        let mut world = World::default();
        world.flavors.insert(name("f"), Flavor::default());
        world.cohorts.insert(name("all"), Cohort { parent: None, groups: Vec::new(), weight: 1.0 });
        let preemption = PreemptionPolicies {
            within_cluster_queue: Policy::LowerPriority,
            reclaim_within_cohort: Policy::Any,
            borrow_within_cohort: None,
        };
        world.queues.insert(name("own"), Queue { preemption, ..queue("all", 1, gpu) });
        world.queues.insert(name("other"), Queue { preemption: NO_PREEMPTION, ..queue("all", 0, 0) });
        let mut pair = Pair::new(world, &upstream(true));
        pair.submit(workload("other", 0, &["cpu"]));
        pair.submit(Workload { key: name("own/low"), uid: name("low"), ..workload("own", 0, &["gpu"]) });
        pair.cycle().expect("core and oracle agree");
        assert_eq!(pair.oracle.held.len(), 2);
        pair.submit(workload("own", 1, &["cpu", "gpu"]));
        pair.cycle().expect("core and oracle agree");
        pair.evicted().len()
    };
    assert_eq!(victims(1), 0);
    assert_eq!(victims(2), 1, "with a gpu to spare the cpu is reclaimed");
}

/// What was admitted in this cycle is usage and no victim yet, also for a head that has to look for other victims because its
/// own were taken (docs/reference/06-algorithm.md 6.5 steps 3 and 11): `late` in full would only need the victim of `owner`, and with a
/// pod less it may reclaim from the `guest` that was let in just now, but not in this cycle.
#[test]
fn what_is_admitted_in_a_cycle_is_no_victim_in_it() {
    let pods = |queue: &str, priority, created, count, min_count| {
        let mut asks = Workload { created, ..workload(queue, priority, &["cpu"]) };
        asks.pod_sets = vec![PodSet { count, min_count, ..asks.pod_sets.remove(0) }];
        asks
    };
    let mut world = World::default();
    world.flavors.insert(name("f"), Flavor::default());
    world.cohorts.insert(name("all"), Cohort { parent: None, groups: Vec::new(), weight: 1.0 });
    for (queue_name, nominal) in [("owner", 2), ("late", 2), ("victim", 0), ("guest", 0)] {
        world.queues.insert(name(queue_name), queue("all", nominal, 0));
    }
    let mut pair = Pair::new(world, &upstream(true));
    pair.submit(pods("victim", 0, 1000, 3, None));
    pair.cycle().expect("core and oracle agree");
    pair.submit(pods("owner", 1, 1001, 2, None));
    pair.submit(pods("guest", 1, 1002, 1, None));
    pair.submit(pods("late", 1, 1003, 3, Some(2)));
    pair.cycle().expect("core and oracle agree");
    assert_eq!(pair.oracle.held.len(), 2, "the guest is in");
    assert_eq!(pair.evicted(), [name("victim/w")]);
    pair.release(&name("victim/w"), false);
    for _ in 0..2 {
        pair.cycle().expect("core and oracle agree");
    }
    assert_eq!(pair.evicted(), [name("guest/w")], "later the guest has to go");
}
