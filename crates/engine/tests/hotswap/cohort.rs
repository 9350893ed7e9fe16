//! Which Workload is preempted in a cohort: `high` of queue `x` has two pools, and others have one each: `own` in the same queue, `near` in a queue
//! of the same cohort, `far` in a queue outside of it.

use serde_json::json;

use crate::bed::Bed;

/// Pool A is lost, and `high` takes the place of one of the others if it may.
fn after_a_failure(others: &[&str], nominal: i64, more: bool) -> Bed {
    let mut bed = Bed::new();
    bed.c.api.priority_class("middle", 1_500_000);
    let cohort = json!({"cohortName": "team"});
    bed.queue("x", nominal, &json!({"enable": true, "reclaimMoreThanNominalQuota": more}), &cohort);
    bed.queue("z", 64, &json!({"enable": true}), &cohort);
    bed.queue("y", 16, &json!({"enable": true}), &json!({}));
    let pools = ["a", "b", "c", "d", "e"];
    bed.pools(&pools[..2 + others.len()], 4);
    bed.jobset("high", "x", "high", 2);
    bed.pass(2);
    for name in others {
        // The nearer, the higher: how near it is comes first.
        let (queue, priority) = match *name {
            "own" => ("x", "middle"),
            "near" => ("z", "middle"),
            _ => ("y", "low"),
        };
        bed.jobset(name, queue, priority, 1);
        bed.pass(2);
        assert!(bed.runs(name), "{}", bed.reported(name, "QuotaReserved"));
    }
    assert_eq!(bed.pools_of("high"), ["a", "b"]);
    bed.fail(&["a"]);
    bed.pass(40);
    bed
}

/// Those that were evicted.
fn gone<'a>(bed: &Bed, of: &[&'a str]) -> Vec<&'a str> {
    of.iter().copied().filter(|name| !bed.evictions(name).is_empty()).collect()
}

#[test]
fn the_own_queue_is_preempted_first_then_the_cohort_then_others() {
    for (others, goes) in [
        (&["own", "near", "far"][..], "own"),
        (&["near", "far"], "near"),
        (&["far"], "far"),
        (&["far", "own"], "own"),
    ] {
        let bed = after_a_failure(others, 48, false);
        assert_eq!(gone(&bed, others), [goes], "of {others:?}");
        assert!(bed.runs("high") && !bed.runs(goes), "of {others:?}");
        let path = match goes {
            "own" => "/team/x",
            "near" => "/team/z",
            _ => "/y",
        };
        let reported = bed.reported(goes, "Evicted");
        assert!(reported.contains(&format!("preemptor path: /team/x; preemptee path: {path}")), "{reported}");
    }
}

#[test]
fn for_a_queue_that_borrows_only_its_own_are_preempted_unless_the_flag_says_otherwise() {
    for (others, more, goes) in [
        (&["near", "far", "own"][..], false, Some("own")),
        (&["near", "far"], false, None),
        (&["near", "far"], true, Some("near")),
        (&["far"], false, None),
        (&["far"], true, Some("far")),
    ] {
        let bed = after_a_failure(others, 16, more);
        let at = format!("of {others:?}, more {more}");
        assert_eq!(gone(&bed, others), Vec::from_iter(goes), "{at}");
        assert!(bed.runs("high"), "{at}");
        assert_eq!(bed.evictions("high").is_empty(), goes.is_none(), "{at}");
        assert_eq!(bed.listed("high").is_empty(), goes.is_some(), "{at}");
    }
}

#[test]
fn what_the_cohort_has_lent_comes_back_first_and_no_more_than_that() {
    let mut bed = Bed::new();
    bed.c.api.priority_class("middle", 1_500_000);
    let cohort = json!({"cohortName": "team"});
    // Of the four pools' quota of `x` one is lent to `z`, which has two.
    bed.queue("x", 64, &json!({"enable": true}), &cohort);
    bed.queue("z", 16, &json!({"enable": true}), &cohort);
    bed.pools(&["a", "b", "c", "d", "e"], 4);
    bed.jobset("high", "x", "high", 2);
    bed.pass(2);
    for (name, queue, priority) in [("own", "x", "low"), ("older", "z", "middle"), ("younger", "z", "middle")]
    {
        bed.jobset(name, queue, priority, 1);
        bed.pass(2);
        assert!(bed.runs(name), "{}", bed.reported(name, "QuotaReserved"));
    }
    bed.fail(&["a"]);
    bed.pass(40);
    let others = ["own", "older", "younger"];
    assert_eq!(gone(&bed, &others), ["younger"], "although that of its own queue has a lower priority");
    assert!(bed.runs("high"));
    bed.fail(&["b"]);
    bed.pass(40);
    assert_eq!(gone(&bed, &others), ["own", "younger"], "`z` is within its own quota now");
    assert!(bed.runs("high") && bed.runs("older"));
}
