//! Elastic Jobs, run by Kubernetes' own Job controller: they grow and shrink while they run, are preempted as a whole, and are admitted again.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place, job};

use crate::flavors::{flavor_of, flavors, set_quota, two_flavors};
use crate::pods::{delete, pods, states, wait_until_gone};
use crate::serving::wait_for_pods;
use crate::slices::{self, ELASTIC, is_gated, make_urgent, wait_for_usage};

const REPLACES: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
const FIRST: &str = "kueue.x-k8s.io/workload-slice-name";
/// The Job of these tests, and how the names of its pods begin.
const NAME: &str = "e";
const PODS: &str = "e-";

/// An elastic Job whose pods ask for one processor each and run until they receive SIGTERM.
fn elastic(parallelism: u32, completions: Option<u32>) -> Value {
    let mut job = job(NAME, "lq", 1, parallelism, 3_600);
    job["metadata"]["annotations"] = json!({ELASTIC: "true"});
    job["spec"]["completions"] = json!(completions);
    job
}

async fn place(name: &'static str, quota: [u32; 2]) -> Place<'static> {
    Box::pin(two_flavors(name, quota)).await
}

async fn scale(place: &Place<'_>, parallelism: u32) {
    place.patch_job(NAME, json!({"spec": {"parallelism": parallelism}})).await.unwrap();
}

/// The Job's pods that may be scheduled, by UID, with the flavor whose nodes they are for.
async fn free(place: &Place<'_>) -> BTreeMap<String, String> {
    let list = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={NAME}"));
    let all = pods(place).list(&list).await.unwrap().items;
    let free = all.into_iter().filter(|pod| !is_gated(pod));
    free.map(|pod| (pod.metadata.uid.unwrap(), flavor_of(pod.spec, &place.name))).collect()
}

/// Waits until the Job has these slices, in any order.
async fn wait_for_slices(place: &Place<'_>, wanted: &[&str]) {
    slices::wait_for(place, NAME, wanted).await;
}

/// The slice that stands so.
async fn slice(place: &Place<'_>, stands: &str) -> Value {
    slices::standing(place, NAME, stands).await
}

/// Waits until `runs` pods run and `waits` wait, the slices are these, and no more processors are used than pods run.
async fn wait_until(place: &Place<'_>, runs: usize, waits: usize, slices: &[&str]) {
    wait_for_slices(place, slices).await;
    wait_for_pods(place, PODS, runs, waits).await;
    wait_for_usage(place, u64::try_from(runs).unwrap()).await;
}

/// There are no processes in pods: the test says that `count` of those that run ended.
async fn end(place: &Place<'_>, count: usize) {
    let states = states(place).await.unwrap();
    let runs: Vec<_> = states.into_iter().filter(|(_, state)| *state == "runs").take(count).collect();
    assert_eq!(runs.len(), count);
    for (name, _) in runs {
        let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        pods(place).patch_status(&name, &PatchParams::default(), &ended).await.unwrap();
    }
}

/// From two pods to six: within the quota, and beyond it.
async fn grows(place: &Place<'_>) {
    let [old, _] = flavors(&place.name);
    place.make_job(&elastic(2, Some(100))).await.unwrap();
    wait_for_slices(place, &["2 waits"]).await;
    assert!(place.suspended(NAME).await.unwrap());
    set_quota(place, [4, 4]).await;
    wait_until(place, 2, 0, &["2 runs"]).await;
    let two = free(place).await;
    let first = slice(place, "2 runs").await["metadata"]["name"].as_str().unwrap().to_owned();

    scale(place, 4).await;
    wait_until(place, 4, 0, &["2 WorkloadSliceReplaced", "4 runs"]).await;
    let replaced = format!("Workload/{first}");
    place.wait_for_event(&replaced, "WorkloadSliceReplaced", "workload slice aggregation").await.unwrap();
    let four = free(place).await;
    assert!(two.keys().all(|pod| four.contains_key(pod)), "none was stopped: {two:?} {four:?}");
    let annotations = slice(place, "4 runs").await["metadata"]["annotations"].clone();
    assert_eq!(annotations[REPLACES], format!("{}/{first}", place.name));
    assert_eq!((&annotations[FIRST], &annotations[ELASTIC]), (&json!(first), &json!("true")));

    // The other flavor has room, but a job does not run in two.
    scale(place, 6).await;
    wait_until(place, 4, 2, &["2 WorkloadSliceReplaced", "4 runs", "6 waits"]).await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    assert_eq!(free(place).await, four, "those that run continue");
    set_quota(place, [6, 0]).await;
    wait_until(place, 6, 0, &["2 WorkloadSliceReplaced", "4 WorkloadSliceReplaced", "6 runs"]).await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();
    let six = free(place).await;
    assert!(four.keys().all(|pod| six.contains_key(pod)), "none was stopped: {four:?} {six:?}");
    assert!(six.values().all(|flavor| *flavor == old), "{six:?}");
    let last = slice(place, "6 runs").await["metadata"]["annotations"].clone();
    assert_eq!(last[FIRST], first.as_str());
}

/// From six pods to three: what the others had is given to another Job.
async fn shrinks(place: &Place<'_>) {
    let six = free(place).await;
    let name = slice(place, "6 runs").await["metadata"]["name"].clone();
    place.job("other", "lq", 3).await.unwrap();
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    scale(place, 3).await;
    wait_for_slices(place, &["2 WorkloadSliceReplaced", "4 WorkloadSliceReplaced", "3 runs"]).await;
    wait_for_pods(place, PODS, 3, 0).await;
    place.wait_until("other", true).await.unwrap();
    place.wait_for_counts([0, 2, 2]).await.unwrap();
    wait_for_usage(place, 6).await;
    assert_eq!(slice(place, "3 runs").await["metadata"]["name"], name, "in its place");
    assert!(free(place).await.keys().all(|pod| six.contains_key(pod)));
    place.delete_job("other").await.unwrap();
    wait_for_usage(place, 3).await;
}

/// It is preempted while it waits for more; it comes back with as many pods as it asks for then.
async fn is_preempted_and_comes_back(place: &Place<'_>) {
    let [_, new] = flavors(&place.name);
    let before = free(place).await;
    scale(place, 8).await;
    wait_for_pods(place, PODS, 3, 5).await;
    make_urgent(place, job("urgent", "lq", 6, 1, 3_600)).await;
    place.wait_until("urgent", true).await.unwrap();
    place.wait_until(NAME, false).await.unwrap();
    wait_for_pods(place, PODS, 0, 0).await;
    wait_for_usage(place, 6).await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    scale(place, 4).await;
    set_quota(place, [6, 4]).await;
    wait_for_pods(place, PODS, 4, 0).await;
    wait_for_usage(place, 10).await;
    place.wait_for_counts([0, 2, 2]).await.unwrap();
    let four = free(place).await;
    assert!(four.iter().all(|(pod, flavor)| !before.contains_key(pod) && *flavor == new), "{four:?}");
    place.delete_job("urgent").await.unwrap();
    wait_for_usage(place, 4).await;
    // It grows where it is now.
    set_quota(place, [0, 5]).await;
    scale(place, 5).await;
    wait_for_pods(place, PODS, 5, 0).await;
    wait_for_usage(place, 5).await;
    let five = free(place).await;
    assert!(four.keys().all(|pod| five.contains_key(pod)) && five.values().all(|flavor| *flavor == new));
}

#[tokio::test]
async fn an_elastic_job_lives_through_everything_that_can_become_of_it() {
    let place = &place("elastic", [0, 0]).await;
    Box::pin(grows(place)).await;
    Box::pin(shrinks(place)).await;
    Box::pin(is_preempted_and_comes_back(place)).await;
    // Deleted while some of its pods run and some wait.
    scale(place, 7).await;
    wait_for_pods(place, PODS, 5, 2).await;
    place.delete_job(NAME).await.unwrap();
    wait_until_gone(place).await;
    wait_for_usage(place, 0).await;
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

#[tokio::test]
async fn an_elastic_job_with_completions_gives_up_what_it_needs_no_more_and_ends() {
    let place = &place("elastic-ends", [3, 0]).await;
    place.make_job(&elastic(3, Some(4))).await.unwrap();
    wait_until(place, 3, 0, &["3 runs"]).await;
    // One that ended is succeeded by another; then there are fewer left than may run at once.
    end(place, 1).await;
    eventually("the next pod to run", DEADLINE, || async {
        let states = states(place).await?;
        let count = |wanted: &str| states.iter().filter(|(_, state)| *state == wanted).count();
        Ok(progress((count("ended"), count("runs"), states.len()) == (1, 3, 4), format!("{states:?}")))
    })
    .await
    .unwrap();
    wait_for_usage(place, 3).await;
    end(place, 2).await;
    wait_for_usage(place, 1).await;
    let status = slice(place, "3 runs").await["status"].clone();
    assert_eq!(status["reclaimablePods"][0]["count"], 2, "{status}");
    // More at once change nothing: one completion is left, and the slice has room for it.
    scale(place, 4).await;
    wait_for_usage(place, 1).await;
    wait_for_slices(place, &["3 runs"]).await;
    end(place, 1).await;
    wait_for_slices(place, &["3 Succeeded"]).await;
    wait_for_usage(place, 0).await;
    place.wait_for_counts([0, 0, 0]).await.unwrap();
    place.delete_job(NAME).await.unwrap();
    wait_until_gone(place).await;
}

#[tokio::test]
async fn a_pod_that_a_user_ungates_uses_what_others_of_its_job_were_granted() {
    let place = &place("elastic-hostile", [2, 0]).await;
    place.make_job(&job("plain", "lq", 3, 1, 3_600)).await.unwrap();
    let later = json!({"metadata": {"annotations": {ELASTIC: "true"}}});
    let refused = place.patch_job("plain", later).await.unwrap_err();
    assert!(refused.to_string().contains("field is immutable"), "{refused}");
    place.delete_job("plain").await.unwrap();
    // One that waits gets the new number itself.
    place.make_job(&elastic(3, None)).await.unwrap();
    wait_for_slices(place, &["3 waits"]).await;
    scale(place, 2).await;
    wait_until(place, 2, 0, &["2 runs"]).await;
    let no_more = json!({"metadata": {"annotations": {ELASTIC: null}}});
    let refused = place.patch_job(NAME, no_more).await.unwrap_err();
    assert!(refused.to_string().contains("field is immutable"), "{refused}");

    scale(place, 4).await;
    wait_until(place, 2, 2, &["2 runs", "4 waits"]).await;
    let of = |wanted: &'static str| async move {
        let states = states(place).await.unwrap();
        states.into_iter().find(|(_, state)| *state == wanted).unwrap().0
    };
    let granted = of("runs").await;
    let gate = json!({"spec": {"schedulingGates": null}});
    pods(place).patch(&of("waits").await, &PatchParams::default(), &Patch::Merge(gate)).await.unwrap();
    wait_for_pods(place, PODS, 3, 1).await;
    wait_for_usage(place, 2).await;
    // The successor of a granted one waits: what it was granted is used.
    delete(place, &granted).await;
    wait_for_pods(place, PODS, 2, 2).await;
    wait_for_usage(place, 2).await;
    wait_for_pods(place, PODS, 2, 2).await;
    // Back to what it has, and on from there.
    scale(place, 2).await;
    wait_until(place, 2, 0, &["2 runs", "4 OutOfSync"]).await;
    set_quota(place, [3, 0]).await;
    scale(place, 3).await;
    wait_until(place, 3, 0, &["2 WorkloadSliceReplaced", "4 OutOfSync", "3 runs"]).await;

    // A user deletes the slice that runs: the job stops, and starts again on another.
    let before = free(place).await;
    let name = slice(place, "3 runs").await["metadata"]["name"].as_str().unwrap().to_owned();
    place.workloads().delete(&name, &DeleteParams::default()).await.unwrap();
    eventually("other pods to run", DEADLINE, || async {
        let free = free(place).await;
        Ok(progress(free.len() == 3 && free.keys().all(|pod| !before.contains_key(pod)), format!("{free:?}")))
    })
    .await
    .unwrap();
    wait_for_pods(place, PODS, 3, 0).await;
    wait_for_usage(place, 3).await;
    place.delete_job(NAME).await.unwrap();
    wait_until_gone(place).await;
}

#[tokio::test]
async fn an_elastic_job_of_indexed_pods_grows_on_what_a_lesser_job_has() {
    let place = &place("elastic-indexed", [4, 0]).await;
    let mut indexed = elastic(2, Some(2));
    indexed["spec"]["completionMode"] = json!("Indexed");
    make_urgent(place, indexed).await;
    wait_until(place, 2, 0, &["2 runs"]).await;
    let two = free(place).await;
    place.job("lesser", "lq", 2).await.unwrap();
    place.wait_until("lesser", true).await.unwrap();
    wait_for_usage(place, 4).await;
    // Kubernetes lets both numbers of such a Job change together.
    let size = |pods: u32| json!({"spec": {"parallelism": pods, "completions": pods}});
    place.patch_job(NAME, size(4)).await.unwrap();
    place.wait_for_condition("lesser", "Evicted", "True/Preempted").await.unwrap();
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    wait_until(place, 4, 0, &["2 WorkloadSliceReplaced", "4 runs"]).await;
    let four = free(place).await;
    assert!(two.keys().all(|pod| four.contains_key(pod)), "none was stopped: {two:?} {four:?}");
    assert!(place.suspended("lesser").await.unwrap());
    place.patch_job(NAME, size(1)).await.unwrap();
    wait_for_slices(place, &["2 WorkloadSliceReplaced", "1 runs"]).await;
    place.wait_until("lesser", true).await.unwrap();
    wait_for_pods(place, "e-0-", 1, 0).await;
    wait_for_pods(place, PODS, 1, 0).await;
    wait_for_usage(place, 3).await;
    place.delete_job(NAME).await.unwrap();
    place.delete_job("lesser").await.unwrap();
    wait_until_gone(place).await;
    wait_for_usage(place, 0).await;
}
