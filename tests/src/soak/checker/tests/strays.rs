//! Pods that continue to run when they should not, and pods that may.

use super::super::strays::{GRACE, PROMPT};
use super::*;

#[test]
fn pods_beside_those_of_a_later_place_are_noticed() {
    // A place on a lost node is given up, and a pod comes to the new one.
    let moved = || {
        let begun = History::new().job(true, &[]).placed(WORKLOAD, ADMITTED, 1).job(false, &[]);
        let lost = begun.pod_on("p", "n-1").pod_on("q", "n-2").delete("/registry/minions/n-2");
        lost.placed(WORKLOAD, ADMITTED, 2)
    };
    let stays = moved().pod_on("r", "n-1");
    assert_broken(stays, Rule::GoesOn, "are on nodes, and 2 pods are admitted");
    let gone = moved().delete("/registry/pods/ns/q").pod_on("r", "n-1");
    assert_eq!(gone.broken(), []);
}

#[test]
fn a_pod_too_many_that_a_jobs_own_controller_made_is_counted() {
    let of_two = |history: History, suspend| {
        let mut history = history.job(suspend, &[]);
        let object = history.0.last_mut().and_then(|change| change.object.as_mut()).unwrap();
        object["spec"]["parallelism"] = json!(2);
        history
    };
    let begun = |admitted| of_two(of_two(History::new(), true).workload(WORKLOAD, ADMITTED, admitted), false);
    let three = |history: History| history.pod_on("p", "n-1").pod_on("q", "n-1").pod_on("r", "n-1");
    let checker = three(begun(2)).beside("Replace ApiServer");
    assert_eq!((checker.violations().len(), checker.account().surplus), (0, 1));
    assert_broken(three(begun(2)), Rule::GoesOn, "2 pods are admitted");
    let one = three(begun(1)).beside("Replace ApiServer");
    assert!(one.violations()[0].text.ends_with("1 pods are admitted"), "{:?}", one.violations());
    let gone = begun(2).pod_on("p", "n-1").pod_on("q", "n-1").delete(JOB).pod_on("r", "n-1");
    assert_eq!(gone.broken().iter().filter(|(rule, _)| *rule == Rule::GoesOn).count(), 0);
    // A pod of a former run is not one of these.
    let again = of_two(of_two(begun(2).pod_on("p", "n-1"), true), false);
    let again = again.pod_on("q", "n-1").pod_on("r", "n-1").beside("Replace ApiServer");
    assert!(again.violations()[0].text.ends_with("2 pods are admitted"), "{:?}", again.violations());
}

/// A job that has run and is stopped; its controller says so, and its pod continues, or not.
fn stopped_and_seen(goes_on: bool) -> History {
    let mut runs =
        History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 1).job(false, &[]).job(false, &[]);
    let object = runs.0.last_mut().and_then(|change| change.object.as_mut()).unwrap();
    object["status"]["active"] = json!(1);
    let stopped = runs.pod("Running").workload(WORKLOAD, EVICTED, 1).job(true, &["Suspended"]);
    if goes_on { stopped } else { stopped.pod("Failed") }
}

#[test]
fn pods_of_a_former_run_beside_the_next_one_are_noticed() {
    let again = |history: History| history.workload(WORKLOAD, ADMITTED, 1).job(false, &["Suspended"]);
    assert_broken(again(stopped_and_seen(true)), Rule::GoesOn, "it begins to run again");
    assert_eq!(again(stopped_and_seen(false)).broken(), []);
}

#[test]
fn a_job_whose_jobset_is_gone_and_holds_nothing_any_more_does_not_run_for_long() {
    const SET: &str = "/registry/jobset.x-k8s.io/jobsets/ns/j";
    let noticed = |history: History| {
        let mut checker = history.checked();
        let before = checker.violations().len();
        let long = PROMPT + Duration::from_secs(1);
        checker.clock(Duration::from_secs(1));
        checker.clock(long + Duration::from_secs(1));
        checker.violations()[before..].iter().filter(|one| one.key == "/registry/jobs/ns/j-part").count()
    };
    let admitted = || set_and_part(false, false, true).workload(WORKLOAD, ADMITTED, 2);
    assert_eq!(noticed(admitted()), 0);
    assert_eq!(noticed(admitted().delete(SET)), 0, "its pods keep the quota");
    assert_eq!(noticed(admitted().delete(SET).delete(WORKLOAD)), 1);
    assert_eq!(noticed(set_and_part(false, false, false).delete(SET)), 0, "it is suspended");
    let leaves = |history: History| {
        let mut set = history.0[2].object.clone().unwrap();
        set["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        history.put(SET, set)
    };
    assert_eq!(noticed(leaves(admitted())), 0);
    assert_eq!(noticed(leaves(admitted()).delete(WORKLOAD)), 1);
}

#[test]
fn a_pod_that_continues_too_long_without_an_admission_or_a_place_is_noticed() {
    let seconds = Duration::from_secs;
    let reported = |history: History, times: &[Duration]| {
        let mut checker = history.checked();
        let before = checker.violations().len();
        for now in times {
            checker.clock(*now);
        }
        let new = checker.violations()[before..].iter().map(|one| (one.rule, one.text.clone()));
        new.collect::<Vec<_>>()
    };
    let long = PROMPT + seconds(1);
    let late = [seconds(1), long, long + seconds(1)];
    let freed = || stopped_and_seen(true).workload(WORKLOAD, &["Evicted"], 1);
    let text = "it continues for 20 s, 20 s of them led, and /registry/jobs/ns/j is not admitted".to_owned();
    assert_eq!(reported(freed(), &late), [(Rule::GoesOn, text)], "once");
    assert_eq!(reported(freed(), &[seconds(1), long.saturating_sub(seconds(2))]), [], "its time is not over");
    assert_eq!(reported(freed().pod("Failed"), &late), []);
    assert_eq!(reported(freed().workload(WORKLOAD, ADMITTED, 1), &late), [], "it may run");
    let gone = "it continues for 20 s, 20 s of them led, and its job is gone".to_owned();
    assert_eq!(reported(freed().delete(JOB), &late), [(Rule::GoesOn, gone)]);
    let begun = || History::new().job(true, &[]).placed(WORKLOAD, ADMITTED, 1).job(false, &[]);
    let lost = || begun().pod_on("q", "n-2").delete("/registry/minions/n-2").placed(WORKLOAD, ADMITTED, 2);
    let place =
        "it continues for 180 s, 180 s of them led, and /registry/jobs/ns/j has no place on n-2".to_owned();
    let after_grace = [seconds(1), GRACE, GRACE + seconds(1)];
    assert_eq!(reported(lost(), &after_grace), [(Rule::GoesOn, place)]);
    assert_eq!(reported(lost(), &after_grace[..2]), [], "its node is lost");
    assert_eq!(reported(lost().delete("/registry/pods/ns/q"), &after_grace), []);
    assert_eq!(reported(begun().pod_on("q", "n-2"), &after_grace), []);
    // Time without a leader does not count.
    let mut checker = freed().checked();
    let before = checker.violations().len();
    checker.clock(seconds(1));
    let lease = |holder: &str| {
        History::default().put("/registry/leases/kueue-system/l", json!({"spec": {"holderIdentity": holder}}))
    };
    lease("a").play(&mut checker);
    lease("").play(&mut checker);
    checker.clock(seconds(100));
    assert_eq!(checker.violations().len(), before, "{:?}", checker.violations());
    // One that may continue in between begins again.
    let mut checker = freed().checked();
    let before = checker.violations().len();
    checker.clock(seconds(1));
    History::new().workload(WORKLOAD, ADMITTED, 1).play(&mut checker);
    checker.clock(seconds(15));
    History::new().workload(WORKLOAD, &["Evicted"], 1).play(&mut checker);
    let judged = checker.violations().len();
    checker.clock(long);
    assert_eq!(checker.violations().len(), judged, "{:?}", &checker.violations()[before..]);
}

#[test]
fn a_pod_that_continues_when_all_has_ended_is_noticed() {
    let mut checker = quiet_life().put(POD, json!({
        "metadata": {"uid": "p", "ownerReferences": [{"uid": "j", "controller": true}]}, "status": {"phase": "Running"},
    })).checked();
    checker.rest();
    let broken: Vec<_> = checker.violations().iter().map(|one| (one.rule, one.key.as_str())).collect();
    assert_eq!(broken, [(Rule::GoesOn, POD)]);
}

#[test]
fn what_is_to_stop_and_does_not_is_noticed() {
    let after = |history: History, time: Duration| {
        let mut checker = history.checked();
        let before = checker.violations().len();
        checker.clock(Duration::from_secs(1));
        checker.clock(time);
        checker.violations()[before..].iter().map(|one| one.text.clone()).collect::<Vec<_>>()
    };
    let long = PROMPT + Duration::from_secs(1);
    let running = || History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 1).job(false, &[]);
    let evicted = || running().workload(WORKLOAD, EVICTED, 1);
    let text = "it continues for 20 s, 20 s of them led, and /registry/jobs/ns/j, which is evicted, runs";
    assert_eq!(after(evicted(), long), [text]);
    assert!(after(evicted(), PROMPT).is_empty(), "its time is not over");
    assert!(after(evicted().job(true, &[]), long).is_empty(), "it is stopped");
    assert!(after(running(), long).is_empty(), "it may run");
    let inactive = running().workload(WORKLOAD, ADMITTED, 1).with(|one| one["spec"]["active"] = json!(false));
    assert!(after(inactive, long)[0].ends_with("it is deactivated, and it is not evicted"));
    let drained = json!({"spec": {"clusterQueue": "cq", "stopPolicy": "HoldAndDrain"}});
    assert!(
        after(running().put(LOCAL, drained.clone()), long)[0]
            .ends_with("its queue is drained, and it is not evicted")
    );
    let drained_then = |history: History| after(history.put(LOCAL, drained.clone()), long);
    assert!(drained_then(running().delete(JOB)).is_empty(), "its job is gone");
    assert!(drained_then(running().job(false, &["Complete"])).is_empty(), "its job is over");
    let held = json!({"spec": {"clusterQueue": "cq", "stopPolicy": "Hold"}});
    assert!(after(running().put(LOCAL, held), long).is_empty(), "what runs may continue");
}

/// A job that its user lets run, or that runs by itself.
fn let_run(history: History, by: Option<&str>) -> History {
    history.job(false, &[]).with(|job| {
        if let Some(by) = by {
            job["metadata"]["annotations"][LET_RUN] = json!(by);
        }
    })
}

#[test]
fn a_job_that_its_user_lets_run_is_to_be_stopped_promptly() {
    let waits = || History::new().job(true, &[]);
    assert_broken(let_run(waits(), None), Rule::RunsUnadmitted, "it begins to run");
    let after = |history: History, time: Duration| {
        let mut checker = history.checked();
        assert_eq!((checker.violations().len(), checker.account().by_hand), (0, 1));
        checker.clock(Duration::from_secs(1));
        checker.clock(time);
        let texts: Vec<_> = checker.violations().iter().map(ToString::to_string).collect();
        texts.join("\n")
    };
    let long = PROMPT + Duration::from_secs(1);
    let running = || let_run(waits(), Some("1"));
    assert!(after(running(), long).ends_with("and its user let it run without an admission"));
    assert_eq!(after(running(), PROMPT), "", "its time is not over");
    let stopped =
        || running().job(true, &[]).with(|job| job["metadata"]["annotations"][LET_RUN] = json!("1"));
    assert_eq!(after(stopped(), long), "");
    assert_eq!(after(running().workload(WORKLOAD, ADMITTED, 1), long), "", "it is admitted");
    // The manager itself starts it, with what its user once wrote.
    assert_broken(let_run(stopped(), Some("1")), Rule::RunsUnadmitted, "it begins to run");
    // While it is being evicted.
    let evicted = waits().workload(WORKLOAD, EVICTED, 1);
    assert_eq!(let_run(evicted, Some("1")).pod("Running").workload(WORKLOAD, &["Evicted"], 1).broken(), []);
}

#[test]
fn a_run_that_a_user_began_is_like_any_other_once_it_is_admitted() {
    let running = || let_run(History::new().job(true, &[]), Some("1"));
    let admitted = || running().workload(WORKLOAD, ADMITTED, 1);
    assert_eq!(admitted().broken(), []);
    assert_broken(admitted().workload(WORKLOAD, &[], 1), Rule::RunsUnadmitted, "is admitted no more");
    assert_broken(admitted().pod("Running").delete(WORKLOAD), Rule::FreedTooEarly, POD);
    // Pods that it made itself have no places, and no quota, until it begins again.
    let placed = || running().placed(WORKLOAD, ADMITTED, 2);
    assert_eq!(placed().pod_on("q", "n-2").broken(), []);
    let again = || placed().job(true, &[]).job(false, &[]);
    assert_eq!(again().pod_on("q", "n-2").broken(), [], "its controller may not have heard of the stop");
    let heard = again().job(false, &[]).with(|job| job["status"]["active"] = json!(1));
    assert_broken(heard.pod_on("q", "n-2"), Rule::Misplaced, "0 are assigned to it");
}

#[test]
fn quota_that_is_taken_from_a_suspended_job_may_cross_a_start_by_its_user() {
    let seconds = Duration::from_secs;
    let admitted = || History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 1);
    let judge = |by: Option<&str>, between: Duration, then: Duration| {
        let mut checker = Checker::default();
        checker.clock(seconds(100));
        let History(changes) = let_run(admitted(), by).workload(WORKLOAD, &[], 1);
        let last = changes.len() - 1;
        for (number, change) in changes.iter().enumerate() {
            if number == last {
                checker.clock(seconds(100) + between);
            }
            checker.observe(change).unwrap();
        }
        checker.clock(seconds(100) + between + seconds(1));
        checker.clock(seconds(100) + between + then);
        checker.violations().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(judge(Some("1"), seconds(1), seconds(2)), "");
    let text = judge(Some("1"), seconds(1), PROMPT + seconds(2));
    assert!(text.ends_with("its user let it run without an admission"), "it is to be stopped: {text}");
    let text = judge(Some("1"), seconds(5), seconds(2));
    assert!(text.ends_with("is admitted no more"), "the start was seen: {text}");
    let text = judge(None, seconds(1), seconds(2));
    assert!(text.ends_with("is admitted no more"), "the manager itself started it: {text}");
}
