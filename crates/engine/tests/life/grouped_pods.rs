//! Pods of an object whose groups of pods are jobs (docs/reference/07-integrations.md 7.4, LeaderWorkerSet).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView};
use sluice_api::names::{MAX_WORKLOAD_NAME, workload_name};
use sluice_api::v1beta2::Workload;
use sluice_engine::{Kind, ObjectRef};

use crate::model::build::{job, pod_set};
use crate::model::pods::pod;
use crate::model::{Api, Cluster, condition, reported};
use crate::plain_pods::{add_high, announced, bed};

/// `groups` groups of a leader and a worker, with one cpu each.
fn set(groups: u32) -> JobView {
    let mut view = job("team-a", "web", "lq", 1, "1");
    view.job.kind = JobKind::LEADER_WORKER_SET;
    view.groups = Some(groups);
    view.pod_sets = vec![pod_set("leader", 1, "1"), pod_set("worker", 1, "1")];
    view
}

fn with_set(cpu: &str, groups: u32) -> Cluster {
    let mut c = bed(cpu);
    c.api.add_job(set(groups));
    c.settle();
    c
}

/// A pod as the webhooks leave it, of the StatefulSet `owner`.
fn member(name: &str, owner: &str, role: &str) -> Value {
    let mut pod = pod(name, "lq", "1");
    let metadata = &mut pod["metadata"];
    metadata.as_object_mut().unwrap().remove("finalizers");
    metadata["labels"]["leaderworkerset.sigs.k8s.io/name"] = json!("web");
    metadata["annotations"]["kueue.x-k8s.io/pod-suspending-parent"] =
        json!(JobKind::LEADER_WORKER_SET.framework());
    metadata["annotations"]["kueue.x-k8s.io/role-hash"] = json!(role);
    metadata["ownerReferences"] = json!([
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": owner, "uid": owner, "controller": true},
    ]);
    pod
}

fn leader(group: usize) -> Value {
    member(&format!("web-{group}"), "web", "leader")
}

fn worker(group: usize) -> Value {
    member(&format!("web-{group}-1"), &format!("web-{group}"), "worker")
}

/// The pods of these groups are made.
fn make(c: &mut Cluster, groups: std::ops::Range<usize>) {
    for group in groups {
        c.api.add_pod(leader(group));
        c.api.add_pod(worker(group));
    }
    c.settle();
}

fn run(c: &mut Cluster, groups: std::ops::Range<usize>) {
    for group in groups {
        c.api.run_pod(&format!("web-{group}"), "Running");
        c.api.run_pod(&format!("web-{group}-1"), "Running");
    }
    c.settle();
}

/// The pods of a group are gone.
fn take(c: &mut Cluster, group: usize) {
    for name in [format!("web-{group}-1"), format!("web-{group}")] {
        if c.api.pod(&name).is_some() {
            c.api.delete_queued_pod(&name);
        }
    }
    c.settle();
}

/// Which groups have both pods free.
fn free(c: &Cluster, groups: usize) -> Vec<bool> {
    let both = |group| ["", "-1"].map(|end| c.api.is_free(&format!("web-{group}{end}")));
    (0..groups)
        .map(|group| {
            let [leader, worker] = both(group);
            assert_eq!(leader, worker, "group {group}");
            leader
        })
        .collect()
}

/// The Workloads by their group.
fn workloads(c: &Cluster) -> BTreeMap<String, Workload> {
    let index = |w: &Workload| {
        w.metadata.annotations.as_ref().unwrap()["kueue.x-k8s.io/component-workload-index"].clone()
    };
    let all = c.api.workloads().into_iter();
    all.filter(|w| w.metadata.name.as_ref().unwrap().starts_with("leaderworkerset-"))
        .map(|w| (index(&w), w))
        .collect()
}

fn groups(c: &Cluster) -> Vec<String> {
    workloads(c).into_keys().collect()
}

fn scale(c: &mut Cluster, groups: u32) {
    c.api.edit_job("web", |job| job.view.groups = Some(groups));
    c.settle();
}

#[test]
fn each_group_has_a_workload_and_runs_once_that_is_admitted() {
    let mut c = with_set("4", 3);
    let uid = c.api.job("web").view.job.uid.to_string();
    let all = workloads(&c);
    assert_eq!(groups(&c), ["0", "1", "2"]);
    for (index, one) in &all {
        let (metadata, annotations) = (&one.metadata, one.metadata.annotations.as_ref().unwrap());
        let name = workload_name(
            "LeaderWorkerSet",
            "leaderworkerset.x-k8s.io",
            &format!("web-{index}"),
            &uid,
            None,
            MAX_WORKLOAD_NAME,
        );
        assert_eq!(metadata.name.as_deref(), Some(&*name));
        let owner = &metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!(
            (&*owner.kind, &*owner.name, &*owner.uid, owner.controller),
            ("LeaderWorkerSet", "web", &*uid, None)
        );
        assert_eq!(annotations["kueue.x-k8s.io/is-group-workload"], "true");
        assert_eq!(annotations["kueue.x-k8s.io/job-owner-name"], "web");
        assert_eq!(metadata.labels.as_ref().unwrap()["kueue.x-k8s.io/job-uid"], *uid);
        let sets: Vec<_> = one.spec.pod_sets.iter().map(|set| (&*set.name, set.count)).collect();
        assert_eq!(sets, [("leader", 1), ("worker", 1)]);
    }
    let admitted = |index: &str| condition(&all[index], "Admitted") == "True";
    assert_eq!([admitted("0"), admitted("1"), admitted("2")], [true, true, false]);
    make(&mut c, 0..3);
    assert_eq!(free(&c, 3), [true, true, false]);
    assert_eq!(c.api.pod("web-0-1").unwrap()["spec"]["nodeSelector"], json!({"pool": "a"}));
    assert_eq!(groups(&c), ["0", "1", "2"], "no pod has one of its own");
    // Quota of one group is of no use to another that asks for more than is left.
    run(&mut c, 0..2);
    scale(&mut c, 1);
    take(&mut c, 1);
    take(&mut c, 2);
    assert_eq!(groups(&c), ["0"]);
    scale(&mut c, 3);
    make(&mut c, 1..3);
    assert_eq!(free(&c, 3), [true, true, false]);
}

#[test]
fn a_group_is_preempted_as_a_whole_and_the_others_stay() {
    let mut c = with_set("4", 2);
    make(&mut c, 0..2);
    run(&mut c, 0..2);
    c.pods_vanish = false;
    add_high(&mut c, "1");
    let gone: Vec<_> = ["web-0", "web-1"].into_iter().filter(|name| !c.api.is_free(name)).collect();
    assert_eq!(gone.len(), 1, "one group is preempted");
    let gone = gone[0];
    let evicted = "WorkloadEvictedDueToPreempted";
    for name in [gone.to_owned(), format!("{gone}-1")] {
        assert!(announced(&c, &name).starts_with(evicted), "{name}: {}", announced(&c, &name));
    }
    assert!(c.api.is_gated("high"), "the quota is held until the pods are gone");
    c.pods_vanish = true;
    c.settle();
    assert!(c.api.pod(gone).is_none() && c.api.is_free("high"));
    let group = usize::from(gone == "web-1");
    make(&mut c, group..group + 1);
    assert_eq!(free(&c, 2).iter().filter(|free| **free).count(), 1);
    c.api.run_pod("high", "Succeeded");
    c.settle();
    assert_eq!(free(&c, 2), [true, true]);
}

#[test]
fn a_group_that_is_not_wanted_any_more_keeps_its_quota_until_its_pods_are_gone() {
    let mut c = with_set("4", 2);
    make(&mut c, 0..2);
    run(&mut c, 0..2);
    c.api.add_pod(pod("other", "lq", "2"));
    c.settle();
    scale(&mut c, 1);
    assert_eq!((free(&c, 2), groups(&c).len()), (vec![true, true], 2), "its own controller takes it down");
    assert!(c.api.is_gated("other"));
    c.api.delete_queued_pod("web-1");
    c.settle();
    assert!(c.api.is_gated("other"), "its worker runs");
    take(&mut c, 1);
    assert_eq!(groups(&c), ["0"]);
    assert!(c.api.is_free("other"));
    // Without groups nothing is left, and one that is wanted again begins again.
    scale(&mut c, 0);
    take(&mut c, 0);
    assert!(groups(&c).is_empty());
    scale(&mut c, 2);
    make(&mut c, 0..2);
    assert_eq!(free(&c, 2), [true, false]);
    // One that waits goes at once, and takes nothing with it.
    scale(&mut c, 1);
    assert_eq!(groups(&c), ["0"]);
    take(&mut c, 1);
    assert_eq!(free(&c, 1), [true]);
    // One that comes back before its pods are gone runs on.
    scale(&mut c, 0);
    assert_eq!(free(&c, 1), [true]);
    scale(&mut c, 1);
    assert_eq!((free(&c, 1), groups(&c)), (vec![true], vec!["0".to_owned()]));
}

#[test]
fn a_group_that_leaves_is_preempted_for_others_too() {
    let mut c = with_set("2", 1);
    make(&mut c, 0..1);
    run(&mut c, 0..1);
    scale(&mut c, 0);
    assert_eq!(free(&c, 1), [true]);
    add_high(&mut c, "1");
    assert!(c.api.is_free("high") && c.api.pod("web-0").is_none() && groups(&c).is_empty());
}

#[test]
fn pods_that_only_claim_to_be_of_a_group_get_no_more_than_its_quota() {
    let mut c = with_set("2", 1);
    make(&mut c, 0..1);
    // One too many, one of another role, and one of a group that there is not.
    c.api.add_pod(member("web-0-9", "web-0", "worker"));
    c.api.add_pod(member("web-0-8", "web-0", "main"));
    c.api.add_pod(leader(7));
    c.settle();
    assert_eq!(free(&c, 1), [true]);
    let others = ["web-0-9", "web-0-8", "web-7"];
    for name in others {
        assert!(c.api.is_gated(name), "{name}");
    }
    assert!(!c.notes("ErrWorkloadCompose").is_empty());
    // Nor does it help to take the gates off.
    for name in others {
        c.api.free(name);
        c.settle();
        assert!(c.api.pod(name).is_none(), "{name}");
    }
    assert_eq!((free(&c, 1), groups(&c)), (vec![true], vec!["0".to_owned()]));
    // A worker that asks for more than its role has quota for waits.
    c.api.delete_queued_pod("web-0-1");
    c.settle();
    let mut large = worker(0);
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    c.api.add_pod(large);
    c.settle();
    assert!(c.api.is_gated("web-0-1"));
}

#[test]
fn pods_of_an_object_that_is_not_there_wait_and_are_stopped_if_they_run() {
    let mut c = bed("4");
    make(&mut c, 0..1);
    assert_eq!(free(&c, 1), [false]);
    assert!(c.api.workloads().is_empty());
    c.api.free("web-0");
    c.settle();
    assert!(c.api.pod("web-0").is_none());
    // Its object comes later: they are its own.
    c.api.add_pod(leader(0));
    c.api.add_job(set(1));
    c.settle();
    assert_eq!(free(&c, 1), [true]);
    // One that is not made as such pods are is a job of its own.
    let mut alone = member("web-x", "web", "leader");
    c.api.add_pod(alone.clone());
    alone["metadata"]["name"] = json!("web-01");
    c.api.add_pod(alone);
    c.settle();
    let own =
        c.api.workloads().iter().filter(|w| w.metadata.name.as_ref().unwrap().starts_with("pod-")).count();
    assert_eq!(own, 2);
}

#[test]
fn deleted_while_groups_run_and_wait_it_leaves_nothing_behind() {
    let mut c = with_set("2", 2);
    make(&mut c, 0..2);
    run(&mut c, 0..1);
    assert_eq!(free(&c, 2), [true, false]);
    c.api.delete_job("web");
    c.settle();
    assert!(c.api.workloads().is_empty());
    assert!(c.api.pod("web-0").is_none() && c.api.pod("web-0-1").is_none(), "nothing lets them run");
    take(&mut c, 1);
    // Another of the same name begins again.
    c.api.add_job(set(1));
    make(&mut c, 0..1);
    assert_eq!(free(&c, 1), [true]);
}

#[test]
fn a_rollout_keeps_the_quota_and_other_sizes_are_queued_again() {
    let mut c = with_set("4", 1);
    make(&mut c, 0..1);
    run(&mut c, 0..1);
    let before = workloads(&c)["0"].metadata.uid.clone();
    // Another image: its controller replaces the leader, and with it the workers.
    c.api.edit_job("web", |job| job.view.pod_sets.iter_mut().for_each(|set| set.containers_hash += 1));
    c.settle();
    take(&mut c, 0);
    make(&mut c, 0..1);
    assert_eq!((free(&c, 1), workloads(&c)["0"].metadata.uid.clone()), (vec![true], before.clone()));
    run(&mut c, 0..1);
    // A larger group (gate LWSImmutableGroupSize off): what runs stays on what it has.
    c.api.edit_job("web", |job| job.view.pod_sets[1].count = 2);
    c.settle();
    assert_eq!((free(&c, 1), workloads(&c)["0"].metadata.uid.clone()), (vec![true], before.clone()));
    take(&mut c, 0);
    assert_ne!(workloads(&c)["0"].metadata.uid, before);
    assert_eq!(workloads(&c)["0"].spec.pod_sets[1].count, 2);
    make(&mut c, 0..1);
    c.api.add_pod(member("web-0-2", "web-0", "worker"));
    c.settle();
    assert_eq!((free(&c, 1), c.api.is_free("web-0-2")), (vec![true], true));
}

#[test]
fn queue_and_priority_of_what_waits_follow_the_object() {
    let mut c = bed("2");
    let mut nowhere = set(2);
    nowhere.queue_name = Some("nowhere".to_owned());
    c.api.add_job(nowhere);
    c.settle();
    make(&mut c, 0..2);
    assert_eq!(free(&c, 2), [false, false]);
    c.api.edit_job("web", |job| job.view.workload_priority_class = Some("high".to_owned()));
    c.settle();
    c.api.edit_job("web", |job| job.view.queue_name = Some("lq".to_owned()));
    c.settle();
    assert_eq!(free(&c, 2), [true, false]);
    for one in workloads(&c).into_values() {
        assert_eq!((one.spec.queue_name.as_deref(), one.spec.priority), (Some("lq"), Some(1000)));
    }
    // Its status changes all the time, and says nothing of its groups.
    let before = c.api.workloads();
    c.api.edit_job("web", |job| job.view.active = true);
    c.settle();
    assert_eq!(c.api.workloads(), before);
}

#[test]
fn the_workload_of_a_group_that_is_deleted_is_made_again() {
    let mut c = with_set("4", 2);
    make(&mut c, 0..2);
    run(&mut c, 0..2);
    let reference = Api::workload_ref(&workloads(&c)["1"]);
    c.api.delete(&reference);
    c.settle();
    assert!(c.api.pod("web-1").is_none() && c.api.is_free("web-0"));
    assert_eq!(groups(&c), ["0", "1"]);
    make(&mut c, 1..2);
    assert_eq!(free(&c, 2), [true, true]);
}

#[test]
fn after_a_restart_it_is_as_before_also_where_a_workload_does_not_say_its_group() {
    let mut c = with_set("4", 3);
    make(&mut c, 0..3);
    run(&mut c, 0..2);
    // As older releases of Kueue made it.
    let reference = Api::workload_ref(&workloads(&c)["1"]);
    c.api.edit(
        &reference,
        &json!({"metadata": {"annotations": {"kueue.x-k8s.io/component-workload-index": null, "old": "yes"}}}),
    );
    c.settle();
    let before = c.api.workloads();
    c.restart();
    c.settle();
    assert_eq!((free(&c, 3), c.api.workloads()), (vec![true, true, false], before));
}

#[test]
fn a_set_without_a_queue_is_left_alone_and_its_former_workloads_go() {
    let mut c = with_set("1", 1);
    make(&mut c, 0..1);
    assert_eq!(
        reported(&workloads(&c)["0"], "QuotaReserved").split(':').next(),
        Some("False/ExceedsMaxQuota")
    );
    c.api.edit_job("web", |job| job.view.queue_name = None);
    c.settle();
    assert!(c.api.workloads().is_empty());
    assert_eq!(free(&c, 1), [false]);
}

/// How many groups the object of `web` has, of which two are wanted, while a rollout that may make one more at a time has come so far.
fn in_rollout(replicas: i32, updated: i32) -> u32 {
    let template = json!({"spec": {"containers": [{"name": "main", "image": "newer"}]}});
    let object = json!({
        "metadata": {"namespace": "team-a", "name": "web", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {
            "replicas": 2, "rolloutStrategy": {"rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0}},
            "leaderWorkerTemplate": {"size": 2, "leaderTemplate": template, "workerTemplate": template},
        },
        "status": {"replicas": replicas, "updatedReplicas": updated, "readyReplicas": 2},
    });
    sluice_jobs::observe(JobKind::LEADER_WORKER_SET, &object).groups.unwrap()
}

/// The processors that are reserved.
fn reserved(c: &Cluster) -> String {
    let queue = c.api.json(&ObjectRef::cluster(Kind::ClusterQueue, "cq")).unwrap();
    queue["status"]["flavorsReservation"][0]["resources"][0]["total"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn groups_of_a_surge_are_queued_like_the_others_and_give_their_quota_back() {
    for cpu in ["4", "6"] {
        let fits = cpu == "6";
        let mut c = with_set(cpu, 2);
        make(&mut c, 0..2);
        run(&mut c, 0..2);
        // Its controller makes the group before its status says so: until then it waits.
        make(&mut c, 2..3);
        assert_eq!((free(&c, 3), groups(&c).len()), (vec![true, true, false], 2), "{cpu}");
        scale(&mut c, in_rollout(3, 0));
        assert_eq!(groups(&c), ["0", "1", "2"], "{cpu}");
        assert_eq!(free(&c, 3), [true, true, fits], "{cpu}");
        assert_eq!(reserved(&c), cpu, "{cpu}");
        let said = reported(&workloads(&c)["2"], "QuotaReserved");
        assert_eq!(said.starts_with("True"), fits, "{cpu}: {said}");
        // Others do not get round it.
        c.api.add_pod(pod("other", "lq", "2"));
        c.settle();
        assert!(c.api.is_gated("other"), "{cpu}");
        if fits {
            run(&mut c, 2..3);
        }
        // Group after group is made again, on the quota that each has.
        let before = workloads(&c);
        for group in [1, 0] {
            take(&mut c, group);
            make(&mut c, group..group + 1);
            scale(&mut c, in_rollout(3, if group == 1 { 1 } else { 2 }));
            run(&mut c, group..group + 1);
        }
        let uid = |all: &BTreeMap<String, Workload>, group: &str| all[group].metadata.uid.clone();
        for group in ["0", "1"] {
            assert_eq!(uid(&workloads(&c), group), uid(&before, group), "{cpu}");
        }
        assert_eq!(free(&c, 2), [true, true], "{cpu}");
        // All are new: what was made beyond goes, and its quota once its pods are gone.
        assert_eq!(in_rollout(3, 2), 2);
        assert_eq!(groups(&c).len(), if fits { 3 } else { 2 }, "{cpu}: its pods run");
        take(&mut c, 2);
        assert_eq!(groups(&c), ["0", "1"], "{cpu}");
        assert_eq!((free(&c, 2), c.api.is_free("other")), (vec![true, true], fits), "{cpu}");
        assert_eq!(reserved(&c), cpu, "{cpu}");
    }
}
