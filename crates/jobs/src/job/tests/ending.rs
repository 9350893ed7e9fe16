//! The end of a Job: when it is neither started nor stopped, and how its start time is restored.

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView, PodSetInfo};
use sluice_jobs::{StartError, observe, start, stop};

use crate::testing::{apply, job};

fn view(spec: &Value, status: &Value) -> JobView {
    observe(JobKind::JOB, &object(spec, status))
}

fn object(spec: &Value, status: &Value) -> Value {
    let mut object = job();
    json_patch::merge(&mut object["spec"], spec);
    object["status"] = status.clone();
    object
}

fn info(count: i32) -> PodSetInfo {
    PodSetInfo { name: "main".to_owned(), count, ..PodSetInfo::default() }
}

#[test]
fn a_job_is_ending_once_nothing_is_left_to_run() {
    let condition = |kind: &str| json!({"conditions": [{"type": kind, "status": "True"}]});
    let indexed = json!({"completionMode": "Indexed", "completions": 3});
    let cases = [
        (json!({"completions": 3}), json!({"succeeded": 3}), true),
        (
            json!({"completions": 3}),
            json!({"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["a", "b"]}}),
            true,
        ),
        (
            json!({"completions": 3}),
            json!({"succeeded": 1, "uncountedTerminatedPods": {"failed": ["a", "b"]}}),
            false,
        ),
        (json!({"completions": 3}), json!({"succeeded": 3, "active": 1}), false),
        (json!({"completions": 3}), json!({"succeeded": 2, "failed": 1}), false),
        (indexed.clone(), json!({"completedIndexes": "0-2"}), true),
        (indexed.clone(), json!({"completedIndexes": "0,2", "succeeded": 2}), false),
        (indexed, json!({"completedIndexes": "0", "failedIndexes": "1,2"}), false),
        // Without completions the first success is the end, once no pod is active.
        (json!({"completions": null}), json!({"succeeded": 1}), true),
        (json!({"completions": null}), json!({"succeeded": 1, "active": 1}), false),
        (json!({"completions": null}), json!({"failed": 1}), false),
        (json!({"completions": 3}), condition("SuccessCriteriaMet"), true),
        (json!({"completions": 3}), condition("FailureTarget"), true),
        (json!({"completions": 3}), condition("Suspended"), false),
        (json!({"completions": 3}), Value::Null, false),
    ];
    for (spec, status, ending) in cases {
        assert_eq!(view(&spec, &status).ending, ending, "{spec} {status}");
    }
}

#[test]
fn the_start_time_of_a_job_that_is_over_is_kept() {
    let running = json!({"suspend": false, "completions": 3});
    let over = json!({"succeeded": 3, "startTime": "2026-01-02T04:00:00Z"});
    assert!(stop(&view(&running, &over), &[info(3)]).is_empty(), "it is over: nothing is to be stopped");
    // All its pods succeed just after the stop began: only the mark goes.
    let mut begun = object(&json!({"suspend": true, "completions": 3}), &over);
    begun["metadata"]["annotations"]["kueue.x-k8s.io/stopping"] = json!("true");
    let steps = stop(&observe(JobKind::JOB, &begun), &[info(3)]);
    assert_eq!(steps.len(), 1);
    let after = apply(&begun, &steps[0].patch).unwrap();
    assert_eq!(after["status"]["startTime"], "2026-01-02T04:00:00Z");
    let after = observe(JobKind::JOB, &after);
    assert!(after.suspended && after.ending && !after.end_blocked);
}

#[test]
fn a_stop_continues_when_no_pod_can_succeed_any_more() {
    let begun = |status: &Value| {
        let mut begun = object(&json!({"suspend": true, "completions": 3}), status);
        begun["metadata"]["annotations"]["kueue.x-k8s.io/stopping"] = json!("true");
        observe(JobKind::JOB, &begun)
    };
    assert!(begun(&json!({"active": 2})).stop_waits);
    assert!(begun(&json!({"uncountedTerminatedPods": {"succeeded": ["a"]}})).stop_waits);
    assert!(!begun(&json!({"succeeded": 1})).stop_waits);
    assert!(!begun(&json!({"succeeded": 3})).stop_waits);
}

#[test]
fn a_job_that_lost_its_start_time_at_its_end_gets_one_again() {
    let blocked = object(&json!({"suspend": true, "completions": 3}), &json!({"succeeded": 3}));
    let view = observe(JobKind::JOB, &blocked);
    assert!(view.end_blocked);
    let steps = stop(&view, &[info(3)]);
    assert_eq!((steps.len(), steps[0].subresource), (1, Some("status")));
    let after = apply(&blocked, &steps[0].patch).unwrap();
    assert_eq!(after["status"]["startTime"], "2026-01-02T03:04:05Z");
    assert!(!observe(JobKind::JOB, &after).end_blocked);
    // A job without any completions never starts.
    assert!(!self::view(&json!({"completions": 0}), &Value::Null).end_blocked);
    assert!(!self::view(&json!({"suspend": false, "completions": 3}), &json!({"succeeded": 3})).end_blocked);
    let ended = json!({"succeeded": 3, "conditions": [{"type": "Complete", "status": "True"}]});
    assert!(!self::view(&json!({"completions": 3}), &ended).end_blocked);
}

#[test]
fn a_job_whose_pods_partly_ended_starts_with_the_rest_and_its_own_numbers() {
    let one_left = [
        (json!({"parallelism": 2, "completions": 2}), json!({"succeeded": 1})),
        (
            json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed"}),
            json!({"completedIndexes": "1", "succeeded": 1}),
        ),
        (json!({"parallelism": 3, "completions": 10}), json!({"succeeded": 9})),
    ];
    for (spec, status) in one_left {
        let view = view(&spec, &status);
        let body = start(&view, &[info(1)]).unwrap().body();
        assert_eq!(body["spec"], json!({"suspend": false}), "{spec}");
        assert!(matches!(start(&view, &[info(0)]), Err(StartError::Count { needed: 1, .. })), "{spec}");
        assert!(
            start(&view, &[info(view.pod_sets[0].count)]).is_ok(),
            "without reclaimable pods all are admitted"
        );
    }
    let done = view(&json!({"parallelism": 2, "completions": 2}), &json!({"succeeded": 2}));
    assert_eq!(start(&done, &[info(0)]).unwrap().body()["spec"], json!({"suspend": false}));
}

#[test]
fn a_job_that_takes_fewer_pods_loses_no_completion_that_is_left() {
    let object = |equal: bool, completed: &str| {
        let spec = json!({"parallelism": 4, "completions": 4, "completionMode": "Indexed"});
        let mut object = object(&spec, &json!({"completedIndexes": completed}));
        object["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2",
            "kueue.x-k8s.io/job-completions-equal-parallelism": equal.to_string()});
        object
    };
    for equal in [false, true] {
        // Index 0 is done: three pods are left, and all three, or two, are admitted.
        for count in [3, 2] {
            let first = object(equal, "0");
            let view = observe(JobKind::JOB, &first);
            let started = apply(&first, &start(&view, &[info(count)]).unwrap()).unwrap();
            assert_eq!(
                (&started["spec"]["parallelism"], &started["spec"]["completions"]),
                (&json!(count), &json!(4))
            );
            // It has the admitted number of pods, and gets its own back when it stops.
            let mut stopping = started;
            stopping["spec"]["suspend"] = json!(true);
            stopping["metadata"]["annotations"]["kueue.x-k8s.io/stopping"] = json!("true");
            let view = observe(JobKind::JOB, &stopping);
            assert_eq!(view.pod_sets[0].count, count);
            let steps = stop(&view, &[info(4)]);
            let restored = apply(&stopping, &steps[0].patch).unwrap();
            assert_eq!(
                (&restored["spec"]["parallelism"], &restored["spec"]["completions"]),
                (&json!(4), &json!(4))
            );
        }
        // Before anything is done, completions follow where they are to.
        let first = object(equal, "");
        let started = apply(&first, &start(&observe(JobKind::JOB, &first), &[info(3)]).unwrap()).unwrap();
        assert_eq!(started["spec"]["completions"], json!(if equal { 3 } else { 4 }));
    }
}
