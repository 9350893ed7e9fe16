//! Every small world: the core must decide as the oracle in every cycle.
//!
//! `SLUICE_EXHAUSTIVE` is the number of worlds, spread evenly over all of them, or `all`. The default is a sample that takes seconds in a debug
//! build. A failure prints the number of its world; `SLUICE_EXHAUSTIVE_FROM=<number>` with `SLUICE_EXHAUSTIVE=1` runs only that one.

use crate::pair::{Decisions, Pair, decided_enough};
use crate::random_worlds::upstream;
use crate::small_worlds::{SmallWorld, Space};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A prime; times it, consecutive numbers are spread over the whole space.
const SPREAD: u64 = 2_654_435_761;

/// The story of a small world: arrivals in portions, each until nothing moves; then the oldest holder ends.
fn run(small: SmallWorld) -> Result<Decisions, String> {
    let mut pair = Pair::new(small.world, &upstream(small.only_free));
    pair.thorough = false;
    for portion in small.workloads.chunks(small.arrivals.min(small.workloads.len())) {
        for workload in portion {
            pair.submit(workload.clone());
        }
        pair.settle(16)?;
    }
    let oldest = pair.oracle.held.values().min_by_key(|held| held.workload.created);
    if let Some(key) = oldest.map(|held| held.workload.key.clone()) {
        pair.release(&key, false);
        pair.settle(16)?;
    }
    Ok(pair.decisions)
}

#[test]
fn the_core_decides_as_the_oracle_in_every_small_world() {
    let space = Space::new();
    let variable = |name: &str| std::env::var(name).ok();
    let size = space.size();
    let count = match variable("SLUICE_EXHAUSTIVE").as_deref() {
        Some("all") => size,
        Some(count) => count.parse::<u64>().expect("a number of worlds, or all").min(size),
        None => 300_000,
    };
    let from: u64 = variable("SLUICE_EXHAUSTIVE_FROM").map_or(0, |from| from.parse().expect("a number"));
    let (next, worlds, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let decisions = Mutex::new(Decisions::default());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count || failed.load(Ordering::Relaxed) {
                return;
            }
            let spread = u128::from(index) * u128::from(SPREAD) + u128::from(from);
            let number = u64::try_from(spread % u128::from(size)).expect("smaller than the size");
            let Some(world) = space.world(number) else { continue };
            worlds.fetch_add(1, Ordering::Relaxed);
            match run(world) {
                Ok(decided) => {
                    let mut all = decisions.lock().unwrap_or_else(PoisonError::into_inner);
                    all.iter_mut().zip(decided).for_each(|(all, decided)| *all += decided);
                }
                Err(why) => {
                    failed.store(true, Ordering::Relaxed);
                    panic!("world {number}: {why}");
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let worlds = worlds.into_inner();
    eprintln!("{worlds} worlds of {size}, {} ways to build them", space.rows());
    // Numbers that stand for no world are skipped; a few of them say nothing about how many.
    if count >= 1_000 {
        assert!(worlds >= count / 3, "{worlds} worlds of {count} numbers");
    }
    decided_enough(decisions.into_inner().unwrap_or_default(), worlds);
}
