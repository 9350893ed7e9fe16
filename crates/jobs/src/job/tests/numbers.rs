//! Partial admission: the numbers of a Job that a start writes and a stop restores, whatever its user changes in between.

use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::{JobKind, PodSetInfo};
use sluice_api::labels;
use sluice_jobs::{observe, start, stop, suspend, with_pods};

use crate::testing::{World, apply, job};

const LEAST: &str = "kueue.x-k8s.io/job-min-parallelism";
const EQUAL: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";

/// A waiting Job of these numbers that may run with fewer pods, and whose completions follow or do not.
fn partial(mode: &str, parallelism: i32, completions: i32, equal: Option<&str>) -> Value {
    let mut object = job();
    let spec = json!({"completionMode": mode, "parallelism": parallelism, "completions": completions, "suspend": true});
    json_patch::merge(&mut object["spec"], &spec);
    object["metadata"]["annotations"] = json!({LEAST: "2"});
    annotate(&mut object, EQUAL, equal);
    object
}

fn annotate(object: &mut Value, key: &str, value: Option<&str>) {
    json_patch::merge(object, &json!({"metadata": {"annotations": {key: value}}}));
}

fn info(count: i32) -> PodSetInfo {
    PodSetInfo { name: "main".to_owned(), count, ..PodSetInfo::default() }
}

fn numbers(object: &Value) -> [i64; 2] {
    ["parallelism", "completions"].map(|field| object["spec"][field].as_i64().unwrap())
}

/// The Job as it is once it was started with so many pods.
fn started(object: &Value, pods: i32) -> Value {
    apply(object, &start(&observe(JobKind::JOB, object), &[info(pods)]).unwrap()).unwrap()
}

/// The Job as it is once it was stopped, with its own number of pods again.
fn stopped(object: &Value, pods: i32) -> Value {
    let mut now = object.clone();
    for _ in 0..2 {
        for step in stop(&observe(JobKind::JOB, &now), &[info(pods)]) {
            now = apply(&now, &step.patch).unwrap();
        }
    }
    assert!(observe(JobKind::JOB, &now).suspended);
    now
}

#[test]
fn a_stop_restores_completions_that_the_start_wrote_whatever_the_annotation_says_by_then() {
    let (indexed, other) = ("Indexed", "NonIndexed");
    // Mode, own numbers, annotation before the start and after it; numbers while it runs with four pods.
    let cases = [
        (other, [10, 100], None, None, [4, 100]),
        (other, [10, 100], None, Some("true"), [4, 100]),
        (other, [10, 10], None, Some("true"), [4, 10]),
        (indexed, [10, 100], None, Some("true"), [4, 100]),
        (indexed, [10, 10], None, Some("true"), [4, 10]),
        (indexed, [10, 10], Some("true"), Some("true"), [4, 4]),
        (indexed, [10, 10], Some("true"), None, [4, 4]),
        (indexed, [10, 10], Some("true"), Some("false"), [4, 4]),
    ];
    for (mode, own, before, after, running) in cases {
        let mut now = started(&partial(mode, own[0], own[1], before), 4);
        let case = format!("{mode} {own:?} {before:?} {after:?}");
        assert_eq!(numbers(&now), running.map(i64::from), "{case}");
        annotate(&mut now, EQUAL, after);
        assert_eq!(numbers(&stopped(&now, 10)), own.map(i64::from), "{case}");
    }
}

#[test]
fn completions_follow_in_all_spellings_of_a_boolean() {
    for (text, follows) in [("True", true), ("1", true), ("t", true), ("False", false), ("0", false)] {
        let object = partial("Indexed", 10, 10, Some(text));
        let own = World::default().refusals(JobKind::JOB, &object, None);
        assert_eq!(own, "", "{text}");
        assert_eq!(numbers(&started(&object, 4)), [4, if follows { 4 } else { 10 }], "{text}");
    }
    let running = started(&partial("Indexed", 10, 10, Some("true")), 4);
    let mut same = running.clone();
    annotate(&mut same, EQUAL, Some("T"));
    assert_eq!(World::default().refusals(JobKind::JOB, &same, Some(&running)), "");
    annotate(&mut same, EQUAL, Some("F"));
    let refused = World::default().refusals(JobKind::JOB, &same, Some(&running));
    assert!(refused.contains("field is immutable while the job is not suspended"), "{refused}");
}

/// A Job has no more pods at a time than completions.
#[test]
fn fewer_pods_than_all_are_fewer_than_run_at_a_time() {
    for (least, refused) in
        [("3", ""), ("4", "should be between 1 and 3"), ("6", "should be between 1 and 3")]
    {
        let mut object = partial("NonIndexed", 10, 4, None);
        annotate(&mut object, LEAST, Some(least));
        let said = World::default().refusals(JobKind::JOB, &object, None);
        assert!(if refused.is_empty() { said.is_empty() } else { said.contains(refused) }, "{least}: {said}");
    }
    assert_eq!(observe(JobKind::JOB, &partial("NonIndexed", 10, 4, None)).pod_sets[0].min_count, Some(2));
}

/// The webhook was away when the annotation was written.
#[test]
fn completions_that_cannot_follow_stay_at_a_start() {
    for (mode, completions) in [("NonIndexed", 10), ("Indexed", 12)] {
        let now = started(&partial(mode, 10, completions, Some("true")), 4);
        assert_eq!(numbers(&now), [4, completions.into()], "{mode}");
    }
}

#[test]
fn a_job_that_runs_keeps_the_annotations_by_which_its_numbers_are_restored() {
    let world = World::default();
    let suspended = |object: &Value, suspended: bool| {
        let mut object = object.clone();
        object["spec"]["suspend"] = json!(suspended);
        object
    };
    let own = |least: Option<&str>, equal: Option<&str>| {
        let mut object = partial("Indexed", 10, 10, equal);
        annotate(&mut object, LEAST, least);
        object
    };
    for (key, before, after) in [
        (EQUAL, own(Some("2"), None), own(Some("2"), Some("true"))),
        (EQUAL, own(Some("2"), Some("true")), own(Some("2"), None)),
        (EQUAL, own(Some("2"), Some("true")), own(Some("2"), Some("false"))),
        (LEAST, own(None, None), own(Some("2"), None)),
        (LEAST, own(Some("2"), None), own(None, None)),
        // It could be more than the number that is restored.
        (LEAST, own(Some("2"), None), own(Some("9"), None)),
    ] {
        let refused = format!(
            "metadata.annotations[{key}]: Forbidden: field is immutable while the job is not suspended"
        );
        for (was, is) in [(false, false), (false, true), (true, false), (true, true)] {
            let said = world.refusals(JobKind::JOB, &suspended(&after, is), Some(&suspended(&before, was)));
            assert_eq!(said, if was { "" } else { refused.as_str() }, "{key} {was} {is}");
        }
        // Its stop is under way, and has yet to restore its numbers.
        let stops = |object: &Value| {
            let mut object = suspended(object, true);
            annotate(&mut object, labels::STOPPING, Some("true"));
            object
        };
        assert_eq!(world.refusals(JobKind::JOB, &stops(&after), Some(&stops(&before))), refused, "{key}");
    }
    // Its completions, too, if it may run with fewer pods.
    let fewer = |object: Value| {
        let mut object = suspended(&object, false);
        object["spec"]["completions"] = json!(4);
        object
    };
    let runs = suspended(&own(Some("2"), None), false);
    let said = world.refusals(JobKind::JOB, &fewer(runs.clone()), Some(&runs));
    assert!(said.starts_with("spec.completions: Forbidden: cannot change when partial admission"), "{said}");
    // What counts is whether completions follow.
    let (none, off) = (own(None, None), own(None, Some("false")));
    assert_eq!(world.refusals(JobKind::JOB, &suspended(&off, false), Some(&suspended(&none, false))), "");
}

#[test]
fn a_job_of_which_nothing_can_be_restored_is_suspended_and_its_stop_has_ended() {
    let mut now = started(&partial("NonIndexed", 10, 100, None), 4);
    let begun = stop(&observe(JobKind::JOB, &now), &[info(10)]);
    now = apply(&now, &begun[0].patch).unwrap();
    assert!(observe(JobKind::JOB, &now).stopping);
    let view = observe(JobKind::JOB, &now);
    let ended = apply(&now, &suspend(&view).patch).unwrap();
    let view = observe(JobKind::JOB, &ended);
    assert!(view.suspended && !view.stopping);
    assert_eq!(numbers(&ended), [4, 100]);
}

#[test]
fn the_patch_of_a_smaller_number_of_pods_is_one_that_the_rules_allow() {
    let world = World::default();
    for mode in ["Indexed", "NonIndexed"] {
        for equal in [None, Some("true"), Some("false")] {
            if (mode, equal) == ("NonIndexed", Some("true")) {
                continue;
            }
            let object = partial(mode, 10, 10, equal);
            for pods in 1..10 {
                let patch = with_pods(JobKind::JOB, &object, pods, Gates::default()).unwrap();
                let mut fewer = object.clone();
                json_patch::merge(&mut fewer, &patch);
                assert_eq!(world.refusals(JobKind::JOB, &fewer, Some(&object)), "", "{patch}");
                let completions = if equal == Some("true") { pods } else { 10 };
                assert_eq!(numbers(&fewer), [pods, completions].map(i64::from));
                // The smallest number that the user wants stays where it can.
                assert_eq!(fewer["metadata"]["annotations"][LEAST].is_null(), pods <= 2);
            }
        }
    }
    let off = Gates::default().with(Gate::PartialAdmission, false);
    let object = partial("Indexed", 10, 10, Some("true"));
    let patch = with_pods(JobKind::JOB, &object, 1, off);
    assert_eq!(patch, Some(json!({"spec": {"parallelism": 1}})), "nothing follows where no rule is in force");
}
