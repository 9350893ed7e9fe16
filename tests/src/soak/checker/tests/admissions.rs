//! Admissions that a Workload may not have, and charged and released quota.

use super::super::rights::{IN_FLIGHT, LATE};
use super::*;

const FLAVORS: &str = "podSetAssignments";

#[test]
fn an_admission_that_charges_less_than_the_pods_ask_for_is_noticed() {
    let charged = |cpu: &str| {
        History::new().workload(WORKLOAD, ADMITTED, 2).with(|workload| {
            workload["status"]["admission"][FLAVORS][0]["resourceUsage"]["cpu"] = json!(cpu);
        })
    };
    assert_eq!(charged("2").broken(), []);
    assert_broken(charged("1"), Rule::Mischarged, "1000 thousandths of cpu are charged");
    let missing = History::new().workload(WORKLOAD, ADMITTED, 2).with(|workload| {
        let container = &mut workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0];
        container["resources"]["requests"]["memory"] = json!("1Gi");
    });
    assert_broken(missing, Rule::Mischarged, "asks for memory, and no flavor gives it");
    let more = History::new().workload(WORKLOAD, ADMITTED, 2).with(|workload| {
        workload["status"]["admission"][FLAVORS][0]["resourceUsage"]["gpu"] = json!("1");
    });
    assert_broken(more, Rule::Mischarged, "which asks for none");
    // What is used is what the pods ask for, whatever is charged.
    let full = charged("1").late(ADMITTED);
    assert_broken(full, Rule::AboveQuota, "4000 of 2000");
}

#[test]
fn pods_that_ask_for_more_than_is_charged_are_noticed() {
    let begun = || History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 2).job(false, &[]);
    let asks = |history: History, name: &str, cpu: &str| {
        history.pod_on(name, "n-1").with(|pod| {
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
        })
    };
    assert_eq!(asks(asks(begun(), "p", "1"), "q", "1").broken(), []);
    let text = "ask for 2500 thousandths of cpu, and its job is charged 2000";
    assert_broken(asks(asks(begun(), "p", "1"), "q", "1500m"), Rule::Mischarged, text);
}

#[test]
fn an_admission_without_right_is_noticed() {
    let text = |history: History| {
        let broken = history.broken();
        let [(Rule::WithoutRight, text)] = &broken[..] else { panic!("{broken:?}") };
        text.clone()
    };
    let admit = |history: History| history.workload(WORKLOAD, ADMITTED, 1);
    let cluster_queue = History::new().0.remove(0).object.unwrap();
    let other = History::new().put("/registry/kueue.x-k8s.io/clusterqueues/other", cluster_queue);
    let other =
        admit(other).with(|workload| workload["status"]["admission"]["clusterQueue"] = json!("other"));
    assert!(text(other).contains("is of the ClusterQueue cq, and other gives it quota"));
    assert!(text(admit(History::new().delete(LOCAL))).contains("is not there"));
    let inactive = admit(History::new()).with(|workload| workload["spec"]["active"] = json!(false));
    assert!(text(inactive).contains("it is deactivated"));
    let held = |key: &str, policy: &str| {
        let put = History::new().0.into_iter().find(|change| change.key == key).unwrap().object.unwrap();
        admit(History::new().put(key, put).with(|queue| queue["spec"]["stopPolicy"] = json!(policy)))
    };
    for policy in ["Hold", "HoldAndDrain"] {
        assert!(text(held(QUEUE, policy)).contains("its ClusterQueue is stopped"));
        assert!(text(held(LOCAL, policy)).contains("its LocalQueue is stopped"));
    }
    assert_eq!(held(QUEUE, "None").broken(), []);
    // One that holds quota already may keep it.
    let keeps =
        admit(History::new()).put(LOCAL, json!({"spec": {"clusterQueue": "cq", "stopPolicy": "Hold"}}));
    assert_eq!(keeps.workload(WORKLOAD, &["QuotaReserved"], 1).broken(), []);
}

#[test]
fn a_flavor_that_the_queue_does_not_have_is_noticed_also_in_a_cohort() {
    let in_cohort = |flavor: &str| {
        let put = History::new().0.remove(0).object.unwrap();
        let history = History::new().put(QUEUE, put).with(|queue| queue["spec"]["cohortName"] = json!("c"));
        history
            .put(
                "/registry/kueue.x-k8s.io/cohorts/c",
                json!({"spec": {"resourceGroups": [{"flavors": [
                    {"name": "g", "resources": [{"name": "cpu", "nominalQuota": 9}]},
                ]}]}}),
            )
            .workload(WORKLOAD, ADMITTED, 1)
            .with(|workload| {
                workload["status"]["admission"][FLAVORS][0]["flavors"]["cpu"] = json!(flavor);
            })
    };
    assert_eq!(in_cohort("f").broken(), []);
    let broken = at(LATER, in_cohort("g"));
    assert!(broken.contains("WithoutRight") && broken.contains("cq has no cpu of the flavor g"), "{broken}");
}

/// Longer after the beginning than anything may come late.
const LATER: Duration = Duration::from_mins(1);

/// What is broken by the last change of a history, so long after the others.
fn at(time: Duration, history: History) -> String {
    at_beside("none", time, history)
}

/// The same while a fault of this kind lasts.
#[expect(clippy::needless_pass_by_value, reason = "each history is judged once")]
fn at_beside(fault: &str, time: Duration, history: History) -> String {
    let mut checker = Checker::default();
    checker.fault_begins(0, fault);
    checker.clock(Duration::from_secs(1));
    let last = history.0.len() - 1;
    for (number, change) in history.0.iter().enumerate() {
        if number == last {
            checker.clock(time);
        }
        checker.observe(change).unwrap();
    }
    checker.violations().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_admission_that_was_under_way_when_its_right_went_is_counted() {
    let stopped = || {
        let stop = json!({"spec": {"clusterQueue": "cq", "stopPolicy": "Hold"}});
        History::new().put(LOCAL, stop).workload(WORKLOAD, ADMITTED, 1)
    };
    let seconds = Duration::from_secs;
    // The change has not reached the leader.
    assert_eq!(at(seconds(1) + IN_FLIGHT, stopped()), "");
    // Later, only if a fault delays the change or the write.
    let text = at(seconds(5), stopped());
    assert!(text.contains("its LocalQueue is stopped for 4 s, without a fault that delays it"), "{text}");
    for fault in ["Disrupt Slow", "DropConnections", "CutLeader", "Replace Etcd"] {
        assert_eq!(at_beside(fault, seconds(1) + LATE, stopped()), "", "{fault}");
        let text = at_beside(fault, LATER, stopped());
        assert!(text.ends_with("its LocalQueue is stopped for 59 s"), "{text}");
    }
    for fault in ["LoseNode", "Kill Follower"] {
        assert_ne!(at_beside(fault, seconds(5), stopped()), "", "{fault}");
    }
}

#[test]
fn quota_that_is_free_while_pods_are_being_stopped_is_noticed() {
    let stopped = |phase: &str| {
        let runs =
            History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 1).job(false, &[]).job(false, &[]);
        let seen = runs.with(|job| job["status"]["active"] = json!(1)).pod("Running");
        let stopped = seen.workload(WORKLOAD, EVICTED, 1).job(true, &["Suspended"]).pod(phase);
        stopped.with(|pod| {
            pod["metadata"]["deletionTimestamp"] = json!("now");
            pod["spec"]["nodeName"] = json!("n-1");
        })
    };
    let freed = |history: History| history.workload(WORKLOAD, &["Evicted"], 1);
    assert_broken(freed(stopped("Running")), Rule::FreedTooEarly, "ns/p\"] are not over");
    assert_eq!(freed(stopped("Failed")).broken(), []);
    assert_eq!(freed(stopped("Running").delete(POD)).broken(), []);
    assert_eq!(freed(stopped("Running").delete("/registry/minions/n-1")).broken(), [], "its node is lost");
    let ended = stopped("Running").job(true, &["Failed"]).with(|job| {
        job["spec"]["template"]["metadata"]["annotations"][FAILS] = json!("1");
    });
    assert_broken(
        ended.workload(WORKLOAD, &["QuotaReserved", "Finished"], 1),
        Rule::FreedTooEarly,
        "are not over",
    );
}

#[test]
fn pods_that_run_although_they_are_said_to_need_nothing_are_noticed() {
    let two = || {
        let begun = History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 2).job(false, &[]);
        begun.pod_on("p", "n-1").pod_on("q", "n-1")
    };
    let done = |history: History| history.workload_with(WORKLOAD, ADMITTED, 2, 1);
    let says = |active: u64| {
        let mut history = two().job(false, &[]);
        let object = history.0.last_mut().and_then(|change| change.object.as_mut()).unwrap();
        object["status"]["active"] = json!(active);
        done(history)
    };
    assert_broken(done(two()), Rule::FreedTooEarly, "keeps quota for 1 pods");
    assert_broken(says(2), Rule::FreedTooEarly, "keeps quota for 1 pods");
    // Its own controller made one too many.
    let surplus = says(1).beside("Replace Etcd");
    assert_eq!((surplus.violations().len(), surplus.account().surplus), (0, 1));
    assert_broken(says(1), Rule::FreedTooEarly, "keeps quota for 1 pods");
    let over =
        |history: History| history.pod_on("q", "n-1").with(|pod| pod["status"]["phase"] = json!("Succeeded"));
    assert_eq!(done(over(two())).broken(), []);
    assert_eq!(done(done(over(two())).pod_on("q", "n-1")).broken(), [], "it is said once");
}

#[test]
fn an_object_that_is_set_aside_is_noticed() {
    let event = |reason: &str| json!({"reason": reason, "note": "a panic"});
    let said = |reason: &str| History::new().put("/registry/events/ns/j.1", event(reason));
    assert_broken(said("SetAside"), Rule::SetAside, "a panic");
    assert_eq!(said("Admitted").broken(), []);
}

#[test]
fn how_long_quota_of_a_deleted_job_takes_to_be_back_is_measured_from_its_deletion() {
    let running = || History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 1).job(false, &[]);
    let goes = |history: History| {
        let deletion = json!("2026-01-01T00:00:00Z");
        history.job(false, &[]).with(|job| job["metadata"]["deletionTimestamp"] = deletion)
    };
    let finished = |history: History| history.workload(WORKLOAD, &["QuotaReserved", "Finished"], 1);
    let seconds = |history: History| {
        let mut checker = Checker::default();
        for (second, change) in (1..).zip(&history.0) {
            checker.clock(Duration::from_secs(second));
            checker.observe(change).unwrap();
        }
        let returns = checker.account().returns;
        (returns.times, returns.longest.as_secs())
    };
    assert_eq!(seconds(goes(running()).delete(JOB).delete(WORKLOAD)), (1, 2));
    assert_eq!(seconds(finished(running().delete(JOB)).delete(WORKLOAD)), (1, 1));
    assert_eq!(seconds(running().delete(JOB)), (0, 0), "it is still held");
    assert_eq!(seconds(finished(running()).delete(JOB).delete(WORKLOAD)), (0, 0), "it was back before");
}
