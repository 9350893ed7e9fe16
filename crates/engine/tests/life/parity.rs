//! Behaviour that clients of Kueue rely on beyond the tables of its contract: all of it was observed with the real Kueue.

use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_api::v1beta2::PodSetTopologyRequest;
use sluice_engine::{Kind, ObjectRef, Purpose};

use crate::contract::{cohort, cq, submit};
use crate::model::build::job;
use crate::model::{Api, Cluster, condition, reported};
use crate::waiting::gate;

fn lq() -> ObjectRef {
    ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lq")
}

/// A condition as others write it.
pub fn says(type_: &str, status: &str, reason: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "by another scheduler",
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// An admission of one pod set, as others write it.
pub fn admission(queue: &str, pod_set: &str, cpu: &str) -> Value {
    json!({"clusterQueue": queue, "podSetAssignments": [
        {"name": pod_set, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": cpu}, "count": 1}]})
}

/// A Workload without a job.
pub fn alone(c: &mut Cluster, name: &str, cpu: &str) -> ObjectRef {
    let template = serde_json::to_value(crate::model::build::template(cpu)).unwrap();
    let spec = json!({"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]});
    c.api.put(Kind::Workload, json!({"metadata": {"name": name, "namespace": "team-a"}, "spec": spec}))
}

#[test]
fn pods_name_the_workload_that_they_run_for_until_their_job_stops() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    submit(&mut c, "a", "lq", 1, |_| {});
    let name = c.workload("a").metadata.name.unwrap();
    let annotations = |c: &Cluster| c.api.job("a").view.pod_sets[0].scheduling.annotations.clone();
    assert_eq!(annotations(&c), [("kueue.x-k8s.io/workload".to_owned(), name)].into());
    c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    c.settle();
    assert!(c.api.job("a").view.suspended && annotations(&c).is_empty());
}

#[test]
fn what_ran_too_long_says_so_until_it_is_active_again() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    submit(&mut c, "a", "lq", 1, |view| view.maximum_execution_time_seconds = Some(10));
    c.advance(60);
    let target = "True/MaximumExecutionTimeExceeded: exceeding the maximum execution time";
    assert_eq!(reported(&c.workload("a"), "DeactivationTarget"), target);
    assert_eq!(c.workload("a").spec.active, Some(false));
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "False");
    c.restart();
    c.advance(60);
    assert_eq!(reported(&c.workload("a"), "DeactivationTarget"), target);
    let writes = c.writes.len();
    c.advance(60);
    assert_eq!(c.writes.len(), writes, "nothing more is to be done");
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.settle();
    assert_eq!(condition(&c.workload("a"), "DeactivationTarget"), "");
    assert!(!c.api.job("a").view.suspended, "it runs again");
    c.advance(60);
    assert_eq!(reported(&c.workload("a"), "DeactivationTarget"), target, "and is too long again");
}

#[test]
fn reactivated_while_its_pods_still_terminate_it_runs_again_afterwards() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    submit(&mut c, "a", "lq", 1, |view| view.maximum_execution_time_seconds = Some(10));
    c.pods_vanish = false;
    c.advance(60);
    let workload = Api::workload_ref(&c.workload("a"));
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "True");
    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.settle();
    assert_eq!(c.workload("a").spec.active, Some(true), "it is not deactivated once more");
    c.pods_vanish = true;
    c.settle();
    assert_eq!(condition(&c.workload("a"), "DeactivationTarget"), "");
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn only_cluster_queues_hold_a_flavor() {
    let mut c = Cluster::plain();
    let flavor = c.api.flavor("default", &[]);
    let quota = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}]);
    c.api.put(Kind::Cohort, json!({"metadata": {"name": "co"}, "spec": {"resourceGroups": quota}}));
    c.settle();
    c.api.delete(&flavor);
    c.settle();
    assert!(c.api.json(&flavor).is_none(), "a Cohort names it, and that does not hold it");
}

#[test]
fn a_deactivated_workload_that_is_not_released_counts_nowhere() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    let left = alone(&mut c, "left", "2");
    c.settle();
    let reserving = |c: &Cluster| c.api.json(&cq()).unwrap()["status"]["reservingWorkloads"].clone();
    assert_eq!(reserving(&c), 1);
    c.api.edit(&left, &json!({"spec": {"active": false}}));
    c.settle();
    let status = &c.api.json(&left).unwrap()["status"];
    assert!(status["admission"].is_object(), "its reservation stays: {status:#}");
    assert_eq!(reserving(&c), 0);
    submit(&mut c, "a", "lq", 2, |_| {});
    assert!(!c.api.job("a").view.suspended, "its quota is free");
    c.api.finish_job("a", true);
    c.settle();
    c.api.delete(&cq());
    c.settle();
    assert!(c.api.json(&cq()).is_none(), "its queue may go");
}

#[test]
fn a_deactivated_workload_of_a_job_holds_its_quota_until_the_pods_are_gone() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    submit(&mut c, "a", "lq", 2, |_| {});
    c.pods_vanish = false;
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    submit(&mut c, "b", "lq", 2, |_| {});
    assert!(c.api.job("a").view.suspended && c.api.job("b").view.suspended);
    c.pods_vanish = true;
    c.settle();
    assert!(!c.api.job("b").view.suspended);
}

#[test]
fn a_reservation_by_others_is_respected_although_room_queue_or_flavor_is_missing() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({}));
    submit(&mut c, "runs", "lq", 1, |_| {});
    submit(&mut c, "a", "lq", 1, |_| {});
    let conditions = json!([says("QuotaReserved", "True", "QuotaReserved")]);
    for (name, queue, flavor) in [("a", "cq", "default"), ("b", "nowhere", "default"), ("g", "cq", "ghost")] {
        if name != "a" {
            submit(&mut c, name, "lq", 1, |_| {});
        }
        c.advance(5);
        let workload = Api::workload_ref(&c.workload(name));
        let mut given = admission(queue, "main", "1");
        given["podSetAssignments"][0]["flavors"]["cpu"] = json!(flavor);
        let mut conditions = conditions.clone();
        conditions[0]["lastTransitionTime"] = json!(c.now.to_string());
        c.api.edit_status(&workload, |s| *s = json!({"admission": given, "conditions": conditions}));
        c.advance(60);
        assert_eq!(reported(&c.workload(name), "QuotaReserved"), "True/QuotaReserved: by another scheduler");
        assert!(!c.api.job(name).view.suspended, "{name} was started");
    }
}

#[test]
fn while_others_play_the_scheduler_no_reservation_is_taken_back() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({}));
    submit(&mut c, "a", "lq", 1, |_| {});
    c.config.scheduling = false;
    c.restart();
    submit(&mut c, "b", "lq", 1, |_| {});
    let workload = Api::workload_ref(&c.workload("b"));
    let given = admission("cq", "main", "1");
    let long_ago = json!([says("QuotaReserved", "True", "QuotaReserved")]);
    c.api.edit_status(&workload, |s| *s = json!({"admission": given, "conditions": long_ago}));
    c.settle();
    assert!(!c.api.job("b").view.suspended);
}

#[test]
fn a_backoff_goes_as_soon_as_it_is_over_whatever_else_is_said() {
    let mut c = Cluster::plain();
    c.api.simple("0", &json!({}));
    submit(&mut c, "a", "lq", 1, |_| {});
    let workload = Api::workload_ref(&c.workload("a"));
    let state = |c: &Cluster| c.api.json(&workload).unwrap()["status"]["requeueState"].clone();
    let until = c.now.checked_add(jiff::SignedDuration::from_secs(30)).unwrap();
    c.api.edit_status(&workload, |status| {
        status["requeueState"] = json!({"count": 2, "requeueAt": until.to_string()});
    });
    c.advance(29);
    assert!(state(&c)["requeueAt"].is_string());
    c.advance(2);
    assert_eq!(state(&c), json!({"count": 2}), "although nothing is said of Requeued");
    assert_eq!(condition(&c.workload("a"), "Requeued"), "");
}

#[test]
fn the_backoff_of_an_evicted_workload_ends_while_it_still_holds_quota() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    let held = alone(&mut c, "held", "1");
    c.settle();
    let until = c.now.checked_add(jiff::SignedDuration::from_secs(30)).unwrap();
    c.api.edit_status(&held, |status| {
        let conditions = status["conditions"].as_array_mut().unwrap();
        conditions.push(says("Evicted", "True", "PodsReadyTimeout"));
        conditions.push(says("Requeued", "False", "PodsReadyTimeout"));
        status["requeueState"] = json!({"count": 1, "requeueAt": until.to_string()});
    });
    c.advance(31);
    let workload = &c.api.workloads()[0];
    assert_eq!(reported(workload, "Requeued"), "True/BackoffFinished: The workload backoff was finished");
    let state = workload.status.clone().unwrap().requeue_state.unwrap();
    assert_eq!((state.count, state.requeue_at), (Some(1), None));
    assert_eq!(condition(workload, "QuotaReserved"), "True");
}

#[test]
fn a_deactivated_workload_has_no_backoff_of_any_writer() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    submit(&mut c, "a", "lq", 1, |_| {});
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.settle();
    c.api.edit_status(&workload, |status| status["requeueState"] = json!({"count": 5}));
    c.settle();
    assert_eq!(c.workload("a").status.unwrap().requeue_state, None);
}

#[test]
fn local_queues_of_a_cluster_queue_that_was_removed_by_force_show_nothing() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    submit(&mut c, "a", "lq", 1, |_| {});
    let figures = |c: &Cluster| {
        let status = c.api.json(&lq()).unwrap()["status"].clone();
        let flavors = [&status["flavorsReservation"], &status["flavorsUsage"]]
            .map(|f| f.as_array().map_or(0, Vec::len));
        (status["reservingWorkloads"].clone(), status["admittedWorkloads"].clone(), flavors)
    };
    assert_eq!(figures(&c), (json!(1), json!(1), [1, 1]));
    c.api.edit(&cq(), &json!({"metadata": {"finalizers": null}}));
    c.settle();
    c.api.edit(&cq(), &json!({"metadata": {"finalizers": []}}));
    c.api.vanish(&cq());
    let gone = sluice_engine::Input::Deleted { object: cq(), uid: None };
    c.engine.apply(c.now, gone);
    c.settle();
    assert_eq!(figures(&c), (json!(0), json!(0), [0, 0]));
}

#[test]
fn missing_flavors_are_listed_as_the_queue_lists_them() {
    let mut c = Cluster::plain();
    let flavor = |name: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": "1"}]});
    let groups =
        json!([{"coveredResources": ["cpu"], "flavors": [flavor("z"), flavor("default"), flavor("b")]}]);
    c.api.simple("1", &json!({"resourceGroups": groups}));
    c.settle();
    let message = c.api.json(&cq()).unwrap()["status"]["conditions"][0]["message"].clone();
    assert_eq!(message, "Can't admit new workloads: references missing ResourceFlavor(s): z,b.");
}

#[test]
fn the_annotation_for_a_prebuilt_workload_counts_only_with_its_gate() {
    for (on, by_annotation) in [(true, "theirs"), (false, "")] {
        let mut c = Cluster::new(gate(Gate::WorkloadIdentifierAnnotations, on));
        c.api.namespace("team-a", &[]);
        c.api.simple("2", &json!({}));
        let key = "kueue.x-k8s.io/prebuilt-workload-name".to_owned();
        let mut view = job("team-a", "a", "lq", 1, "1");
        view.annotations = [(key.clone(), "theirs".to_owned())].into();
        view.prebuilt_workload = Some("theirs".to_owned());
        c.api.add_job(view);
        let mut view = job("team-a", "b", "lq", 1, "1");
        view.labels = [(key.clone(), "theirs".to_owned())].into();
        view.prebuilt_workload = Some("theirs".to_owned());
        c.api.add_job(view);
        let mut view = job("team-a", "c", "lq", 1, "1");
        view.labels = [(key, "theirs".to_owned())].into();
        c.api.add_job(view);
        c.settle();
        let own = |c: &Cluster, job: &str| c.api.workloads_of(&c.api.job(job).view.job.uid).len();
        assert_eq!(own(&c, "a"), usize::from(by_annotation.is_empty()), "gate {on}");
        assert_eq!(own(&c, "b"), 0, "the label counts always");
        assert_eq!(own(&c, "c"), 1, "a kind without prebuilt Workloads names none, whatever its label says");
    }
}

#[test]
fn a_topology_request_comes_with_the_pod_set_while_its_gate_is_on() {
    for on in [true, false] {
        let mut c = Cluster::new(gate(Gate::TopologyAwareScheduling, on));
        c.api.namespace("team-a", &[]);
        c.api.simple("2", &json!({}));
        let request = PodSetTopologyRequest { sub_group_count: Some(3), ..PodSetTopologyRequest::default() };
        submit(&mut c, "a", "lq", 1, |view| {
            view.pod_sets[0].topology_request = Some(Box::new(request.clone()));
        });
        let stored = c.workload("a").spec.pod_sets[0].topology_request.clone();
        assert_eq!(stored, on.then_some(request));
    }
}

#[test]
fn workloads_of_a_local_queue_on_hold_are_not_pending_in_it() {
    let mut c = Cluster::plain();
    c.api.simple("0", &json!({}));
    submit(&mut c, "a", "lq", 1, |_| {});
    let pending = |c: &Cluster| c.api.json(&lq()).unwrap()["status"]["pendingWorkloads"].clone();
    assert_eq!(pending(&c), 1);
    c.api.edit(&lq(), &json!({"spec": {"stopPolicy": "Hold"}}));
    c.settle();
    assert_eq!(pending(&c), 0);
    c.api.edit(&lq(), &json!({"spec": {"stopPolicy": "None"}}));
    c.settle();
    assert_eq!(pending(&c), 1);
}

#[test]
fn a_preemptor_without_the_label_of_its_job_is_named_unknown() {
    let mut c = Cluster::plain();
    cohort(&mut c, "2", "0", json!({"preemption": {"reclaimWithinCohort": "Any"}}));
    submit(&mut c, "victim", "lq-other", 2, |_| {});
    c.pods_vanish = false;
    let owner = json!([{"apiVersion": "example.com/v1", "kind": "Train", "name": "t", "uid": "train-uid", "controller": true}]);
    let by = alone(&mut c, "by", "2");
    c.api.edit(&by, &json!({"metadata": {"ownerReferences": owner}}));
    c.settle();
    let message = reported(&c.workload("victim"), "Preempted");
    assert!(message.contains(", JobUID: UNKNOWN)"), "{message}");
}

#[test]
fn above_the_maximum_and_above_its_own_limits_have_different_messages() {
    let range = json!([{"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "2"}}]);
    let limited = |own: Value, requests: &str| {
        let mut c = Cluster::plain();
        c.api.simple("9", &json!({}));
        c.api.put(
            Kind::LimitRange,
            json!({"metadata": {"name": "r", "namespace": "team-a"}, "spec": {"limits": range}}),
        );
        let mut template = serde_json::to_value(crate::model::build::template(requests)).unwrap();
        template["spec"]["containers"][0]["resources"]["limits"] = own;
        let workload = alone(&mut c, "w", requests);
        let mut spec = c.api.json(&workload).unwrap()["spec"].clone();
        spec["podSets"][0]["template"] = template;
        c.api.edit(&workload, &json!({ "spec": spec }));
        c.advance(10);
        reported(&c.api.workloads()[0], "QuotaReserved")
    };
    let path = "spec.podSets[0].template.spec.containers[0]: Invalid value: [\"cpu\"]";
    assert_eq!(
        limited(json!({}), "3"),
        format!(
            "False/Misconfigured: resources didn't satisfy LimitRange constraints: {path}: \
             requests must not be above the limitRange max"
        )
    );
    assert_eq!(
        limited(json!({"cpu": "1"}), "2"),
        format!(
            "False/Misconfigured: resources validation failed: {path}: requests must not exceed its limits"
        )
    );
}

#[test]
fn checks_are_listed_although_the_turn_of_a_workload_has_not_come() {
    let rules = json!([{"name": "ok"}, {"name": "one", "onFlavors": ["other"]}]);
    let more =
        json!({"queueingStrategy": "StrictFIFO", "admissionChecksStrategy": {"admissionChecks": rules}});
    let listed = |c: &Cluster, name: &str| -> Vec<String> {
        let checks = c.workload(name).status.unwrap_or_default().admission_checks;
        checks.iter().map(|check| format!("{} {:?}", check.name, check.state)).collect()
    };
    for scheduling in [true, false] {
        let mut c = Cluster::plain();
        c.config.scheduling = scheduling;
        c.restart();
        c.api.simple("1", &more);
        c.api.flavor("other", &[]);
        c.api.active_check("ok");
        c.api.active_check("one");
        for (name, pods) in [("first", 1), ("second", 2), ("third", 1)] {
            submit(&mut c, name, "lq", pods, |_| {});
        }
        for name in ["first", "second", "third"] {
            assert_eq!(listed(&c, name), ["ok Pending"], "{name}, scheduling {scheduling}");
        }
        assert_eq!(condition(&c.workload("third"), "QuotaReserved"), "", "nothing else is said of it");
        if scheduling {
            let first = Api::workload_ref(&c.workload("first"));
            let listed = c
                .writes
                .iter()
                .filter(|(object, purpose)| *object == first && *purpose == Purpose::SyncChecks);
            assert_eq!(listed.count(), 0, "one that gets its quota at once costs no write for that");
        }
    }
}

#[test]
fn that_equals_wait_is_written_as_what_nothing_waits_for() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({}));
    for name in ["first", "second"] {
        submit(&mut c, name, "lq", 2, |_| {});
    }
    let of = |c: &Cluster, job: &str| {
        let workload = Api::workload_ref(&c.workload(job));
        let writes = c.writes.iter().filter(|(object, _)| *object == workload);
        writes.map(|(_, purpose)| *purpose).collect::<Vec<_>>()
    };
    assert!(reported(&c.workload("second"), "QuotaReserved").contains("Bypassed scheduling evaluation"));
    assert_eq!(of(&c, "first"), [Purpose::CreateWorkload, Purpose::Pend]);
    assert_eq!(of(&c, "second"), [Purpose::CreateWorkload, Purpose::Bypassed]);
}

#[test]
fn a_job_made_with_its_queues_does_not_begin_with_a_warning() {
    let mut c = Cluster::plain();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    assert_eq!(
        reported(&c.workload("a"), "QuotaReserved"),
        "False/Misconfigured: LocalQueue lq doesn't exist"
    );
    c.api.local_queue("team-a", "lq", "cq");
    c.settle();
    c.api.simple("1", &json!({}));
    c.advance(60);
    assert!(!c.api.job("a").view.suspended);
    let warnings = |c: &Cluster| -> Vec<(String, String)> {
        let warnings = c.events.iter().filter(|e| format!("{:?}", e.type_) == "Warning");
        warnings.map(|e| (e.reason.clone(), e.note.clone())).collect()
    };
    assert_eq!(warnings(&c), []);
    // A job that still has no queue then gets this reason, once.
    c.api.add_job(job("team-a", "b", "nowhere", 1, "1"));
    c.advance(60);
    let reported = [("Misconfigured".to_owned(), "LocalQueue nowhere doesn't exist".to_owned())];
    assert_eq!(warnings(&c), reported);
}
