//! Hundreds of node pools that fail together: the work of the engine per cycle, and in all, until it is decided where the jobs go.

use std::time::Duration;

use sluice_engine::EngineConfig;

use crate::bed::Bed;

/// What it took to decide.
#[derive(Debug)]
struct Cost {
    /// Steps of one cycle, at most.
    steps: u64,
    /// Looks of one cycle, at most.
    looks: u64,
    /// Allocations of one cycle, at most.
    most_allocations: u64,
    /// Allocations of all cycles and of all inputs.
    allocations: u64,
    /// Workloads that were evicted.
    evicted: usize,
}

/// Pools of two nodes with a JobSet each, of which `failing` failed just now, under JobSets of a higher priority than the others have; and the
/// names of the pools.
pub fn failed(failing: usize) -> (Bed, Vec<String>) {
    let half = failing + 1;
    let mut bed = Bed::with(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    bed.c.checked = false;
    bed.page_queue(i64::try_from(half * 16).unwrap());
    let names: Vec<String> = (0..2 * half).map(|pool| format!("p{pool:04}")).collect();
    let pools: Vec<&str> = names.iter().map(String::as_str).collect();
    bed.pools(&pools, 2);
    for (pool, name) in pools.iter().enumerate() {
        bed.sized_jobset(name, "q", if pool < half { "high" } else { "low" }, 1, 2);
    }
    bed.settle();
    bed.fail(&pools[1..half]);
    bed.c.settle();
    (bed, names)
}

/// What deciding for all of them costs.
fn decide(failing: usize) -> Cost {
    let (mut bed, names) = failed(failing);
    bed.c.meter = |work| (Duration::ZERO, allocation_counter::measure(work).count_total);
    (bed.c.most_steps, bed.c.most_looks, bed.c.most_allocations, bed.c.spent) =
        (0, 0, 0, (Duration::ZERO, 0));
    bed.c.advance(30);
    let evicted = names.iter().filter(|name| !bed.evictions(name).is_empty()).count();
    Cost {
        steps: bed.c.most_steps,
        looks: bed.c.most_looks,
        most_allocations: bed.c.most_allocations,
        allocations: bed.c.spent.1,
        evicted,
    }
}

#[test]
fn what_is_done_at_a_stretch_and_in_all_grows_with_the_pools_and_not_faster() {
    let [few, many] = [20, 80].map(decide);
    assert_eq!(
        (few.evicted, many.evicted),
        (40, 160),
        "each of the failing ones, and one that makes room for it"
    );
    assert!(many.looks <= 1, "{many:?}");
    assert!(many.steps <= 5 * few.steps, "{few:?}, {many:?}");
    assert!(many.most_allocations <= 5 * few.most_allocations, "{few:?}, {many:?}");
    assert!(many.allocations <= 5 * few.allocations, "{few:?}, {many:?}");
}
