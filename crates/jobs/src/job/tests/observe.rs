//! What is read of a Job.

use serde_json::{Value, json};
use sluice_api::job::{JobFinished, JobKind, JobView};

use crate::testing::job;

fn observe_job(change: impl FnOnce(&mut Value)) -> JobView {
    let mut object = job();
    change(&mut object);
    sluice_jobs::observe(JobKind::JOB, &object)
}

#[test]
fn metadata_of_a_job_is_read() {
    let view = observe_job(|job| {
        job["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "1"},
            {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "p", "uid": "2", "controller": true}]);
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
        job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("60");
        job["metadata"]["annotations"]["kueue.x-k8s.io/admission-gated-by"] = json!("example.com/gate");
        job["spec"]["managedBy"] = json!("example.com/other");
    });
    assert_eq!((view.job.namespace.as_ref(), view.job.name.as_ref()), ("team-a", "sample"));
    assert_eq!(view.job.uid.as_ref(), "0b6a2f5c");
    assert_eq!((view.resource_version.as_str(), view.generation), ("7", 2));
    assert_eq!(view.created.to_string(), "2026-01-02T03:04:05Z");
    assert_eq!(view.queue_name.as_deref(), Some("user-queue"));
    assert_eq!(view.workload_priority_class.as_deref(), Some("high"));
    assert_eq!(view.maximum_execution_time_seconds, Some(60));
    assert_eq!(view.admission_gated_by.as_deref(), Some("example.com/gate"));
    assert_eq!(view.managed_by.as_deref(), Some("example.com/other"));
    assert_eq!(view.controller.unwrap().name, "p");
    assert_eq!(view.labels.len(), 4);
    let inherited: Vec<_> = view.annotations.keys().map(String::as_str).collect();
    assert_eq!(
        inherited,
        ["kueue.x-k8s.io/admission-gated-by", "provreq.kueue.x-k8s.io/maxRunDurationSeconds"]
    );
    assert_eq!(view.invalid, None);
}

#[test]
fn the_queue_is_named_by_the_label_else_by_the_annotation() {
    let named = |label: Value, annotation: Value| {
        observe_job(|job| {
            job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = label;
            job["metadata"]["annotations"]["kueue.x-k8s.io/queue-name"] = annotation;
        })
        .queue_name
    };
    assert_eq!(named(json!("l"), json!("a")).as_deref(), Some("l"));
    assert_eq!(named(json!(""), json!("a")).as_deref(), Some("a"));
    assert_eq!(named(Value::Null, json!("")), None);
}

#[test]
fn the_template_of_a_job_is_cleaned_for_its_workload() {
    let view = observe_job(|_| {});
    let pod_set = &view.pod_sets[0];
    insta::assert_yaml_snapshot!(pod_set.template.as_deref());
    assert!(pod_set.scheduling.labels.contains_key("job-name"), "the labels as they are now");
}

#[test]
fn a_job_has_as_many_pods_as_run_at_the_same_time() {
    let count = |parallelism: Value, completions: Value| {
        observe_job(|job| {
            job["spec"]["parallelism"] = parallelism;
            job["spec"]["completions"] = completions;
        })
        .pod_sets[0]
            .count
    };
    assert_eq!(count(json!(3), json!(5)), 3);
    assert_eq!(count(json!(5), json!(3)), 3);
    assert_eq!(count(json!(3), Value::Null), 3);
    assert_eq!(count(Value::Null, Value::Null), 1);
    assert_eq!(count(json!(0), json!(3)), 0);
    assert_eq!(count(json!(1_i64 << 40), Value::Null), i32::MAX);
    assert_eq!(count(json!(-1), Value::Null), 0);
}

#[test]
fn the_least_parallelism_is_a_number_up_to_the_count() {
    let least = |text: &str| {
        observe_job(|job| job["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = json!(text))
            .pod_sets[0]
            .min_count
    };
    assert_eq!(least("2"), Some(2));
    assert_eq!(least("3"), Some(3));
    for text in ["0", "-1", "4", "x", ""] {
        assert_eq!(least(text), None, "{text}");
    }
}

#[test]
fn a_job_that_is_being_stopped_is_not_suspended() {
    let view = observe_job(|job| job["metadata"]["annotations"]["kueue.x-k8s.io/stopping"] = json!("true"));
    assert!(view.stopping && !view.suspended);
    let view = observe_job(|_| {});
    assert!(!view.stopping && view.suspended);
    assert!(!observe_job(|job| job["spec"]["suspend"] = json!(false)).suspended);
}

#[test]
fn the_rest_of_a_stop_waits_for_active_pods_of_a_suspended_job() {
    let waits = |stopping: bool, suspend: bool, status: Value| {
        let view = observe_job(|job| {
            if stopping {
                job["metadata"]["annotations"]["kueue.x-k8s.io/stopping"] = json!("true");
            }
            job["spec"]["suspend"] = json!(suspend);
            job["status"] = status;
        });
        view.stop_waits
    };
    assert!(waits(true, true, json!({"active": 2})));
    assert!(
        !waits(true, true, json!({"active": 0, "terminating": 2})),
        "Kubernetes lets the template change"
    );
    assert!(!waits(true, false, json!({"active": 2})), "it was started again: it is to be suspended first");
    assert!(!waits(false, true, json!({"active": 2})), "no stop was begun");
}

#[test]
fn pods_of_a_job_that_run_and_those_that_terminate_are_distinguished() {
    let pods = |status: Value| {
        let view = observe_job(|job| job["status"] = status);
        (view.active, view.terminating)
    };
    assert_eq!(pods(Value::Null), (false, 0));
    assert_eq!(pods(json!({"active": 0, "terminating": 0})), (false, 0));
    assert_eq!(pods(json!({"active": 1})), (true, 0));
    assert_eq!(pods(json!({"active": 0, "terminating": 3})), (false, 3));
    assert_eq!(pods(json!({"terminating": -1})), (false, 0));
}

#[test]
fn a_job_ends_with_a_condition_that_is_true() {
    let finished =
        |conditions: Value| observe_job(|job| job["status"] = json!({"conditions": conditions})).finished;
    assert_eq!(
        finished(json!([{"type": "Complete", "status": "False"}, {"type": "Suspended", "status": "True"}])),
        None
    );
    assert_eq!(
        finished(json!([{"type": "SuccessCriteriaMet", "status": "True"},
            {"type": "Complete", "status": "True", "message": "done"}])),
        Some(JobFinished { success: true, message: "done".to_owned() })
    );
    assert_eq!(
        finished(json!([{"type": "Failed", "status": "True", "message": "too many"}])),
        Some(JobFinished { success: false, message: "too many".to_owned() })
    );
}

#[test]
fn ready_pods_of_a_job_include_those_not_counted_yet() {
    let ready = |status: Value| observe_job(|job| job["status"] = status).pods_ready;
    assert!(!ready(Value::Null));
    assert!(!ready(json!({"ready": 2})));
    assert!(ready(json!({"ready": 3})));
    assert!(ready(json!({"ready": 1, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["u"]}})));
}

#[test]
fn an_index_that_failed_for_good_is_not_waited_for() {
    let ready = |status: Value| observe_job(|job| job["status"] = status).pods_ready;
    assert!(!ready(json!({"ready": 2, "failedIndexes": ""})));
    assert!(!ready(json!({"ready": 1, "failedIndexes": "0"})));
    assert!(ready(json!({"ready": 2, "failedIndexes": "0"})));
    assert!(ready(json!({"ready": 1, "succeeded": 1, "failedIndexes": "2"})));
}

#[test]
fn pods_that_will_not_come_again_are_reclaimable() {
    let reclaimable = |spec: Value, status: Value| {
        observe_job(|job| {
            json_patch::merge(&mut job["spec"], &spec);
            job["status"] = status;
        })
        .reclaimable
    };
    let main = |count| vec![("main".to_owned(), count)];
    assert_eq!(reclaimable(json!({}), json!({"succeeded": 2})), []);
    assert_eq!(reclaimable(json!({}), json!({"succeeded": 3})), main(1));
    assert_eq!(reclaimable(json!({}), json!({"succeeded": 5})), main(3));
    assert_eq!(reclaimable(json!({"completions": null}), json!({"succeeded": 1})), main(1));
    assert_eq!(reclaimable(json!({"parallelism": 1}), json!({"succeeded": 5})), [], "one pod at a time");
    assert_eq!(
        reclaimable(json!({"completions": 2}), json!({"succeeded": 1})),
        main(1),
        "never more than the pods"
    );
    let indexed = json!({"completionMode": "Indexed"});
    assert_eq!(
        reclaimable(indexed.clone(), json!({"completedIndexes": "0,2-3", "failedIndexes": "3"})),
        main(1)
    );
    assert_eq!(reclaimable(indexed.clone(), json!({"completedIndexes": "0-1", "succeeded": 5})), []);
    assert_eq!(reclaimable(indexed, json!({"completedIndexes": "4294967295,x,-,9-1,0-4294967295"})), main(3));
}

#[test]
fn labels_that_name_a_jobs_own_uid_are_in_no_workload() {
    let own = json!({"app": "x", "job-name": "sample", "controller-uid": "0b6a2f5c",
        "batch.kubernetes.io/controller-uid": "0b6a2f5c", "batch.kubernetes.io/job-name": "sample"});
    let view = observe_job(|job| job["spec"]["template"]["metadata"]["labels"] = own);
    let template = view.pod_sets[0].template.as_deref().unwrap();
    let labels = template.metadata.clone().unwrap().labels.unwrap();
    assert_eq!(labels.keys().collect::<Vec<_>>(), ["app", "batch.kubernetes.io/job-name"]);
}

#[test]
fn what_cannot_become_a_workload_says_why() {
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 3] = [
        (|job| job["spec"]["template"]["spec"] = Value::Null, "spec.template.spec: required"),
        (|job| job["spec"]["template"]["spec"]["containers"] = json!(7), "spec.template: invalid type"),
        (|job| job["spec"] = json!([]), "spec.template: "),
    ];
    for (change, expected) in cases {
        let view = observe_job(change);
        let text = view.invalid.unwrap();
        assert!(view.pod_sets.is_empty() && text.starts_with(expected), "{text}");
    }
}
