//! Requests for nodes that are of no use any more, and those that cannot be made (docs/reference/06-algorithm.md 6.23).

use serde_json::json;
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
