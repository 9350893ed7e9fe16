//! Displace and swap, cut at each of the manager's writes: the victim's eviction, the displaced one's, its stop, its admission, its new
//! start. Each cut has a world of its own behind the manager's proxy; its writes are lost from the cut on, as if the manager had died,
//! and when all are cut it does die. Whatever the cut, the end is the same, and each was evicted once.

use std::fmt::Write as _;

use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use sluice_testkit::Fault;
use sluice_testkit::wait::{eventually, look};

use crate::bed::{DEADLINE, HIGH, LOW, TURN, World, kill_and_restart, proxy};

/// So many worlds are made, or looked at, at a time.
const AT_A_TIME: usize = 4;

/// A world in which both run, and the pool that will be lost.
async fn both_run(name: &str) -> (World, String) {
    let world = World::new(name, 64, 4).await;
    let (high, _) = world.both_run().await;
    (world, high.first().unwrap().clone())
}

/// The swap is over: `high` runs elsewhere, `low` waits; and then the pool returns and both run. Each was evicted once.
async fn ends_well(world: &World, lost: &str) {
    world.runs(HIGH, Some(lost)).await;
    world.told(LOW, "QuotaReserved", "WaitingForCapacity").await;
    world.departs(lost, false).await;
    world.runs(LOW, None).await;
    assert_eq!(world.evictions(HIGH).await, [("NodeFailures".to_owned(), 1)], "{}", world.name);
    assert_eq!(world.evictions(LOW).await, [("Preempted".to_owned(), 1)], "{}", world.name);
}

#[tokio::test]
async fn cut_at_every_write_the_swap_ends_the_same() {
    let _turn = TURN.lock().await;
    let (whole, lost) = both_run("swap").await;
    proxy().begin_scope(&whole.name, None);
    whole.departs(&lost, true).await;
    whole.runs(HIGH, Some(&lost)).await;
    whole.told(LOW, "QuotaReserved", "WaitingForCapacity").await;
    let writes = proxy().scope(&whole.name).writes;
    ends_well(&whole, &lost).await;
    assert!(writes.len() >= 6, "two evictions, two stops, an admission, a start: {writes:?}");

    let cuts = (1..=writes.len()).flat_map(|at| [(at, true), (at, false)]);
    let names: Vec<_> =
        cuts.map(|(at, carried_out)| (format!("swap-{at}-{carried_out}"), at, carried_out)).collect();
    let making = stream::iter(&names).map(|(name, ..)| both_run(name)).buffered(AT_A_TIME);
    let (worlds, lost): (Vec<World>, Vec<String>) = making.unzip().await;
    for (name, at, carried_out) in &names {
        proxy().begin_scope(name, Some(Fault { at: *at, carried_out: *carried_out, for_good: true }));
    }
    join_all(worlds.iter().zip(&lost).map(|(world, lost)| world.departs(lost, true))).await;
    eventually("every world to be cut, or over", DEADLINE, || async {
        let mut open = Vec::new();
        for (world, lost) in worlds.iter().zip(&lost) {
            let over = || async { world.pools(HIGH).await.is_ok_and(|pools| !pools.contains(lost)) };
            if !proxy().scope(&world.name).struck && !over().await {
                open.push(&world.name);
            }
        }
        Ok(look(open.is_empty(), format!("{open:?}")))
    })
    .await
    .unwrap();
    let struck: Vec<bool> = worlds.iter().map(|world| proxy().scope(&world.name).struck).collect();
    kill_and_restart(worlds[0].plane, &worlds).await;
    let ends = stream::iter(worlds.iter().zip(&lost)).map(|(world, lost)| ends_well(world, lost));
    ends.buffer_unordered(AT_A_TIME).collect::<Vec<()>>().await;

    let mut matrix = String::from("displace and swap, SIGKILL, cut at write: the same end\n");
    for ((_, at, carried_out), struck) in names.iter().zip(&struck) {
        let way = if *carried_out { "answer lost" } else { "write lost" };
        let write = &writes[at - 1];
        let cut = if *struck { "cut" } else { "not reached" };
        let _ = writeln!(matrix, "{at:>3} {way:<12} {cut:<12} {} {}", write.method, write.path);
    }
    println!("{matrix}");
    let missed = struck.iter().filter(|struck| !**struck).count();
    assert!(missed * 3 <= struck.len(), "too many cuts were not reached:\n{matrix}");
}
