//! Workloads that Kueue made for jobs of each kind: Sluice's names and interpretation are the same, in both versions, so it adopts them unchanged.

use k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::conversion::{Version, convert};
use sluice_api::job::{JobKind, TemplateKind};
use sluice_api::v1beta2::Workload;
use sluice_engine::{EngineConfig, Kind, Purpose};

use crate::model::{Api, Cluster, condition};

/// The job that is beside the adapter of its kind, suspended and in the queue.
#[expect(clippy::disallowed_methods, reason = "a test reads its files")]
pub fn example(kind: JobKind) -> Value {
    let name = format!("{}.yaml", kind.integration().controller);
    let folders = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/src")).unwrap();
    let mut files = folders.map(|folder| folder.unwrap().path().join(&name));
    let text = files.find_map(|file| std::fs::read_to_string(file).ok()).unwrap();
    let mut object: Value = serde_saphyr::from_str(&text).unwrap();
    object["metadata"]["namespace"] = json!("team-a");
    object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("lq");
    let mut field = &mut object;
    for name in sluice_jobs::suspend_path(kind) {
        field = &mut field[*name];
    }
    *field = sluice_jobs::suspended_value(kind);
    object
}

/// A queue with `cpu` processors.
pub fn empty(cpu: &str) -> Cluster {
    let mut config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    config.frameworks.insert(JobKind::POD);
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    let resources =
        json!([{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "100Gi"}]);
    let flavors = json!([{"name": "default", "resources": resources}]);
    c.api.simple(
        cpu,
        &json!({"resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]}),
    );
    // What the only kind with templates names.
    let pod = json!({"containers": [{"name": "node", "resources": {"requests": {"cpu": "1"}}}]});
    let labels = json!({"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}});
    let node = json!({"name": "node", "template": {"metadata": labels, "spec": {"template": {"spec": pod}}}});
    c.api.put(
        Kind::Template(TemplateKind::CLUSTER_TRAINING_RUNTIME),
        json!({"metadata": {"name": "plain"}, "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [node]}}}}),
    );
    c
}

/// The same with the job of a kind in it.
fn with(kind: JobKind, cpu: &str) -> Cluster {
    let mut c = empty(cpu);
    c.api.add_job(sluice_jobs::observe(kind, &example(kind)));
    c.settle();
    c
}

/// A kind, the name of its Workload, and the names and counts of the pod sets in that.
type Row = (JobKind, &'static str, &'static [(&'static str, i32)]);

/// The UID of the object that [`with`] makes last.
const UID: &str = "uid-0006";

/// The Workload that Kueue makes of the job beside the adapter of each kind, and its pod sets, by docs/reference/06-algorithm.md 6.20 and
/// docs/reference/07-integrations.md 7.1 to 7.4. The five digits are those that `printf '%s\n%s\n%s\n%s' KIND GROUP NAME uid-0006 | sha1sum` begins
/// with: nothing of Sluice wrote them. The pod of a Deployment is one like any other; a group has the Workload of its own name.
const MADE: [Row; 17] = [
    (JobKind::JOB, "job-sample-6d1cd", &[("main", 1)]),
    (JobKind::JOB_SET, "jobset-sample-93e8f", &[("r", 1)]),
    (JobKind::JAX_JOB, "jaxjob-sample-f2eed", &[("worker", 1)]),
    (JobKind::MPI_JOB, "mpijob-sample-1c47d", &[("launcher", 1), ("worker", 1)]),
    (JobKind::PADDLE_JOB, "paddlejob-sample-2b0f7", &[("master", 1), ("worker", 1)]),
    (JobKind::PYTORCH_JOB, "pytorchjob-sample-773eb", &[("master", 1), ("worker", 1)]),
    (JobKind::TF_JOB, "tfjob-sample-43e15", &[("chief", 1), ("ps", 1), ("worker", 1)]),
    (JobKind::XGBOOST_JOB, "xgboostjob-sample-2ec72", &[("master", 1), ("worker", 1)]),
    (JobKind::LEADER_WORKER_SET, "leaderworkerset-sample-0-0959a", &[("main", 2)]),
    (JobKind::POD, "pod-sample-c2a75", &[("main", 1)]),
    (JobKind::RAY_CLUSTER, "raycluster-sample-13aa0", &[("head", 1), ("workers", 1)]),
    (JobKind::RAY_JOB, "rayjob-sample-93c97", &[("head", 1), ("workers", 1), ("submitter", 1)]),
    (JobKind::RAY_SERVICE, "rayservice-sample-eea1d", &[("head", 1), ("workers", 1)]),
    (JobKind::SPARK_APPLICATION, "sparkapplication-sample-269f4", &[("driver", 1), ("executor", 1)]),
    (JobKind::STATEFUL_SET, "statefulset-sample-0ffcc", &[("main", 1)]),
    (JobKind::TRAIN_JOB, "trainjob-sample-6f3ad", &[("node", 1)]),
    (JobKind::APP_WRAPPER, "appwrapper-sample-5bd80", &[("sample-0", 1)]),
];

fn pod_sets(workload: &Workload) -> Vec<(&str, i32)> {
    workload.spec.pod_sets.iter().map(|set| (set.name.as_str(), set.count)).collect()
}

/// A pod of the job beside the adapter of pods, as the webhook leaves it.
fn gated(kind: JobKind) -> Value {
    let mut pod = example(kind);
    pod["metadata"]["labels"]["kueue.x-k8s.io/managed"] = json!("true");
    pod["metadata"]["finalizers"] = json!(["kueue.x-k8s.io/managed"]);
    pod["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/admission"}]);
    pod["status"] = json!({"phase": "Pending"});
    pod
}

#[test]
fn the_workload_of_a_job_of_any_kind_is_the_one_that_kueue_would_make() {
    let listed: Vec<_> = MADE.iter().map(|(kind, ..)| *kind).collect();
    let jobs: Vec<_> = JobKind::ALL.into_iter().filter(|kind| !kind.integration().pods_are_jobs).collect();
    assert_eq!(listed, jobs, "every kind has its row");
    for (kind, name, sets) in MADE {
        let c = if kind == JobKind::POD {
            let mut c = empty("100");
            c.api.add_pod(gated(kind));
            c.settle();
            assert_eq!(c.api.pod("sample").unwrap()["metadata"]["uid"], UID);
            c
        } else {
            let c = with(kind, "100");
            assert_eq!(&*c.api.job("sample").view.job.uid, UID, "{kind:?}");
            c
        };
        let made = c.api.workloads();
        assert_eq!(made.len(), 1, "{kind:?}");
        assert_eq!(made[0].metadata.name.as_deref(), Some(name), "{kind:?}");
        assert_eq!(pod_sets(&made[0]), sets, "{kind:?}");
        // A template that the job has is that of the pod set; an AppWrapper's is in what it wraps.
        let groups = Some(example(kind)).filter(|_| kind != JobKind::APP_WRAPPER);
        for group in groups.iter().flat_map(|job| sluice_jobs::pod_groups(kind, job)) {
            let containers: Vec<Container> =
                serde_json::from_value(group.template["spec"]["containers"].clone()).unwrap();
            let templates = made[0].spec.pod_sets.iter().map(|set| set.template.spec.as_ref().unwrap());
            assert!(
                templates.into_iter().any(|spec| spec.containers == containers),
                "{kind:?} {}",
                group.path()
            );
        }
        let owner = &made[0].metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((&*owner.api_version, &*owner.kind), (kind.api_version(), kind.kind()));
        assert_eq!((&*owner.name, &*owner.uid), ("sample", UID));
        // What gathers pods, and groups of pods, are not called controllers of their Workloads.
        let gathers = kind.gathers_pods();
        assert_eq!(owner.controller, (!gathers).then_some(true), "{kind:?}");
        let marked =
            made[0].metadata.annotations.as_ref().and_then(|all| all.get("kueue.x-k8s.io/is-group-workload"));
        assert_eq!(marked.map(String::as_str), gathers.then_some("true"), "{kind:?}");
    }
}

#[test]
fn the_workload_of_a_group_of_pods_has_the_name_of_the_group_and_a_pod_set_for_each_role() {
    let mut c = empty("100");
    for (name, role) in [("a", "b4f3c6aa"), ("b", "2c9a1e00"), ("c", "b4f3c6aa")] {
        let mut pod = gated(JobKind::POD);
        let metadata = &mut pod["metadata"];
        metadata["name"] = json!(name);
        metadata["labels"]["kueue.x-k8s.io/pod-group-name"] = json!("crew");
        metadata["annotations"] =
            json!({"kueue.x-k8s.io/pod-group-total-count": "3", "kueue.x-k8s.io/role-hash": role});
        c.api.add_pod(pod);
    }
    c.settle();
    let made = c.api.workloads();
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].metadata.name.as_deref(), Some("crew"));
    assert_eq!(pod_sets(&made[0]), [("2c9a1e00", 1), ("b4f3c6aa", 2)]);
    let owners = made[0].metadata.owner_references.as_ref().unwrap();
    assert!(owners.iter().all(|owner| owner.kind == "Pod" && owner.controller.is_none()));
    let names: Vec<_> = owners.iter().map(|owner| owner.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

/// The writes after `after` that make, change or remove a Workload, or have one of these purposes.
pub fn changes(c: &Cluster, after: usize, more: &[Purpose]) -> Vec<Purpose> {
    let of = [Purpose::CreateWorkload, Purpose::DeleteWorkload, Purpose::UpdateWorkload];
    let purposes = c.writes[after..].iter().map(|(_, purpose)| *purpose);
    purposes.filter(|purpose| of.contains(purpose) || more.contains(purpose)).collect()
}

/// Adds the job beside the adapter of a kind, changed like this.
fn add(c: &mut Cluster, kind: JobKind, change: impl FnOnce(&mut Value)) {
    let mut object = if kind.integration().of_pods { gated(kind) } else { example(kind) };
    object["metadata"]["generation"] = json!(1);
    change(&mut object);
    if kind.integration().of_pods {
        c.api.add_pod(object);
    } else {
        c.api.add_job(sluice_jobs::observe(kind, &object));
    }
    c.settle();
}

/// Each kind and its framework, by the table of docs/reference/07-integrations.md: by that its events are reported.
const FRAMEWORKS: [(JobKind, &str); 17] = [
    (JobKind::JOB, "batch/job"),
    (JobKind::JOB_SET, "jobset.x-k8s.io/jobset"),
    (JobKind::JAX_JOB, "kubeflow.org/jaxjob"),
    (JobKind::MPI_JOB, "kubeflow.org/mpijob"),
    (JobKind::PADDLE_JOB, "kubeflow.org/paddlejob"),
    (JobKind::PYTORCH_JOB, "kubeflow.org/pytorchjob"),
    (JobKind::TF_JOB, "kubeflow.org/tfjob"),
    (JobKind::XGBOOST_JOB, "kubeflow.org/xgboostjob"),
    (JobKind::LEADER_WORKER_SET, "leaderworkerset.x-k8s.io/leaderworkerset"),
    (JobKind::POD, "pod"),
    (JobKind::RAY_CLUSTER, "ray.io/raycluster"),
    (JobKind::RAY_JOB, "ray.io/rayjob"),
    (JobKind::RAY_SERVICE, "ray.io/rayservice"),
    (JobKind::SPARK_APPLICATION, "sparkoperator.k8s.io/sparkapplication"),
    (JobKind::STATEFUL_SET, "statefulset"),
    (JobKind::TRAIN_JOB, "trainer.kubeflow.org/trainjob"),
    (JobKind::APP_WRAPPER, "workload.codeflare.dev/appwrapper"),
];

#[test]
fn the_outcome_of_a_job_of_any_kind_is_reported_and_counted_by_its_kind() {
    for ((kind, framework), (listed, ..)) in FRAMEWORKS.into_iter().zip(MADE) {
        assert_eq!(kind, listed);
        let mut c = empty("100");
        add(&mut c, kind, |_| {});
        let by = |reason: &str| -> Vec<&str> {
            c.events.iter().filter(|event| event.reason == reason).map(|event| event.reporter).collect()
        };
        let reporter = format!("{framework}-kueue-controller");
        assert_eq!(by("CreatedWorkload"), [&reporter], "{kind:?}");
        // What gathers pods has none here that could start.
        let started = if kind.gathers_pods() { Vec::new() } else { vec![&reporter] };
        assert_eq!(by("Started"), started, "{kind:?}");
        let latencies =
            c.observed.iter().filter(|(metric, _)| metric == "kueue_workload_creation_latency_seconds");
        let kinds: Vec<_> = latencies.map(|(_, labels)| labels[0].as_str()).collect();
        assert_eq!(kinds, [kind.kind()], "{kind:?}");
    }
}

/// Also of a kind that Kueue does not let do so.
#[test]
fn a_job_of_any_kind_takes_the_workload_that_it_names() {
    for (kind, ..) in MADE.into_iter().filter(|(kind, ..)| !kind.gathers_pods()) {
        let mut model = empty("100");
        add(&mut model, kind, |_| {});
        let spec = model.api.workloads().remove(0).spec;
        let mut c = empty("100");
        add(&mut c, kind, |object| {
            object["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("mine");
        });
        assert!(c.api.workloads().is_empty(), "{kind:?} waits for it");
        let metadata = json!({"name": "mine", "namespace": "team-a"});
        c.api.put(Kind::Workload, json!({"metadata": metadata, "spec": spec}));
        c.settle();
        let [workload] = &c.api.workloads()[..] else { unreachable!("{kind:?}: {:?}", c.api.workloads()) };
        assert_eq!(workload.metadata.name.as_deref(), Some("mine"), "{kind:?}");
        assert_eq!(condition(workload, "Admitted"), "True", "{kind:?}");
        let owner = &workload.metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((&*owner.kind, &*owner.name), (kind.kind(), "sample"));
        let of_pods = kind.integration().of_pods;
        assert!(
            if of_pods { c.api.is_free("sample") } else { !c.api.job("sample").view.suspended },
            "{kind:?}"
        );
    }
}

/// A change of a job.
type Change<'a> = &'a dyn Fn(&mut Value);

#[test]
fn a_built_in_kind_that_is_declared_has_an_equal_workload() {
    let declaration = include_str!("../../../jobs/tests/declared/pytorchjob.yaml");
    let head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  declared:\n";
    let (configuration, _) = Configuration::parse(&format!("{head}{declaration}")).unwrap();
    sluice_jobs::declare(&configuration).unwrap();
    let declared = JobKind::named("declared.example.com/pytorchjob").unwrap();
    let of_templates = |object: &mut Value, class: &str| {
        for replicas in object["spec"]["pytorchReplicaSpecs"].as_object_mut().unwrap().values_mut() {
            replicas["template"]["spec"]["priorityClassName"] = json!(class);
        }
    };
    let cases: [(Change<'_>, i32); 4] = [
        (&|_| {}, 0),
        (&|object| object["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high"), 1_000),
        (&|object| of_templates(object, "urgent"), 500),
        (&|object| object["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("60"), 0),
    ];
    for (change, priority) in cases {
        let [ours, theirs] = [declared, JobKind::PYTORCH_JOB].map(|kind| {
            let mut c = empty("100");
            c.config.frameworks.insert(kind);
            c.restart();
            let (present, revision) = (Vec::new(), c.api.revision());
            c.list(Kind::Job(kind), present, revision);
            c.api.priority_class("high", 1_000);
            c.api.put(Kind::PriorityClass, json!({"metadata": {"name": "urgent"}, "value": 500}));
            let mut object = example(JobKind::PYTORCH_JOB);
            object["apiVersion"] = json!(kind.api_version());
            change(&mut object);
            c.api.add_job(sluice_jobs::observe(kind, &object));
            c.settle();
            let mut workload = c.api.workloads().remove(0);
            // The group is part of the name.
            let owner = workload.metadata.owner_references.take().unwrap().remove(0);
            assert_eq!((owner.api_version, &*owner.name), (kind.api_version().to_owned(), "sample"));
            assert!(workload.metadata.name.take().unwrap().starts_with("pytorchjob-sample-"));
            assert_eq!(workload.spec.priority, Some(priority));
            assert_eq!(condition(&workload, "Admitted"), "True");
            workload
        });
        assert_eq!(ours, theirs);
    }
}

/// What Kueue wrote for the group `crew` of these pods, which own it.
fn written_by_kueue(c: &Cluster, pods: &[&str]) -> Value {
    let owner = |name: &&str| {
        let uid = &c.api.pod(name).unwrap()["metadata"]["uid"];
        json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid})
    };
    let owners: Vec<_> = pods.iter().map(owner).collect();
    let spec = &c.api.pod(pods[0]).unwrap()["spec"];
    let pod_set =
        json!({"name": "b4f3c6aa", "count": pods.len(), "template": {"metadata": {}, "spec": spec}});
    json!({
        "metadata": {
            "namespace": "team-a", "name": "crew", "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": owners, "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
        },
        "spec": {"queueName": "lq", "priority": 0, "active": true, "podSets": [pod_set]},
    })
}

#[test]
fn a_workload_of_kueues_is_taken_over_for_a_group_of_pods() {
    let pods = ["a", "b"];
    for cpu in ["0", "100"] {
        let mut c = empty(cpu);
        for name in pods {
            let mut pod = gated(JobKind::POD);
            let metadata = &mut pod["metadata"];
            metadata["name"] = json!(name);
            metadata["labels"]["kueue.x-k8s.io/pod-group-name"] = json!("crew");
            metadata["annotations"] =
                json!({"kueue.x-k8s.io/pod-group-total-count": "2", "kueue.x-k8s.io/role-hash": "b4f3c6aa"});
            c.api.add_pod(pod);
        }
        let written = written_by_kueue(&c, &pods);
        c.api.put(Kind::Workload, written);
        let before = c.api.workloads().remove(0);
        // A manager that begins, and the next one.
        for _ in 0..2 {
            c.restart();
            c.advance(10);
            let all = c.api.workloads();
            assert_eq!(all.len(), 1, "{all:?}");
            assert_eq!(all[0].metadata.uid, before.metadata.uid);
            assert_eq!(all[0].spec, before.spec);
            assert_eq!(all[0].metadata.owner_references, before.metadata.owner_references);
            assert!(changes(&c, 0, &[]).is_empty(), "{:?}", c.writes);
            let runs = cpu == "100";
            assert_eq!(condition(&all[0], "Admitted") == "True", runs);
            assert!(pods.iter().all(|pod| c.api.is_free(pod) == runs));
        }
    }
}

#[test]
fn a_workload_of_kueues_is_taken_over_for_a_job_of_any_kind() {
    for (kind, name, _) in MADE.into_iter().filter(|(kind, ..)| !kind.integration().of_pods) {
        for cpu in ["0", "100"] {
            let mut c = with(kind, cpu);
            let only = |c: &Cluster| c.api.workloads().remove(0);
            let workload = only(&c);
            assert_eq!(workload.metadata.name.as_deref(), Some(name));

            let reference = Api::workload_ref(&workload);
            let mut object = c.api.json(&reference).unwrap().clone();
            (object["apiVersion"], object["kind"]) = (json!("kueue.x-k8s.io/v1beta2"), json!("Workload"));
            let before = object.clone();
            convert(&mut object, Version::V1beta1).unwrap();
            assert_ne!(object, before, "{kind:?}");
            convert(&mut object, Version::V1beta2).unwrap();
            assert_eq!(object, before, "{kind:?}");

            // Another manager than that which made it finds it, and leaves it and the job as they are.
            let runs = !c.api.job("sample").view.suspended;
            let reserved = condition(&workload, "QuotaReserved");
            let writes = c.writes.len();
            c.restart();
            c.advance(10);
            let reported = changes(&c, writes, &[Purpose::ReserveQuota, Purpose::StartJob, Purpose::StopJob]);
            assert!(reported.is_empty(), "{kind:?}: {reported:?}");
            assert_eq!(c.api.workloads().len(), 1, "{kind:?}");
            assert_eq!(only(&c).spec, workload.spec, "{kind:?}");
            assert_eq!(condition(&only(&c), "QuotaReserved"), reserved, "{kind:?}");
            assert_eq!(!c.api.job("sample").view.suspended, runs, "{kind:?}");
            assert_eq!(reserved, if cpu == "100" { "True" } else { "False" }, "{kind:?}");
            // What gathers pods runs by those, of which there are none here.
            assert_eq!(runs, cpu == "100" && !kind.gathers_pods(), "{kind:?}");
        }
    }
}
