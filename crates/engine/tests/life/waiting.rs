//! Why a Workload waits, or waits again: rows of docs/reference/03-conditions-events.md 3.1 beside those of [`crate::contract`], and which reason
//! wins (the precedence in 3.1, "Rules").

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodResourceClaim;
use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose, WriteError};

use crate::contract::{ADMISSION, Row, check_with, cohort, cq, submit};
use crate::model::build::template;
use crate::model::{Api, Cluster, condition, reported};
use crate::readiness::wait;

pub fn gate(gate: Gate, on: bool) -> EngineConfig {
    EngineConfig { gates: Gates::default().with(gate, on), status_interval_ms: 0, ..EngineConfig::default() }
}

/// A queue with the check `ok`, and a job that waits for it with quota.
pub fn checked(c: &mut Cluster) {
    c.api.simple("2", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "ok"}]}}));
    c.api.active_check("ok");
    submit(c, "a", "lq", 1, |_| {});
}

fn lq() -> ObjectRef {
    ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lq")
}

/// A Workload without a job.
fn alone(c: &mut Cluster, name: &str, spec: &Value) -> ObjectRef {
    let template = serde_json::to_value(template("1")).unwrap();
    let mut workload = json!({
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        workload["spec"][key] = value.clone();
    }
    c.api.put(Kind::Workload, workload)
}

/// `status/reason: message` of a condition of a Workload without a job.
fn said(c: &Cluster, workload: &ObjectRef, type_: &str) -> String {
    let all = c.api.workloads();
    reported(all.iter().find(|w| Api::workload_ref(w) == *workload).unwrap(), type_)
}

#[test]
fn a_workload_that_waits_for_checks_loses_its_quota_with_its_queues() {
    // What it waits for afterwards could be reported at once: that write fails, so that the first words stay.
    fn keep_the_first_words(c: &mut Cluster) {
        c.fail.push_back((Purpose::Pend, WriteError::Transient("busy".to_owned())));
    }
    let row = |play, message: &'static [(&'static str, &'static str)]| Row {
        of: "a",
        play,
        conditions: message,
        events: &[],
    };
    check_with(
        &EngineConfig::default(),
        &[
            row(
                |c| {
                    checked(c);
                    c.api.edit(&lq(), &json!({"spec": {"stopPolicy": "Hold"}}));
                },
                &[("QuotaReserved", "False/Suspended: LocalQueue lq is stopped"), ("Evicted", "")],
            ),
            row(
                |c| {
                    checked(c);
                    c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "Hold"}}));
                },
                &[("QuotaReserved", "False/Suspended: ClusterQueue cq is stopped"), ("Evicted", "")],
            ),
            row(
                |c| {
                    checked(c);
                    keep_the_first_words(c);
                    c.api.delete(&lq());
                },
                &[("QuotaReserved", "False/Misconfigured: LocalQueue lq is terminating or missing")],
            ),
            row(
                |c| {
                    checked(c);
                    keep_the_first_words(c);
                    c.api.delete(&cq());
                },
                &[("QuotaReserved", "False/Misconfigured: ClusterQueue cq is terminating or missing")],
            ),
            row(
                |c| {
                    checked(c);
                    c.api.delete(&cq());
                },
                &[("QuotaReserved", "False/Misconfigured: ClusterQueue cq doesn't exist")],
            ),
        ],
    );
}

#[test]
fn what_is_over_is_not_reported_any_longer() {
    for (granular, reason) in [(true, "PendingEvaluation"), (false, "Pending")] {
        let mut c = Cluster::new(gate(Gate::UnadmittedWorkloadsObservability, granular));
        c.api.namespace("team-a", &[("team", "a")]);
        c.api.simple("1", &json!({"queueingStrategy": "StrictFIFO"}));
        submit(&mut c, "runs", "lq", 1, |_| {});
        submit(&mut c, "first", "lq", 1, |_| {});
        let queue = c.api.local_queue("team-a", "other", "nowhere");
        submit(&mut c, "a", "other", 1, |_| {});
        assert!(reported(&c.workload("a"), "QuotaReserved").ends_with("ClusterQueue nowhere doesn't exist"));
        // Its turn does not come: another one is in front.
        c.api.edit(&queue, &json!({"spec": {"clusterQueue": "cq"}}));
        c.settle();
        assert_eq!(
            reported(&c.workload("a"), "QuotaReserved"),
            format!("False/{reason}: Workload is pending evaluation in the scheduling queue")
        );
    }
}

#[test]
fn a_namespace_that_is_selected_later_is_no_longer_reported_as_not_selected() {
    let mut c = Cluster::plain();
    let selector = json!({"matchLabels": {"team": "b"}});
    c.api.simple("1", &json!({"queueingStrategy": "StrictFIFO", "namespaceSelector": selector}));
    c.api.local_queue("team-b", "lq", "cq");
    for name in ["runs", "first"] {
        c.api.add_job(crate::model::build::job("team-b", name, "lq", 1, "1"));
        c.settle();
    }
    submit(&mut c, "a", "lq", 1, |_| {});
    assert!(
        reported(&c.workload("a"), "QuotaReserved").starts_with("False/Misconfigured: workload namespace")
    );
    let team = ObjectRef::cluster(Kind::Namespace, "team-a");
    c.api.edit(&team, &json!({"metadata": {"labels": {"team": "b"}}}));
    c.settle();
    assert!(!reported(&c.workload("a"), "QuotaReserved").starts_with("False/Misconfigured"));
}

#[test]
fn a_workload_on_hold_keeps_its_words_and_its_place_outside_of_the_queue() {
    let mut c = Cluster::plain();
    let waits = alone(&mut c, "held", &json!({}));
    let say = |c: &mut Cluster, reason: &str, message: &str| {
        let condition = json!([{"type": "QuotaReserved", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        c.api.edit_status(&waits, |status| *status = json!({"conditions": condition}));
        c.settle();
    };
    say(&mut c, "OnHold", "Job is on hold");
    assert_eq!(
        said(&c, &waits, "QuotaReserved"),
        "False/OnHold: Job is on hold",
        "although there is no queue"
    );
    c.api.simple("2", &json!({}));
    c.advance(60);
    assert_eq!(said(&c, &waits, "QuotaReserved"), "False/OnHold: Job is on hold");
    say(&mut c, "PendingEvaluation", "Workload no longer on hold; waiting for quota reservation");
    assert_eq!(said(&c, &waits, "QuotaReserved"), "True/QuotaReserved: Quota reserved in ClusterQueue cq");
}

#[test]
fn deactivation_has_the_first_word_and_is_an_eviction_of_what_waits_too() {
    let mut c = wait(|ready| {
        ready.timeout_seconds = 10;
        ready.backoff_base_seconds = 900;
        ready.backoff_max_seconds = 900;
    });
    submit(&mut c, "a", "lq", 1, |_| {});
    c.advance(20);
    assert!(c.workload("a").status.unwrap().requeue_state.is_some(), "it waits for its turn");
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.settle();
    let w = c.workload("a");
    assert_eq!(reported(&w, "QuotaReserved"), "False/Deactivated: The workload is deactivated");
    assert_eq!(reported(&w, "Evicted"), "True/Deactivated: The workload is deactivated");
    assert_eq!(w.status.as_ref().unwrap().requeue_state, None);
    let evictions: Vec<_> = w.status.unwrap().scheduling_stats.unwrap().evictions;
    assert_eq!(
        evictions.iter().map(|e| (e.reason.as_str(), e.count)).collect::<Vec<_>>(),
        [("PodsReadyTimeout", 1), ("Deactivated", 1)]
    );
    assert_eq!(c.notes("EvictedDueToDeactivated"), ["Workload/job-a: The workload is deactivated"]);
    let counted = |c: &Cluster| {
        c.observed.iter().filter(|(metric, _)| metric == "kueue_evicted_workloads_total").count()
    };
    assert_eq!(counted(&c), 1, "no queue lost anything by the second one");
    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.settle();
    assert!(!c.api.job("a").view.suspended, "its user wants it to run now");
}

#[test]
fn a_target_of_deactivation_that_was_reached_while_it_waits_is_named_and_forgotten() {
    let mut c = Cluster::plain();
    c.api.simple("0", &json!({}));
    submit(&mut c, "a", "lq", 1, |_| {});
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit_status(&workload, |status| {
        status["conditions"].as_array_mut().unwrap().push(
            json!({"type": "DeactivationTarget", "status": "True",
            "reason": "MaximumExecutionTimeExceeded", "message": "exceeding the maximum execution time",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}),
        );
    });
    c.settle();
    let w = c.workload("a");
    assert_eq!(w.spec.active, Some(false));
    assert_eq!(
        reported(&w, "Evicted"),
        "True/DeactivatedDueToMaximumExecutionTimeExceeded: The workload is deactivated due to exceeding the maximum \
         execution time"
    );
    assert_eq!(condition(&w, "DeactivationTarget"), "");
    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.api.cluster_queue("cq", "default", "1", &json!({}));
    c.settle();
    assert!(!c.api.job("a").view.suspended, "it is not deactivated again");
}

#[test]
fn a_waiting_workload_lists_the_checks_before_every_flavor() {
    let mut c = Cluster::plain();
    c.api.active_check("all");
    c.api.active_check("listed");
    c.api.active_check("some");
    c.api.flavor("other", &[]);
    let rules = json!([{"name": "some", "onFlavors": ["other"]}, {"name": "all"},
        {"name": "listed", "onFlavors": ["default", "other"]}]);
    let flavor = |name: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": "1"}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [flavor("default"), flavor("other")]}]);
    c.api.simple(
        "1",
        &json!({"admissionChecksStrategy": {"admissionChecks": rules}, "resourceGroups": groups}),
    );
    submit(&mut c, "a", "lq", 2, |_| {});
    let checks = |c: &Cluster| -> Vec<String> {
        let checks = c.workload("a").status.unwrap().admission_checks;
        checks.iter().map(|check| format!("{} {:?}", check.name, check.state)).collect()
    };
    assert_eq!(checks(&c), ["all Pending", "listed Pending"]);
    let rules = json!([{"name": "some"}, {"name": "all", "onFlavors": ["default"]}]);
    c.api.edit(&cq(), &json!({"spec": {"admissionChecksStrategy": {"admissionChecks": rules}}}));
    c.settle();
    assert_eq!(checks(&c), ["all Pending", "some Pending"], "one of a single flavor stays if it was there");
    c.api.edit(&cq(), &json!({"spec": {"admissionChecksStrategy": null}}));
    c.settle();
    assert_eq!(checks(&c), Vec::<String>::new());
    // More than its status can take: why it waits must be reported in any case.
    let many: Value = (0..9).map(|n| json!({"name": format!("check-{n}")})).collect();
    c.api.edit(&cq(), &json!({"spec": {"admissionChecksStrategy": {"admissionChecks": many}}}));
    for n in 0..9 {
        c.api.active_check(&format!("check-{n}"));
    }
    submit(&mut c, "b", "lq", 1, |_| {});
    for name in ["a", "b"] {
        assert_eq!(
            reported(&c.workload(name), "QuotaReserved"),
            "False/Misconfigured: ClusterQueue cq has 9 admission checks for every flavor, and a Workload can have 8"
        );
    }
    assert_eq!(checks(&c), Vec::<String>::new());
    let many: Value = (0..8).map(|n| json!({"name": format!("check-{n}")})).collect();
    c.api.edit(&cq(), &json!({"spec": {"admissionChecksStrategy": {"admissionChecks": many}}}));
    c.settle();
    assert_eq!(condition(&c.workload("b"), "QuotaReserved"), "True");
}

#[test]
fn the_status_of_a_queue_with_more_flavors_than_it_takes_is_written_without_the_rest() {
    let mut c = Cluster::plain();
    let names: Vec<_> = (0..70).map(|n| format!("f{n:02}")).collect();
    let flavor = |name: &String| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": "1"}]});
    let groups =
        json!([{"coveredResources": ["cpu"], "flavors": names.iter().map(flavor).collect::<Vec<_>>()}]);
    for name in &names {
        c.api.flavor(name, &[]);
    }
    c.api.simple("1", &json!({"resourceGroups": groups}));
    submit(&mut c, "a", "lq", 1, |_| {});
    for queue in [cq(), lq()] {
        let status = c.api.json(&queue).unwrap()["status"].clone();
        assert_eq!(status["flavorsReservation"].as_array().unwrap().len(), 64);
        assert_eq!(status["flavorsUsage"][63]["name"], "f63");
        assert_eq!(status["admittedWorkloads"], 1);
    }
}

#[test]
fn only_with_its_gate_a_newcomer_says_that_it_was_not_looked_at() {
    for (explicit, expected) in [
        (true, "False/PendingEvaluation: Workload is pending evaluation in the scheduling queue"),
        (false, ""),
    ] {
        let mut c = Cluster::new(gate(Gate::UnadmittedWorkloadsExplicitStatus, explicit));
        c.api.namespace("team-a", &[]);
        c.api.simple("1", &json!({"queueingStrategy": "StrictFIFO"}));
        for name in ["runs", "first", "a"] {
            submit(&mut c, name, "lq", 1, |_| {});
        }
        assert_eq!(reported(&c.workload("a"), "QuotaReserved"), expected, "{explicit}");
        assert_eq!(condition(&c.workload("runs"), "Admitted"), "True");
    }
}

#[test]
fn a_workload_like_one_that_failed_has_its_reason_and_no_event() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({}));
    submit(&mut c, "first", "lq", 2, |_| {});
    submit(&mut c, "a", "lq", 2, |_| {});
    assert_eq!(
        reported(&c.workload("a"), "QuotaReserved"),
        "False/ExceedsMaxQuota: Bypassed scheduling evaluation because an equivalent workload recently failed"
    );
    assert_eq!(c.notes("ExceedsMaxQuota").len(), 1, "of the one that was looked at");
}

#[test]
fn preemption_that_a_gate_forbids_is_reported_and_happens_when_it_opens() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    submit(&mut c, "victim", "lq", 1, |_| {});
    let gates = json!({"preemptionGates": [{"name": "kueue.x-k8s.io/multikueue"}], "priority": 9});
    let waits = alone(&mut c, "gated", &gates);
    c.settle();
    assert_eq!(
        said(&c, &waits, "BlockedOnPreemptionGates"),
        "True/PreemptionGated: Workload requires preemption, but it's gated"
    );
    let why = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed";
    assert_eq!(said(&c, &waits, "QuotaReserved"), format!("False/WaitingForQuota: {why}"));
    assert_eq!(c.notes("WaitingForQuota"), [format!("Workload/gated: {why}")]);
    assert!(!c.api.job("victim").view.suspended);
    c.api.edit_status(&waits, |status| {
        status["preemptionGates"] = json!([{"name": "kueue.x-k8s.io/multikueue", "position": "Open",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    });
    c.settle();
    let uid = c.api.json(&waits).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(
        reported(&c.workload("victim"), "Preempted"),
        format!(
            "True/InClusterQueue: Preempted to accommodate a workload (UID: {uid}, JobUID: UNKNOWN) due to prioritization \
             in the ClusterQueue; preemptor path: /cq; preemptee path: /cq"
        )
    );
    assert_eq!(
        said(&c, &waits, "BlockedOnPreemptionGates"),
        "False/QuotaReserved: Previously: Workload requires preemption, but it's gated"
    );
}

#[test]
fn that_a_gate_forbids_preemption_is_reported_as_soon_as_it_can_be_written() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    submit(&mut c, "victim", "lq", 1, |_| {});
    c.fail.push_back((Purpose::Pend, WriteError::Transient("busy".to_owned())));
    let gates = json!({"preemptionGates": [{"name": "kueue.x-k8s.io/multikueue"}], "priority": 9});
    let waits = alone(&mut c, "gated", &gates);
    c.settle();
    assert_eq!(said(&c, &waits, "BlockedOnPreemptionGates"), "");
    c.advance(2);
    assert_eq!(
        said(&c, &waits, "BlockedOnPreemptionGates"),
        "True/PreemptionGated: Workload requires preemption, but it's gated"
    );
}

#[test]
fn resource_claims_are_refused_where_their_integration_is_off() {
    let config = gate(Gate::KueueDRAIntegration, false);
    let play = |c: &mut Cluster| {
        c.api.simple("2", &json!({}));
        submit(c, "a", "lq", 1, |view| {
            let mut template = (**view.pod_sets[0].template.as_ref().unwrap()).clone();
            let claim = PodResourceClaim { name: "gpu".to_owned(), ..PodResourceClaim::default() };
            template.spec.as_mut().unwrap().resource_claims = Some(vec![claim]);
            view.pod_sets[0].template = Some(Arc::new(template));
        });
    };
    let conditions = &[(
        "QuotaReserved",
        "False/Misconfigured: Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled",
    )];
    check_with(&config, &[Row { of: "a", play, conditions, events: &[] }]);
}

#[test]
fn the_flavors_that_were_considered_are_reported_unless_they_plainly_fit() {
    let play = |c: &mut Cluster| {
        cohort(c, "0", "2", json!({}));
        submit(c, "a", "lq", 1, |_| {});
    };
    let events = &[(
        ADMISSION,
        "Normal Admitted: Admitted by ClusterQueue cq, wait time since reservation was 0s; Quota reserved in ClusterQueue cq, \
         wait time since queued was 0s; Flavors considered: main: default(Fit;borrow=1)",
    )];
    check_with(&EngineConfig::default(), &[Row { of: "a", play, conditions: &[], events }]);
}

#[test]
fn the_maximum_capacity_that_is_reported_is_that_without_a_cohort_that_was_removed() {
    let mut c = Cluster::plain();
    cohort(&mut c, "1", "1", json!({}));
    c.api.put(
        Kind::Cohort,
        json!({
            "metadata": {"name": "co"},
            "spec": {"resourceGroups": [{
                "coveredResources": ["cpu"],
                "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "5"}]}],
            }]},
        }),
    );
    c.settle();
    submit(&mut c, "a", "lq", 99, |_| {});
    c.settle();
    let most = |c: &Cluster| {
        let reported = reported(&c.workload("a"), "QuotaReserved");
        reported.rsplit_once("> maximum capacity ").map(|(_, most)| most.to_owned())
    };
    assert_eq!(most(&c).as_deref(), Some("(7)"));
    c.api.delete(&ObjectRef::cluster(Kind::Cohort, "co"));
    c.settle();
    assert_eq!(most(&c).as_deref(), Some("(2)"), "at once, though only a number differs");
}
