//! Ray's kinds: what is read of each state.

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobPodSet, JobView, PodSetInfo};
use sluice_jobs::{Schema, Step, observe, pod_groups, stop};

use crate::testing::apply;

/// Each kind with the place of its cluster's spec.
pub const KINDS: [(JobKind, &str); 3] = [
    (JobKind::RAY_CLUSTER, "/spec"),
    (JobKind::RAY_JOB, "/spec/rayClusterSpec"),
    (JobKind::RAY_SERVICE, "/spec/rayClusterConfig"),
];

pub fn template(image: &str) -> Value {
    json!({"spec": {"nodeSelector": {"type": image},
        "containers": [{"name": "ray", "image": image, "resources": {"requests": {"cpu": "1"}}}]}})
}

/// A head, two workers of one group, and six of another: three replicas of two hosts.
pub fn cluster() -> Value {
    json!({
        "headGroupSpec": {"template": template("head")},
        "workerGroupSpecs": [
            {"groupName": "Small", "replicas": 2, "minReplicas": 0, "maxReplicas": 5, "template": template("small")},
            {"groupName": "hosts", "replicas": 3, "numOfHosts": 2, "minReplicas": 1, "template": template("hosts")},
        ],
    })
}

/// A suspended object of the kind.
pub fn ray(kind: JobKind) -> Value {
    let mut spec = cluster();
    spec["suspend"] = json!(true);
    if kind == JobKind::RAY_JOB {
        spec = json!({
            "suspend": true, "entrypoint": "python train.py", "shutdownAfterJobFinishes": true,
            "submissionMode": "K8sJobMode", "rayClusterSpec": cluster(),
        });
    } else if kind == JobKind::RAY_SERVICE {
        spec = json!({"serveConfigV2": "", "rayClusterConfig": spec});
    }
    json!({
        "apiVersion": "ray.io/v1", "kind": kind.kind(),
        "metadata": {"name": "train", "namespace": "team-a", "uid": "5e1f", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"kueue.x-k8s.io/queue-name": "user-queue"}},
        "spec": spec,
    })
}

/// The view of an object of the kind that was changed by `change`, which gets it and the spec of its cluster.
fn changed(kind: JobKind, change: impl Fn(&mut Value)) -> JobView {
    let mut object = ray(kind);
    change(object.pointer_mut(place(kind)).unwrap());
    observe(kind, &object)
}

pub fn place(kind: JobKind) -> &'static str {
    KINDS.iter().find(|(one, _)| *one == kind).unwrap().1
}

fn with_status(kind: JobKind, status: Value) -> JobView {
    let mut object = ray(kind);
    object["status"] = status;
    observe(kind, &object)
}

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
fn a_cluster_holds_its_quota_while_it_may_have_pods() {
    let kind = JobKind::RAY_CLUSTER;
    let active = |status: Value| with_status(kind, status).active;
    assert!(!active(Value::Null) && !active(json!({"state": "suspended", "head": {"podName": ""}})));
    assert!(active(json!({"state": "ready"})));
    // Its pods were never all ready.
    assert!(active(json!({"state": "", "head": {"podName": "train-head"}})));
    assert!(active(json!({"availableWorkerReplicas": 1})));
    let condition = |type_: &str, status: &str| json!({"conditions": [{"type": type_, "status": status, "lastTransitionTime": "2026-01-02T03:04:05Z"}]});
    assert!(active(condition("RayClusterSuspending", "True")));
    assert!(!active(condition("RayClusterSuspending", "False")));
    let view = with_status(kind, condition("RayClusterSuspended", "True"));
    assert_eq!(view.suspended_condition, Some((true, view.created)));
    let ready = with_status(kind, json!({"state": "ready"}));
    assert!(ready.pods_ready && ready.finished.is_none() && ready.on_hold.is_none());
    assert!(
        with_status(kind, json!({"state": "failed", "reason": "why"})).finished.is_none(),
        "it never ends"
    );
}

#[test]
fn the_states_of_a_rayjob() {
    let of = |state: &str, more: Value| {
        let mut status = more;
        status["jobDeploymentStatus"] = json!(state);
        with_status(JobKind::RAY_JOB, status)
    };
    for state in ["", "Suspended"] {
        assert!(!of(state, json!({})).active, "{state:?}");
    }
    for state in ["Initializing", "Running", "Suspending", "Retrying"] {
        let view = of(state, json!({"rayClusterStatus": {"state": "ready"}}));
        assert!(view.active && view.pods_ready && view.suspended && view.finished.is_none(), "{state}");
    }
    let complete = of("Complete", json!({"jobStatus": "SUCCEEDED", "message": "done"}));
    let finished = complete.finished.unwrap();
    assert!(finished.success && finished.message == "done" && !complete.active);
    assert!(!of("Complete", json!({"jobStatus": "STOPPED"})).finished.unwrap().success);
    assert!(
        !of("Failed", json!({"jobStatus": "RUNNING", "reason": "DeadlineExceeded"}))
            .finished
            .unwrap()
            .success
    );
    let refused = of("ValidationFailed", json!({}));
    assert!(refused.on_hold == Some(true) && !refused.active && refused.finished.is_none());
    assert_eq!(of("Running", json!({})).on_hold, Some(false));
}

#[test]
fn a_rayjob_that_waits_for_its_user_is_not_stopped_until_its_status_says_so() {
    let kind = JobKind::RAY_JOB;
    let mut object = ray(kind);
    object["spec"]["submissionMode"] = json!("InteractiveMode");
    object["spec"]["suspend"] = json!(false);
    object["status"] = json!({"jobDeploymentStatus": "Waiting"});
    let view = observe(kind, &object);
    assert!(!view.suspended && !view.stopping && view.active);
    let steps = stop(&view, &originals(&view));
    assert_eq!(steps.len(), 1, "the status is changed once the stop is seen");
    let stopped = apply(&object, &steps[0].patch).unwrap();
    assert_eq!(stopped["spec"]["suspend"], true);
    let view = observe(kind, &stopped);
    assert!(view.stopping && !view.suspended && view.active, "KubeRay lets it run");
    let steps = stop(&view, &originals(&view));
    let Step { subresource, patch } = &steps[1];
    assert_eq!((steps.len(), *subresource), (2, Some("status")));
    let told = apply(&stopped, patch);
    let mut told = told.unwrap_or_else(|_| apply(&stopped, &patch.clone().pinned("8")).unwrap());
    assert_eq!(told["status"]["jobDeploymentStatus"], "Suspending");
    assert!(observe(kind, &told).suspended && observe(kind, &told).active);
    told["status"]["jobDeploymentStatus"] = json!("Suspended");
    assert!(observe(kind, &told).suspended && !observe(kind, &told).active);
}

#[test]
fn a_service_is_active_while_it_serves() {
    let ready = |status: &str| {
        let condition = json!({"type": "Ready", "status": status});
        with_status(
            JobKind::RAY_SERVICE,
            json!({"conditions": [{"type": "UpgradeInProgress", "status": "True"}, condition]}),
        )
    };
    assert!(ready("True").active && ready("True").pods_ready && ready("True").finished.is_none());
    assert!(!ready("False").active && !ready("False").pods_ready);
}

#[test]
fn what_cannot_be_queued_says_why() {
    let group = |change: fn(&mut Value)| move |spec: &mut Value| change(&mut spec["workerGroupSpecs"][0]);
    let why = |change: &dyn Fn(&mut Value)| changed(JobKind::RAY_CLUSTER, change).invalid.unwrap_or_default();
    let at = "spec.workerGroupSpecs[0]";
    assert_eq!(
        why(&group(|g| g["groupName"] = json!("Head"))),
        format!("{at}.groupName: \"head\" is reserved for the head group")
    );
    for name in [json!(null), json!("a.b"), json!("a_b"), json!("x".repeat(64))] {
        let told = why(&|spec| spec["workerGroupSpecs"][0]["groupName"] = name.clone());
        assert!(
            told.starts_with(&format!("{at}.groupName: ")) && told.contains("cannot be the name"),
            "{told}"
        );
    }
    assert_eq!(
        why(&|spec| spec["workerGroupSpecs"][1]["groupName"] = json!("SMALL")),
        "spec.workerGroupSpecs[1].groupName: \"small\" is the name of another group"
    );
    assert_eq!(
        why(&group(|g| g["replicas"] = json!(-1))),
        format!("{at}.replicas: -1: must not be negative")
    );
    assert_eq!(
        why(&group(|g| g["numOfHosts"] = json!(-2))),
        format!("{at}.numOfHosts: -2: must not be negative")
    );
    let told = why(&group(|g| g["minReplicas"] = json!(4)));
    assert_eq!(told, format!("{at}.replicas: 2: KubeRay would make 4 for minReplicas 4, maxReplicas 5"));
    assert_eq!(why(&group(|g| g["maxReplicas"] = json!(1))), "", "fewer pods than quota");
    let told = why(&|spec| spec["enableInTreeAutoscaling"] = json!(true));
    assert!(
        told.starts_with("spec.enableInTreeAutoscaling: a kueue managed job should only use autoscaling"),
        "{told}"
    );
    let told = why(&group(|g| g["template"] = json!({"spec": {"containers": 5}})));
    assert!(told.starts_with(&format!("{at}.template: ")), "{told}");
    let many = |spec: &mut Value| {
        let groups = (0..18).map(|n| json!({"groupName": format!("g{n}"), "template": template("x")}));
        spec["workerGroupSpecs"] = groups.collect();
    };
    assert_eq!(why(&many), "too many pod sets: 19, at most 18");
    let huge = changed(JobKind::RAY_CLUSTER, |spec| {
        spec["workerGroupSpecs"][1]["replicas"] = json!(i64::MAX);
        spec["workerGroupSpecs"][1]["numOfHosts"] = json!(i64::MAX);
    });
    assert_eq!(huge.pod_sets[2].count, i32::MAX, "no cluster has room for it");

    let why = |change: &dyn Fn(&mut Value)| {
        let mut object = ray(JobKind::RAY_JOB);
        change(&mut object["spec"]);
        observe(JobKind::RAY_JOB, &object).invalid.unwrap_or_default()
    };
    let told = why(&|spec| spec["shutdownAfterJobFinishes"] = json!(false));
    assert_eq!(
        told,
        "spec.shutdownAfterJobFinishes: a kueue managed job should delete the cluster after finishing"
    );
    assert_eq!(why(&|spec| spec["rayClusterSpec"] = json!(null)), "spec.rayClusterSpec: required");
    let told = why(&|spec| spec["rayClusterSpec"]["workerGroupSpecs"][0]["groupName"] = json!("submitter"));
    assert_eq!(told, "spec.rayClusterSpec.workerGroupSpecs: \"submitter\" is the name of another pod set");
}

/// What a stop gives back to each pod set.
pub fn originals(view: &JobView) -> Vec<PodSetInfo> {
    let info = |set: &JobPodSet| PodSetInfo {
        name: set.name.clone(),
        count: set.count,
        scheduling: set.scheduling.clone(),
    };
    view.pod_sets.iter().map(info).collect()
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
