//! The guide's page: quota for both JobSets, four pools; one pool announces its removal; `low` is preempted, `high` runs on two other pools,
//! including a freed one; the pool returns, `low` runs again. And with the page's own quota: one runs, one waits.

use std::fs;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use sluice_testkit::plugin;
use sluice_testkit::wait::{eventually, progress};

use super::bed::{DEADLINE, HIGH, LOW, POOL, TURN, World};

#[tokio::test]
async fn four_pools_of_which_one_goes_and_comes_back() {
    let _turn = TURN.lock().await;
    let world = World::new("page-64", 64, 4).await;
    let (before, low) = world.both_run().await;
    let lost = before.first().unwrap().clone();
    the_simulator_foresees_it(&world, &lost).await;
    let failed = Instant::now();
    world.departs(&lost, true).await;
    let message = world.reported(LOW, "Preempted", "OutOfCohortReclamation").await;
    assert!(message.contains("preemptor path: /page-64; preemptee path: /page-64"), "{message}");
    let decided = failed.elapsed();
    let after = world.runs(HIGH, Some(&lost)).await;
    println!("recovered {:?} after the signal, decided after {decided:?}", failed.elapsed());
    // Which two of the three pools that are well is the scheduler's choice: `low` leaves both of its own.
    assert!(after.len() == 2 && !after.is_disjoint(&low), "{before:?} {low:?} {after:?}");
    // Until its last pod is seen to be gone, that takes room, too.
    eventually("low to lack a pool", DEADLINE, || async {
        let message = world.reported(LOW, "QuotaReserved", "WaitingForCapacity").await;
        Ok(progress(message.ends_with("for google.com/tpu in flavor page-64, 16 more needed"), message))
    })
    .await
    .unwrap();
    assert_eq!(world.evictions(HIGH).await, [("NodeFailures".to_owned(), 1)]);

    let returned = Instant::now();
    world.departs(&lost, false).await;
    let again = world.runs(LOW, None).await;
    println!("the victim runs {:?} after the pool came back", returned.elapsed());
    assert!(again.contains(&lost), "{again:?}");
    eventually("high to be left alone", DEADLINE, || async {
        let seen = world.pools(HIGH).await;
        Ok(progress(seen.as_ref() == Ok(&after), format!("{seen:?}")))
    })
    .await
    .unwrap();
    assert_eq!(world.evictions(LOW).await, [("Preempted".to_owned(), 1)]);
}

/// The nodes of a pool are deleted, and a spare one is free.
#[tokio::test]
async fn a_pool_whose_nodes_are_deleted_is_left_for_the_spare_one() {
    let _turn = TURN.lock().await;
    let world = World::new("page-gone", 64, 5).await;
    let (before, low) = world.both_run().await;
    let lost = before.first().unwrap().clone();
    let selector = format!("{POOL}={lost}");
    world.kubectl(&["delete", "nodes", "-l", &selector, "--wait=false"]).await;
    let after = world.runs(HIGH, Some(&lost)).await;
    assert!(after.len() == 2 && after.is_disjoint(&low), "{before:?} {low:?} {after:?}");
    assert_eq!(world.evictions(HIGH).await, [("NodeFailures".to_owned(), 1)]);
    assert!(world.evictions(LOW).await.is_empty(), "a pool was free");
    assert_eq!(world.pools(LOW).await, Ok(low));
}

/// What if that pool goes? The simulator begins with the cluster's objects, its bound pods among them, and says what will happen here.
async fn the_simulator_foresees_it(world: &World, lost: &str) {
    let folder = tempfile::tempdir().unwrap();
    let change = folder.path().join("pool-goes.yaml");
    let event = format!("{{at: 5s, departNodes: {{selector: {{{POOL}: {lost}}}}}}}");
    fs::write(
        &change,
        format!("apiVersion: sluice.dev/v1alpha1\nkind: Scenario\nspec: {{events: [{event}]}}\n"),
    )
    .unwrap();
    let kubeconfig = world.plane.kubeconfig_path();
    let reported = tokio::task::spawn_blocking(move || {
        Command::new(plugin().unwrap())
            .args([
                "simulate",
                "--from-cluster",
                "--quiet",
                "--run-time",
                "2h",
                "--until",
                "10m",
                "-o",
                "json",
            ])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--change")
            .arg(change)
            .output()
            .unwrap()
    });
    let reported = reported.await.unwrap();
    assert!(reported.status.success(), "{}", String::from_utf8_lossy(&reported.stderr));
    let difference: Value = serde_json::from_slice(&reported.stdout).unwrap();
    let preempted = difference["newlyPreempted"].as_array().unwrap();
    assert_eq!(*preempted, [format!("{}/{LOW}", world.name)], "{difference}");
}

#[tokio::test]
async fn with_the_pages_own_quota_one_runs_one_waits_and_neither_is_evicted_for_the_other() {
    // A manager that is killed takes its events along.
    let _turn = TURN.lock().await;
    let world = World::new("page-32", 32, 4).await;
    world.submit(HIGH).await;
    let before = world.runs(HIGH, None).await;
    world.submit(LOW).await;
    let message = world.reported(LOW, "QuotaReserved", "WaitingForQuota").await;
    assert!(message.contains("insufficient unused quota for google.com/tpu in flavor page-32"), "{message}");
    let lost = before.first().unwrap().clone();
    world.departs(&lost, true).await;
    let after = world.runs(HIGH, Some(&lost)).await;
    assert_eq!(after.len(), 2, "whole pools: {before:?} {after:?}");
    assert_eq!(world.evictions(HIGH).await, [("NodeFailures".to_owned(), 1)]);
    assert!(world.evictions(LOW).await.is_empty(), "pools were free");
    let workload = world.workload(HIGH).await["metadata"]["name"].as_str().unwrap().to_owned();
    let moved = "Workload was evicted to leave unhealthy node(s): ";
    described(&world, &["workload", &workload], &[moved, "NodeFailures", "EvictedDueToNodeFailures"]).await;
    let started = "Admitted by clusterQueue page-32";
    described(&world, &["jobset", HIGH], &["Suspended", "CreatedWorkload", "Started", started, "Stopped"])
        .await;
}

/// Waits until `kubectl describe` shows these texts: events come a moment after what they report.
async fn described(world: &World, what: &[&str], texts: &[&str]) {
    let args: Vec<&str> = ["describe"].iter().chain(what).copied().collect();
    eventually(&format!("kubectl describe {what:?}"), DEADLINE, || async {
        let described = world.kubectl(&args).await;
        let missing: Vec<_> = texts.iter().filter(|text| !described.contains(**text)).collect();
        Ok(progress(missing.is_empty(), format!("without {missing:?}: {described}")))
    })
    .await
    .unwrap();
}
