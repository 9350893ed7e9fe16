//! The common results of reading Jobs and JobSets.

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView};

use crate::testing::{job, jobset, junk};

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
