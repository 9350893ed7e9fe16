//! A few hundred Workloads in thirty queues: how many writes they take. Times are printed; only counts can fail.

use sluice_testkit::race::{Race, run};

#[tokio::test(flavor = "multi_thread")]
async fn workloads_take_one_write_each_and_few_more_while_the_api_server_is_busy() {
    let figures = run(&Race::default()).await.unwrap();
    println!("{figures}");
    // An eviction is a write, and so is the admission after it; what is evicted while its end is on its way is a conflict.
    let evictions = 2 * figures.evictions;
    let others = figures.status_writes.saturating_sub(evictions);
    assert!(figures.per_workload(others) <= 1.5, "{figures}");
    // Twenty per second, a second's worth at once, and a first status of each after the last change.
    let most = 20 * (figures.wall.as_secs() + 3) + 60;
    assert!(figures.queue_writes <= most, "{figures}");
    let events = figures.events.saturating_sub(5 * figures.evictions);
    assert!(figures.per_workload(events) <= 3.0, "{figures}");
}
