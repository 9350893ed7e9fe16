//! 6.10 Two-phase admission and checks: which checks an admission needs. The rest is the engine's.

use crate::world::{World, cq, job, n, q};
use sluice_core::{CheckRule, InactiveCause, Outcome};

fn rule(name: &str, flavors: &[&str]) -> CheckRule {
    CheckRule { name: n(name), on_flavors: flavors.iter().map(|flavor| n(flavor)).collect() }
}

/// A queue with gpu in x and y and cpu in z, and these checks.
fn checked(rules: Vec<CheckRule>) -> World {
    let mut w = World::new();
    for rule in &rules {
        w.core.set_check(&rule.name, true);
    }
    let queue =
        cq("a").flavor("x", &[("gpu", q(1))]).flavor("y", &[("gpu", q(9))]).flavor("z", &[("cpu", q(9))]);
    w.cq(queue.with(|spec| spec.admission_checks = rules));
    w
}

fn required(w: &mut World) -> Vec<String> {
    w.cycle();
    match &w.report.entries[0].outcome {
        Outcome::Admitted { required_checks, .. } => {
            required_checks.iter().map(ToString::to_string).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn s6_10_01_checks_apply_whose_flavors_intersect_the_assigned_ones() {
    let mut w = checked(vec![rule("of_x", &["x"]), rule("of_y", &["y"]), rule("of_both", &["y", "z"])]);
    w.submit(job("j", "a").gpu(1));
    assert_eq!(required(&mut w), ["of_x"]);
    w.submit(job("k", "a").gpu(2));
    assert_eq!(required(&mut w), ["of_both", "of_y"]);
    w.submit(job("l", "a").req("cpu", 1));
    assert_eq!(required(&mut w), ["of_both"]);
}

#[test]
fn s6_10_02_a_check_without_flavors_applies_to_all() {
    let mut w = checked(vec![rule("zz", &[]), rule("aa", &[]), rule("of_y", &["y"])]);
    w.submit(job("j", "a").gpu(1));
    assert_eq!(required(&mut w), ["aa", "zz"], "sorted by name");
}

#[test]
fn s6_10_02_a_check_without_flavors_applies_to_what_gets_no_flavor() {
    let mut w = checked(vec![rule("zz", &[]), rule("aa", &[]), rule("of_y", &["y"])]);
    w.submit(job("j", "a"));
    assert_eq!(required(&mut w), ["aa", "zz"], "nothing of it is covered");
}

#[test]
fn s6_10_03_until_its_checks_are_ready_a_workload_reserves_but_is_not_admitted() {
    let mut w = checked(vec![rule("of_x", &["x"])]);
    w.submit_all([job("j", "a").gpu(1), job("k", "a").gpu(1)]);
    w.settle();
    let status = w.core.cluster_queue_status("a").unwrap();
    assert_eq!((status.reserving, status.admitted), (2, 1), "j waits for of_x, k needs no check");
    w.running(job("j", "a").gpu(1), "x");
    assert_eq!(w.core.cluster_queue_status("a").unwrap().admitted, 2);
}

#[test]
fn s6_10_04_a_missing_or_inactive_check_makes_the_queue_inactive_and_keeps_what_runs() {
    let mut w = checked(vec![rule("c1", &[]), rule("c2", &[])]);
    w.running(job("r", "a").gpu(1), "x");
    w.submit(job("j", "a").gpu(1));
    w.core.remove_check("c1");
    w.core.set_check(&n("c2"), false);
    assert!(w.cycle().is_empty());
    let status = w.core.cluster_queue_status("a").unwrap();
    let missing = InactiveCause::AdmissionCheckNotFound(vec![n("c1")]);
    let inactive = InactiveCause::AdmissionCheckInactive(vec![n("c2")]);
    assert_eq!(missing.message(), "references missing AdmissionCheck(s): c1");
    assert_eq!(inactive.message(), "references inactive AdmissionCheck(s): c2");
    assert_eq!((status.inactive, status.reserving, status.admitted), (vec![missing, inactive], 1, 1));
    w.core.set_check(&n("c1"), true);
    w.core.set_check(&n("c2"), true);
    assert_eq!(w.cycle(), ["j admitted y"]);
}
