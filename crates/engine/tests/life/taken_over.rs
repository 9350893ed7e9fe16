//! Jobs with Workloads of Kueue continue to run when Sluice takes over. The Workloads are written here in Kueue's form, not by Sluice. If Sluice
//! would build another Workload for the same job, it keeps Kueue's until the job is stopped.

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_engine::{Kind, Purpose};

use crate::kueues::{changes, empty, example};
use crate::model::{Cluster, condition};

/// A job that runs on the flavor `default`, with `change` made of the example of its kind, and what Kueue wrote for it.
fn running(kind: JobKind, change: impl FnOnce(&mut Value), pod_sets: &Value) -> Cluster {
    let mut c = empty("100");
    let mut object = example(kind);
    object["metadata"]["generation"] = json!(2);
    let mut field = &mut object;
    for name in sluice_jobs::suspend_path(kind) {
        field = &mut field[*name];
    }
    *field = json!(false);
    for group in sluice_jobs::pod_groups(kind, &object.clone()) {
        let template = object.pointer_mut(&group.pointer).filter(|template| template["spec"].is_object());
        if let Some(template) = template {
            template["spec"]["nodeSelector"] = json!({"pool": "default"});
        }
    }
    change(&mut object);
    c.api.add_job(sluice_jobs::observe(kind, &object));
    let uid = c.api.job("sample").view.job.uid.to_string();
    let owner = json!({"apiVersion": kind.api_version(), "kind": kind.kind(), "name": "sample", "uid": uid,
        "controller": true, "blockOwnerDeletion": true});
    let assigned = |set: &Value| json!({"name": set["name"], "count": set["count"], "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}});
    let assigned: Vec<_> = pod_sets.as_array().unwrap().iter().map(assigned).collect();
    let is = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": "Admitted", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2027-01-15T08:00:00Z"})
    };
    let workload = c.api.put(
        Kind::Workload,
        json!({
            "metadata": {"name": "kueues", "namespace": "team-a", "ownerReferences": [owner],
                "labels": {"kueue.x-k8s.io/job-uid": uid}, "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
            "spec": {"queueName": "lq", "priority": 0, "active": true, "podSets": pod_sets},
        }),
    );
    c.api.edit_status(&workload, |status| {
        *status = json!({
            "admission": {"clusterQueue": "cq", "podSetAssignments": assigned},
            "conditions": [is("QuotaReserved"), is("Admitted")],
        });
    });
    c.restart();
    c
}

/// The job continues, on that Workload, with this manager and the next one.
fn goes_on(mut c: Cluster) {
    let before = c.api.workloads().remove(0).spec;
    for _ in 0..2 {
        c.advance(120);
        let view = &c.api.job("sample").view;
        assert!(!view.suspended, "{:?} is stopped: {:?}", view.job.kind, c.events);
        let written = changes(&c, 0, &[Purpose::StopJob, Purpose::SuspendJob, Purpose::StartJob]);
        assert!(written.is_empty(), "{written:?}");
        let all = c.api.workloads();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].spec, before);
        assert_eq!(condition(&all[0], "Admitted"), "True");
        c.restart();
    }
}

fn pod_set(name: &str, count: i32, containers: &Value) -> Value {
    json!({"name": name, "count": count, "template": {"metadata": {}, "spec": {"containers": containers}}})
}

fn busybox(resources: &Value) -> Value {
    json!([{"name": "main", "image": "busybox", "resources": resources}])
}

fn one_cpu() -> Value {
    busybox(&json!({"requests": {"cpu": "1"}}))
}

#[test]
fn the_clusters_of_ray_continue() {
    let sets = || vec![pod_set("head", 1, &one_cpu()), pod_set("workers", 1, &one_cpu())];
    goes_on(running(JobKind::RAY_CLUSTER, |_| {}, &json!(sets())));
    goes_on(running(JobKind::RAY_SERVICE, |_| {}, &json!(sets())));
    // The pod of KubeRay's own submitter has no node selector there: Kueue has no place for it.
    let resources =
        json!({"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    let submitter = json!([{"name": "ray-job-submitter", "image": "busybox", "resources": resources}]);
    let mut sets = sets();
    sets.push(pod_set("submitter", 1, &submitter));
    goes_on(running(JobKind::RAY_JOB, |_| {}, &json!(sets)));
}

/// Kueue counts what the Job needs that cleans up after it, and not what is requested by limits alone.
#[test]
fn a_fault_tolerant_cluster_of_ray_whose_head_has_limits_alone_continues() {
    let limits = json!({"cpu": "4", "memory": "8Gi"});
    let head = busybox(&json!({"limits": limits, "requests": {"cpu": "200m", "memory": "256Mi"}}));
    let sets = json!([pod_set("head", 1, &head), pod_set("workers", 1, &one_cpu())]);
    let resources = |spec: &mut Value| {
        spec["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] = json!({"limits": limits});
    };
    let cluster = |object: &mut Value| {
        object["metadata"]["annotations"] = json!({"ray.io/ft-enabled": "true"});
        resources(&mut object["spec"]);
    };
    let service = |object: &mut Value| {
        let spec = &mut object["spec"]["rayClusterConfig"];
        spec["gcsFaultToleranceOptions"] = json!({"redisAddress": "redis:6379"});
        resources(spec);
    };
    goes_on(running(JobKind::RAY_CLUSTER, cluster, &sets));
    goes_on(running(JobKind::RAY_SERVICE, service, &sets));
    // Once it is stopped it is queued with what its pods ask for.
    let mut c = running(JobKind::RAY_CLUSTER, cluster, &sets);
    c.advance(10);
    let reference = crate::model::Api::workload_ref(&c.api.workloads()[0]);
    c.api.edit(&reference, &json!({"spec": {"active": false}}));
    c.advance(120);
    assert!(c.api.job("sample").view.suspended, "{:?}", c.events);
    assert_eq!(c.api.workloads()[0].spec.active, Some(false), "it is the same");
    let asks = |c: &Cluster| {
        let spec = c.api.workloads()[0].spec.pod_sets[0].template.spec.clone().unwrap();
        spec.containers[0].resources.clone().unwrap().requests.unwrap_or_default().len()
    };
    assert_eq!(asks(&c), 0, "its limits stand for them");
    // What asks for more than Kueue's form of the same is not taken for it.
    let mut other = sets.clone();
    other[0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("100m");
    let mut c = running(JobKind::RAY_CLUSTER, cluster, &other);
    c.advance(10);
    assert!(
        !changes(&c, 0, &[Purpose::StopJob]).is_empty(),
        "it is stopped, and queued with what its pods ask for"
    );
}

#[test]
fn a_spark_application_continues() {
    let spark = |name: &str| {
        let amounts = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
        json!([{"name": name, "resources": amounts}])
    };
    let sets = json!([
        pod_set("driver", 1, &spark("spark-kubernetes-driver")),
        pod_set("executor", 1, &spark("spark-kubernetes-executor")),
    ]);
    let on_its_nodes = |object: &mut Value| {
        for role in ["driver", "executor"] {
            object["spec"][role]["nodeSelector"] = json!({"pool": "default"});
        }
        object["status"] =
            json!({"applicationState": {"state": "RUNNING"}, "executorState": {"sample-exec-1": "RUNNING"}});
    };
    goes_on(running(JobKind::SPARK_APPLICATION, on_its_nodes, &sets));
}

/// A container as AppWrapper's library has it.
fn in_appwrapper(name: &str, cpu: &str) -> Value {
    json!({"name": name, "image": "busybox", "resources": {"requests": {"cpu": cpu}},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always"})
}

/// That library leaves out of a container what a queue does not ask for, and fills in the defaults of the API server.
#[test]
fn an_appwrapper_continues_also_with_containers_that_run_beside_others() {
    let container = in_appwrapper;
    let mut set = pod_set("sample-0", 1, &json!([container("main", "1")]));
    set["template"]["spec"]["restartPolicy"] = json!("Never");
    let info = |object: &mut Value| {
        object["spec"]["components"][0]["podSetInfos"] = json!([{"nodeSelector": {"pool": "default"}}]);
    };
    goes_on(running(JobKind::APP_WRAPPER, info, &json!([set])));
    set["template"]["spec"]["initContainers"] = json!([container("logs", "2")]);
    let beside = json!([{"name": "logs", "image": "busybox", "restartPolicy": "Always", "ports": [{"containerPort": 80}],
        "resources": {"requests": {"cpu": "2"}}}]);
    let beside = |object: &mut Value| {
        info(object);
        let spec = &mut object["spec"]["components"][0]["template"]["spec"]["template"]["spec"];
        spec["initContainers"] = beside;
    };
    goes_on(running(JobKind::APP_WRAPPER, beside, &json!([set])));
}

/// Nor does it count what KubeRay adds to the pods of a cluster.
#[test]
fn an_appwrapper_with_a_cluster_of_ray_continues() {
    let containers = json!([in_appwrapper("main", "1")]);
    let sets = json!([pod_set("sample-0", 1, &containers), pod_set("sample-1", 1, &containers)]);
    let with_cluster = |object: &mut Value| {
        let mut cluster = example(JobKind::RAY_CLUSTER);
        cluster["metadata"] = json!({"name": "wrapped"});
        let info = json!({"nodeSelector": {"pool": "default"}});
        object["spec"]["components"] = json!([{"template": cluster, "podSetInfos": [info, info]}]);
    };
    goes_on(running(JobKind::APP_WRAPPER, with_cluster, &sets));
}

#[test]
fn a_trainjob_goes_on() {
    let node = json!([{"name": "node", "resources": {"requests": {"cpu": "1"}}}]);
    let mut set = pod_set("node", 1, &node);
    set["template"]["metadata"] =
        json!({"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}});
    let added = |object: &mut Value| {
        let template = json!({"spec": {"nodeSelector": {"pool": "default"}}});
        let jobs = json!([{"name": "node", "template": {"spec": {"template": template}}}]);
        let spec = json!({"template": {"spec": {"replicatedJobs": jobs}}});
        object["spec"]["runtimePatches"] =
            json!([{"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": spec}]);
    };
    goes_on(running(JobKind::TRAIN_JOB, added, &json!([set])));
}
