//! Components checked against their declarations: number and size of the pods that the wrapped object's own kind makes.

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView};
use sluice_jobs::observe;

use crate::testing::World;

const KIND: JobKind = JobKind::APP_WRAPPER;

fn pod(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn object(kind: JobKind, spec: &Value) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": kind.kind(), "metadata": {"name": "x", "namespace": "team-a"},
        "spec": spec})
}

/// An AppWrapper of one component.
fn wrapper(template: &Value, pod_sets: &Value) -> Value {
    let component = json!({"template": template, "podSets": pod_sets});
    let metadata =
        json!({"name": "wrapper", "namespace": "team-a", "creationTimestamp": "2026-01-02T03:04:05Z"});
    json!({"apiVersion": KIND.api_version(), "kind": KIND.kind(), "metadata": metadata,
        "spec": {"suspend": true, "components": [component]}})
}

fn of(kind: JobKind, spec: &Value, pod_sets: &Value) -> JobView {
    observe(KIND, &wrapper(&object(kind, spec), pod_sets))
}

fn counts(view: &JobView) -> Vec<i32> {
    assert_eq!(view.invalid, None);
    view.pod_sets.iter().map(|set| set.count).collect()
}

fn declared(replicas: i32, path: &str) -> Value {
    json!([{"replicas": replicas, "path": path}])
}

fn cluster(more: &Value) -> Value {
    let mut group = json!({"groupName": "a", "replicas": 2, "template": pod("1")});
    for (field, value) in more.as_object().unwrap() {
        group[field] = value.clone();
    }
    json!({"headGroupSpec": {"template": pod("1")}, "workerGroupSpecs": [group]})
}

#[test]
fn kinds_that_only_we_know_make_no_more_pods_than_were_declared() {
    let path = "template.spec.mpiReplicaSpecs.Worker.template";
    let spec = json!({"mpiReplicaSpecs": {"Worker": {"replicas": 3, "template": pod("1")}}});
    let with = |pod_sets: &Value| of(JobKind::MPI_JOB, &spec, pod_sets);
    assert_eq!(counts(&with(&declared(3, path))), [3]);
    assert_eq!(counts(&with(&declared(4, path))), [4]);
    assert_eq!(
        with(&declared(2, path)).invalid.as_deref(),
        Some("spec.components[0].podSets[0].replicas: 2, and the template has 3 pods")
    );
    let none = "spec.components[0].template.spec.mpiReplicaSpecs.Worker.template: its pods are not among those of podSets";
    assert_eq!(with(&json!([])).invalid.as_deref(), Some(none));
    let mut two = spec.clone();
    two["mpiReplicaSpecs"]["Launcher"] = json!({"template": pod("1")});
    let why = of(JobKind::MPI_JOB, &two, &declared(3, path)).invalid.unwrap();
    assert!(why.contains("Launcher.template: its pods are not among those of podSets"), "{why}");
    let unknown = json!({"mpiReplicaSpecs": {"Other": {"replicas": 3, "template": pod("1")}}});
    let why = of(JobKind::MPI_JOB, &unknown, &json!([])).invalid.unwrap();
    assert!(why.starts_with("spec.components[0].template.spec.mpiReplicaSpecs.Other: unknown"), "{why}");
}

#[test]
fn all_groups_of_a_leader_worker_set_count() {
    let spec = |replicas: i32| json!({"replicas": replicas, "leaderWorkerTemplate": {"size": 4, "workerTemplate": pod("1")}});
    let path = "template.spec.leaderWorkerTemplate.workerTemplate";
    let with = |pods: i32| of(JobKind::LEADER_WORKER_SET, &spec(2), &declared(pods, path));
    assert_eq!(counts(&with(8)), [8]);
    let why = with(4).invalid.unwrap();
    assert_eq!(why, "spec.components[0].podSets[0].replicas: 4, and the template has 8 pods");
    let made = |replicas: i32| {
        observe(JobKind::LEADER_WORKER_SET, &object(JobKind::LEADER_WORKER_SET, &spec(replicas)))
    };
    for (replicas, beyond) in [(0, false), (1, false), (2, false), (3, true)] {
        let reported = with(8).exceeded_by_wrapped(&made(replicas));
        assert_eq!(
            reported.is_some_and(|reported| reported.contains("has 12 pods of")),
            beyond,
            "{replicas}"
        );
    }
}

#[test]
fn a_deployment_is_held_to_its_replicas() {
    let spec = |replicas: i32| json!({"replicas": replicas, "template": pod("1")});
    let exceeds = |replicas: i32| {
        exceeds(JobKind::DEPLOYMENT, &spec(2), |made| made["spec"]["replicas"] = json!(replicas))
    };
    assert_eq!(exceeds(2), None);
    assert!(exceeds(3).unwrap().contains("has 3 pods of \"main\", and 2 were declared"));
}

#[test]
fn hosts_of_a_ray_cluster_count_though_appwrappers_library_knows_replicas_alone() {
    let four = cluster(&json!({"numOfHosts": 2}));
    assert_eq!(counts(&of(JobKind::RAY_CLUSTER, &four, &json!([]))), [1, 4]);
    let path = |of: &str| format!("template.spec.{of}.template");
    let declared =
        json!([{"path": path("headGroupSpec")}, {"replicas": 2, "path": path("workerGroupSpecs[0]")}]);
    assert_eq!(counts(&of(JobKind::RAY_CLUSTER, &four, &declared)), [1, 4]);
}

#[test]
fn a_ray_cluster_that_makes_more_pods_than_it_says_is_refused() {
    for (more, why) in [
        (json!({"minReplicas": 5}), "spec.workerGroupSpecs[0].replicas: 2: KubeRay would make 5"),
        (json!({"replicas": -1}), "spec.workerGroupSpecs[0].replicas: -1: must not be negative"),
    ] {
        let reported = of(JobKind::RAY_CLUSTER, &cluster(&more), &json!([])).invalid.unwrap();
        assert!(reported.starts_with(&format!("spec.components[0].template.{why}")), "{reported}");
    }
    let mut scaled = cluster(&json!({}));
    scaled["enableInTreeAutoscaling"] = json!(true);
    let reported = of(JobKind::RAY_CLUSTER, &scaled, &json!([])).invalid.unwrap();
    assert!(reported.starts_with("spec.components[0].template.spec.enableInTreeAutoscaling"), "{reported}");
}

#[test]
fn what_kuberay_adds_to_the_head_counts() {
    let mut fault_tolerant = cluster(&json!({}));
    fault_tolerant["headGroupSpec"]["template"] = pod("100m");
    let plain = of(JobKind::RAY_CLUSTER, &fault_tolerant, &json!([]));
    fault_tolerant["gcsFaultToleranceOptions"] = json!({"redisAddress": "redis"});
    let more = of(JobKind::RAY_CLUSTER, &fault_tolerant, &json!([]));
    let cpu = |view: &JobView| {
        let spec = view.pod_sets[0].template.as_ref().unwrap().spec.as_ref().unwrap();
        spec.containers[0].resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"].0.clone()
    };
    assert_eq!((cpu(&plain).as_str(), cpu(&more).as_str()), ("100m", "200m"));
}

#[test]
fn a_ray_job_may_have_the_submitter_that_kuberay_makes_and_no_other() {
    let mut spec = json!({"rayClusterSpec": cluster(&json!({}))});
    assert_eq!(counts(&of(JobKind::RAY_JOB, &spec, &json!([]))), [1, 2]);
    spec["submitterPodTemplate"] = pod("64");
    let reported = of(JobKind::RAY_JOB, &spec, &json!([])).invalid.unwrap();
    let path = "spec.components[0].template.spec.submitterPodTemplate";
    assert_eq!(reported, format!("{path}: its pods are not among those of podSets"));
    spec["submissionMode"] = json!("HTTPMode");
    assert_eq!(counts(&of(JobKind::RAY_JOB, &spec, &json!([]))), [1, 2]);
}

#[test]
fn an_appwrapper_in_an_appwrapper_is_held_to_its_components() {
    let job = object(JobKind::JOB, &json!({"parallelism": 3, "template": pod("1")}));
    let inner = |pods: Value| object(KIND, &json!({"components": [{"template": job, "podSets": pods}]}));
    let path = "template.spec.components[0].template.spec.template";
    let with = |replicas: i32| observe(KIND, &wrapper(&inner(json!([])), &declared(replicas, path)));
    assert_eq!(counts(&with(3)), [3]);
    let why = with(1).invalid.unwrap();
    assert_eq!(why, "spec.components[0].podSets[0].replicas: 1, and the template has 3 pods");
    assert!(observe(KIND, &wrapper(&inner(json!([])), &json!([]))).invalid.is_some());
    // Many levels take no longer than few.
    let mut deep = job.clone();
    for _ in 0..100 {
        deep = object(KIND, &json!({"components": [{"template": deep}]}));
    }
    assert!(observe(KIND, &wrapper(&deep, &json!([]))).invalid.is_some());
}

/// The running object of a component, as it was wrapped but for a change.
fn exceeds(kind: JobKind, spec: &Value, change: impl FnOnce(&mut Value)) -> Option<String> {
    let template = object(kind, spec);
    let above = observe(KIND, &wrapper(&template, &json!([])));
    assert_eq!(above.invalid, None);
    let mut made = template;
    change(&mut made);
    above.exceeded_by_wrapped(&observe(kind, &made))
}

#[test]
fn a_wrapped_object_that_was_changed_exceeds_what_was_declared() {
    let job = json!({"parallelism": 3, "completions": 9, "template": pod("1")});
    let of_job = |change: fn(&mut Value)| exceeds(JobKind::JOB, &job, change);
    let place = "spec.components[0]: Job \"x\"";
    assert_eq!(of_job(|_| {}), None);
    assert_eq!(of_job(|job| job["spec"]["parallelism"] = json!(1)), None);
    // What admission adds, and how the API server writes amounts, is no change of what is asked for.
    assert_eq!(
        of_job(|job| {
            job["spec"]["template"] = pod("1000m");
            job["spec"]["template"]["spec"]["nodeSelector"] = json!({"pool": "spot"});
        }),
        None
    );
    assert_eq!(
        of_job(|job| job["spec"]["parallelism"] = json!(4)),
        Some(format!("{place} has 4 pods of \"main\", and 3 were declared"))
    );
    let other = Some(format!("{place} has pods of \"main\" whose requests differ from the declared ones"));
    assert_eq!(of_job(|job| job["spec"]["template"] = pod("2")), other);
    assert_eq!(of_job(|job| job["spec"]["template"]["spec"]["overhead"] = json!({"cpu": "5"})), other);
    assert_eq!(of_job(|job| job["metadata"]["name"] = json!("another")), None);

    let ray = json!({"rayClusterSpec": cluster(&json!({}))});
    let of_ray = |change: fn(&mut Value)| exceeds(JobKind::RAY_JOB, &ray, change);
    assert_eq!(of_ray(|_| {}), None);
    let hosts = of_ray(|ray| ray["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["numOfHosts"] = json!(9));
    assert!(hosts.unwrap().ends_with("has 18 pods of \"a\", and 2 were declared"));
    let submitter = of_ray(|ray| ray["spec"]["submitterPodTemplate"] = pod("64"));
    assert!(submitter.unwrap().ends_with("of \"submitter\" whose requests differ from the declared ones"));
    let scaled = of_ray(|ray| ray["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = json!(true));
    assert!(scaled.unwrap().contains("cannot be read: spec.rayClusterSpec.enableInTreeAutoscaling"));
}

#[test]
fn a_generated_name_is_known_whole_once_it_is_written_down() {
    let mut template = object(JobKind::JOB, &json!({"template": pod("1")}));
    template["metadata"] = json!({"generateName": "made-"});
    let mut above = wrapper(&template, &json!([]));
    let path = "template.spec.template";
    let names = |above: &Value| {
        let view = observe(KIND, above);
        ["made-a", "made-b"].map(|name| view.wraps_object(JobKind::JOB, name))
    };
    assert_eq!(names(&above), [true, true]);
    let mut status = json!({"name": "made-a", "podSets": declared(1, path)});
    above["status"]["componentStatus"] = json!([status]);
    assert_eq!(names(&above), [true, true], "it may be that of the last start");
    status["conditions"] = json!([{"type": "ResourcesDeployed", "status": "True"}]);
    above["status"]["componentStatus"] = json!([status]);
    assert_eq!(names(&above), [true, false]);
}

/// What the webhook says of an AppWrapper that is made, or changed from `old`.
fn refused(object: &Value, old: Option<&Value>) -> String {
    World::default().refusals(KIND, object, old)
}

#[test]
fn an_appwrapper_that_declares_too_few_pods_is_not_let_in() {
    let spec = json!({"mpiReplicaSpecs": {"Worker": {"replicas": 3, "template": pod("1")}}});
    let of = |replicas: i32, queue: Option<&str>| {
        let pods = declared(replicas, "template.spec.mpiReplicaSpecs.Worker.template");
        let mut object = wrapper(&object(JobKind::MPI_JOB, &spec), &pods);
        object["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": queue});
        object
    };
    let reported = "spec.components[0].podSets[0].replicas: 2, and the template has 3 pods";
    assert_eq!(refused(&of(3, Some("lq")), None), "");
    assert_eq!(refused(&of(2, Some("lq")), None), reported);
    assert_eq!(refused(&of(2, Some("lq")), Some(&of(3, Some("lq")))), reported);
    assert_eq!(refused(&of(2, Some("lq")), Some(&of(2, Some("lq")))), "", "it was let in before");
    assert_eq!(refused(&of(2, None), None), "", "it is not managed");
}
