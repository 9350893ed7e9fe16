//! Worlds that random ones hardly ever are, and that a mutant of the core once survived.

use crate::loops::{NOBODY, queue, workload};
use crate::oracle::world::{Cohort, Flavor, Policy, PreemptionPolicies, Queue, Workload, World, name};
use crate::pair::Pair;
use crate::random_worlds::upstream;

/// A queue at its nominal quota of one resource does not reclaim another one, though it is below its nominal quota of
/// that: "strictly under nominal in every needed FR" (reference 06, 6.7 "Attempts").
#[test]
fn who_is_at_nominal_of_one_needed_resource_reclaims_nothing() {
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
        world.queues.insert(name("other"), Queue { preemption: NOBODY, ..queue("all", 0, 0) });
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
