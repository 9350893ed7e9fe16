//! What the adapters read from a Job and a JobSet.

use crate::support::{job, jobset};
use serde_json::{Value, json};
use sluice_api::job::{JobFinished, JobKind, JobView};

fn observe_job(change: impl FnOnce(&mut Value)) -> JobView {
    let mut object = job();
    change(&mut object);
    sluice_jobs::observe(JobKind::JOB, &object)
}

fn observe_jobset(change: impl FnOnce(&mut Value)) -> JobView {
    let mut object = jobset();
    change(&mut object);
    sluice_jobs::observe(JobKind::JOB_SET, &object)
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
    assert_eq!(observe_jobset(|_| {}).queue_name.as_deref(), Some("multislice-queue"));
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
fn pods_of_a_job_that_run_and_those_that_terminate_are_told_apart() {
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
fn a_jobset_has_a_pod_set_per_replicated_job() {
    let view = observe_jobset(|_| {});
    let sets: Vec<_> =
        view.pod_sets.iter().map(|set| (set.name.as_str(), set.count, set.has_template_metadata)).collect();
    assert_eq!(sets, [("slice", 4, false), ("driver", 1, true)]);
    assert_eq!(view.pod_priority_class.as_deref(), Some("high"));
    assert!(view.suspended);
    insta::assert_yaml_snapshot!(view.pod_sets.iter().map(|set| set.template.as_deref()).collect::<Vec<_>>());
}

#[test]
fn pods_of_a_jobset_are_numbered_by_replica_with_or_without_annotations() {
    let view = observe_jobset(|jobset| jobset["spec"]["replicatedJobs"][0]["replicas"] = json!(3));
    let request = view.pod_sets[0].topology_request.as_deref().unwrap();
    assert_eq!(
        json!(request),
        json!({
            "podIndexLabel": "batch.kubernetes.io/job-completion-index",
            "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
            "subGroupCount": 3,
        })
    );
    assert!(view.pod_sets.iter().all(|set| set.topology_request.is_some()));
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
fn a_replicated_jobs_own_exclusive_topology_goes_before_the_jobsets() {
    let key = "alpha.jobset.sigs.k8s.io/exclusive-topology";
    let topologies = |view: JobView| {
        let sets = view.pod_sets.into_iter();
        sets.map(|set| set.exclusive_topology.map(|e| (e.key, e.replicas))).collect::<Vec<_>>()
    };
    let plain = |jobset: &mut Value| jobset["metadata"]["annotations"] = json!({});
    assert!(topologies(observe_jobset(plain)).iter().all(Option::is_none));
    let all = topologies(observe_jobset(|jobset| {
        jobset["metadata"]["annotations"] = json!({key: "pool"});
        jobset["spec"]["replicatedJobs"][0]["replicas"] = json!(3);
        jobset["spec"]["replicatedJobs"][0]["template"]["metadata"] = json!({"annotations": {key: "rack"}});
    }));
    assert_eq!(all[0], Some(("rack".to_owned(), 3)));
    assert!(all[1..].iter().all(|topology| topology.as_ref().is_some_and(|(key, _)| key == "pool")));
}

#[test]
fn the_state_of_a_jobset_is_the_sum_over_its_jobs() {
    let with = |status: Value| observe_jobset(|jobset| jobset["status"] = status);
    let view = with(json!({"replicatedJobsStatus": [
        {"name": "Slice", "active": 1, "ready": 1, "succeeded": 1}, {"name": "driver", "active": 0, "ready": 1}]}));
    assert!(view.active && view.pods_ready);
    assert_eq!(view.reclaimable, [("slice".to_owned(), 2)]);
    let view = with(
        json!({"replicatedJobsStatus": [{"name": "Slice", "ready": 1}, {"name": "driver", "ready": 1}]}),
    );
    assert!(!view.active && !view.pods_ready);
    let view =
        with(json!({"conditions": [{"type": "Completed", "status": "True", "message": "jobset completed"}]}));
    assert_eq!(view.finished, Some(JobFinished { success: true, message: "jobset completed".to_owned() }));
    let view = with(json!({"conditions": [{"type": "Failed", "status": "True"}]}));
    assert_eq!(view.finished, Some(JobFinished { success: false, message: String::new() }));
}

#[test]
fn what_cannot_become_a_workload_says_why() {
    let invalid = |view: JobView| {
        assert!(view.pod_sets.is_empty());
        view.invalid.unwrap()
    };
    let template = "spec.replicatedJobs[1].template.spec.template";
    let many: Vec<_> = (0..19).map(|n| json!({"name": format!("j{n}"), "template": {"spec": {"template": {"spec": {"containers": []}}}}})).collect();
    for (view, expected) in [
        (observe_job(|job| job["spec"]["template"]["spec"] = Value::Null), "spec.template.spec: required"),
        (
            observe_job(|job| job["spec"]["template"]["spec"]["containers"] = json!(7)),
            "spec.template: invalid type",
        ),
        (observe_job(|job| job["spec"] = json!([])), "spec.template: "),
        (observe_jobset(|set| set["spec"]["replicatedJobs"][1]["template"] = Value::Null), template),
        (
            observe_jobset(|set| set["spec"]["replicatedJobs"] = json!(many)),
            "too many pod sets: 19, at most 18",
        ),
    ] {
        let text = invalid(view);
        assert!(text.starts_with(expected), "{text}");
    }
}

/// The engine compares a job with its Workload by this hash: it must survive the way through the API server.
#[test]
fn the_hash_of_a_template_is_that_of_the_workload_made_from_it() {
    for view in [observe_job(|_| {}), observe_jobset(|_| {})] {
        for pod_set in &view.pod_sets {
            let mut stored = serde_json::to_value(pod_set.template.as_deref()).unwrap();
            for container in stored["spec"]["containers"].as_array_mut().unwrap() {
                container["resources"]["claims"] = json!([]);
                container["env"] = json!(container["env"].as_array().cloned().unwrap_or_default());
            }
            let read: k8s_openapi::api::core::v1::PodTemplateSpec = serde_json::from_value(stored).unwrap();
            assert_eq!(sluice_api::names::containers_hash(&read.spec.unwrap()), pod_set.containers_hash);
        }
    }
    let changed = observe_job(|job| {
        job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    });
    assert_ne!(changed.pod_sets[0].containers_hash, observe_job(|_| {}).pod_sets[0].containers_hash);
    let same = observe_job(|job| {
        job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1000m");
        job["spec"]["template"]["spec"]["nodeSelector"] = json!({"other": "x"});
    });
    assert_eq!(same.pod_sets[0].containers_hash, observe_job(|_| {}).pod_sets[0].containers_hash);
}

proptest::proptest! {
    #[test]
    fn no_object_makes_it_panic(path in proptest::sample::select(PATHS.to_vec()), value in junk()) {
        for (kind, object) in [(JobKind::JOB, job()), (JobKind::JOB_SET, jobset())] {
            let mut object = object;
            if let Some(place) = object.pointer_mut(path) {
                *place = value.clone();
            }
            let view = sluice_jobs::observe(kind, &object);
            let _ = sluice_jobs::start(&view, &[]);
            let _ = sluice_jobs::stop(&view, &[]);
        }
    }
}

const PATHS: &[&str] = &[
    "",
    "/metadata",
    "/metadata/labels",
    "/metadata/name",
    "/spec",
    "/spec/suspend",
    "/spec/parallelism",
    "/spec/template",
    "/spec/template/spec",
    "/spec/template/spec/containers",
    "/spec/template/spec/containers/0/resources/requests",
    "/spec/template/spec/tolerations",
    "/spec/replicatedJobs",
    "/spec/replicatedJobs/0",
    "/spec/replicatedJobs/0/replicas",
    "/spec/replicatedJobs/0/template/spec",
];

pub fn junk() -> impl proptest::strategy::Strategy<Value = Value> {
    proptest::sample::select(vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(i64::MAX),
        json!(1.5),
        json!("x"),
        json!([]),
        json!([null, 1, {"name": 5}]),
        json!({}),
        json!({"name": [], "spec": 1, "template": {}}),
    ])
}

#[test]
fn what_the_controller_says_of_being_suspended_is_kept_with_its_time() {
    let status = |value: &str| json!({"conditions": [{"type": "Suspended", "status": value, "lastTransitionTime": "2026-01-02T03:04:05Z"}]});
    let since = "2026-01-02T03:04:05Z".parse().unwrap();
    for (value, suspended) in [("True", true), ("False", false)] {
        let wanted = Some((suspended, since));
        assert_eq!(observe_job(|job| job["status"] = status(value)).suspended_condition, wanted);
        assert_eq!(observe_jobset(|jobset| jobset["status"] = status(value)).suspended_condition, wanted);
    }
    for other in [
        json!(null),
        json!({"conditions": []}),
        json!({"conditions": [{"type": "Suspended", "status": "True"}]}),
    ] {
        assert_eq!(observe_job(|job| job["status"] = other).suspended_condition, None);
    }
    let in_order = observe_jobset(|jobset| {
        jobset["status"] = status("True");
        jobset["spec"]["startupPolicy"] = json!({"startupPolicyOrder": "InOrder"});
    });
    assert_eq!(in_order.suspended_condition, None, "it stays True while the Jobs start one after the other");
}
