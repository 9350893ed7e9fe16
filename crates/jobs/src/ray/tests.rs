//! Ray's kinds: what is read of all of them alike.

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView};
use sluice_jobs::{Schema, observe, pod_groups};

use crate::testing::ray::{KINDS, changed, ray, template, with_status};

mod elastic;
mod writes;

fn counts(view: &JobView) -> Vec<(&str, i32)> {
    view.pod_sets.iter().map(|set| (set.name.as_str(), set.count)).collect()
}

#[test]
fn a_head_groups_of_workers_and_what_submits_are_the_pod_sets() {
    let of_cluster = [("head", 1), ("small", 2), ("hosts", 6)];
    for (kind, _) in KINDS {
        let view = observe(kind, &ray(kind));
        let submitter: &[_] = if kind == JobKind::RAY_JOB { &[("submitter", 1)] } else { &[] };
        assert_eq!(counts(&view), [&of_cluster[..], submitter].concat(), "{kind:?}");
        assert!(view.suspended && !view.active && view.finished.is_none() && view.invalid.is_none());
        assert_eq!(view.queue_name.as_deref(), Some("user-queue"));
    }
    for mode in ["HTTPMode", "InteractiveMode"] {
        let mut object = ray(JobKind::RAY_JOB);
        object["spec"]["submissionMode"] = json!(mode);
        assert_eq!(counts(&observe(JobKind::RAY_JOB, &object)), of_cluster, "{mode}");
    }
    // The API server fills this in; what comes from elsewhere means the same.
    let mut object = ray(JobKind::RAY_JOB);
    object["spec"].as_object_mut().unwrap().remove("submissionMode");
    assert_eq!(observe(JobKind::RAY_JOB, &object).pod_sets.len(), 4);
    let view = changed(JobKind::RAY_CLUSTER, |spec| {
        spec["workerGroupSpecs"][0].as_object_mut().unwrap().remove("replicas");
        spec["workerGroupSpecs"][1]["numOfHosts"] = json!(0);
    });
    assert_eq!(counts(&view), [("head", 1), ("small", 1), ("hosts", 3)]);
}

/// Requests of the pods of a pod set, by container.
fn requests(kind: JobKind, object: &Value, name: &str) -> Vec<(String, Value)> {
    let groups = pod_groups(kind, object);
    let group = groups.iter().find(|group| group.name == name).unwrap();
    let containers = group.template["spec"]["containers"].as_array().unwrap().iter();
    containers
        .map(|one| (one["name"].as_str().unwrap().to_owned(), one["resources"]["requests"].clone()))
        .collect()
}

#[test]
fn what_kuberay_adds_to_the_pods_needs_quota_too() {
    let (job, of_cluster) = (JobKind::RAY_JOB, JobKind::RAY_CLUSTER);
    let submits = ("ray-job-submitter".to_owned(), json!({"cpu": "500m", "memory": "200Mi"}));
    let object = ray(job);
    assert_eq!(requests(job, &object, "submitter"), std::slice::from_ref(&submits));
    let view = observe(job, &object);
    let spec = view.pod_sets[3].template.as_ref().unwrap().spec.as_ref().unwrap();
    assert_eq!(spec.containers[0].image.as_deref(), Some("head"), "the head's image");

    let mut object = ray(job);
    object["spec"]["submissionMode"] = json!("SidecarMode");
    let ray_container = ("ray".to_owned(), json!({"cpu": "1"}));
    assert_eq!(requests(job, &object, "head"), [ray_container.clone(), submits]);

    let mut object = ray(of_cluster);
    object["metadata"]["annotations"] = json!({"ray.io/ft-enabled": "True"});
    let cleans_up = json!({"cpu": "1", "memory": "256Mi"});
    assert_eq!(requests(of_cluster, &object, "head"), [("ray".to_owned(), cleans_up)], "the greater of both");
    let mut object = ray(of_cluster);
    object["spec"]["gcsFaultToleranceOptions"] = json!({"redisAddress": "redis:6379"});
    object["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}});
    assert_eq!(
        requests(of_cluster, &object, "head"),
        [("ray".to_owned(), json!({"cpu": "200m"}))],
        "a limit stands for what is not requested"
    );
    assert_eq!(requests(of_cluster, &object, "hosts"), std::slice::from_ref(&ray_container));

    let mut object = ray(of_cluster);
    object["spec"]["enableInTreeAutoscaling"] = json!(true);
    let scales = ("autoscaler".to_owned(), json!({"cpu": "500m", "memory": "512Mi"}));
    assert_eq!(requests(of_cluster, &object, "head"), [ray_container.clone(), scales]);
    object["spec"]["autoscalerOptions"] = json!({"resources": {"requests": {"cpu": "2"}}});
    assert_eq!(requests(of_cluster, &object, "head")[1].1, json!({"cpu": "2"}));
}

#[test]
fn only_templates_of_the_object_are_held_against_a_schema() {
    let schemas = sluice_jobs::schemas(JobKind::RAY_JOB, &ray(JobKind::RAY_JOB));
    let places: Vec<_> = schemas.iter().map(|(place, schema)| (place.as_str(), *schema)).collect();
    let of = |place| (place, Schema::PodTemplate);
    let groups = [
        "/spec/rayClusterSpec/headGroupSpec/template",
        "/spec/rayClusterSpec/workerGroupSpecs/0/template",
        "/spec/rayClusterSpec/workerGroupSpecs/1/template",
    ];
    assert_eq!(places, groups.map(of));
    let mut own = ray(JobKind::RAY_JOB);
    own["spec"]["submitterPodTemplate"] = template("own");
    assert_eq!(sluice_jobs::schemas(JobKind::RAY_JOB, &own).len(), 4);
    let service = ray(JobKind::RAY_SERVICE);
    let groups = pod_groups(JobKind::RAY_SERVICE, &service).into_iter();
    let paths: Vec<_> = groups.map(|group| group.path()).collect();
    assert_eq!(paths[1], "spec.rayClusterConfig.workerGroupSpecs[0].template");
}

#[test]
fn the_clusters_that_a_status_names_are_known() {
    let names = |kind, status| with_status(kind, status).part_names;
    assert_eq!(names(JobKind::RAY_JOB, json!({"rayClusterName": "train-a1b2c"})), ["train-a1b2c"]);
    assert!(names(JobKind::RAY_JOB, json!({"rayClusterName": ""})).is_empty());
    let status = json!({
        "activeServiceStatus": {"rayClusterName": "svc-a1b2c"},
        "pendingServiceStatus": {"rayClusterName": "svc-d3e4f"},
    });
    assert_eq!(names(JobKind::RAY_SERVICE, status), ["svc-a1b2c", "svc-d3e4f"]);
    assert!(names(JobKind::RAY_SERVICE, json!({"pendingServiceStatus": {}})).is_empty());
    assert!(names(JobKind::RAY_CLUSTER, json!({"rayClusterName": "a"})).is_empty());
}

#[test]
fn a_cluster_made_of_the_spec_of_its_job_has_no_more_pods_than_that() {
    for mode in ["K8sJobMode", "HTTPMode", "SidecarMode"] {
        for redis in [false, true] {
            let mut job = ray(JobKind::RAY_JOB);
            job["spec"]["submissionMode"] = json!(mode);
            let mut cluster = ray(JobKind::RAY_CLUSTER);
            if redis {
                job["metadata"]["annotations"] = json!({"ray.io/ft-enabled": "true"});
                cluster["metadata"]["annotations"] = job["metadata"]["annotations"].clone();
            }
            cluster["spec"] = job["spec"]["rayClusterSpec"].clone();
            let above = observe(JobKind::RAY_JOB, &job);
            assert!(!above.is_exceeded_by(&observe(JobKind::RAY_CLUSTER, &cluster), false), "{mode}");
            let mut larger = cluster.clone();
            larger["spec"]["workerGroupSpecs"][1]["replicas"] = json!(4);
            assert!(above.is_exceeded_by(&observe(JobKind::RAY_CLUSTER, &larger), false), "{mode}");
            let head = "/spec/headGroupSpec/template/spec/containers/0/resources/requests/cpu";
            *cluster.pointer_mut(head).unwrap() = json!("64");
            assert!(above.is_exceeded_by(&observe(JobKind::RAY_CLUSTER, &cluster), false), "{mode}");
        }
    }
}
