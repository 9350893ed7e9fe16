//! Elastic jobs of Ray's kinds (docs/reference/06-algorithm.md 6.26): their pods are of several pod sets, and those of RayJobs and RayServices are
//! pods of the clusters that KubeRay makes for them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodSchedulingGate;
use serde_json::json;
use sluice_api::job::{ControllerRef, JobKind, JobPodSet, JobView};
use sluice_engine::{Kind, ObjectRef, Purpose};

use crate::model::build::{job, pod_set};
use crate::model::{Cluster, condition, reported};

const GATE: &str = "kueue.x-k8s.io/elastic-job";

/// A pod set as the webhook leaves it.
fn gated(name: &str, count: i32) -> JobPodSet {
    let mut set = pod_set(name, count, "1");
    let gate = PodSchedulingGate { name: GATE.to_owned() };
    set.scheduling.scheduling_gates.push(gate.clone());
    let template = set.template.as_mut().map(Arc::make_mut).unwrap();
    template.spec.as_mut().unwrap().scheduling_gates = Some(vec![gate]);
    set
}

/// An elastic job of the kind with a head, and `workers` workers of two groups.
fn ray(kind: JobKind, workers: [i32; 2]) -> JobView {
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.job.kind = kind;
    view.annotations.insert(GATE.to_owned(), "true".to_owned());
    view.pod_sets = vec![gated("head", 1), gated("small", workers[0]), gated("large", workers[1])];
    view
}

/// A queue with this quota, and the job, which runs there.
fn running(cpu: &str, view: JobView) -> Cluster {
    let mut c = Cluster::plain();
    c.api.simple(cpu, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.api.priority_class("high", 10);
    c.api.add_job(view);
    c.settle();
    assert!(!c.api.job("a").view.suspended, "it runs");
    c.advance(1);
    c
}

/// KubeRay makes the pods of a cluster that are missing, as its template says.
fn make_pods(c: &mut Cluster, cluster: &str) {
    let view = c.api.job(cluster).view.clone();
    let owner = json!({"apiVersion": view.job.kind.api_version(), "kind": view.job.kind.kind(), "name": cluster,
        "uid": &*view.job.uid, "controller": true});
    for set in &view.pod_sets {
        for at in 0..set.count {
            let name = format!("{cluster}-{}-{at}", set.name);
            let reference = ObjectRef::namespaced(Kind::JobPod, "team-a", name.as_str());
            if c.api.json(&reference).is_some() {
                continue;
            }
            let metadata = json!({
                "namespace": "team-a", "name": name, "ownerReferences": [owner],
                "labels": set.scheduling.labels, "annotations": set.scheduling.annotations,
            });
            let gates = &set.scheduling.scheduling_gates;
            let spec = json!({"schedulingGates": gates, "containers": []});
            let pod = json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}});
            c.api.put(Kind::JobPod, pod);
        }
    }
    c.settle();
    c.advance(1);
}

/// KubeRay makes the cluster of the job, of what that says.
fn make_cluster(c: &mut Cluster, name: &str) {
    let above = c.api.job("a").view.clone();
    let mut part = job("team-a", name, "lq", 1, "1");
    part.job.kind = JobKind::RAY_CLUSTER;
    part.annotations = above.annotations.clone();
    part.pod_sets = above.pod_sets.iter().filter(|set| set.name != "submitter").cloned().collect();
    (part.suspended, part.active) = (above.suspended, !above.suspended);
    part.controller = Some(ControllerRef {
        api_version: above.job.kind.api_version().to_owned(),
        kind: above.job.kind.kind().to_owned(),
        name: "a".to_owned(),
        uid: above.job.uid.to_string(),
    });
    c.api.edit_job("a", |job| job.view.part_names.push(name.to_owned()));
    c.api.add_job(part);
    c.api.edit_job(name, |job| job.started_by_user = true);
    c.settle();
    make_pods(c, name);
}

/// A cluster gets `workers` workers; where KubeRay ends pods itself, they leave.
fn scale(c: &mut Cluster, cluster: &str, workers: [i32; 2]) {
    c.api.edit_job(cluster, |job| {
        job.view.generation += 1;
        for (set, count) in job.view.pod_sets[1..].iter_mut().zip(workers) {
            set.count = count;
        }
    });
    if !c.api.job("a").view.autoscaled {
        for (set, count) in ["small", "large"].into_iter().zip(workers) {
            for at in count..9 {
                let pod = format!("{cluster}-{set}-{at}");
                c.api.delete(&ObjectRef::namespaced(Kind::JobPod, "team-a", pod));
            }
        }
    }
    c.settle();
    make_pods(c, cluster);
}

fn leaves(c: &mut Cluster, pod: &str) {
    c.api.delete(&ObjectRef::namespaced(Kind::JobPod, "team-a", pod));
    c.settle();
    c.advance(1);
}

/// The pods that may be scheduled.
fn free(c: &Cluster) -> Vec<String> {
    let pods = c.api.names(Kind::JobPod);
    let gated =
        |pod: &ObjectRef| c.api.json(pod).unwrap()["spec"]["schedulingGates"].to_string().contains(GATE);
    pods.iter().filter(|pod| !gated(pod)).map(|pod| pod.name.to_string()).collect()
}

/// The slices of the job, oldest first: how many pods of each pod set, and where it stands.
fn slices(c: &Cluster) -> Vec<String> {
    let mut of = c.api.workloads_of(&c.api.job("a").view.job.uid);
    of.sort_by_key(|w| w.metadata.creation_timestamp.clone().map(|time| time.0));
    let line = |w: &sluice_api::v1beta2::Workload| {
        let finished = reported(w, "Finished");
        let state = match (finished.split([':', '/']).nth(1).unwrap_or_default(), &*condition(w, "Admitted"))
        {
            ("", "True") => "runs",
            ("", _) => "waits",
            (reason, _) => reason,
        };
        let counts: Vec<_> = w.spec.pod_sets.iter().map(|set| set.count.to_string()).collect();
        format!("{} {state}", counts.join("+"))
    };
    of.iter().map(line).collect()
}

/// What the queue counts as reserved.
fn used(c: &Cluster) -> String {
    let queue = c.api.json(&ObjectRef::cluster(Kind::ClusterQueue, "cq")).unwrap();
    queue["status"]["flavorsReservation"][0]["resources"][0]["total"].as_str().unwrap_or_default().to_owned()
}

fn was_suspended(c: &Cluster, name: &str) -> bool {
    c.writes.iter().any(|(object, purpose)| &*object.name == name && *purpose == Purpose::SuspendJob)
}

#[test]
fn groups_of_workers_grow_and_shrink_each_by_itself() {
    let mut c = running("5", ray(JobKind::RAY_CLUSTER, [1, 0]));
    make_pods(&mut c, "a");
    assert_eq!((slices(&c), used(&c).as_str()), (vec!["1+1+0 runs".to_owned()], "2"));
    assert_eq!(free(&c), ["a-head-0", "a-small-0"]);
    // One that had none.
    scale(&mut c, "a", [1, 2]);
    assert_eq!(slices(&c), ["1+1+0 WorkloadSliceReplaced", "1+1+2 runs"]);
    assert_eq!((used(&c).as_str(), free(&c).len()), ("4", 4));
    // More of one, and fewer of another: what goes is given back once the slice took over.
    scale(&mut c, "a", [3, 1]);
    assert_eq!(slices(&c).last().unwrap(), "1+3+1 runs");
    assert_eq!(used(&c), "5");
    leaves(&mut c, "a-large-1");
    // Beyond the quota.
    scale(&mut c, "a", [3, 3]);
    assert_eq!(slices(&c)[2..], ["1+3+1 runs", "1+3+3 waits"]);
    assert_eq!((used(&c).as_str(), free(&c).len()), ("5", 5));
    scale(&mut c, "a", [1, 1]);
    assert_eq!(slices(&c)[2..], ["1+1+1 runs", "1+3+3 OutOfSync"]);
    assert_eq!(used(&c), "3");
    assert!(c.notes("Stopped").is_empty());
}

#[test]
fn a_template_that_says_no_pod_set_any_more_holds_nothing_back() {
    for lost in ["gate", "label"] {
        let mut c = running("9", ray(JobKind::RAY_CLUSTER, [1, 0]));
        c.api.edit_job("a", |job| {
            let scheduling = &mut job.view.pod_sets[1].scheduling;
            if lost == "gate" {
                scheduling.scheduling_gates.clear();
            } else {
                scheduling.labels.clear();
            }
            job.view.pod_sets[1].count = 3;
            job.view.generation += 1;
        });
        c.settle();
        c.advance(1);
        assert_eq!(c.notes("Stopped").len(), 1, "{lost}");
        assert_eq!(slices(&c).last().unwrap(), "1+3+0 runs", "{lost}: started again, with all of it");
        assert!(c.api.job("a").view.pod_sets[1].holds_pods_back(), "{lost}");
    }
}

#[test]
fn a_rayjob_has_the_pods_of_its_cluster() {
    let mut view = ray(JobKind::RAY_JOB, [1, 0]);
    view.pod_sets.push(gated("submitter", 1));
    let mut c = running("6", view);
    make_cluster(&mut c, "a-x1");
    assert_eq!(slices(&c), ["1+1+0+1 runs"]);
    assert_eq!(free(&c), ["a-x1-head-0", "a-x1-small-0"]);
    // Its autoscaler changes the cluster alone.
    scale(&mut c, "a-x1", [2, 1]);
    assert_eq!(slices(&c), ["1+1+0+1 WorkloadSliceReplaced", "1+2+1+1 runs"]);
    assert_eq!((used(&c).as_str(), free(&c).len()), ("5", 4));
    scale(&mut c, "a-x1", [5, 1]);
    assert_eq!(slices(&c)[1..], ["1+2+1+1 runs", "1+5+1+1 waits"]);
    assert_eq!((used(&c).as_str(), free(&c).len()), ("5", 4));
    // What the job says has no say while it has a cluster.
    c.api.edit_job("a", |job| {
        job.view.pod_sets[1].count = 9;
        job.view.generation += 1;
    });
    c.settle();
    assert_eq!(slices(&c)[1..], ["1+2+1+1 runs", "1+5+1+1 waits"]);
    scale(&mut c, "a-x1", [1, 1]);
    assert_eq!(slices(&c)[1..], ["1+1+1+1 runs", "1+5+1+1 OutOfSync"]);
    assert_eq!(used(&c), "4");
    assert!(c.notes("Stopped").is_empty() && !was_suspended(&c, "a-x1"));
    assert_eq!(c.api.workloads().len(), 3, "the cluster is not queued a second time");
}

#[test]
fn a_cluster_that_is_made_again_takes_no_name_of_a_slice_that_runs() {
    let mut c = running("9", ray(JobKind::RAY_JOB, [1, 0]));
    make_cluster(&mut c, "a-x1");
    scale(&mut c, "a-x1", [2, 0]);
    assert_eq!(slices(&c), ["1+1+0 WorkloadSliceReplaced", "1+2+0 runs"]);
    let name = |c: &Cluster| {
        let of = c.api.workloads_of(&c.api.job("a").view.job.uid);
        of.iter().find(|w| reported(w, "Finished").is_empty()).unwrap().metadata.name.clone().unwrap()
    };
    let second = name(&c);
    // A user deletes it, and KubeRay makes another one of the name, of what the job says.
    for pod in c.api.names(Kind::JobPod) {
        c.api.delete(&pod);
    }
    c.api.delete_job("a-x1");
    c.settle();
    make_cluster(&mut c, "a-x1");
    assert_eq!(slices(&c).last().unwrap(), "1+1+0 runs");
    scale(&mut c, "a-x1", [3, 0]);
    assert_eq!(slices(&c).last().unwrap(), "1+3+0 runs");
    assert_ne!(name(&c), second);
    assert!(c.notes("Stopped").is_empty());
    assert_eq!((used(&c).as_str(), free(&c).len()), ("4", 4));
}

#[test]
fn both_clusters_of_a_rayservice_need_quota() {
    let mut c = running("4", ray(JobKind::RAY_SERVICE, [1, 0]));
    make_cluster(&mut c, "a-x1");
    assert_eq!((slices(&c), used(&c).as_str()), (vec!["1+1+0 runs".to_owned()], "2"));
    // The next one waits until there is room for both; then the one before goes.
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": {"stopPolicy": "Hold"}}));
    make_cluster(&mut c, "a-x2");
    assert_eq!(slices(&c), ["1+1+0 runs", "2+2+0 waits"]);
    assert_eq!(free(&c), ["a-x1-head-0", "a-x1-small-0"]);
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": {"stopPolicy": "None"}}));
    c.settle();
    c.advance(1);
    assert_eq!(slices(&c), ["1+1+0 WorkloadSliceReplaced", "2+2+0 runs"]);
    assert_eq!((used(&c).as_str(), free(&c).len()), ("4", 4));
    for pod in ["a-x1-head-0", "a-x1-small-0"] {
        leaves(&mut c, pod);
    }
    c.api.delete_job("a-x1");
    c.settle();
    c.advance(1);
    assert_eq!((slices(&c).last().unwrap().as_str(), used(&c).as_str()), ("1+1+0 runs", "2"));
    assert!(c.notes("Stopped").is_empty());
}

/// Once it is looked for what a cluster left, nothing waits for that any more.
#[test]
fn pods_of_the_next_cluster_are_not_leftovers_of_the_one_before() {
    let mut c = running("9", ray(JobKind::RAY_SERVICE, [1, 0]));
    c.config.longest_termination = Some(jiff::SignedDuration::from_hours(1));
    c.restart();
    make_cluster(&mut c, "a-x1");
    make_cluster(&mut c, "a-x2");
    for pod in ["a-x1-head-0", "a-x1-small-0"] {
        leaves(&mut c, pod);
    }
    c.api.delete_job("a-x1");
    c.settle();
    c.advance(1);
    assert_eq!(slices(&c).last().unwrap(), "1+1+0 runs");
    assert_eq!(c.written(Purpose::EndPods), 1);
    c.api.add_job(job("team-a", "other", "lq", 1, "1"));
    c.advance(7_200);
    c.api.delete_job("other");
    c.advance(60);
    assert_eq!(c.written(Purpose::EndPods), 2);
    assert!(c.api.hurried.is_empty(), "{:?}", c.api.hurried);
}

#[test]
fn pods_that_only_an_autoscaler_ends_keep_their_quota_until_it_has() {
    for kind in [JobKind::RAY_CLUSTER, JobKind::RAY_JOB] {
        let mut view = ray(kind, [3, 0]);
        view.autoscaled = true;
        let mut c = running("4", view);
        let cluster = if kind == JobKind::RAY_JOB { "a-x1" } else { "a" };
        if kind == JobKind::RAY_JOB {
            make_cluster(&mut c, cluster);
        } else {
            make_pods(&mut c, cluster);
        }
        assert_eq!(free(&c).len(), 4);
        scale(&mut c, cluster, [1, 0]);
        assert_eq!((slices(&c), used(&c).as_str()), (vec!["1+3+0 runs".to_owned()], "4"), "{kind:?}");
        leaves(&mut c, &format!("{cluster}-small-2"));
        assert_eq!((slices(&c), used(&c).as_str()), (vec!["1+2+0 runs".to_owned()], "3"), "{kind:?}");
        c.restart_without(&[Kind::JobPod]);
        c.settle();
        assert_eq!(used(&c), "3", "{kind:?}: it is not known which pods there are");
        c.restart();
        leaves(&mut c, &format!("{cluster}-small-1"));
        assert_eq!((slices(&c), used(&c).as_str()), (vec!["1+1+0 runs".to_owned()], "2"), "{kind:?}");
    }
}

#[test]
fn a_job_that_stops_holds_the_quota_of_all_its_pods_until_they_are_gone() {
    let mut c = running("5", ray(JobKind::RAY_JOB, [1, 0]));
    make_cluster(&mut c, "a-x1");
    scale(&mut c, "a-x1", [4, 0]);
    assert_eq!((slices(&c).last().unwrap().as_str(), used(&c).as_str()), ("1+4+0 runs", "5"));
    let mut high = job("team-a", "high", "lq", 5, "1");
    high.workload_priority_class = Some("high".to_owned());
    c.pods_vanish = false;
    c.api.add_job(high);
    c.settle();
    c.advance(5);
    assert!(c.api.job("a").view.suspended && c.api.job("high").view.suspended);
    assert_eq!(used(&c), "5", "its pods still run, although it asks for two");
    c.api.delete_job("a-x1");
    c.api.edit_job("a", |job| job.view.active = false);
    c.pods_vanish = true;
    c.settle();
    c.advance(5);
    assert!(!c.api.job("high").view.suspended);
    assert_eq!((slices(&c).last().unwrap().as_str(), used(&c).as_str()), ("1+1+0 waits", "5"));
    c.api.finish_job("high", true);
    c.settle();
    c.advance(1);
    assert_eq!(slices(&c).last().unwrap(), "1+1+0 runs");
}

#[test]
fn a_cluster_that_does_not_hold_its_pods_back_does_not_run_on_the_quota_of_its_job() {
    type Change = fn(&mut JobView);
    let changes: [(&str, Change); 5] = [
        ("no gate", |part| part.pod_sets[1].scheduling.scheduling_gates.clear()),
        ("no pod set", |part| part.pod_sets[1].scheduling.labels.clear()),
        ("another pod set's", |part| {
            part.pod_sets[1].scheduling.labels.insert("kueue.x-k8s.io/podset".to_owned(), "large".to_owned());
        }),
        ("other containers", |part| {
            let scheduling = part.pod_sets[1].scheduling.clone();
            part.pod_sets[1] = JobPodSet { scheduling, ..pod_set("small", 1, "64") };
        }),
        ("unreadable", |part| {
            part.pod_sets.clear();
            part.invalid = Some("too many pod sets".to_owned());
        }),
    ];
    for (case, change) in changes {
        let mut c = running("9", ray(JobKind::RAY_JOB, [1, 0]));
        make_cluster(&mut c, "a-x1");
        let before = free(&c);
        c.api.edit_job("a-x1", |job| {
            job.view.generation += 1;
            change(&mut job.view);
        });
        c.settle();
        assert!(was_suspended(&c, "a-x1"), "{case}");
        // It is replaced by another, which KubeRay makes as the job says.
        assert!(c.writes.iter().any(|(_, purpose)| *purpose == Purpose::DeleteChild), "{case}");
        assert_eq!(free(&c), before, "{case}");
    }
}

#[test]
fn pods_of_what_is_no_part_keep_their_gate() {
    let mut c = running("9", ray(JobKind::RAY_JOB, [3, 0]));
    make_cluster(&mut c, "a-x1");
    scale(&mut c, "a-x1", [1, 0]);
    leaves(&mut c, "a-x1-small-1");
    leaves(&mut c, "a-x1-small-2");
    let before = free(&c);
    // A user's own, in the job's name and with the same labels.
    let mut forged = c.api.job("a-x1").view.clone();
    (forged.job.name, forged.generation, forged.queue_name) = ("a-forged".into(), 2, None);
    forged.pod_sets[1].count = 3;
    c.api.add_job(forged);
    c.settle();
    make_pods(&mut c, "a-forged");
    scale(&mut c, "a-x1", [2, 0]);
    let after = free(&c);
    assert!(after.iter().all(|pod| !pod.starts_with("a-forged")), "{after:?}");
    assert_eq!(after.len(), before.len() + 1);
    assert_eq!(slices(&c).last().unwrap(), "1+2+0 runs");
}

#[test]
fn a_crash_between_any_two_writes_neither_stops_a_rayjob_nor_counts_anything_twice() {
    for writes in 0..14 {
        for workers in [[3, 1], [0, 1], [1, 0]] {
            let mut c = running("5", ray(JobKind::RAY_JOB, [2, 0]));
            make_cluster(&mut c, "a-x1");
            c.writes_left = Some(writes);
            scale(&mut c, "a-x1", workers);
            c.writes_left = None;
            c.restart();
            c.settle();
            c.advance(120);
            let at = format!("after {writes} writes to {workers:?}");
            let last = format!("1+{}+{} runs", workers[0], workers[1]);
            assert_eq!(slices(&c).last(), Some(&last), "{at}");
            assert_eq!(used(&c), (1 + workers[0] + workers[1]).to_string(), "{at}");
            assert!(c.notes("Stopped").is_empty() && !was_suspended(&c, "a-x1"), "{at}");
        }
    }
}

#[test]
fn a_slice_that_a_user_makes_is_finished() {
    let mut c = running("5", ray(JobKind::RAY_CLUSTER, [1, 0]));
    make_pods(&mut c, "a");
    let of = c.api.workloads_of(&c.api.job("a").view.job.uid).remove(0);
    for (name, replaces) in [("forged", true), ("stray", false)] {
        let mut forged = serde_json::to_value(&of).unwrap();
        forged["metadata"]["name"] = json!(name);
        forged["spec"]["podSets"][1]["count"] = json!(7);
        forged["status"] = json!({});
        let old = format!("team-a/{}", of.metadata.name.as_deref().unwrap());
        let annotations = &mut forged["metadata"]["annotations"];
        annotations["kueue.x-k8s.io/workload-slice-replacement-for"] =
            if replaces { json!(old) } else { json!("team-a/none") };
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            forged["metadata"].as_object_mut().unwrap().remove(field);
        }
        c.api.put(Kind::Workload, forged);
        c.settle();
        c.advance(5);
        let reported = reported(
            &c.api.workloads().into_iter().find(|w| w.metadata.name.as_deref() == Some(name)).unwrap(),
            "Finished",
        );
        assert!(reported.contains("OutOfSync"), "{name}: {reported}");
        assert_eq!((used(&c).as_str(), free(&c).len()), ("2", 2), "{name}");
    }
    assert!(c.notes("Stopped").is_empty());
}
