//! TrainJobs: the pods that their trainer makes, and the writes that start and stop them.

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView, PodScheduling, PodSetInfo, TemplateKind};

/// A runtime with these replicated Jobs and this policy.
fn runtime(policy: &Value, jobs: &Value) -> Value {
    json!({
        "kind": "ClusterTrainingRuntime", "metadata": {"name": "torch", "resourceVersion": "3"},
        "spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": jobs}}},
    })
}

/// A replicated Job for a step, with one container of that name.
fn step(name: &str, step: &str, container: &str, more: &Value) -> Value {
    let mut job = json!({"name": name, "template": {"spec": {"template": {"spec": {
        "containers": [{"name": container, "image": "own", "resources": {"requests": {"cpu": "1"}}}],
    }}}}});
    if !step.is_empty() {
        job["template"]["metadata"] =
            json!({"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}});
    }
    json_patch::merge(&mut job, more);
    job
}

fn node() -> Value {
    step("node", "trainer", "node", &json!({}))
}

fn trainjob(spec: &Value) -> Value {
    let mut object = json!({
        "metadata": {"name": "fit", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
        "spec": {"suspend": true, "runtimeRef": {"name": "torch"}},
    });
    json_patch::merge(&mut object["spec"], spec);
    object
}

fn seen(object: &Value, runtime: &Value) -> JobView {
    let view = sluice_jobs::observe(JobKind::TRAIN_JOB, object);
    let template = sluice_jobs::template(TemplateKind::CLUSTER_TRAINING_RUNTIME, runtime);
    let filled = sluice_jobs::filled(&view, Some(&template));
    let whole = sluice_jobs::with_template(JobKind::TRAIN_JOB, object, runtime);
    let at_once = sluice_jobs::observe(JobKind::TRAIN_JOB, &whole);
    assert_eq!(filled, at_once, "both ways lead to the same");
    filled
}

/// Names and numbers of pods.
fn counts(view: &JobView) -> Vec<(&str, i32)> {
    assert_eq!(view.invalid, None);
    view.pod_sets.iter().map(|set| (&*set.name, set.count)).collect()
}

/// The first container of a pod set.
fn container(view: &JobView, set: usize) -> Value {
    let spec = view.pod_sets[set].template.as_ref().unwrap().spec.clone().unwrap();
    json!(spec.containers[0])
}

fn env(view: &JobView, set: usize) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("from").to_owned();
    let container = container(view, set);
    let all = container["env"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| (text(&one["name"]), text(&one["value"]))).collect()
}

#[test]
fn a_torch_job_has_the_nodes_that_it_asks_for() {
    let runtime = runtime(&json!({"numNodes": 2, "torch": {}}), &json!([node()]));
    assert_eq!(counts(&seen(&trainjob(&json!({})), &runtime)), [("node", 2)]);
    let spec = json!({"trainer": {
        "numNodes": 3, "image": "mine", "command": ["run"], "args": ["-x"], "env": [{"name": "A", "value": "1"}],
        "resourcesPerNode": {"requests": {"cpu": "2500m"}, "limits": {"memory": "1Gi"}},
    }});
    let view = seen(&trainjob(&spec), &runtime);
    assert_eq!(counts(&view), [("node", 3)]);
    let node = container(&view, 0);
    assert_eq!([&node["image"], &node["command"][0], &node["args"][0]], ["mine", "run", "-x"]);
    assert_eq!(node["resources"], json!({"requests": {"cpu": "2500m"}, "limits": {"memory": "1Gi"}}));
    assert_eq!(node["ports"][0]["containerPort"], 29500);
    let named = |name: &str| env(&view, 0).into_iter().find(|(own, _)| own == name).map(|(_, value)| value);
    assert_eq!(named("A").as_deref(), Some("1"));
    assert_eq!(named("PET_NNODES").as_deref(), Some("3"));
    assert_eq!(named("PET_NPROC_PER_NODE").as_deref(), Some("3"), "a process for each CPU that was begun");
    assert_eq!(named("PET_MASTER_ADDR").as_deref(), Some("fit-node-0-0.fit"));
    let request = view.pod_sets[0].topology_request.as_ref().unwrap();
    assert_eq!((request.sub_group_count, request.pod_index_label.is_some()), (Some(1), true));
}

#[test]
fn a_gpu_decides_how_many_processes_there_are() {
    let of = |policy: &Value, name: &str| {
        let spec = json!({"trainer": {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}, "numNodes": 2}});
        let view = seen(&trainjob(&spec), &runtime(policy, &json!([node()])));
        env(&view, 0).into_iter().find(|(own, _)| own == name).unwrap().1
    };
    assert_eq!(of(&json!({"torch": {}}), "PET_NPROC_PER_NODE"), "auto");
    assert_eq!(of(&json!({"xgboost": {}}), "DMLC_NUM_WORKER"), "8");
    assert_eq!(of(&json!({"jax": {}}), "JAX_NUM_PROCESSES"), "2");
}

#[test]
fn without_a_policy_the_template_says_how_many_unless_the_job_does() {
    let own =
        step("node", "trainer", "node", &json!({"replicas": 7, "template": {"spec": {"parallelism": 4}}}));
    let runtime = runtime(
        &Value::Null,
        &json!([
            own,
            step(
                "side",
                "",
                "c",
                &json!({"replicas": 2, "template": {"spec": {"parallelism": 0, "completions": 9}}})
            )
        ]),
    );
    assert_eq!(counts(&seen(&trainjob(&json!({})), &runtime)), [("node", 4), ("side", 2)]);
    let more = trainjob(&json!({"trainer": {"numNodes": 5}}));
    assert_eq!(counts(&seen(&more, &runtime)), [("node", 5), ("side", 2)]);
    for odd in [0, -3] {
        let none = trainjob(&json!({"trainer": {"numNodes": odd}}));
        assert_eq!(counts(&seen(&none, &runtime)), [("node", 0), ("side", 2)]);
    }
}

#[test]
fn the_launcher_of_mpi_may_be_a_node() {
    let jobs = json!([step("launcher", "trainer", "node", &json!({})), step("node", "", "node", &json!({}))]);
    let of = |launcher_is_node: bool, nodes: i32| {
        let policy =
            json!({"numNodes": 1, "mpi": {"numProcPerNode": 1, "runLauncherAsNode": launcher_is_node}});
        let spec = json!({"trainer": {"numNodes": nodes, "resourcesPerNode": {"requests": {"cpu": "3"}}}});
        seen(&trainjob(&spec), &runtime(&policy, &jobs))
    };
    assert_eq!(counts(&of(true, 4)), [("launcher", 1), ("node", 3)]);
    assert_eq!(counts(&of(true, 1)), [("launcher", 1), ("node", 1)]);
    assert_eq!(counts(&of(false, 4)), [("launcher", 1), ("node", 4)]);
    let cpu = |view: &JobView, set| container(view, set)["resources"]["requests"]["cpu"].clone();
    let view = of(true, 2);
    assert_eq!([cpu(&view, 0), cpu(&view, 1)], [json!("3"), json!("3")]);
    let view = of(false, 2);
    assert_eq!([cpu(&view, 0), cpu(&view, 1)], [json!("3"), json!("1")], "as the trainer has it");
    assert!(env(&view, 0).iter().any(|(name, _)| name == "OMPI_MCA_orte_default_hostfile"));
}

/// The init containers of a pod set: names and images.
fn init_containers(view: &JobView, set: usize) -> Vec<(String, String)> {
    let spec = view.pod_sets[set].template.as_ref().unwrap().spec.clone().unwrap();
    let all = spec.init_containers.unwrap_or_default().into_iter();
    all.map(|one| (one.name, one.image.unwrap_or_default())).collect()
}

#[test]
fn the_nodes_of_a_flux_job_have_the_container_that_installs_flux_once() {
    let policy = json!({"numNodes": 2, "flux": {"numProcPerNode": 1}});
    let image = |value: &str| json!([{"name": "FLUX_VIEW_IMAGE", "value": value}]);
    let of = |in_runtime: &Value, in_job: &Value| {
        let mut own = node();
        own["template"]["spec"]["template"]["spec"]["initContainers"] =
            json!([{"name": "own", "image": "i"}]);
        own["template"]["spec"]["template"]["spec"]["containers"][0]["env"] = in_runtime.clone();
        let side = step("side", "", "node", &json!({}));
        let spec = json!({"trainer": {"numNodes": 3, "env": in_job}});
        let view = seen(&trainjob(&spec), &runtime(&policy, &json!([own, side])));
        assert_eq!(counts(&view), [("node", 3), ("side", 1)]);
        assert!(init_containers(&view, 1).is_empty(), "it is no node");
        let [first, installer] = <[_; 2]>::try_from(init_containers(&view, 0)).unwrap();
        assert_eq!((first.0.as_str(), installer.0.as_str()), ("own", "flux-installer"));
        installer.1
    };
    let none = Value::Null;
    assert_eq!(of(&none, &none), "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy");
    assert_eq!(of(&image("runtime"), &none), "runtime");
    assert_eq!(of(&image("runtime"), &image("job")), "job");
    assert_eq!(of(&none, &image("job")), "job");
    let without =
        json!([{"name": "FLUX_VIEW_IMAGE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    assert_eq!(of(&without, &none), "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy");
    assert_eq!(of(&image("runtime"), &without), "", "as the trainer has it");
}

#[test]
fn a_flux_job_of_which_the_trainer_makes_no_pods_is_refused() {
    let flux = |node: &Value| runtime(&json!({"numNodes": 2, "flux": {}}), &json!([node]));
    for silent in [json!({}), json!({"trainer": {"image": "mine"}})] {
        let view = seen(&trainjob(&silent), &flux(&node()));
        assert_eq!(
            view.invalid.as_deref(),
            Some("spec.trainer.numNodes: required, as the runtime has the policy flux")
        );
        assert!(view.pod_sets.is_empty());
    }
    let mut twice = node();
    twice["template"]["spec"]["template"]["spec"]["initContainers"] = json!([{"name": "flux-installer"}]);
    let view = seen(&trainjob(&json!({"trainer": {"numNodes": 1}})), &flux(&twice));
    assert!(view.invalid.unwrap().contains("has an init container flux-installer"));
}

#[test]
fn initializers_get_what_the_job_says_and_run_once() {
    let dataset =
        step("dataset-initializer", "dataset-initializer", "dataset-initializer", &json!({"replicas": 3}));
    let depends = json!({"dependsOn": [{"name": "dataset-initializer", "status": "Complete"}]});
    let runtime =
        runtime(&json!({"torch": {}}), &json!([dataset, step("node", "trainer", "node", &depends)]));
    let spec = json!({"initializer": {"dataset": {
        "storageUri": "hf://a", "env": [{"name": "B", "value": "2"}], "secretRef": {"name": "s"},
    }}});
    let view = seen(&trainjob(&spec), &runtime);
    assert_eq!(counts(&view), [("dataset-initializer", 1), ("node", 1)]);
    let reported = [("STORAGE_URI".to_owned(), "hf://a".to_owned()), ("B".to_owned(), "2".to_owned())];
    assert_eq!(env(&view, 0), reported);
    assert_eq!(container(&view, 0)["envFrom"][0]["secretRef"]["name"], "s");
}

#[test]
fn patches_of_others_shape_the_pods_and_ours_does_not() {
    let patch = |manager: &str, pool: &str| {
        json!({"manager": manager, "trainingRuntimeSpec": {"template": {
            "metadata": {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}},
            "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {
                "metadata": {"labels": {"team": pool}}, "spec": {"nodeSelector": {"pool": pool}},
            }}}}]},
        }}})
    };
    let spec = json!({"runtimePatches": [patch("me.io/x", "a"), patch("kueue.x-k8s.io/manager", "old")]});
    let view = seen(&trainjob(&spec), &runtime(&Value::Null, &json!([node()])));
    let scheduling = &view.pod_sets[0].scheduling;
    assert_eq!((&*scheduling.node_selector["pool"], &*scheduling.labels["team"]), ("a", "a"));
    assert_eq!(view.pod_sets[0].exclusive_topology.as_ref().unwrap().key, "rack");
}

#[test]
fn pods_are_labelled_for_gangs() {
    let mut runtime = runtime(&Value::Null, &json!([node()]));
    runtime["spec"]["podGroupPolicy"] = json!({"coscheduling": {}});
    let view = seen(&trainjob(&json!({})), &runtime);
    assert_eq!(view.pod_sets[0].scheduling.labels["scheduling.x-k8s.io/pod-group"], "fit");
}

#[test]
fn what_is_missing_is_said() {
    let missing = |object: &Value| {
        let view = sluice_jobs::observe(JobKind::TRAIN_JOB, object);
        sluice_jobs::filled(&view, None).invalid.unwrap()
    };
    assert_eq!(
        missing(&trainjob(&json!({}))),
        "spec.runtimeRef: ClusterTrainingRuntime torch does not exist"
    );
    let own = trainjob(&json!({"runtimeRef": {"kind": "TrainingRuntime"}}));
    assert_eq!(missing(&own), "spec.runtimeRef: TrainingRuntime ns/torch does not exist");
    for odd in [json!({"kind": "Foo"}), json!({"apiGroup": "other.io"}), json!({"name": null})] {
        let view = sluice_jobs::observe(JobKind::TRAIN_JOB, &trainjob(&json!({"runtimeRef": odd})));
        assert!(view.invalid.is_some() && view.template.is_none(), "{odd}");
    }
    let trouble = |runtime: &Value| seen(&trainjob(&json!({})), runtime).invalid.unwrap();
    assert!(trouble(&json!({})).contains("replicatedJobs"));
    let many: Value = (0..19).map(|n| step(&format!("j{n}"), "", "c", &json!({}))).collect();
    assert!(trouble(&runtime(&Value::Null, &many)).contains("too many pod sets: 19"));
    let many: Value = (0..101).map(|n| step(&format!("j{n}"), "", "c", &json!({}))).collect();
    assert!(trouble(&runtime(&Value::Null, &many)).contains("too many replicated Jobs"));
    let long = json!({"metadata": {"name": "torch"}, "spec": {"a": "x".repeat(300_000)}});
    let long = sluice_jobs::template(TemplateKind::CLUSTER_TRAINING_RUNTIME, &long);
    let view = sluice_jobs::observe(JobKind::TRAIN_JOB, &trainjob(&json!({})));
    assert!(sluice_jobs::filled(&view, Some(&long)).invalid.unwrap().contains("longer than"));
}

fn info(zone: &str) -> PodSetInfo {
    let scheduling = PodScheduling {
        node_selector: [("zone".to_owned(), zone.to_owned())].into(),
        labels: [("kueue.x-k8s.io/podset".to_owned(), "node".to_owned())].into(),
        tolerations: vec![serde_json::from_value(json!({"key": "spot"})).unwrap()],
        ..PodScheduling::default()
    };
    PodSetInfo { name: "node".to_owned(), count: 2, scheduling }
}

/// The writes of a start.
fn start(view: &JobView, infos: &[PodSetInfo]) -> Result<Vec<sluice_jobs::Step>, sluice_jobs::StartError> {
    let first = sluice_jobs::prepare(view, infos)?;
    let last = sluice_jobs::Step { subresource: None, patch: sluice_jobs::start(view, infos)? };
    Ok(first.into_iter().chain([last]).collect())
}

fn apply(object: &mut Value, steps: &[sluice_jobs::Step]) {
    for step in steps {
        json_patch::merge(object, &step.patch.body());
    }
}

#[test]
fn a_start_asks_the_trainer_for_additions_then_resumes_and_a_stop_removes_them() {
    let others = json!({"manager": "me.io/x", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [
        {"name": "node", "template": {"spec": {"template": {"spec": {"tolerations": [{"key": "own"}]}}}}},
    ]}}}});
    let runtime = runtime(&json!({"numNodes": 2, "torch": {}}), &json!([node()]));
    let mut object = trainjob(&json!({"runtimePatches": [others]}));
    let waiting = seen(&object, &runtime);
    let steps = start(&waiting, &[info("a")]).unwrap();
    assert_eq!(steps.len(), 2);
    assert_eq!(steps[0].patch.version().as_deref(), Some("7"));
    apply(&mut object, &steps[..1]);
    assert_eq!(object["spec"]["suspend"], true, "the trainer refuses both in one write");
    let entries = object["spec"]["runtimePatches"].as_array().unwrap();
    assert_eq!((&entries[0], &entries[1]["manager"]), (&others, &json!("kueue.x-k8s.io/manager")));
    let job = &entries[1]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0];
    let template = &job["template"]["spec"]["template"];
    assert_eq!(template["spec"]["nodeSelector"], json!({"zone": "a"}));
    let keys: Vec<_> =
        template["spec"]["tolerations"].as_array().unwrap().iter().map(|one| &one["key"]).collect();
    assert_eq!(keys, ["own", "spot"], "the trainer replaces the list");
    // A crash here: the rest is one write, and another admission starts over.
    let between = seen(&object, &runtime);
    assert!(between.suspended && !between.stopping);
    assert_eq!(between.pod_sets, waiting.pod_sets);
    assert_eq!(start(&between, &[info("a")]).unwrap().len(), 1);
    assert_eq!(start(&between, &[info("b")]).unwrap().len(), 2);
    apply(&mut object, &steps[1..]);
    object["status"]["jobsStatus"] = json!([{"name": "node", "active": 1, "ready": 1}]);
    let running = seen(&object, &runtime);
    assert!(!running.suspended && running.active && running.pods_ready);
    assert_eq!(running.pod_sets, waiting.pod_sets);

    apply(&mut object, &sluice_jobs::stop(&running, &[]));
    let stopping = seen(&object, &runtime);
    assert!(stopping.stopping && stopping.stop_waits && !stopping.suspended);
    assert_eq!(object["spec"]["suspend"], true);
    object["status"]["jobsStatus"][0]["active"] = json!(0);
    let idle = seen(&object, &runtime);
    assert!(idle.stopping && !idle.stop_waits);
    apply(&mut object, &sluice_jobs::stop(&idle, &[]));
    let stopped = seen(&object, &runtime);
    assert!(stopped.suspended && !stopped.stopping);
    assert_eq!(stopped.pod_sets, waiting.pod_sets);
    assert_eq!(object["spec"]["runtimePatches"], json!([others, {"manager": "kueue.x-k8s.io/manager"}]));
}

#[test]
fn a_start_is_refused_where_it_contradicts() {
    let own = json!({"template": {"spec": {"template": {"spec": {"nodeSelector": {"zone": "z"}}}}}});
    let runtime =
        runtime(&json!({"numNodes": 2, "torch": {}}), &json!([step("node", "trainer", "node", &own)]));
    let view = seen(&trainjob(&json!({})), &runtime);
    assert!(start(&view, &[info("a")]).unwrap_err().to_string().contains("conflict for nodeSelector"));
    let fewer = PodSetInfo { count: 1, ..info("z") };
    assert!(start(&view, &[fewer]).is_err());
}

#[test]
fn how_it_goes_is_read_from_its_status() {
    let runtime = runtime(&json!({"numNodes": 2, "torch": {}}), &json!([node()]));
    let of = |status: &Value| {
        let mut object = trainjob(&json!({"suspend": false, "activeDeadlineSeconds": 60}));
        object["status"] = status.clone();
        seen(&object, &runtime)
    };
    let view = of(&json!({"jobsStatus": [{"name": "node", "active": 0, "succeeded": 1}]}));
    assert_eq!((view.reclaimable, view.pods_ready), (vec![("node".to_owned(), 2)], true));
    assert_eq!(view.active_deadline_seconds, Some(60));
    let condition = |type_: &str| json!({"conditions": [{"type": type_, "status": "True", "message": "m"}]});
    assert!(of(&condition("Complete")).finished.unwrap().success);
    assert!(!of(&condition("Failed")).finished.unwrap().success);
    assert_eq!(of(&condition("Suspended")).finished, None);
}

proptest::proptest! {
    #[test]
    fn no_object_and_no_runtime_make_it_panic(path in 0..9_usize, odd in 0..8_usize, policy in 0..3_usize) {
        let policy = ["torch", "mpi", "flux"][policy];
        let odd = [json!(null), json!(1), json!("a"), json!([]), json!([1, "a", null]), json!({}), json!({"a": [1]}), json!([{"name": null, "template": {"spec": 1}}])][odd].clone();
        let mut object = trainjob(&json!({"trainer": {"numNodes": 2, "env": [{"name": "A"}]}, "runtimePatches": [{"manager": "a.io/b"}],
            "initializer": {"dataset": {"storageUri": "a"}}}));
        let mut runtime = runtime(&json!({policy: {}}), &json!([node()]));
        let places = [
            (true, "/spec/trainer"), (true, "/spec/trainer/env"), (true, "/spec/runtimePatches"), (true, "/spec"),
            (false, "/spec/template/spec/replicatedJobs"), (false, "/spec/template/spec/replicatedJobs/0"), (false, "/spec/template/spec"),
            (false, "/spec/mlPolicy"), (false, "/spec/template/spec/replicatedJobs/0/template/spec/template/spec/containers"),
        ];
        let (of_job, place) = places[path];
        let target = if of_job { &mut object } else { &mut runtime };
        *target.pointer_mut(place).unwrap() = odd;
        let view = seen(&object, &runtime);
        let _ = (start(&view, &[info("a")]), sluice_jobs::stop(&view, &[]));
    }
}
