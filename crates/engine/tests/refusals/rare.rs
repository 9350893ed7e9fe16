//! Runs that reach the writes for pods, parts of jobs, slices and topologies.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodSchedulingGate;
use serde_json::{Value, json};
use sluice_api::job::{JobKind, TemplateKind};
use sluice_api::v1beta2::PodSetTopologyRequest;
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose};

use crate::model::Cluster;
use crate::model::build::{job, made_by, pod_set};
use crate::model::pods::{member, pod};

const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A namespace; jobs may be pods, and none of them has a time in which it must be ready.
fn empty() -> Cluster {
    let mut config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    config.frameworks.insert(JobKind::POD);
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c
}

/// A queue with so much cpu of the flavor `old`, and of `new`.
fn flavors(c: &mut Cluster, old: &str, new: &str) {
    let flavor =
        |name: &str, cpu: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [flavor("old", old), flavor("new", new)]}]);
    c.api.cluster_queue("cq", "old", "0", &json!({"resourceGroups": groups}));
    c.settle();
}

fn two_flavors(old: &str) -> Cluster {
    let mut c = empty();
    c.api.flavor("old", &[("pool", "old"), ("only-old", "yes")]);
    c.api.flavor("new", &[("pool", "new")]);
    flavors(&mut c, old, "0");
    c.api.local_queue("team-a", "lq", "cq");
    c
}

fn policy(c: &mut Cluster, policy: &str) {
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": {"stopPolicy": policy}}));
    c.settle();
}

/// A JobSet starts on another flavor than its child was made for.
fn child_of_another_flavor() -> Cluster {
    let mut c = two_flavors("1");
    let mut set = job("team-a", "set", "lq", 1, "1");
    set.job.kind = JobKind::JOB_SET;
    c.api.add_job(set);
    c.settle();
    let set = c.api.job("set").view.clone();
    let mut child = job("team-a", "set-main-0", "", 1, "1");
    child.controller = Some(made_by(&set));
    child.generation = 3;
    child.pod_sets[0].scheduling = set.pod_sets[0].scheduling.clone();
    c.api.add_job(child);
    policy(&mut c, "HoldAndDrain");
    flavors(&mut c, "0", "1");
    c
}

/// An MPIJob starts whose launcher was made before.
fn launcher_before_the_start() -> Cluster {
    let mut c = two_flavors("0");
    let mut mpi = job("team-a", "mpi", "lq", 1, "1");
    mpi.job.kind = JobKind::MPI_JOB;
    "launcher".clone_into(&mut mpi.pod_sets[0].name);
    c.api.add_job(mpi);
    c.settle();
    let mut launcher = job("team-a", "mpi-launcher", "", 1, "1");
    launcher.controller = Some(made_by(&c.api.job("mpi").view));
    c.api.add_job(launcher);
    c.settle();
    c
}

/// A TrainJob is admitted; its JobSet will have more pods.
fn trainjob() -> Cluster {
    let mut c = empty();
    c.api.simple("2", &json!({}));
    let pod = json!({"containers": [{"name": "node", "resources": {"requests": {"cpu": "1"}}}]});
    let labels = json!({"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}});
    let node = json!({"name": "node", "template": {"metadata": labels, "spec": {"template": {"spec": pod}}}});
    let runtime = json!({
        "metadata": {"name": "torch", "namespace": "team-a"},
        "spec": {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": [node]}}},
    });
    c.api.put(Kind::Template(TemplateKind::TRAINING_RUNTIME), runtime);
    let object = json!({
        "metadata": {"name": "fit", "namespace": "team-a", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": true, "runtimeRef": {"kind": "TrainingRuntime", "name": "torch"}},
    });
    c.api.add_job(sluice_jobs::observe(JobKind::TRAIN_JOB, &object));
    c.settle();
    c
}

fn jobset_with_more_pods(c: &mut Cluster) {
    let mut set = job("team-a", "fit", "", 3, "1");
    set.controller = Some(made_by(&c.api.job("fit").view));
    set.job.kind = JobKind::JOB_SET;
    set.pod_sets = vec![pod_set("node", 3, "1")];
    (set.suspended, set.active) = (false, true);
    c.api.add_job(set);
}

/// An elastic job of `count` pods runs; the first of them is there.
fn elastic(c: &mut Cluster, count: i32) {
    let mut view = job("team-a", "a", "lq", count, "1");
    view.annotations.insert(ELASTIC.to_owned(), "true".to_owned());
    let gate = PodSchedulingGate { name: ELASTIC.to_owned() };
    view.pod_sets[0].scheduling.scheduling_gates.push(gate.clone());
    if let Some(spec) = view.pod_sets[0].template.as_mut().and_then(|t| Arc::make_mut(t).spec.as_mut()) {
        spec.scheduling_gates = Some(vec![gate]);
    }
    c.api.add_job(view);
    let annotations = json!({"kueue.x-k8s.io/workload-slice-name": "as-the-template-has-it"});
    let mut pod = pod_of_a(c, &json!({}), &annotations);
    pod["spec"]["schedulingGates"] = json!([{"name": ELASTIC}]);
    c.api.put(Kind::JobPod, pod);
    c.settle();
    c.advance(1);
}

/// A pod of the job `a`, as its controller makes it.
fn pod_of_a(c: &Cluster, labels: &Value, annotations: &Value) -> Value {
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "a", "controller": true,
        "uid": c.api.job("a").view.job.uid});
    let metadata = json!({"namespace": "team-a", "name": "a-0", "labels": labels, "annotations": annotations,
        "ownerReferences": [owner]});
    json!({"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Pending"}})
}

/// Two nodes of one rack, and a job on the first of them.
fn placed() -> Cluster {
    let required = Some("rack".to_owned());
    placed_as(PodSetTopologyRequest { required, ..PodSetTopologyRequest::default() }, &json!({}))
}

/// The same for a job whose slices may move.
fn placed_slice() -> Cluster {
    let request = PodSetTopologyRequest {
        pod_set_slice_required_topology: Some("rack".to_owned()),
        pod_set_slice_size: Some(1),
        ..PodSetTopologyRequest::default()
    };
    placed_as(request, &json!({"preemption": {"reclaimOutOfCohort": {"enable": true}}}))
}

fn placed_as(request: PodSetTopologyRequest, queue: &Value) -> Cluster {
    let mut c = empty();
    let levels = json!({"levels": [{"nodeLabel": "rack"}, {"nodeLabel": HOSTNAME}]});
    c.api.put(Kind::Topology, json!({"metadata": {"name": "dc"}, "spec": levels}));
    let flavor = json!({"topologyName": "dc", "nodeLabels": {"pool": "tas"}});
    c.api.put(Kind::ResourceFlavor, json!({"metadata": {"name": "tas"}, "spec": flavor}));
    for name in ["n1", "n2"] {
        let labels = json!({"pool": "tas", "rack": "r", HOSTNAME: name});
        c.api.put(Kind::Node, json!({"metadata": {"name": name, "labels": labels}}));
        ready(&mut c, name, "True");
    }
    c.api.cluster_queue("cq", "tas", "100", queue);
    c.api.local_queue("team-a", "lq", "cq");
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.pod_sets[0].topology_request = Some(Box::new(request));
    c.api.add_job(view);
    c.settle();
    c
}

fn ready(c: &mut Cluster, node: &str, is: &str) {
    let since = c.now.to_string();
    c.api.edit_status(&ObjectRef::cluster(Kind::Node, node), |status| {
        *status = json!({
            "allocatable": {"cpu": "1", "pods": "110"},
            "conditions": [{"type": "Ready", "status": is, "lastTransitionTime": since}],
        });
    });
    c.settle();
}

/// The job's controller makes its pod, which waits for its place.
fn placed_pod(c: &mut Cluster) {
    let set = c.api.job("a").view.pod_sets[0].scheduling.clone();
    let mut pod = pod_of_a(c, &json!(set.labels), &json!(set.annotations));
    pod["spec"]["schedulingGates"] = json!(set.scheduling_gates);
    pod["spec"]["nodeSelector"] = json!(set.node_selector);
    c.api.put(Kind::JobPod, pod);
    c.settle();
}

/// A queue for pods.
fn pods() -> Cluster {
    let mut c = empty();
    c.api.simple("2", &json!({}));
    c
}

/// A cluster in which what comes before the write has happened, if the write is one of these.
pub fn begin(purpose: Purpose) -> Option<Cluster> {
    Some(match purpose {
        Purpose::DeleteChild => child_of_another_flavor(),
        Purpose::EndPods => two_flavors("0"),
        Purpose::UpdateChild => launcher_before_the_start(),
        Purpose::ReplacePart => trainjob(),
        Purpose::UngatePod | Purpose::ReleasePod | Purpose::RemovePod | Purpose::Replacement => pods(),
        Purpose::ResizeSlice => {
            let mut c = pods();
            elastic(&mut c, 2);
            c
        }
        Purpose::Place | Purpose::UnhealthyNodes => placed(),
        Purpose::MovePod => placed_slice(),
        _ => return None,
    })
}

/// Runs into the write.
pub fn play(purpose: Purpose, c: &mut Cluster) {
    match purpose {
        Purpose::DeleteChild => policy(c, "None"),
        Purpose::UpdateChild => flavors(c, "1", "0"),
        // There is no quota, and its user lets it run; its controller says nothing.
        Purpose::EndPods => {
            let mut mpi = job("team-a", "mpi", "lq", 1, "1");
            mpi.job.kind = JobKind::MPI_JOB;
            c.api.add_job(mpi);
            c.api.edit_job("mpi", |job| (job.view.suspended, job.started_by_user) = (false, true));
            c.settle();
        }
        Purpose::ReplacePart => jobset_with_more_pods(c),
        Purpose::UngatePod => elastic(c, 1),
        Purpose::ResizeSlice => c.api.edit_job("a", |job| {
            job.view.pod_sets[0].count = 1;
            job.view.generation += 1;
        }),
        Purpose::ReleasePod => {
            c.api.add_pod(pod("p", "lq", "1"));
            c.settle();
            c.api.run_pod("p", "Succeeded");
        }
        Purpose::RemovePod => {
            for name in ["p", "q"] {
                c.api.add_pod(member(name, "g", 1, "main"));
                c.settle();
                c.advance(1);
            }
        }
        Purpose::Replacement => {
            for name in ["p", "q"] {
                c.api.add_pod(member(name, "g", 2, "main"));
            }
            c.settle();
            c.api.run_pod("p", "Failed");
        }
        Purpose::Place => c.api.delete(&ObjectRef::cluster(Kind::Node, "n1")),
        Purpose::MovePod => {
            placed_pod(c);
            let pod = ObjectRef::namespaced(Kind::JobPod, "team-a", "a-0");
            let elsewhere =
                json!({"nodeName": "n2", "nodeSelector": {HOSTNAME: "n2"}, "schedulingGates": null});
            c.api.edit(&pod, &json!({"spec": elsewhere}));
        }
        Purpose::UnhealthyNodes => {
            ready(c, "n1", "Unknown");
            c.advance(60);
        }
        _ => unreachable!("{purpose:?} is played elsewhere"),
    }
    c.settle();
}

/// Writes for these purposes that are made on another kind of object than [`play`] comes to.
pub const ELSEWHERE: [Purpose; 4] =
    [Purpose::UngatePod, Purpose::FailPod, Purpose::StartJob, Purpose::StopJob];

/// A cluster in which what comes before such a write has happened.
pub fn begin_elsewhere(purpose: Purpose) -> Cluster {
    match purpose {
        Purpose::UngatePod => placed(),
        Purpose::FailPod => {
            let mut c = placed();
            placed_pod(&mut c);
            c
        }
        _ => pods(),
    }
}

/// Runs into such a write.
pub fn play_elsewhere(purpose: Purpose, c: &mut Cluster) {
    match purpose {
        Purpose::UngatePod => placed_pod(c),
        Purpose::FailPod => {
            c.api.delete(&ObjectRef::cluster(Kind::Node, "n1"));
            c.advance(5);
        }
        _ => {
            c.api.add_pod(pod("p", "lq", "1"));
            c.settle();
            if purpose == Purpose::StopJob {
                c.api.run_pod("p", "Running");
                policy(c, "HoldAndDrain");
            }
        }
    }
    c.settle();
}
