//! More moves than one cycle makes: one pass decides all of them, and changes before the last move are taken into account.

use crate::bed::Bed;
use crate::mass::failed;

/// Pools that fail, each under a JobSet of the priority `high`.
const FAILING: usize = 80;
/// As many Workloads are evicted by one cycle.
const MOST_EVICTIONS: usize = 64;

/// Pools of two nodes with a JobSet each: the first is well, those after it are just lost, and the other half has the priority `low`.
struct Failed {
    bed: Bed,
    names: Vec<String>,
}

impl Failed {
    fn new() -> Failed {
        let (mut bed, names) = failed(FAILING);
        // Time alone passes.
        bed.c.cycles_left = Some(0);
        bed.c.advance(30);
        Failed { bed, names }
    }

    /// One cycle, and what was written in it.
    fn cycle(&mut self) {
        self.bed.c.cycles_left = Some(1);
        self.bed.c.settle();
    }

    /// Everything that follows.
    fn end(&mut self) {
        self.bed.c.cycles_left = None;
        self.bed.pass(20);
    }

    fn failing(&self) -> &[String] {
        &self.names[1..=FAILING]
    }

    fn others(&self) -> &[String] {
        &self.names[FAILING + 1..]
    }

    /// Those of these that were evicted, each once.
    fn evicted(&self, of: &[String]) -> usize {
        let evictions = of.iter().map(|name| self.bed.evictions(name)).filter(|all| !all.is_empty());
        evictions.inspect(|all| assert!(all.len() == 1 && all[0].1 == 1, "{all:?}")).count()
    }

    fn all_run(&self) -> bool {
        self.failing().iter().all(|name| self.bed.runs(name))
    }
}

#[test]
fn one_look_decides_for_all_pools_and_a_cycle_makes_only_some_of_the_moves() {
    let mut failed = Failed::new();
    let before = failed.bed.c.engine.work().hotswap_looks;
    let mut evicted = 0;
    for _ in 0..(2 * FAILING).div_ceil(MOST_EVICTIONS) {
        failed.cycle();
        let now = failed.evicted(&failed.names);
        assert!(now > evicted && now - evicted <= MOST_EVICTIONS, "{evicted}, then {now}");
        evicted = now;
    }
    assert_eq!((failed.evicted(failed.failing()), failed.evicted(failed.others())), (FAILING, FAILING));
    assert_eq!(failed.bed.c.engine.work().hotswap_looks - before, 1);
    failed.end();
    assert!(failed.all_run());
    assert_eq!(failed.evicted(&failed.names), 2 * FAILING);
}

#[test]
fn a_pool_that_comes_back_before_its_move_is_made_keeps_its_work() {
    let mut failed = Failed::new();
    failed.cycle();
    let left = |of: &[String]| of.iter().find(|name| failed.bed.evictions(name).is_empty()).cloned();
    let kept = left(failed.failing()).unwrap();
    failed.bed.come_back(&[&kept]);
    failed.end();
    assert!(failed.bed.evictions(&kept).is_empty() && failed.all_run());
    let moved = (failed.evicted(failed.failing()), failed.evicted(failed.others()));
    assert_eq!(moved, (FAILING - 1, FAILING - 1));
}

#[test]
fn one_that_ends_before_it_makes_room_is_not_evicted() {
    let mut failed = Failed::new();
    failed.cycle();
    let left: Vec<String> =
        failed.others().iter().filter(|name| failed.bed.evictions(name).is_empty()).cloned().collect();
    for name in &left[..3] {
        failed.bed.c.api.finish_job(name, true);
    }
    failed.end();
    assert!(left[..3].iter().all(|name| failed.bed.evictions(name).is_empty()));
    assert!(failed.all_run());
    // Their pods are on their nodes still: as many move as are left to make room.
    let moved = FAILING + 1 - 3;
    assert_eq!((failed.evicted(failed.failing()), failed.evicted(failed.others())), (moved, moved));
}

#[test]
fn an_engine_that_begins_in_between_continues_by_what_is_written() {
    for cycles in 1..3 {
        let mut failed = Failed::new();
        for _ in 0..cycles {
            failed.cycle();
        }
        failed.bed.c.restart();
        failed.end();
        assert!(failed.all_run());
        assert_eq!((failed.evicted(failed.failing()), failed.evicted(failed.others())), (FAILING, FAILING));
    }
}
