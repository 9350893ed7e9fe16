//! Restart at every step: each two-step protocol is cut after every write, and an engine that knows only the API objects continues. The end is the
//! same: nothing is lost or done twice, and no quota leaks.

use serde_json::json;
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose, WaitForPodsReady};

use super::provisioning::{cluster, config, provider};
use crate::model::build::job;
use crate::model::{Api, Cluster, condition, reported};

/// Settles; once the writes are used up, the engine is replaced and continues.
fn on(c: &mut Cluster) {
    c.settle();
    resume(c);
}

fn resume(c: &mut Cluster) {
    if c.writes_left == Some(0) {
        c.writes_left = None;
        c.restart();
        c.settle();
    }
}

/// Lets time pass, over a cut as well.
fn pass(c: &mut Cluster, seconds: i64) {
    for _ in 0..seconds {
        c.advance(1);
        resume(c);
    }
}

/// Plays without a cut, then cut after each of its writes; `end` looks at what came of it.
fn matrix(name: &str, play: impl Fn(Option<usize>) -> Cluster, end: impl Fn(&Cluster, &str)) {
    let whole = play(None);
    end(&whole, &format!("{name}, not cut"));
    let writes = whole.writes.len();
    for cut in 0..=writes {
        let c = play(Some(cut));
        assert!(c.writes_left.is_none() || cut >= writes, "{name}: the cut after {cut} was never reached");
        end(&c, &format!("{name}, cut after {cut} of {writes}"));
    }
    println!("{name}: {writes} writes, {} cuts, one end", writes + 1);
}

/// The whole quota can be had by a job that comes now.
fn no_quota_is_leaked(c: &Cluster, at: &str) {
    let queue = c.api.json(&ObjectRef::cluster(Kind::ClusterQueue, "cq")).unwrap();
    let used = &queue["status"]["flavorsReservation"][0]["resources"][0]["total"];
    assert!(used == "0" || used.is_null(), "{at}: {used} is still reserved");
}

/// Says something as the provider about the only request, if there is one.
fn answer(c: &mut Cluster, type_: &str, reason: &str) {
    if c.api.names(Kind::ProvisioningRequest).len() == 1 {
        provider(c, type_, "True", reason, "said");
    }
    resume(c);
}

#[test]
fn check_and_start() {
    let play = |cut| {
        let mut c = Cluster::plain();
        c.api.active_check("prov");
        c.api.simple("3", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "prov"}]}}));
        c.writes_left = cut;
        c.api.add_job(job("team-a", "a", "lq", 3, "1"));
        on(&mut c);
        // The check asks for a retry once, then it is ready.
        for state in ["Retry", "Ready"] {
            pass(&mut c, 10);
            let workload = Api::workload_ref(&c.workload("a"));
            c.api.edit_status(&workload, |s| s["admissionChecks"][0]["state"] = json!(state));
            on(&mut c);
        }
        pass(&mut c, 10);
        assert!(!c.api.job("a").view.suspended, "{}", reported(&c.workload("a"), "Admitted"));
        c.api.finish_job("a", true);
        on(&mut c);
        pass(&mut c, 5);
        c
    };
    matrix("check and start", play, |c, at| {
        let w = c.workload("a");
        assert_eq!(condition(&w, "Finished"), "True", "{at}");
        let status = w.status.unwrap();
        assert_eq!(status.admission_checks[0].retry_count, Some(1), "{at}");
        assert_eq!(status.scheduling_stats.unwrap().evictions[0].count, 1, "{at}");
        assert_eq!(c.api.workloads().len(), 1, "{at}");
        no_quota_is_leaked(c, at);
    });
}

#[test]
fn nothing_is_admitted_in_a_queue_that_was_stopped_while_none_led() {
    for policy in ["Hold", "HoldAndDrain"] {
        for local in [false, true] {
            let mut c = Cluster::plain();
            c.api.active_check("prov");
            c.api.simple("3", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "prov"}]}}));
            c.api.add_job(job("team-a", "a", "lq", 3, "1"));
            c.settle();
            let workload = Api::workload_ref(&c.workload("a"));
            c.api.edit_status(&workload, |s| s["admissionChecks"][0]["state"] = json!("Ready"));
            let (queue, name) = if local {
                (ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lq"), "LocalQueue lq")
            } else {
                (ObjectRef::cluster(Kind::ClusterQueue, "cq"), "ClusterQueue cq")
            };
            c.api.edit(&queue, &json!({"spec": {"stopPolicy": policy}}));
            c.restart();
            c.settle();
            let w = c.workload("a");
            let stopped = format!("False/Suspended: {name} is stopped");
            assert_eq!(reported(&w, "QuotaReserved"), stopped, "{policy}");
            assert!(c.api.job("a").view.suspended, "{policy} of {name}");
            assert_eq!((c.written(Purpose::Admit), c.notes("Admitted").len()), (0, 0), "{policy} of {name}");
        }
    }
}

#[test]
fn provision_and_start() {
    let play = |cut| {
        let mut c = cluster(config(), &json!({"retryStrategy": {"backoffBaseSeconds": 5}}));
        c.writes_left = cut;
        on(&mut c);
        pass(&mut c, 5);
        answer(&mut c, "Failed", "NoStock");
        pass(&mut c, 20);
        answer(&mut c, "Accepted", "Accepted");
        answer(&mut c, "Provisioned", "Provisioned");
        pass(&mut c, 10);
        let at = format!(
            "{:?} {}",
            c.api.names(Kind::ProvisioningRequest),
            reported(&c.workload("a"), "Admitted")
        );
        assert!(!c.api.job("a").view.suspended, "{at}");
        let second = c.api.names(Kind::ProvisioningRequest);
        assert_eq!(second.len(), 1, "{at}");
        assert!(second[0].name.ends_with("-2"), "{at}");
        c.api.finish_job("a", true);
        on(&mut c);
        pass(&mut c, 10);
        c
    };
    matrix("provision and start", play, |c, at| {
        let w = c.workload("a");
        assert_eq!(condition(&w, "Finished"), "True", "{at}");
        assert_eq!(w.status.unwrap().admission_checks[0].retry_count, Some(1), "{at}");
        assert!(c.api.names(Kind::ProvisioningRequest).is_empty(), "{at}");
        assert!(c.api.names(Kind::PodTemplate).is_empty(), "{at}: a template is left over");
        no_quota_is_leaked(c, at);
    });
}

#[test]
fn evict_and_release() {
    let play = |cut| {
        let config = EngineConfig {
            status_interval_ms: 0,
            wait_for_pods_ready: Some(WaitForPodsReady {
                timeout_seconds: 30,
                recovery_timeout_seconds: None,
                block_admission: false,
                order_by_eviction: true,
                backoff_limit_count: Some(1),
                backoff_base_seconds: 5,
                backoff_max_seconds: 5,
            }),
            ..EngineConfig::default()
        };
        let mut c = Cluster::new(config);
        c.api.namespace("team-a", &[]);
        c.api.simple("3", &json!({}));
        c.writes_left = cut;
        c.api.add_job(job("team-a", "a", "lq", 3, "1"));
        on(&mut c);
        // Its pods never get ready: put back once, then deactivated.
        pass(&mut c, 100);
        c
    };
    matrix("evict and release", play, |c, at| {
        let w = c.workload("a");
        assert_eq!(w.spec.active, Some(false), "{at}");
        let text = reported(&w, "Evicted");
        assert!(text.starts_with("True/DeactivatedDueToRequeuingLimitExceeded"), "{at}: {text}");
        let evictions = w.status.unwrap().scheduling_stats.unwrap().evictions;
        let counts: Vec<_> = evictions.iter().map(|e| (e.reason.as_str(), e.count)).collect();
        assert_eq!(counts, [("PodsReadyTimeout", 1), ("Deactivated", 1)], "{at}");
        let job = c.api.job("a");
        assert!(job.view.suspended, "{at}");
        assert_eq!(job.original[0], job.view.pod_sets[0].scheduling, "{at}: templates are restored");
        no_quota_is_leaked(c, at);
    });
}
