//! The JobSet stand-in behaves as the other suites and the demo need it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::jobset::{JobSet, JobSetStatus};
use sluice_testkit::wait::{eventually, look};
use sluice_testkit::{ControlPlane, kubectl, nodes, shared};

const DEADLINE: Duration = Duration::from_mins(1);

struct Scene {
    plane: &'static ControlPlane,
    client: Client,
    jobsets: Api<JobSet>,
    jobs: Api<Job>,
    pods: Api<Pod>,
}

async fn scene(namespace: &str) -> Scene {
    let plane = shared().await.unwrap();
    plane.make_namespace(namespace).await.unwrap();
    let client = plane.client().await.unwrap();
    Scene {
        plane,
        jobsets: Api::namespaced(client.clone(), namespace),
        jobs: Api::namespaced(client.clone(), namespace),
        pods: Api::namespaced(client.clone(), namespace),
        client,
    }
}

/// A JobSet with one group `worker` whose pods run on the nodes labelled `pool`.
fn jobset(name: &str, replicas: u32, pods: u32, pool: &str, annotations: &Value, spec: &Value) -> JobSet {
    let mut jobset = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": { "name": name },
        "spec": {
            "replicatedJobs": [{
                "name": "worker",
                "replicas": replicas,
                "template": { "spec": {
                    "parallelism": pods,
                    "completions": pods,
                    "backoffLimit": 0,
                    "template": {
                        "metadata": { "annotations": annotations },
                        "spec": {
                            "nodeSelector": { "test-pool": pool },
                            "containers": [{ "name": "main", "image": "example.com/none" }],
                        },
                    },
                } },
            }],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        jobset["spec"][key] = value.clone();
    }
    serde_json::from_value(jobset).unwrap()
}

impl Scene {
    async fn make(&self, jobset: &JobSet) {
        self.jobsets.create(&PostParams::default(), jobset).await.unwrap();
    }

    async fn patch(&self, name: &str, patch: Value) {
        self.jobsets.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn wait(&self, name: &str, what: &str, holds: impl Fn(&JobSetStatus) -> bool) -> JobSetStatus {
        eventually(&format!("{name}: {what}"), DEADLINE, || async {
            let status = self.jobsets.get(name).await?.status.unwrap_or_default();
            Ok(look(holds(&status), serde_json::to_string(&status)?))
        })
        .await
        .unwrap();
        self.jobsets.get(name).await.unwrap().status.unwrap()
    }
}

fn condition(status: &JobSetStatus, kind: &str) -> Option<String> {
    status.conditions.iter().find(|one| one.type_ == kind).map(|one| format!("{} {}", one.status, one.reason))
}

#[tokio::test]
async fn children_are_suspended_and_resumed_with_the_jobset_and_follow_its_templates() {
    let scene = scene("stand-in-suspend").await;
    nodes::pool("suspend-a", 1).label("test-pool", "suspend-a").make(&scene.client).await.unwrap();
    nodes::pool("suspend-b", 1).label("test-pool", "suspend-b").make(&scene.client).await.unwrap();
    let long = json!({ "sluice.dev/run-seconds": "600" });
    scene.make(&jobset("flip", 2, 1, "suspend-a", &long, &json!({ "suspend": true }))).await;
    let status = scene.wait("flip", "two suspended children", |status| {
        status.replicated_jobs_status.first().is_some_and(|group| group.suspended == 2)
    });
    assert_eq!(condition(&status.await, "Suspended").as_deref(), Some("True SuspendedJobs"));
    let child = scene.jobs.get("flip-worker-1").await.unwrap();
    let spec = child.spec.unwrap();
    assert_eq!(spec.completion_mode.as_deref(), Some("Indexed"));
    assert_eq!(spec.template.spec.unwrap().restart_policy.as_deref(), Some("OnFailure"));
    assert_eq!(child.metadata.owner_references.unwrap()[0].kind, "JobSet");

    scene.patch("flip", json!({ "spec": { "suspend": false } })).await;
    let running = |status: &JobSetStatus| {
        status.replicated_jobs_status.first().is_some_and(|group| group.active == 2 && group.ready == 2)
    };
    let status = scene.wait("flip", "two running children", running).await;
    assert_eq!(condition(&status, "Suspended").as_deref(), Some("False ResumeJobs"));

    scene.patch("flip", json!({ "spec": { "suspend": true } })).await;
    scene
        .wait("flip", "two idle children", |status| {
            let group = status.replicated_jobs_status.first();
            group.is_some_and(|group| group.suspended == 2 && group.active == 0)
        })
        .await;
    // The template changes while suspended, as an admission to another flavor does it.
    let mut moved = scene.jobsets.get("flip").await.unwrap();
    let template = moved.spec.replicated_jobs[0].template.spec.as_mut().unwrap();
    let selector = template.template.spec.as_mut().unwrap().node_selector.as_mut().unwrap();
    selector.insert("test-pool".to_owned(), "suspend-b".to_owned());
    moved.spec.suspend = false;
    scene.jobsets.replace("flip", &PostParams::default(), &moved).await.unwrap();
    scene.wait("flip", "running again", running).await;
    let pods = scene.pods.list(&ListParams::default()).await.unwrap();
    let nodes: BTreeSet<Option<String>> = pods
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .map(|pod| pod.spec.unwrap().node_name)
        .collect();
    assert_eq!(nodes, BTreeSet::from([Some("suspend-b-0".to_owned())]));
}

#[tokio::test]
async fn a_jobset_completes_when_all_children_have() {
    let scene = scene("stand-in-complete").await;
    nodes::pool("complete", 1).label("test-pool", "complete").make(&scene.client).await.unwrap();
    let short = json!({ "sluice.dev/run-seconds": "0.2" });
    scene.make(&jobset("done", 2, 2, "complete", &short, &json!({}))).await;
    let status = scene.wait("done", "completed", |status| status.terminal_state.is_some()).await;
    assert_eq!(condition(&status, "Completed").as_deref(), Some("True AllJobsCompleted"));
    assert_eq!(status.replicated_jobs_status[0].succeeded, 2);
    // Never suspended, so nothing is said about it.
    assert_eq!(condition(&status, "Suspended"), None);
}

#[tokio::test]
async fn a_failing_jobset_is_made_anew_until_max_restarts() {
    let scene = scene("stand-in-fail").await;
    nodes::pool("fail", 1).label("test-pool", "fail").make(&scene.client).await.unwrap();
    let fails = json!({ "sluice.dev/fail-after-seconds": "0.2" });
    let policy = json!({ "failurePolicy": { "maxRestarts": 1, "restartStrategy": "BlockingRecreate" } });
    let mut blocking = jobset("again", 1, 1, "fail", &fails, &policy);
    let template = blocking.spec.replicated_jobs[0].template.spec.as_mut().unwrap();
    template.template.spec.as_mut().unwrap().restart_policy = Some("Never".to_owned());
    scene.make(&blocking).await;
    let status = scene.wait("again", "failed", |status| status.terminal_state.is_some()).await;
    assert_eq!(condition(&status, "Failed").as_deref(), Some("True ReachedMaxRestarts"));
    assert_eq!((status.restarts, status.restarts_count_towards_max), (1, 1));

    let mut hopeless = jobset("once", 1, 1, "fail", &fails, &json!({}));
    let template = hopeless.spec.replicated_jobs[0].template.spec.as_mut().unwrap();
    template.template.spec.as_mut().unwrap().restart_policy = Some("Never".to_owned());
    scene.make(&hopeless).await;
    let status = scene.wait("once", "failed", |status| status.terminal_state.is_some()).await;
    assert_eq!(condition(&status, "Failed").as_deref(), Some("True FailedJobs"));
}

#[tokio::test]
async fn exclusive_topology_gives_each_child_a_node_group_of_its_own() {
    let scene = scene("stand-in-exclusive").await;
    for pool in ["exclusive-a", "exclusive-b", "exclusive-c"] {
        let pool = nodes::tpu_pool(pool, 2, 4, "tpu-test", "2x4").label("test-pool", "exclusive");
        pool.make(&scene.client).await.unwrap();
    }
    let annotations = json!({ "sluice.dev/run-seconds": "600" });
    for (name, replicas) in [("first", 1), ("second", 2)] {
        let mut exclusive = jobset(name, replicas, 2, "exclusive", &annotations, &json!({}));
        let key = "cloud.google.com/gke-nodepool".to_owned();
        let annotation = "alpha.jobset.sigs.k8s.io/exclusive-topology".to_owned();
        exclusive.metadata.annotations = Some([(annotation, key)].into());
        scene.make(&exclusive).await;
    }
    for (name, children) in [("first", 1), ("second", 2)] {
        scene
            .wait(name, "running", |status| {
                status.replicated_jobs_status.first().is_some_and(|group| group.ready == children)
            })
            .await;
    }
    let mut groups = BTreeSet::new();
    for job in scene.jobs.list(&ListParams::default()).await.unwrap() {
        let selector = format!("job-name={}", job.metadata.name.unwrap());
        let pods = scene.pods.list(&ListParams::default().labels(&selector)).await.unwrap();
        let nodes = pods.into_iter().map(|pod| pod.spec.unwrap().node_name.unwrap());
        let own: BTreeSet<_> = nodes.map(|node| node.rsplit_once('-').unwrap().0.to_owned()).collect();
        assert_eq!(own.len(), 1, "a child has one group");
        assert!(groups.is_disjoint(&own), "to itself");
        groups.extend(own);
    }
    assert_eq!(groups.len(), 3);
}

#[tokio::test]
async fn kubectl_refuses_an_unknown_field_and_a_running_jobset_keeps_its_templates() {
    let scene = scene("stand-in-strict").await;
    let mut manifest = serde_json::to_value(jobset("strict", 1, 1, "none", &json!({}), &json!({}))).unwrap();
    manifest["metadata"]["namespace"] = json!("stand-in-strict");
    manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["hostNetwork"] =
        json!(true);
    kubectl::apply(scene.plane, &manifest.to_string()).await.unwrap();
    manifest["spec"]["replicatedJobs"][0]["paralelism"] = json!(2);
    let refused = kubectl::apply(scene.plane, &manifest.to_string()).await.unwrap_err().to_string();
    assert!(refused.contains("unknown field") && refused.contains("paralelism"), "{refused}");

    let mut changed = scene.jobsets.get("strict").await.unwrap();
    let template = changed.spec.replicated_jobs[0].template.spec.as_mut().unwrap();
    template.parallelism = Some(2);
    let refused =
        scene.jobsets.replace("strict", &PostParams::default(), &changed).await.unwrap_err().to_string();
    assert!(refused.contains("only change while the JobSet is suspended"), "{refused}");
}

#[tokio::test]
async fn the_jobsets_of_the_examples_pass_strict_validation() {
    let scene = scene("stand-in-examples").await;
    let examples = sluice_testkit::assets::workspace().join("examples");
    let mut names = BTreeSet::new();
    for file in ["hotswap/jobs.yaml", "hotswap/unqueued/jobs.yaml", "tpu-multislice/jobs.yaml"] {
        let path = examples.join(file).display().to_string();
        let args = ["apply", "--validate=strict", "--dry-run=server", "-o", "name", "-f", &path];
        let applied = kubectl::kubectl(scene.plane, &args).await.unwrap();
        names.extend(applied.lines().map(str::to_owned));
    }
    let expected = [
        "high-jax-trillium",
        "low-jax-trillium",
        "multislice-1slice",
        "multislice-2slice",
        "multislice-3slice",
    ];
    assert_eq!(names, expected.map(|name| format!("jobset.jobset.x-k8s.io/{name}")).into());
}
