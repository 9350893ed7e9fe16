//! JobSets that wait in queues and are run by the real JobSet controller, by all of its policies.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::jobset::{JobSet, JobSetStatus};
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, patch, reported};

use crate::bed::bed;

/// A group of Jobs of two pods with one processor each.
fn group(name: &str, replicas: u32, annotations: &Value, more: &Value) -> Value {
    let container = json!({"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}});
    let pods = json!({
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
    });
    let job = json!({"spec": {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": pods}});
    let mut group = json!({"name": name, "replicas": replicas, "template": job});
    for (key, value) in more.as_object().into_iter().flatten() {
        group[key] = value.clone();
    }
    group
}

fn runs(seconds: &str) -> Value {
    json!({"sluice.dev/run-seconds": seconds})
}

fn jobset(name: &str, groups: &[Value], more: &Value) -> JobSet {
    let mut spec = json!({"replicatedJobs": groups});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let labels = json!({QUEUE_NAME: "lq"});
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).unwrap()
}

async fn wait(
    place: &Place<'_>,
    name: &str,
    what: &str,
    holds: impl Fn(&JobSetStatus) -> bool,
) -> JobSetStatus {
    let jobsets: Api<JobSet> = Api::namespaced(place.client.clone(), &place.name);
    eventually(&format!("{name}: {what}"), DEADLINE, || async {
        let status = jobsets.get(name).await?.status.unwrap_or_default();
        Ok(progress(holds(&status), serde_json::to_string(&status)?))
    })
    .await
    .unwrap();
    jobsets.get(name).await.unwrap().status.unwrap()
}

async fn make(place: &Place<'_>, jobset: &JobSet) -> kube::Result<JobSet> {
    let jobsets: Api<JobSet> = Api::namespaced(place.client.clone(), &place.name);
    jobsets.create(&PostParams::default(), jobset).await
}

/// When the first pod of a group was made.
async fn began(place: &Place<'_>, jobset: &str, group: &str) -> Option<jiff::Timestamp> {
    let pods: Api<Pod> = Api::namespaced(place.client.clone(), &place.name);
    let selector =
        format!("jobset.sigs.k8s.io/jobset-name={jobset},jobset.sigs.k8s.io/replicatedjob-name={group}");
    let pods = pods.list(&ListParams::default().labels(&selector)).await.unwrap();
    pods.into_iter().filter_map(|pod| Some(pod.metadata.creation_timestamp?.0)).min()
}

#[tokio::test]
async fn groups_that_depend_on_each_other_run_one_after_the_other_in_one_admission() {
    let place = Place::new(bed().await.plane, "depends", 6).await.unwrap();
    let second = |on: &str| {
        let depends = json!({"dependsOn": [{"name": on, "status": "Complete"}]});
        group("second", 2, &runs("0.2"), &depends)
    };
    let first = || group("first", 1, &runs("1.5"), &json!({}));

    let refused = make(&place, &jobset("refused", &[first(), second("third")], &json!({}))).await;
    assert!(refused.unwrap_err().to_string().contains("vjobset.kb.io"));

    make(&place, &jobset("ordered", &[first(), second("first")], &json!({}))).await.unwrap();
    place.wait_for_condition("ordered", "Admitted", "True/").await.unwrap();
    // All of it was asked for at once.
    let workload = place.workload("ordered").await.unwrap();
    let sets = workload["status"]["admission"]["podSetAssignments"].as_array().unwrap();
    let counts: Vec<_> = sets.iter().map(|set| (set["name"].clone(), set["count"].clone())).collect();
    assert_eq!(counts, [(json!("first"), json!(2)), (json!("second"), json!(4))]);
    wait(&place, "ordered", "completed", |s| s.terminal_state.as_deref() == Some("Completed")).await;
    let (first, second) = (began(&place, "ordered", "first"), began(&place, "ordered", "second"));
    assert!(first.await.unwrap() < second.await.unwrap());
    place.wait_for_condition("ordered", "Finished", "True/").await.unwrap();
}

/// Lets the pods of a group end well that have not ended. How many there were.
async fn succeed(place: &Place<'_>, jobset: &str, group: &str) -> usize {
    end(place, jobset, group, "Succeeded").await
}

/// Lets them end in this phase.
async fn end(place: &Place<'_>, jobset: &str, group: &str, phase: &str) -> usize {
    let selector =
        format!("jobset.sigs.k8s.io/jobset-name={jobset},jobset.sigs.k8s.io/replicatedjob-name={group}");
    let pods = place.pods_with(&selector).await.unwrap();
    let open = pods
        .iter()
        .filter(|pod| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null());
    let names: Vec<_> = open.filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    for name in &names {
        let ended = Patch::Merge(json!({"status": {"phase": phase}}));
        place.pods().patch_status(name, &PatchParams::default(), &ended).await.unwrap();
    }
    names.len()
}

#[tokio::test]
async fn a_jobset_that_is_preempted_between_two_groups_goes_on_with_the_second() {
    let place = Place::bare(bed().await.plane, "between").await.unwrap();
    place.flavor("between").await.unwrap();
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    place.cluster_queue("between", 6, &preemption).await.unwrap();
    place.local_queue("lq", "between").await.unwrap();
    let depends = json!({"dependsOn": [{"name": "first", "status": "Complete"}]});
    let groups = [group("first", 1, &runs("3600"), &json!({})), group("second", 2, &runs("3600"), &depends)];
    make(&place, &jobset("train", &groups, &json!({}))).await.unwrap();
    let group_of = |status: &JobSetStatus, name: &str| {
        status.replicated_jobs_status.iter().find(|group| group.name == name).cloned().unwrap_or_default()
    };
    wait(&place, "train", "its first group runs", |s| group_of(s, "first").ready == 1).await;
    // The group ends, and at once the urgent job asks for all there is. Pods that end once the stop has deleted them have not succeeded: the Job's own
    // controller must have seen their ends.
    assert_eq!(succeed(&place, "train", "first").await, 2);
    eventually("the pods of the first group to be counted", DEADLINE, || async {
        let job = place.jobs().get("train-first-0").await?;
        let succeeded = job.status.and_then(|status| status.succeeded);
        Ok(progress(succeeded == Some(2), format!("{succeeded:?}")))
    })
    .await
    .unwrap();
    place.make_urgent("between", 6).await.unwrap();
    place.wait_for_condition("train", "Evicted", "True/Preempted").await.unwrap();
    place.wait_until("urgent", true).await.unwrap();
    place.wait_for_condition("train", "QuotaReserved", "False").await.unwrap();
    wait(&place, "train", "its first group is over", |s| group_of(s, "first").succeeded == 1).await;
    assert_eq!(succeed(&place, "train", "second").await, 0, "it is stopped");

    place.delete_job("urgent").await.unwrap();
    wait(&place, "train", "its second group runs", |s| group_of(s, "second").ready == 2).await;
    let workload = place.workload("train").await.unwrap();
    let sets = workload["status"]["admission"]["podSetAssignments"].as_array().unwrap();
    let counts: Vec<_> = sets.iter().filter_map(|set| set["count"].as_i64()).collect();
    assert_eq!(counts.iter().sum::<i64>(), 4, "the first group asks for nothing any more: {sets:?}");
    assert_eq!(succeed(&place, "train", "first").await, 0, "it is not run again");
    assert_eq!(succeed(&place, "train", "second").await, 4);
    wait(&place, "train", "completed", |s| s.terminal_state.as_deref() == Some("Completed")).await;
    place.wait_for_condition("train", "Finished", "True/Succeeded").await.unwrap();
}

#[tokio::test]
async fn a_jobset_that_starts_in_order_is_stopped_and_started_again_as_a_whole() {
    let place = Place::new(bed().await.plane, "in-order", 4).await.unwrap();
    let groups = ["driver", "workers"].map(|name| group(name, 1, &runs("600"), &json!({})));
    let order = json!({"startupPolicy": {"startupPolicyOrder": "InOrder"}});
    make(&place, &jobset("train", &groups, &order)).await.unwrap();
    let all_ready = |status: &JobSetStatus| {
        status.replicated_jobs_status.len() == 2 && status.replicated_jobs_status.iter().all(|g| g.ready == 1)
    };
    wait(&place, "train", "running", all_ready).await;

    let workload = place.workload("train").await.unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    let active = async |active: bool| {
        patch(&place.workloads(), name, json!({"spec": {"active": active}})).await.unwrap();
    };
    active(false).await;
    let idle = |status: &JobSetStatus| {
        status.replicated_jobs_status.iter().all(|g| g.suspended == 1 && g.active == 0)
    };
    wait(&place, "train", "stopped", idle).await;
    place.wait_for_condition("train", "QuotaReserved", "False/").await.unwrap();
    active(true).await;
    wait(&place, "train", "running again", all_ready).await;
    let workload = place.workload("train").await.unwrap();
    assert!(reported(&workload, "Admitted").starts_with("True/"), "{}", reported(&workload, "Admitted"));
}

#[tokio::test]
async fn a_jobset_keeps_its_quota_over_its_restarts_and_gives_it_back_when_it_has_failed() {
    let place = Place::new(bed().await.plane, "fails", 2).await.unwrap();
    let fails = group("worker", 1, &json!({"sluice.dev/fail-after-seconds": "0.2"}), &json!({}));
    let policy = json!({"failurePolicy": {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"}});
    make(&place, &jobset("again", &[fails], &policy)).await.unwrap();
    make(&place, &jobset("next", &[group("worker", 1, &runs("0.2"), &json!({}))], &json!({}))).await.unwrap();
    let status = wait(&place, "again", "failed", |s| s.terminal_state.as_deref() == Some("Failed")).await;
    assert_eq!((status.restarts, status.restarts_count_towards_max), (1, 1));
    place.wait_for_condition("again", "Finished", "True/Failed").await.unwrap();
    let workload = place.workload("again").await.unwrap();
    assert_eq!(reported(&workload, "Evicted"), "nothing", "its restarts are its own affair");
    place.wait_for_condition("next", "Finished", "True/").await.unwrap();
}

/// Pods that fail at once, with a rule of the failure policy for that.
fn failing(name: &str, action: &str, more: &Value) -> JobSet {
    let fails = group("worker", 1, &json!({"sluice.dev/fail-after-seconds": "0.2"}), &json!({}));
    let mut policy = json!({"rules": [{"name": "r", "action": action, "targetReplicatedJobs": ["worker"]}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        policy[key] = value.clone();
    }
    jobset(name, &[fails], &json!({"failurePolicy": policy}))
}

#[tokio::test]
async fn the_rules_of_a_failure_policy_are_played_under_one_admission() {
    let place = Place::new(bed().await.plane, "rules", 4).await.unwrap();
    // One restarts as often as its pods fail, whatever the most may be; one is over with its first failure; one restarts as often as it may.
    let again = failing("again", "RestartJobSetAndIgnoreMaxRestarts", &json!({"maxRestarts": 0}));
    let over = failing("over", "FailJobSet", &json!({"maxRestarts": 5}));
    let counted = failing("counted", "RestartJobSet", &json!({"maxRestarts": 1}));
    let status = async {
        make(&place, &again).await.unwrap();
        place.wait_for_condition("again", "Admitted", "True/").await.unwrap();
        let admitted = place.workload("again").await.unwrap();
        let status = wait(&place, "again", "restarted", |s| s.restarts >= 2).await;
        (admitted, status)
    };
    let failed = async {
        make(&place, &over).await.unwrap();
        let failed = wait(&place, "over", "failed", |s| s.terminal_state.as_deref() == Some("Failed")).await;
        place.wait_for_condition("over", "Finished", "True/Failed").await.unwrap();
        failed
    };
    let restarted = async {
        make(&place, &counted).await.unwrap();
        let failed =
            wait(&place, "counted", "failed", |s| s.terminal_state.as_deref() == Some("Failed")).await;
        place.wait_for_condition("counted", "Finished", "True/Failed").await.unwrap();
        failed
    };
    let ((admitted, again), failed, restarted) = tokio::join!(status, failed, restarted);
    assert_eq!((restarted.restarts, restarted.restarts_count_towards_max), (1, 1));
    assert_eq!(reported(&place.workload("counted").await.unwrap(), "Evicted"), "nothing");
    assert_eq!(again.restarts_count_towards_max, 0);
    assert_eq!(failed.restarts, 0, "it may restart five times, and the rule comes first");
    let now = place.workload("again").await.unwrap();
    for part in ["admission", "schedulingStats", "requeueState"] {
        assert_eq!(now["status"][part], admitted["status"][part], "{part}");
    }
    assert_eq!(now["metadata"]["uid"], admitted["metadata"]["uid"]);
    assert_eq!(
        (reported(&now, "Evicted"), reported(&now, "Admitted")),
        ("nothing".to_owned(), reported(&admitted, "Admitted"))
    );
    let jobsets: Api<JobSet> = Api::namespaced(place.client.clone(), &place.name);
    let spec = serde_json::to_value(jobsets.get("again").await.unwrap()).unwrap()["spec"].clone();
    assert_eq!(spec["suspend"], false, "Sluice neither stops it nor starts it again");
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(place.client.clone(), &place.name);
    let started = |event: &k8s_openapi::api::events::v1::Event| {
        let about = event.regarding.as_ref().and_then(|object| object.name.as_deref());
        about == Some("again") && event.reason.as_deref() == Some("Started") && event.series.is_none()
    };
    let told_once = eventually("its start to be told", DEADLINE, || async {
        let all = events.list(&ListParams::default()).await?;
        let count = all.iter().filter(|event| started(event)).count();
        Ok(progress(count == 1, count))
    });
    told_once.await.unwrap();
    // What it holds is free with it.
    jobsets.delete("again", &kube::api::DeleteParams::default()).await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

#[tokio::test]
async fn replicas_that_run_again_after_a_restart_need_quota_again() {
    let place = Place::new(bed().await.plane, "again", 4).await.unwrap();
    let two = |seconds: &str| ["first", "second"].map(|name| group(name, 1, &runs(seconds), &json!({})));
    let policy = json!({"failurePolicy": {"maxRestarts": 3}});
    make(&place, &jobset("train", &two("3600"), &policy)).await.unwrap();
    let ready = |status: &JobSetStatus| {
        status.replicated_jobs_status.len() == 2 && status.replicated_jobs_status.iter().all(|g| g.ready == 1)
    };
    wait(&place, "train", "running", ready).await;
    assert_eq!(succeed(&place, "train", "first").await, 2);
    make(&place, &jobset("other", &[group("only", 1, &runs("3600"), &json!({}))], &json!({}))).await.unwrap();
    place.wait_for_condition("other", "Admitted", "True/").await.unwrap();
    wait(&place, "other", "running", |s| s.replicated_jobs_status.iter().all(|g| g.ready == 1)).await;

    assert_eq!(end(&place, "train", "second", "Failed").await, 2);
    let why = "True/OutOfSync: 2 pods of \"first\" run, and quota is held for only 0";
    place.wait_for_condition("train", "Evicted", why).await.unwrap();
    place.wait_for_condition("train", "QuotaReserved", "False").await.unwrap();
    let jobsets: Api<JobSet> = Api::namespaced(place.client.clone(), &place.name);
    jobsets.delete("other", &kube::api::DeleteParams::default()).await.unwrap();
    wait(&place, "train", "running again", ready).await;
    let workload = place.workload("train").await.unwrap();
    assert_eq!(workload["status"].get("reclaimablePods"), None);
}
