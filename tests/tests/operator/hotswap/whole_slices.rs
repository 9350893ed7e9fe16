//! Jobs in slices, each of them in one rack: the slice that loses a node moves to another rack, and the others stay.

use std::collections::BTreeMap;

use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place, job, reported};

use super::bed::{TURN, kill_and_restart, plane};
use crate::topology::{INDEX, JOB_NAME, RACK, hosts, make_sliced_jobset, racks_on, wait_for_nodes};

/// Racks of two nodes in a queue that Hotswap acts for.
async fn racks(name: &'static str, racks: &[(&str, u32)]) -> Place<'static> {
    let preemption = json!({"reclaimOutOfCohort": {"enable": true}});
    Box::pin(racks_on(plane().await, name, racks, &preemption)).await
}

/// A node goes for good, and the pod of this index with it: the garbage collector of pods would take a minute to notice.
async fn lose(place: &Place<'_>, node: &str, job: &str, index: &str) {
    hosts(place).delete(&format!("{}-{node}", place.name), &DeleteParams::default()).await.unwrap();
    let pods = place.pods_with(&format!("{JOB_NAME}={job},{INDEX}={index}")).await.unwrap();
    for pod in pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        place.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
}

/// The UIDs of the pods of a Job that stay, by index.
async fn uids(place: &Place<'_>, job: &str) -> BTreeMap<String, Value> {
    let pods = place.pods_with(&format!("{JOB_NAME}={job}")).await.unwrap();
    let stays = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    stays
        .map(|pod| {
            let index = pod["metadata"]["labels"][INDEX].as_str().unwrap_or_default();
            (index.to_owned(), pod["metadata"]["uid"].clone())
        })
        .collect()
}

#[tokio::test]
async fn the_slice_alone_moves_although_the_manager_is_killed_as_soon_as_its_new_nodes_are_written() {
    let _turn = TURN.lock().await;
    let place = racks("slice-killed", &[("a", 2), ("b", 2), ("c", 2)]).await;
    let mut train = job("train", "lq", 4, 4, 3_600);
    train["spec"]["completionMode"] = json!("Indexed");
    let annotations = &mut train["spec"]["template"]["metadata"]["annotations"];
    annotations["kueue.x-k8s.io/podset-slice-required-topology"] = json!(RACK);
    annotations["kueue.x-k8s.io/podset-slice-size"] = json!("2");
    place.make_job(&train).await.unwrap();
    wait_for_nodes(&place, "train", &["a-0", "a-1", "b-0", "b-1"]).await;
    let before = uids(&place, "train").await;
    lose(&place, "a-1", "train", "1").await;
    eventually("another rack to be assigned", DEADLINE, || async {
        let workload = place.workload("train").await?;
        let assignment = &workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
        Ok(progress(assignment.to_string().contains("c-"), assignment.to_string()))
    })
    .await
    .unwrap();
    kill_and_restart(place.plane).await;
    wait_for_nodes(&place, "train", &["c-0", "c-1", "b-0", "b-1"]).await;
    let after = uids(&place, "train").await;
    for (index, moved) in [("0", true), ("1", true), ("2", false), ("3", false)] {
        assert_eq!(before[index] != after[index], moved, "{index}: {before:?} {after:?}");
    }
    let workload = place.workload("train").await.unwrap();
    assert!(workload["status"]["unhealthyNodes"].as_array().is_none_or(Vec::is_empty), "{workload}");
    assert_eq!(reported(&workload, "Evicted"), "nothing");
}

#[tokio::test]
async fn one_job_of_a_jobset_moves_and_all_of_it_once_no_rack_is_free() {
    let _turn = TURN.lock().await;
    let place = racks("slice-jobset", &[("a", 2), ("b", 2), ("c", 2)]).await;
    make_sliced_jobset(&place).await;
    wait_for_nodes(&place, "train-workers-0", &["a-0", "a-1"]).await;
    wait_for_nodes(&place, "train-workers-1", &["b-0", "b-1"]).await;
    let stays = uids(&place, "train-workers-1").await;
    let jobs = || async {
        let jobs = place.jobs().list(&ListParams::default()).await.unwrap();
        jobs.items.into_iter().filter_map(|job| job.metadata.uid).collect::<Vec<_>>()
    };
    let before = jobs().await;
    lose(&place, "a-1", "train-workers-0", "1").await;
    wait_for_nodes(&place, "train-workers-0", &["c-0", "c-1"]).await;
    assert_eq!(uids(&place, "train-workers-1").await, stays);
    assert_eq!(jobs().await, before, "no Job of it was made again");
    place
        .wait_for_event(
            &place.about_workload("train").await.unwrap(),
            "SliceMoved",
            "the slice moves to slice-jobset-c-0, slice-jobset-c-1",
        )
        .await
        .unwrap();

    // One node of the rack a is left.
    lose(&place, "c-1", "train-workers-0", "1").await;
    let said = "True/NodeFailures: Workload was evicted as there was no replacement for unhealthy node(s): slice-jobset-c-1; \
                the slice that lost it cannot move: topology \"slice-jobset\" doesn't allow to fit any of 1 slice(s)";
    place.wait_for_condition("train", "Evicted", said).await.unwrap();
    place.wait_for_condition("train", "QuotaReserved", "False/").await.unwrap();
}
