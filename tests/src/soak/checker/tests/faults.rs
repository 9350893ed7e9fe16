//! What is excused beside a fitting fault is a violation without one, too long before or after it, and beside any other.

use super::super::excess::LATE_WRITE;
use super::super::faults::{ANSWER, Excuse, STALL};
use super::super::rights::{IN_FLIGHT, LATE};
use super::super::strays::PROMPT;
use super::*;
use crate::soak::dice::Dice;
use crate::soak::plan;

/// What a checker makes of a history whose changes are a second apart, the first one after this many seconds, with a fault that lasts from the 100th
/// second to the 110th.
fn judged_from(second: u64, kind: &str, history: &History) -> Checker {
    let mut checker = Checker::default();
    let seconds = Duration::from_secs;
    let mut changes = (second..).zip(&history.0).peekable();
    let mut play_until = |checker: &mut Checker, end: u64| {
        while let Some((at, change)) = changes.next_if(|(at, _)| *at < end) {
            checker.clock(seconds(at));
            checker.observe(change).unwrap();
        }
    };
    play_until(&mut checker, 100);
    checker.clock(seconds(100));
    checker.fault_begins(0, kind);
    play_until(&mut checker, 110);
    checker.clock(seconds(110));
    checker.fault_ends(0);
    play_until(&mut checker, u64::MAX);
    checker
}

fn violations(checker: &Checker) -> usize {
    checker.violations().len()
}

/// A job that is stopped before its controller looks at it, and whose quota is free a moment before its pod has ended.
fn unseen() -> History {
    let begun = History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 1).job(false, &[]);
    let stopped = begun.pod("Running").workload(WORKLOAD, EVICTED, 1).job(true, &[]);
    stopped.workload(WORKLOAD, &["Evicted"], 1).pod("Failed")
}

/// A job of two pods that gets three.
fn surplus() -> History {
    let job = |history: History, suspend| {
        history.job(suspend, &[]).with(|job| job["spec"]["parallelism"] = json!(2))
    };
    let begun = job(job(History::new(), true).workload(WORKLOAD, ADMITTED, 2), false);
    begun.pod_on("p", "n-1").pod_on("q", "n-1").pod_on("r", "n-1")
}

/// A queue is stopped, and a Workload of it is admitted some seconds later.
fn late() -> History {
    let stop = json!({"spec": {"clusterQueue": "cq", "stopPolicy": "Hold"}});
    let other = json!({"spec": {"clusterQueue": "cq", "stopPolicy": "None"}});
    let unrelated =
        |history: History| history.put("/registry/kueue.x-k8s.io/localqueues/ns/other", other.clone());
    let stopped = History::new().put(LOCAL, stop);
    unrelated(unrelated(unrelated(stopped))).workload(WORKLOAD, ADMITTED, 1)
}

/// Beside one of the `fitting` faults, at each of these seconds, something is counted; long before or after it, or beside one of the `others`, it is a
/// finding.
fn needs_a_cause(
    history: &History,
    counted: impl Fn(&Checker) -> usize,
    seconds: [u64; 3],
    fitting: &[&str],
    others: &[&str],
) {
    for fault in fitting {
        for second in seconds {
            let beside = judged_from(second, fault, history);
            assert_eq!((violations(&beside), counted(&beside)), (0, 1), "{fault} {second}");
        }
        for second in [10, 200] {
            let without = judged_from(second, fault, history);
            assert_eq!((violations(&without), counted(&without)), (1, 0), "{fault} {second}");
        }
    }
    for fault in others {
        assert_eq!(violations(&judged_from(100, fault, history)), 1, "{fault}");
    }
}

#[test]
fn quota_that_is_free_too_early_needs_an_outage_as_its_cause() {
    let fitting = ["Freeze ApiServer", "Freeze Etcd", "Replace ApiServer", "Replace Etcd"];
    let others = ["Kill Leader", "Disrupt LoseAnswer", "LoseNode", "unknown"];
    let counted = |checker: &Checker| checker.account().freed_unseen;
    needs_a_cause(&unseen(), counted, [95, 105, 135], &fitting, &others);
}

#[test]
fn a_pod_too_many_needs_a_lost_answer_as_its_cause() {
    let fitting = ["Replace ApiServer", "Replace Etcd", "Freeze Etcd"];
    let others = ["Freeze ApiServer", "Kill Both", "Disrupt LoseAnswer", "DropConnections"];
    let counted = |checker: &Checker| checker.account().surplus;
    needs_a_cause(&surplus(), counted, [93, 105, 130], &fitting, &others);
}

#[test]
fn a_late_admission_needs_a_fault_that_delays_it() {
    for second in [95, 100, 114] {
        let beside = judged_from(second, "Disrupt ExpireWatch", &late());
        assert_eq!((violations(&beside), beside.account().late_admissions), (0, 1), "{second}");
    }
    for second in [10, 150] {
        let without = judged_from(second, "Disrupt ExpireWatch", &late());
        assert_eq!((violations(&without), without.account().late_admissions), (1, 0), "{second}");
    }
    assert_eq!(violations(&judged_from(100, "LoseNode", &late())), 1);
}

#[test]
fn what_is_late_while_the_machine_stands_still_is_excused_and_nothing_after_it() {
    let counted = |second: u64, history: History| {
        let checker = judged_from(second, STALL, &history);
        let Account { freed_unseen, surplus, late_admissions, .. } = checker.account();
        (violations(&checker), freed_unseen + surplus + late_admissions)
    };
    for history in [unseen, surplus, late] {
        assert_eq!(counted(100, history()), (0, 1));
        // Before it, and soon after it.
        for second in [80, 112] {
            assert_eq!(counted(second, history()), (1, 0), "{second}");
        }
    }
    // What no fault excuses, it does not.
    assert_eq!(violations(&History::new().job(true, &[]).delete(JOB).beside(STALL)), 1);
}

#[test]
fn a_job_that_does_not_end_needs_an_outage_since_its_last_change() {
    let lost = |second: u64, fault: &str, history: History| {
        let mut checker = judged_from(second, fault, &history);
        checker.clock(Duration::from_secs(400));
        let before = violations(&checker);
        checker.judge_oversights();
        let texts: Vec<_> = checker.violations()[before..].iter().map(ToString::to_string).collect();
        assert!(texts.iter().all(|text| text.contains("no fault kept its controller from it")), "{texts:?}");
        texts.len()
    };
    let runs = || History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 1).job(false, &[]);
    assert_eq!(lost(95, "Replace ApiServer", runs()), 0);
    assert_eq!(lost(10, "Replace ApiServer", runs()), 0, "it may have been about to end then");
    assert_eq!(lost(10, "LoseNode", runs()), 0);
    assert_eq!(lost(10, "Kill Leader", runs()), 1);
    assert_eq!(lost(200, "Replace ApiServer", runs()), 1);
    // What does not run waits for others, or for Sluice.
    assert_eq!(lost(200, "Replace ApiServer", runs().job(true, &[])), 0);
    // A change of its Job is one of a JobSet.
    let set = set_and_part(false, false, false).workload(WORKLOAD, ADMITTED, 2);
    let part = set.0[3].object.clone().unwrap();
    let mut long = set;
    for _ in 0..60 {
        long = long.put("/registry/jobs/ns/j-part", part.clone());
    }
    assert_eq!(lost(95, "Replace ApiServer", long), 1);
    assert_eq!(lost(95, "Replace ApiServer", set_and_part(false, false, false)), 0);
}

/// A kind that the checker does not know would excuse nothing.
#[test]
fn every_fault_of_a_plan_is_known_by_its_name() {
    let all = [Excuse::Unseen, Excuse::LateAdmission, Excuse::Surplus, Excuse::Oversight];
    for fault in plan::faults(&mut Dice::new(1, 2)) {
        let kind = fault.recorded();
        let known = all.iter().any(|excuse| excuse.fits(&kind));
        assert!(known || kind == "Kill Follower", "{kind}");
    }
}

/// It explains to readers of a report what may be.
#[test]
fn the_page_on_failed_seeds_has_the_times_of_the_checker() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/contributing/failed-seed.md");
    let page = std::fs::read_to_string(page).unwrap();
    for text in [
        format!("counts those within {} seconds", IN_FLIGHT.as_secs()),
        format!("of the leader, those within {} seconds", LATE.as_secs()),
        format!("may continue for {} seconds of the time", PROMPT.as_secs()),
        format!("begun to lead within {} seconds before", LATE_WRITE.as_secs()),
        format!("was made, or up to {} seconds later", ANSWER.as_secs()),
        format!("ended up to {} seconds before", Excuse::Surplus.lasts().as_secs()),
        format!("({} seconds for an admission", Excuse::LateAdmission.lasts().as_secs()),
    ] {
        assert!(page.contains(&text), "{text}");
    }
}
