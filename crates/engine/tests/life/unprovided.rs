//! Requests for nodes that are of no use any more, and those that cannot be made (docs/reference/06-algorithm.md 6.23).

use serde_json::{Value, json};
use sluice_api::v1beta2::{AdmissionCheckState, CheckState};
use sluice_engine::{Kind, ObjectRef, Purpose, WriteError};

use super::provisioning::{cluster, config, provider};
use crate::model::{Api, Cluster, condition, reported};

fn stop(c: &mut Cluster, policy: &str) {
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": {"stopPolicy": policy}}));
    c.settle();
}

fn requests(c: &Cluster) -> Vec<ObjectRef> {
    c.api.names(Kind::ProvisioningRequest)
}

fn check(c: &Cluster) -> AdmissionCheckState {
    c.workload("a").status.unwrap().admission_checks[0].clone()
}

/// As the authorizer of the API server says it.
const NO_RIGHT: &str = "POST /x: provisioningrequests.autoscaling.x-k8s.io is forbidden: User \"system:serviceaccount:a:b\" cannot create resource \
                        \"provisioningrequests\" in API group \"autoscaling.x-k8s.io\" in the namespace \"team-a\" (403 Forbidden)";

fn refused(why: &str) -> WriteError {
    WriteError::Refused(why.to_owned())
}

#[test]
fn a_check_that_a_queue_gets_later_requests_no_nodes_for_what_runs() {
    let mut c = cluster(config(), &json!({}));
    let ask = |c: &mut Cluster, checks: &Value| {
        let strategy = json!({"spec": {"admissionChecksStrategy": {"admissionChecks": checks}}});
        c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &strategy);
        c.settle();
    };
    ask(&mut c, &json!([]));
    assert!(!c.api.job("a").view.suspended);
    c.refuse = Some((Purpose::CreateTemplate, refused("spec.parameters: Too long")));
    ask(&mut c, &json!([{"name": "dws-prov"}]));
    c.advance(3600);
    let said = check(&c);
    assert_eq!((said.state, &*said.message), (CheckState::Ready, "the provisioning request is not needed"));
    assert_eq!((c.refused, requests(&c).len()), (0, 0));
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_request_that_pods_run_on_stays_although_its_nodes_are_no_longer_promised() {
    let mut c = cluster(config(), &json!({}));
    c.settle();
    provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
    let used = requests(&c);
    provider(&mut c, "Provisioned", "False", "NotProvisioned", "no longer");
    let dws = ObjectRef::cluster(Kind::ProvisioningRequestConfig, "dws");
    c.api.edit(&dws, &json!({"spec": {"provisioningClassName": "other"}}));
    c.settle();
    assert_eq!((check(&c).state, requests(&c)), (CheckState::Pending, used.clone()));
    c.api.delete(&dws);
    c.settle();
    assert_eq!((check(&c).state, requests(&c)), (CheckState::Pending, used.clone()));
    c.api.put(
        Kind::ProvisioningRequestConfig,
        json!({"metadata": {"name": "dws"}, "spec": {"provisioningClassName": "third"}}),
    );
    c.settle();
    assert_eq!(requests(&c), used);
    // Of a change after which none is needed, too.
    c.api.edit(&dws, &json!({"spec": {"managedResources": ["nvidia.com/gpu"]}}));
    c.settle();
    assert_eq!((check(&c).state, requests(&c)), (CheckState::Ready, used.clone()));
    c.api.edit(&dws, &json!({"spec": {"managedResources": ["cpu"]}}));
    c.settle();
    assert_eq!((check(&c).state, requests(&c)), (CheckState::Pending, used.clone()));
    // Its user gives it up; the pods go on without.
    c.api.delete(&used[0]);
    c.advance(60);
    assert_eq!((check(&c).state, requests(&c).len()), (CheckState::Ready, 0));
    assert_eq!((c.written(Purpose::DeleteRequest), c.written(Purpose::CreateRequest)), (0, 1));
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_reservation_that_a_held_queue_takes_away_takes_the_nodes_with_it() {
    let mut c = cluster(config(), &json!({}));
    c.settle();
    let first = requests(&c);
    assert_eq!(first.len(), 1);
    stop(&mut c, "Hold");
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "False");
    assert!(requests(&c).is_empty() && c.api.names(Kind::PodTemplate).is_empty());
    stop(&mut c, "None");
    assert_eq!(requests(&c), first, "no attempt has failed");
    provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_request_that_is_made_while_its_queue_is_held_is_taken_away() {
    let mut c = cluster(config(), &json!({}));
    c.slow = Some(Purpose::CreateRequest);
    c.settle();
    stop(&mut c, "Hold");
    c.release();
    c.advance(5);
    assert!(requests(&c).is_empty(), "{:?}", requests(&c));
    assert_eq!(c.written(Purpose::DeleteRequest), 1);
}

#[test]
fn a_request_that_is_being_taken_away_is_no_answer_to_the_next_reservation() {
    let mut c = cluster(config(), &json!({}));
    c.fail.push_back((Purpose::Admit, WriteError::Transient("down".to_owned())));
    c.settle();
    provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
    assert!(c.api.job("a").view.suspended, "it could not be admitted");
    c.slow = Some(Purpose::DeleteRequest);
    stop(&mut c, "Hold");
    c.advance(2);
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "False");
    stop(&mut c, "None");
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "True");
    assert!(c.api.job("a").view.suspended);
    c.release();
    assert_eq!((requests(&c).len(), c.written(Purpose::CreateRequest)), (1, 2));
    assert!(c.api.job("a").view.suspended, "no nodes are there yet");
    provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn what_is_refused_again_and_again_is_a_failed_attempt_and_is_rejected_in_the_end() {
    for (purpose, kind) in
        [(Purpose::CreateTemplate, "PodTemplate"), (Purpose::CreateRequest, "ProvisioningRequest")]
    {
        let retries = json!({"backoffLimitCount": 1, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800});
        let mut c = cluster(config(), &json!({"retryStrategy": retries}));
        c.refuse = Some((purpose, WriteError::Refused("spec.parameters: Too long".to_owned())));
        c.settle();
        c.advance(14);
        assert_eq!((c.refused, condition(&c.workload("a"), "QuotaReserved").as_str()), (2, "True"));
        c.advance(2);
        let w = c.workload("a");
        let text = reported(&w, "Evicted");
        let head = "True/AdmissionCheck: Evicted due to AdmissionCheck in Retry state: \"dws-prov\" (Retrying after \
                    failure: ";
        assert!(text.starts_with(&format!("{head}{kind} \"")), "{text}");
        assert!(text.ends_with("is refused: spec.parameters: Too long)"), "{text}");
        assert_eq!(condition(&w, "QuotaReserved"), "False", "others may use the quota");
        let check = w.status.unwrap().admission_checks[0].clone();
        assert_eq!((check.retry_count, check.requeue_after_seconds), (Some(1), Some(60)));

        c.advance(90);
        let w = c.workload("a");
        assert_eq!((w.spec.active, c.refused), (Some(false), 6), "{kind}");
        assert!(reported(&w, "Evicted").starts_with("True/DeactivatedDueToAdmissionCheck"), "{kind}");
        // What was wrong is put right.
        c.refuse = None;
        c.api.edit(&Api::workload_ref(&w), &json!({"spec": {"active": true}}));
        c.settle();
        assert!(requests(&c)[0].name.ends_with("-2"), "{kind}");
        provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
        assert!(!c.api.job("a").view.suspended, "{kind}");
    }
}

#[test]
fn refusals_before_a_reservation_was_taken_away_do_not_count_against_the_next_one() {
    let mut c = cluster(config(), &json!({}));
    c.refuse = Some((Purpose::CreateRequest, WriteError::Refused("not yet".to_owned())));
    c.settle();
    c.advance(10);
    stop(&mut c, "Hold");
    stop(&mut c, "None");
    c.advance(10);
    assert_eq!((c.refused, condition(&c.workload("a"), "Evicted").as_str()), (4, ""));
    c.refuse = None;
    c.advance(10);
    assert_eq!(requests(&c).len(), 1);
}

#[test]
fn for_want_of_rights_no_attempt_fails() {
    for purpose in [Purpose::CreateTemplate, Purpose::CreateRequest] {
        let mut c = cluster(config(), &json!({}));
        c.refuse = Some((purpose, refused(NO_RIGHT)));
        c.settle();
        c.advance(3600);
        let w = c.workload("a");
        assert!(c.refused > 10, "{}", c.refused);
        assert_eq!(
            (condition(&w, "QuotaReserved").as_str(), condition(&w, "Evicted").as_str()),
            ("True", "")
        );
        assert_eq!(check(&c).state, CheckState::Pending);
        assert_eq!(c.notes("FailedCreate").len(), 1, "its administrator has to know");
        c.refuse = None;
        c.advance(400);
        provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
        assert!(!c.api.job("a").view.suspended);
    }
}

#[test]
fn refusals_for_want_of_rights_do_not_count_among_others() {
    // r: for want of rights; a: by admission.
    for (answers, attempt) in [("aaa", "-2"), ("rraa", "-1"), ("rraaa", "-2"), ("aaraa", "-1")] {
        let mut c = cluster(config(), &json!({}));
        let answers = answers.chars().map(|answer| refused(if answer == 'r' { NO_RIGHT } else { "no" }));
        c.fail.extend(answers.map(|error| (Purpose::CreateRequest, error)));
        c.settle();
        c.advance(200);
        assert!(requests(&c)[0].name.ends_with(attempt), "{attempt}: {:?}", requests(&c));
    }
}
