//! Jobs for which the healthy nodes have no capacity: explain says which flavor, how many pods and since when, and that the nodes' return lets them
//! run.

use sluice_testkit::wait::{eventually, progress};

use super::bed::{DEADLINE, HIGH, LOW, TURN, World};

#[tokio::test]
async fn work_that_waits_for_healthy_nodes_says_so_and_runs_when_they_are_back() {
    let _turn = TURN.lock().await;
    let world = World::new("page-explained", 64, 4).await;
    let (before, _) = world.both_run().await;
    let lost = before.first().unwrap().clone();
    world.departs(&lost, true).await;
    world.runs(HIGH, Some(&lost)).await;
    world.reported(LOW, "QuotaReserved", "WaitingForCapacity").await;
    let parts = [
        "why: WaitingForCapacity: ",
        "* the healthy nodes of flavor page-explained have no room for 4 of the 8 pod(s) of pod set slice",
        "    google.com/tpu: 32 needed, 16 free, 16 more needed",
        "    it waits since ",
        // Their names are for questions about all namespaces.
        "    flavor page-explained has 16 node(s); 4 marked for removal\n",
        "repair the nodes of flavor page-explained",
    ];
    eventually("explain to say what is short", DEADLINE, || async {
        let page = world.explained(LOW).await?;
        let missing: Vec<_> = parts.iter().filter(|part| !page.contains(**part)).collect();
        // Never, whatever it knows by now.
        assert!(!page.contains("nothing that is known keeps it from starting"), "{page}");
        Ok(progress(missing.is_empty(), format!("without {missing:?}: {page}")))
    })
    .await
    .unwrap();
    world.departs(&lost, false).await;
    world.runs(LOW, None).await;
    eventually("explain to have nothing to say of nodes", DEADLINE, || async {
        let page = world.explained(LOW).await?;
        // That it was preempted is history.
        let well = page.contains("): admitted\n")
            && !page.contains("have no room")
            && page.contains("EvictedDueToPreempted");
        Ok(progress(well, page))
    })
    .await
    .unwrap();
}
