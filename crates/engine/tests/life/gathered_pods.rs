//! Pods of an object that gathers them into one job (docs/reference/07-integrations.md 7.4, StatefulSet).

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView};
use sluice_api::names::{MAX_WORKLOAD_NAME, workload_name};
use sluice_api::v1beta2::Workload;
use sluice_engine::{Kind, Purpose};

use crate::model::build::job;
use crate::model::pods::{member, pod};
use crate::model::{Cluster, condition, reported};
use crate::plain_pods::{add_high, announced, bed};

/// A StatefulSet with `replicas` pods of one cpu.
fn set(replicas: i32) -> JobView {
    let mut view = job("team-a", "web", "lq", replicas, "1");
    view.job.kind = JobKind::STATEFUL_SET;
    view.on_hold = Some(replicas == 0);
    view
}

/// A cluster with such a queue, and a StatefulSet; the UID of that.
pub fn with_set(cpu: &str, replicas: i32) -> (Cluster, String) {
    let mut c = bed(cpu);
    c.api.add_job(set(replicas));
    let uid = c.api.job("web").view.job.uid.to_string();
    (c, uid)
}

/// A pod as the webhook leaves it, with this owner.
pub fn replica(number: usize, uid: &str) -> Value {
    let mut pod = pod(&format!("web-{number}"), "lq", "1");
    let metadata = &mut pod["metadata"];
    metadata.as_object_mut().unwrap().remove("finalizers");
    metadata["annotations"]["kueue.x-k8s.io/pod-suspending-parent"] = json!("statefulset");
    metadata["annotations"]["kueue.x-k8s.io/pod-group-name"] = json!("statefulset-web");
    metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": uid, "controller": true}]);
    pod
}

pub fn make(c: &mut Cluster, uid: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        c.api.add_pod(replica(number, uid));
    }
    c.settle();
}

fn workload(c: &Cluster) -> Workload {
    let mut all = c.api.workloads();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn free(c: &Cluster, count: usize) -> Vec<bool> {
    (0..count).map(|number| c.api.is_free(&format!("web-{number}"))).collect()
}

#[test]
fn its_pods_run_once_the_one_workload_is_admitted_whenever_they_come() {
    let (mut c, uid) = with_set("3", 3);
    c.settle();
    let one = workload(&c);
    let metadata = &one.metadata;
    let owner = &metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (&*owner.kind, &*owner.name, &*owner.uid, owner.controller),
        ("StatefulSet", "web", &*uid, None)
    );
    let annotations = metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["kueue.x-k8s.io/is-group-workload"], "true");
    assert_eq!(annotations["kueue.x-k8s.io/job-owner-gvk"], "apps/v1, Kind=StatefulSet");
    assert_eq!(annotations["kueue.x-k8s.io/job-owner-name"], "web");
    assert!(metadata.name.as_ref().unwrap().starts_with("statefulset-web-"));
    assert_eq!((&*one.spec.pod_sets[0].name, one.spec.pod_sets[0].count), ("main", 3));
    assert_eq!(condition(&one, "Admitted"), "True");
    make(&mut c, &uid, 0..1);
    assert!(c.api.is_free("web-0"));
    assert_eq!(c.api.pod("web-0").unwrap()["spec"]["nodeSelector"], json!({"pool": "a"}));
    c.api.run_pod("web-0", "Running");
    make(&mut c, &uid, 1..3);
    assert_eq!(free(&c, 3), [true; 3]);
    assert_eq!(c.api.workloads().len(), 1, "no pod has one of its own");
}

#[test]
fn its_pods_wait_for_quota_for_all_and_are_preempted_as_a_whole() {
    let (mut c, uid) = with_set("2", 2);
    make(&mut c, &uid, 0..2);
    assert_eq!(free(&c, 2), [true; 2]);
    for name in ["web-0", "web-1"] {
        c.api.run_pod(name, "Running");
    }
    c.pods_vanish = false;
    add_high(&mut c, "1");
    assert!(
        announced(&c, "web-1").starts_with("WorkloadEvictedDueToPreempted"),
        "{}",
        announced(&c, "web-1")
    );
    assert!(c.api.is_gated("high"), "the quota is held until the pods are gone");
    c.pods_vanish = true;
    c.settle();
    assert!(c.api.pod("web-0").is_none() && c.api.is_free("high"));
    // They are made again, and wait.
    make(&mut c, &uid, 0..2);
    assert_eq!(free(&c, 2), [false; 2]);
    c.api.run_pod("high", "Succeeded");
    c.settle();
    assert_eq!(free(&c, 2), [true; 2]);
}

/// A decision about the Workload waits while the start of a pod is not answered. The pod may go before it is: nothing else is to come then.
#[test]
fn a_decision_that_waits_for_the_start_of_a_pod_is_carried_out_when_that_is_gone() {
    let (mut c, uid) = with_set("2", 2);
    make(&mut c, &uid, 0..1);
    c.api.run_pod("web-0", "Running");
    c.slow = Some(Purpose::StartJob);
    make(&mut c, &uid, 1..2);
    add_high(&mut c, "1");
    let set = |c: &Cluster| {
        let of_set = |w: &Workload| w.metadata.name.as_ref().unwrap().starts_with("statefulset-");
        c.api.workloads().into_iter().find(of_set).unwrap()
    };
    assert_eq!(condition(&set(&c), "Evicted"), "", "it is not known yet what runs");
    c.pods_vanish = false;
    c.api.delete_queued_pod("web-1");
    c.settle();
    assert_eq!(condition(&set(&c), "Evicted"), "True");
}

/// So Kueue named it in former versions.
#[test]
fn a_workload_whose_name_was_made_without_the_uid_is_kept() {
    let (mut model, _) = with_set("2", 2);
    model.settle();
    let made = workload(&model);
    let (mut c, uid) = with_set("2", 2);
    let name = workload_name("StatefulSet", "apps", "web", "", None, MAX_WORKLOAD_NAME);
    let mut owner = json!(made.metadata.owner_references.unwrap()[0]);
    owner["uid"] = json!(uid);
    let metadata = json!({
        "name": name, "namespace": "team-a", "ownerReferences": [owner],
        "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
    });
    c.api.put(Kind::Workload, json!({"metadata": metadata, "spec": made.spec}));
    make(&mut c, &uid, 0..2);
    for restarts in [false, true] {
        if restarts {
            c.restart();
            c.settle();
        }
        let kept = workload(&c);
        assert_eq!((kept.metadata.name.as_deref(), &*condition(&kept, "Admitted")), (Some(&*name), "True"));
        assert_eq!(free(&c, 2), [true; 2]);
    }
    // It goes on hold and comes back like any other.
    for name in ["web-1", "web-0"] {
        c.api.run_pod(name, "Running");
    }
    for (replicas, admitted) in [(0, "False"), (2, "True")] {
        c.api.edit_job("web", |job| {
            job.view.pod_sets[0].count = replicas;
            job.view.on_hold = Some(replicas == 0);
        });
        for name in ["web-1", "web-0"].iter().filter(|_| replicas == 0) {
            c.api.delete_queued_pod(name);
        }
        c.settle();
        let kept = workload(&c);
        assert_eq!((kept.metadata.name.as_deref(), &*condition(&kept, "Admitted")), (Some(&*name), admitted));
    }
}

#[test]
fn without_replicas_it_is_on_hold_and_keeps_its_workload() {
    let (mut c, uid) = with_set("2", 2);
    make(&mut c, &uid, 0..2);
    for name in ["web-0", "web-1"] {
        c.api.run_pod(name, "Running");
    }
    c.settle();
    let scale = |c: &mut Cluster, replicas: i32| {
        c.api.edit_job("web", |job| {
            job.view.pod_sets[0].count = replicas;
            job.view.on_hold = Some(replicas == 0);
        });
        c.settle();
    };
    scale(&mut c, 0);
    assert_eq!(free(&c, 2), [true; 2], "its own controller takes the pods down");
    assert_eq!(condition(&workload(&c), "QuotaReserved"), "True");
    for name in ["web-1", "web-0"] {
        c.api.delete_queued_pod(name);
        c.settle();
    }
    let held = workload(&c);
    assert_eq!(
        reported(&held, "QuotaReserved"),
        "False/OnHold: StatefulSet scaled to zero; workload on hold"
    );
    assert_eq!((held.spec.pod_sets[0].count, held.status.unwrap().admission), (2, None));
    // Its quota is free for others meanwhile.
    c.api.add_pod(pod("other", "lq", "2"));
    c.settle();
    assert!(c.api.is_free("other"));
    scale(&mut c, 1);
    make(&mut c, &uid, 0..1);
    let waits = workload_of_set(&c);
    assert_eq!((waits.spec.pod_sets[0].count, condition(&waits, "QuotaReserved").as_str()), (1, "False"));
    assert!(c.api.is_gated("web-0"));
    c.api.run_pod("other", "Succeeded");
    c.settle();
    assert!(c.api.is_free("web-0"));
}

#[test]
fn on_hold_it_can_be_deactivated_and_is_on_hold_again_when_it_is_active() {
    let (mut c, uid) = with_set("2", 2);
    make(&mut c, &uid, 0..2);
    for name in ["web-0", "web-1"] {
        c.api.run_pod(name, "Running");
    }
    c.settle();
    let scale = |c: &mut Cluster, replicas: i32| {
        c.api.edit_job("web", |job| {
            job.view.pod_sets[0].count = replicas;
            job.view.on_hold = Some(replicas == 0);
        });
        c.settle();
    };
    scale(&mut c, 0);
    for name in ["web-1", "web-0"] {
        c.api.delete_queued_pod(name);
    }
    c.settle();
    let on_hold = "False/OnHold: StatefulSet scaled to zero; workload on hold";
    assert_eq!(reported(&workload(&c), "QuotaReserved"), on_hold);
    let reference = crate::model::Api::workload_ref(&workload(&c));
    let written = c.writes.len();
    c.api.edit(&reference, &json!({"spec": {"active": false}}));
    c.advance(600);
    assert!(c.writes.len() - written < 6, "{:?}", &c.writes[written..]);
    assert_eq!(reported(&workload(&c), "QuotaReserved"), "False/Deactivated: The workload is deactivated");
    c.api.edit(&reference, &json!({"spec": {"active": true}}));
    c.advance(600);
    assert_eq!(reported(&workload(&c), "QuotaReserved"), on_hold);
    assert_eq!(c.written(Purpose::ReserveQuota), 1, "quota would be of no use to it");
    scale(&mut c, 2);
    make(&mut c, &uid, 0..2);
    assert_eq!(free(&c, 2), [true; 2]);
}

fn workload_of_set(c: &Cluster) -> Workload {
    let set = |w: &Workload| w.metadata.name.as_ref().unwrap().starts_with("statefulset-");
    c.api.workloads().into_iter().find(set).unwrap()
}

#[test]
fn one_that_has_no_replicas_from_the_beginning_gets_no_workload() {
    let (mut c, _) = with_set("2", 0);
    c.settle();
    assert!(c.api.workloads().is_empty());
}

#[test]
fn a_pod_that_only_claims_to_be_one_of_its_pods_gets_no_more_than_their_quota() {
    let (mut c, uid) = with_set("2", 2);
    make(&mut c, &uid, 0..2);
    // One too many, and one of another role.
    make(&mut c, &uid, 2..3);
    let mut other = replica(7, &uid);
    other["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"] = json!("other");
    c.api.add_pod(other);
    c.settle();
    assert_eq!(free(&c, 3), [true, true, false]);
    assert!(c.api.is_gated("web-7"));
    assert!(!c.notes("ErrWorkloadCompose").is_empty());
    // Nor does it help to take the gates off.
    for name in ["web-2", "web-7"] {
        c.api.free(name);
        c.settle();
        assert!(c.api.pod(name).is_none(), "{name}");
    }
    // A place is free, and a pod claims it that asks for more.
    c.api.delete_queued_pod("web-1");
    c.settle();
    let mut large = replica(1, &uid);
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    c.api.add_pod(large);
    c.settle();
    assert!(c.api.is_gated("web-1"));
    c.api.delete_queued_pod("web-1");
    let mut device = replica(1, &uid);
    device["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = json!("1");
    c.settle();
    c.api.add_pod(device);
    c.settle();
    assert!(c.api.is_gated("web-1"));
    c.api.delete_queued_pod("web-1");
    make(&mut c, &uid, 1..2);
    assert!(c.api.is_free("web-1"));
}

/// As a rollout with a surge makes them: old pods go when new ones are ready, and these wait for the quota of the old ones.
#[test]
fn pods_that_are_made_before_others_go_wait_and_their_object_says_why() {
    let (mut c, uid) = with_set("9", 2);
    make(&mut c, &uid, 0..2);
    assert!(c.notes("ErrWorkloadCompose").is_empty());
    make(&mut c, &uid, 2..4);
    c.advance(600);
    assert_eq!(free(&c, 4), [true, true, false, false]);
    let said = c.notes("ErrWorkloadCompose");
    assert!(
        said.len() == 1 && said[0].starts_with("StatefulSet/web: Some pods wait: their number or requests"),
        "{said:?}"
    );
    // One that goes makes room.
    c.api.delete_queued_pod("web-0");
    c.settle();
    assert_eq!(free(&c, 4), [false, true, true, false]);
}

#[test]
fn a_group_of_that_name_does_not_get_its_workload() {
    let (mut c, uid) = with_set("2", 2);
    c.settle();
    let name = workload(&c).metadata.name.unwrap();
    c.api.add_pod(member("forged", &name, 1, "main"));
    c.settle();
    assert!(c.api.is_gated("forged"));
    assert!(
        c.notes("WorkloadNameConflict")[0].starts_with("Pod/forged: ")
            && c.notes("WorkloadNameConflict")[0].contains(&name)
    );
    make(&mut c, &uid, 0..2);
    assert_eq!(free(&c, 2), [true; 2]);
}

#[test]
fn a_pod_whose_object_is_not_there_waits_and_one_that_names_none_is_a_job_of_its_own() {
    let mut c = bed("2");
    c.api.add_pod(replica(0, "made-up"));
    let mut alone = replica(1, "made-up");
    alone["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    alone["metadata"]["annotations"].as_object_mut().unwrap().remove("kueue.x-k8s.io/pod-group-name");
    c.api.add_pod(alone);
    c.settle();
    assert!(c.api.is_gated("web-0") && c.api.is_free("web-1"));
    assert!(workload(&c).metadata.name.unwrap().starts_with("pod-web-1-"));
}

/// Its controller would not take it down, nor would anything else.
#[test]
fn a_pod_whose_object_is_not_there_is_stopped_if_its_gate_is_taken_off() {
    let mut c = bed("2");
    let mut forged = replica(0, "made-up");
    forged["metadata"]["ownerReferences"][0]["apiVersion"] = json!("apps/v9");
    c.api.add_pod(forged);
    c.settle();
    assert!(c.api.is_gated("web-0"));
    c.api.free("web-0");
    c.settle();
    assert!(c.api.pod("web-0").is_none());
    // One that waits runs once its object is there, also if that was made before.
    c.api.add_pod(replica(1, "made-up"));
    c.settle();
    c.api.add_job(set(2));
    let uid = c.api.job("web").view.job.uid.to_string();
    let owners = replica(1, &uid)["metadata"]["ownerReferences"].clone();
    c.api.edit_pod("web-1", &json!({"metadata": {"ownerReferences": owners}}));
    c.settle();
    assert!(c.api.is_free("web-1"));
    c.api.delete_job("web");
    c.settle();
    assert!(c.api.pod("web-1").is_none() && c.api.workloads().is_empty());
}

#[test]
fn deleted_while_its_pods_run_it_keeps_its_quota_until_they_are_gone() {
    for restarts in [false, true] {
        let (mut c, uid) = with_set("2", 2);
        make(&mut c, &uid, 0..2);
        for name in ["web-0", "web-1"] {
            c.api.run_pod(name, "Running");
        }
        c.settle();
        c.pods_vanish = false;
        c.api.delete_job("web");
        c.api.add_pod(pod("other", "lq", "2"));
        c.settle();
        if restarts {
            c.restart();
            c.settle();
        }
        assert_eq!((c.api.workloads().len(), c.api.is_gated("other")), (2, true), "{restarts}");
        c.pods_vanish = true;
        c.settle();
        assert!(c.api.is_free("other"), "{restarts}");
        assert!(c.api.workloads().iter().all(|w| w.metadata.name.as_ref().unwrap().starts_with("pod-other")));
    }
}

#[test]
fn on_hold_while_its_pods_run_it_can_be_evicted() {
    let (mut c, uid) = with_set("2", 2);
    make(&mut c, &uid, 0..2);
    for name in ["web-0", "web-1"] {
        c.api.run_pod(name, "Running");
    }
    c.api.edit_job("web", |job| {
        job.view.pod_sets[0].count = 0;
        job.view.on_hold = Some(true);
    });
    c.settle();
    assert_eq!(free(&c, 2), [true; 2]);
    add_high(&mut c, "2");
    assert!(c.api.is_free("high"));
    assert!(c.api.pod("web-0").is_none() && c.api.pod("web-1").is_none());
    assert!(reported(&workload_of_set(&c), "QuotaReserved").starts_with("False/OnHold"));
}

#[test]
fn deleted_while_its_pods_wait_it_leaves_nothing_behind() {
    let (mut c, uid) = with_set("1", 2);
    make(&mut c, &uid, 0..2);
    assert_eq!(free(&c, 2), [false; 2]);
    c.api.delete_job("web");
    c.settle();
    assert!(c.api.workloads().is_empty());
    for name in ["web-0", "web-1"] {
        c.api.delete_queued_pod(name);
    }
    c.settle();
    // Another of the same name begins again.
    c.api.add_job(set(1));
    let uid = c.api.job("web").view.job.uid.to_string();
    make(&mut c, &uid, 0..1);
    assert!(c.api.is_free("web-0"));
}

#[test]
fn a_new_image_keeps_the_quota_and_a_waiting_one_follows_its_object() {
    let (mut c, uid) = with_set("2", 2);
    make(&mut c, &uid, 0..2);
    let before = workload(&c).metadata.uid;
    c.api.edit_job("web", |job| job.view.pod_sets[0].containers_hash += 1);
    c.settle();
    assert_eq!((free(&c, 2), workload(&c).metadata.uid), (vec![true; 2], before));
    // More than it has quota for waits, and disturbs nothing.
    c.api.edit_job("web", |job| job.view.pod_sets[0].count = 3);
    make(&mut c, &uid, 2..3);
    assert_eq!(free(&c, 3), [true, true, false]);
    c.api.edit_job("web", |job| {
        job.view.pod_sets[0].count = 2;
        job.view.pod_sets[0].containers_hash -= 1;
    });
    c.api.delete_queued_pod("web-2");
    c.settle();
    // Its Workload is deleted: its pods are, too, and it gets another.
    let reference = crate::model::Api::workload_ref(&workload(&c));
    c.api.delete(&reference);
    c.settle();
    assert!(c.api.pod("web-0").is_none());
    make(&mut c, &uid, 0..2);
    assert_eq!(free(&c, 2), [true; 2]);
}

#[test]
fn after_a_restart_it_is_as_before_whatever_is_listed_first() {
    let (mut c, uid) = with_set("2", 2);
    make(&mut c, &uid, 0..2);
    let before = c.api.workloads();
    c.restart();
    c.settle();
    assert_eq!((free(&c, 2), c.api.workloads()), (vec![true; 2], before));
}
