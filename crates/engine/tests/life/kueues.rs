//! Workloads that Kueue made for jobs of each kind: Sluice names and reads them alike, in both versions, so that it takes them over as they are.

use serde_json::{Value, json};
use sluice_api::conversion::{Version, convert};
use sluice_api::job::{JobKind, TemplateKind};
use sluice_api::names::{MAX_WORKLOAD_NAME, workload_name};
use sluice_engine::{EngineConfig, Kind, Purpose};

use crate::model::{Api, Cluster, condition};

/// The job that is beside the adapter of its kind, suspended and in the queue.
#[expect(clippy::disallowed_methods, reason = "a test reads its files")]
fn example(kind: JobKind) -> Value {
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

/// A queue with so many processors and the job of a kind in it.
fn with(kind: JobKind, cpu: &str) -> Cluster {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
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
    c.api.add_job(sluice_jobs::observe(kind, &example(kind)));
    c.settle();
    c
}

#[test]
fn a_workload_of_kueues_is_taken_over_for_a_job_of_any_kind() {
    let of_objects = |kind: &JobKind| !kind.integration().of_pods && !kind.integration().suspends_pods;
    for kind in JobKind::ALL.into_iter().filter(of_objects) {
        for cpu in ["0", "100"] {
            let mut c = with(kind, cpu);
            let workload = c.workload("sample");
            let uid = c.api.job("sample").view.job.uid.to_string();
            let name = workload_name(kind.kind(), kind.group(), "sample", &uid, None, MAX_WORKLOAD_NAME);
            assert_eq!(workload.metadata.name.as_deref(), Some(&*name));
            assert!(name.starts_with(&format!("{}-sample-", kind.kind().to_ascii_lowercase())), "{name}");

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
            let about = |purpose: &Purpose| {
                use Purpose::{
                    CreateWorkload, DeleteWorkload, ReserveQuota, StartJob, StopJob, UpdateWorkload,
                };
                let changes =
                    [CreateWorkload, DeleteWorkload, ReserveQuota, StartJob, StopJob, UpdateWorkload];
                changes.contains(purpose)
            };
            let told: Vec<_> = c.writes[writes..].iter().filter(|(_, purpose)| about(purpose)).collect();
            assert!(told.is_empty(), "{kind:?}: {told:?}");
            assert_eq!(c.api.workloads().len(), 1, "{kind:?}");
            assert_eq!(condition(&c.workload("sample"), "QuotaReserved"), reserved, "{kind:?}");
            assert_eq!(!c.api.job("sample").view.suspended, runs, "{kind:?}");
            assert_eq!(runs, cpu == "100", "{kind:?}");
        }
    }
}
