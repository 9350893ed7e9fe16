//! The manager is killed between the two evictions of a swap, and starts again in a world in which some nodes are not ready.

use sluice_testkit::wait::{Progress, eventually};
use sluice_testkit::workloads;

use super::bed::{DEADLINE, HIGH, LOW, TURN, World, kill_and_restart};

#[tokio::test]
async fn killed_as_soon_as_the_victim_is_evicted_it_ends_the_same() {
    let _turn = TURN.lock().await;
    let world = World::new("crash", 64, 4).await;
    let (before, _) = world.both_run().await;
    let lost = before.first().unwrap().clone();
    world.departs(&lost, true).await;
    let client = world.plane.client().await.unwrap();
    eventually("the victim to be reported", DEADLINE, || async {
        let low = workloads::of_job(&client, world.name, LOW).await?.unwrap_or_default();
        Ok(if workloads::holds(&low, "Preempted") {
            Progress::Done(())
        } else {
            Progress::NotYet("not yet".to_owned())
        })
    })
    .await
    .unwrap();
    kill_and_restart(world.plane).await;
    let after = world.runs(HIGH, Some(&lost)).await;
    assert_eq!(after.len(), 2, "whole pools: {before:?} {after:?}");
    world.reported(LOW, "QuotaReserved", "WaitingForCapacity").await;
    world.departs(&lost, false).await;
    assert!(world.runs(LOW, None).await.contains(&lost));
    assert_eq!(world.evictions(HIGH).await, [("NodeFailures".to_owned(), 1)], "once");
    assert_eq!(world.evictions(LOW).await, [("Preempted".to_owned(), 1)], "once");
}
