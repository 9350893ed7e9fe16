//! How long a JobSet does not run after a failure (the page's mean time to recovery), with and without Hotswap: a measurement on request (`make
//! bench-hotswap`). Pods may not preempt others themselves, so that every preemption is Hotswap's.

use std::time::{Duration, Instant};

use serde_json::json;
use sluice_testkit::wait::{Progress, eventually, progress};

use super::bed::{HIGH, POOL, TURN, World, plane, restart_with};

/// The length of the observation.
const WATCHED: Duration = Duration::from_secs(150);

/// What happens to the first pool of the JobSet.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// Its nodes say that they will go.
    Departs,
    /// Its nodes are not ready.
    NotReady,
    /// Its nodes are deleted.
    Deleted,
}

/// What was measured of one failure, each from the failure on, as far as it came to that.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    decided: Option<Duration>,
    recovered: Option<Duration>,
}

async fn fail(world: &World, pool: &str, failure: Failure) {
    let selector = format!("{POOL}={pool}");
    match failure {
        Failure::Departs => world.departs(pool, true).await,
        Failure::NotReady => {
            world.kubectl(&["annotate", "nodes", "-l", &selector, "sluice.dev/not-ready=yes"]).await;
        }
        Failure::Deleted => {
            world.kubectl(&["delete", "nodes", "-l", &selector, "--wait=false"]).await;
        }
    }
}

/// Lets the first pool of `high` fail while `low` runs, with `pools` pools in all.
async fn measure(name: &'static str, pools: u32, failure: Failure) -> Measured {
    let world = World::new(name, 64, pools).await;
    let (before, _) = world.both_run().await;
    let lost = before.first().unwrap().clone();
    let begun = Instant::now();
    fail(&world, &lost, failure).await;
    let decided = eventually("a decision", WATCHED, || async {
        Ok(progress(!world.evictions(HIGH).await.is_empty(), "none"))
    });
    let recovered = eventually("recovery", WATCHED, || async {
        Ok(match world.pools(HIGH).await {
            Ok(pools) if !pools.contains(&lost) => Progress::Done(()),
            seen => Progress::NotYet(format!("{seen:?}")),
        })
    });
    let decided = async { decided.await.ok().map(|()| begun.elapsed()) };
    let recovered = async { recovered.await.ok().map(|()| begun.elapsed()) };
    let (decided, recovered) = tokio::join!(decided, recovered);
    // What still waits must not be in the way of what is measured next.
    world.kubectl(&["delete", "jobsets", "--all", "--wait=false"]).await;
    Measured { decided, recovered }
}

fn shown(time: Option<Duration>) -> String {
    time.map_or_else(
        || format!("not in {} s", WATCHED.as_secs()),
        |time| format!("{:.1} s", time.as_secs_f64()),
    )
}

/// Measures each failure in its own namespace, one after the other.
async fn all(worlds: [(&'static str, u32, Failure); 4]) -> Vec<Measured> {
    let mut measured = Vec::new();
    for (name, pools, failure) in worlds {
        measured.push(measure(name, pools, failure).await);
    }
    measured
}

#[tokio::test]
async fn time_to_recovery_with_and_without_hotswap() {
    let _turn = TURN.lock().await;
    let plane = plane().await;
    let with = all([
        ("with-departs", 4, Failure::Departs),
        ("with-not-ready", 4, Failure::NotReady),
        ("with-deleted", 4, Failure::Deleted),
        ("with-spare", 5, Failure::Deleted),
    ])
    .await;
    // What is left then: kube's taint eviction and pod GC, JobSet's restarts, and the timeout for pods that are not ready.
    let without = json!({"featureGates": {"Hotswap": false},
        "waitForPodsReady": {"timeout": "1m", "recoveryTimeout": "1m"}});
    restart_with(plane, &without).await;
    let (departs, not_ready, deleted, spare) = tokio::join!(
        measure("without-departs", 4, Failure::Departs),
        measure("without-not-ready", 4, Failure::NotReady),
        measure("without-deleted", 4, Failure::Deleted),
        measure("without-spare", 5, Failure::Deleted),
    );
    println!(
        "| failure of one pool | decided | runs again | runs again without Hotswap |\n|---|---|---|---|"
    );
    let names = [
        "announced, lower priority is preempted",
        "not ready, lower priority is preempted",
        "deleted, lower priority is preempted",
        "deleted, a spare pool is free",
    ];
    for ((name, with), without) in names.iter().zip(&with).zip([departs, not_ready, deleted, spare]) {
        let (decided, again) = (shown(with.decided), shown(with.recovered));
        println!("| {name} | {decided} | {again} | {} |", shown(without.recovered));
    }
    for measured in &with {
        assert!(measured.recovered.is_some(), "{with:?}");
    }
}
