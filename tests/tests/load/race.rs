//! A few hundred Workloads in thirty queues: the number of writes. Times are printed; only counts can fail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use sluice_testkit::binary;
use sluice_testkit::race::{Race, run};

/// The budget of the race `tiny`, which this one is, in `tests/performance/budgets.toml`.
fn budget(of: &str) -> f64 {
    let text = include_str!("../../performance/budgets.toml");
    let section = text.split("\n[").find_map(|section| section.strip_prefix("race.tiny]")).unwrap();
    let line = section.lines().find_map(|line| line.strip_prefix(of)?.trim().strip_prefix('='));
    line.unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_take_one_write_each_and_few_more_while_the_api_server_is_busy() {
    let figures = run(&Race::default()).await.unwrap();
    println!("{figures}");
    // An eviction is a write, and so is the admission after it; what is evicted while its end is on its way is a conflict.
    let evictions = 2 * figures.evictions;
    let others = figures.status_writes.saturating_sub(evictions);
    assert!(figures.per_workload(others) <= budget("status_writes"), "{figures}");
    // This number per second, a second's worth at once, and a first status of each after the last change.
    let most = 20 * (figures.wall.as_secs() + 3) + 60;
    assert!(figures.queue_writes <= most, "{figures}");
    let events = figures.events.saturating_sub(5 * figures.evictions);
    assert!(figures.per_workload(events) <= budget("events"), "{figures}");
    assert!(figures.per_workload(figures.conflicts) <= budget("conflicts"), "{figures}");
    // A Workload without a job is made and ended by others: nothing of the object itself is the manager's to write.
    assert_eq!(figures.object_writes, 0, "{figures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_manager_runs_by_its_command() {
    let command = format!(
        r#"exec '{}' manager --config "$RACE_CONFIG" --kubeconfig "$KUBECONFIG" '--controllers=*,-webhooks,-certificates'"#,
        binary().unwrap().display()
    );
    let one_of_each = Race { cohorts: 1, queues_per_cohort: 1, per_queue: 1, ..Race::default() };
    let figures = run(&Race { manager: Some(command), ..one_of_each }).await.unwrap();
    assert_eq!(figures.workloads, 3);
    assert!(figures.status_writes >= 3, "an admission each: {figures}");
}
