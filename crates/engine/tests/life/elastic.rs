//! Jobs that change their size while they run (docs/reference/06-algorithm.md 6.26).

use k8s_openapi::api::core::v1::PodSchedulingGate;
use serde_json::json;
use sluice_api::v1beta2::Workload;
use sluice_engine::{Kind, ObjectRef, Purpose, WriteError};

use crate::gate_removal::removals;
use crate::model::build::job;
use crate::model::{Api, Cluster, condition, reported};

const GATE: &str = "kueue.x-k8s.io/elastic-job";

/// A queue with this quota, in which an elastic job of three pods runs.
pub fn running(cpu: &str, more: &serde_json::Value) -> Cluster {
    let mut c = Cluster::plain();
    c.api.simple(cpu, more);
    add(&mut c, "a", 3);
    c.settle();
    assert!(!c.api.job("a").view.suspended, "it runs");
    c.advance(1);
    c
}

pub fn add(c: &mut Cluster, name: &str, count: i32) {
    let mut view = job("team-a", name, "lq", count, "1");
    view.annotations.insert(GATE.to_owned(), "true".to_owned());
    let gate = PodSchedulingGate { name: GATE.to_owned() };
    view.pod_sets[0].scheduling.scheduling_gates.push(gate.clone());
    let template = view.pod_sets[0].template.as_mut().map(std::sync::Arc::make_mut).unwrap();
    template.spec.as_mut().unwrap().scheduling_gates = Some(vec![gate]);
    c.api.add_job(view);
    pods(c, name, count);
}

/// The job's controller makes its pods, all of them behind their gate; those beyond that are gone at once.
pub fn pods(c: &mut Cluster, name: &str, count: i32) {
    let uid = c.api.job(name).view.job.uid.to_string();
    for at in 0..count {
        let pod = format!("{name}-{at}");
        let reference = ObjectRef::namespaced(Kind::JobPod, "team-a", pod.as_str());
        if c.api.json(&reference).is_some() {
            continue;
        }
        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true});
        let annotations = json!({"kueue.x-k8s.io/workload-slice-name": "as-the-template-has-it"});
        let metadata = json!({
            "namespace": "team-a", "name": pod, "ownerReferences": [owner], "annotations": annotations,
        });
        let spec = json!({"schedulingGates": [{"name": "other"}, {"name": GATE}], "containers": []});
        c.api.put(Kind::JobPod, json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}));
    }
    for at in count..count + 9 {
        c.api.delete(&ObjectRef::namespaced(Kind::JobPod, "team-a", format!("{name}-{at}")));
    }
}

/// The user asks for `count` pods.
pub fn scale(c: &mut Cluster, count: i32) {
    c.api.edit_job("a", |job| {
        job.view.pod_sets[0].count = count;
        job.view.generation += 1;
    });
    pods(c, "a", count);
    c.settle();
    c.advance(1);
}

/// The pods that may be scheduled.
pub fn free(c: &Cluster) -> Vec<String> {
    let pods = c.api.names(Kind::JobPod);
    let free = pods.iter().filter(|pod| !c.api.json(pod).unwrap().to_string().contains(GATE));
    free.map(|pod| pod.name.to_string()).collect()
}

/// The slices of the job, oldest first: how many pods, and where it stands.
pub fn slices(c: &Cluster) -> Vec<String> {
    let mut of = c.api.workloads_of(&c.api.job("a").view.job.uid);
    of.sort_by_key(|w| w.metadata.creation_timestamp.clone().map(|time| time.0));
    let line = |w: &Workload| {
        let finished = reported(w, "Finished");
        let reason = finished.split([':', '/']).nth(1).unwrap_or_default();
        let state = match (reason, condition(w, "Admitted").as_str(), condition(w, "QuotaReserved").as_str())
        {
            ("", "True", _) => "runs",
            ("", _, "True") => "reserved",
            ("", ..) => "waits",
            (reason, ..) => reason,
        };
        format!("{} {state}", w.spec.pod_sets[0].count)
    };
    of.iter().map(line).collect()
}

/// What the queue counts as reserved.
pub fn used(c: &Cluster) -> String {
    let queue = c.api.json(&ObjectRef::cluster(Kind::ClusterQueue, "cq")).unwrap();
    queue["status"]["flavorsReservation"][0]["resources"][0]["total"].as_str().unwrap_or_default().to_owned()
}

/// A slice, as the API server has it, by how many pods it has.
pub fn slice(c: &Cluster, count: i32) -> Workload {
    let of = c.api.workloads_of(&c.api.job("a").view.job.uid);
    of.into_iter().find(|w| w.spec.pod_sets[0].count == count).unwrap()
}

#[test]
fn a_job_that_grows_gets_a_slice_that_takes_over() {
    let mut c = running("5", &json!({}));
    assert_eq!(free(&c), ["a-0", "a-1", "a-2"]);
    let first = slice(&c, 3);
    let name = first.metadata.name.clone().unwrap();
    scale(&mut c, 5);
    assert_eq!(slices(&c), ["3 WorkloadSliceReplaced", "5 runs"]);
    assert_eq!((used(&c).as_str(), free(&c).len()), ("5", 5));
    assert_eq!(removals(&c), vec![format!("{GATE} cq false 0"); 5]);
    assert!(c.notes("Stopped").is_empty());
    let second = slice(&c, 5);
    let annotations = second.metadata.annotations.clone().unwrap();
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-replacement-for"], format!("team-a/{name}"));
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-name"], name);
    // What the start added to the job's template is not part of what it asks for.
    let of = |w: &Workload| w.spec.pod_sets[0].template.clone();
    assert_eq!(of(&second), of(&first));
    let [note] = &c.notes("WorkloadSliceReplaced")[..] else { panic!("{:?}", c.events) };
    assert!(note.contains(second.metadata.uid.as_deref().unwrap()), "{note}");
    let order: Vec<_> = c.writes.iter().map(|(_, purpose)| *purpose).collect();
    let reserved = order.iter().rposition(|purpose| *purpose == Purpose::ReserveQuota);
    assert!(reserved < order.iter().position(|purpose| *purpose == Purpose::Finish), "{order:?}");
    // Again, from the slice that is there now.
    scale(&mut c, 4);
    assert_eq!((slices(&c).last().unwrap().as_str(), used(&c).as_str()), ("4 runs", "4"));
}

#[test]
fn a_slice_that_waits_leaves_the_pods_that_run_alone() {
    let mut c = running("4", &json!({}));
    scale(&mut c, 6);
    assert_eq!(slices(&c), ["3 runs", "6 waits"]);
    assert_eq!((used(&c).as_str(), free(&c).len()), ("3", 3));
    scale(&mut c, 4);
    assert_eq!(slices(&c), ["3 WorkloadSliceReplaced", "4 runs"]);
    assert_eq!((used(&c).as_str(), free(&c).len()), ("4", 4));
    scale(&mut c, 6);
    scale(&mut c, 4);
    assert_eq!(slices(&c), ["3 WorkloadSliceReplaced", "4 runs", "6 OutOfSync"]);
    assert!(c.notes("Stopped").is_empty());
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_job_shrinks_in_place_and_at_once() {
    let mut c = running("4", &json!({}));
    c.api.add_job(job("team-a", "b", "lq", 2, "1"));
    c.settle();
    assert!(c.api.job("b").view.suspended);
    scale(&mut c, 2);
    assert_eq!(slices(&c), ["2 runs"]);
    assert!(!c.api.job("b").view.suspended);
    assert_eq!(used(&c), "4");
    // While a larger slice waits, too.
    scale(&mut c, 3);
    scale(&mut c, 1);
    assert_eq!(slices(&c), ["1 runs", "3 OutOfSync"]);
    assert_eq!(used(&c), "3");
    assert!(c.notes("Stopped").is_empty());
}

#[test]
fn pods_lose_their_gate_as_far_as_they_were_granted_lowest_names_first() {
    let mut c = running("3", &json!({}));
    pods(&mut c, "a", 6);
    c.settle();
    assert_eq!(free(&c), ["a-0", "a-1", "a-2"]);
    // One that ended makes room; one that terminates does not.
    c.api.edit(
        &ObjectRef::namespaced(Kind::JobPod, "team-a", "a-1"),
        &json!({"status": {"phase": "Succeeded"}}),
    );
    let terminating = json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}});
    c.api.edit(&ObjectRef::namespaced(Kind::JobPod, "team-a", "a-2"), &terminating);
    c.fail.push_back((Purpose::UngatePod, WriteError::Transient("overloaded".to_owned())));
    c.settle();
    c.advance(5);
    assert_eq!(free(&c), ["a-0", "a-1", "a-2", "a-3"]);
    assert!(
        c.api
            .json(&ObjectRef::namespaced(Kind::JobPod, "team-a", "a-3"))
            .unwrap()
            .to_string()
            .contains("other")
    );
}

#[test]
fn a_pod_whose_write_was_not_answered_counts_until_its_watch_shows_what_became_of_it() {
    let pod = |name: &str| ObjectRef::namespaced(Kind::JobPod, "team-a", name);
    for carried_out in [true, false] {
        let mut c = running("3", &json!({}));
        c.api.edit(&pod("a-1"), &json!({"status": {"phase": "Succeeded"}}));
        c.slow = Some(Purpose::UngatePod);
        pods(&mut c, "a", 6);
        c.api.delete(&pod("a-3"));
        c.settle();
        pods(&mut c, "a", 6);
        c.settle();
        c.blind = Some(Kind::JobPod);
        c.time_out();
        assert_eq!(free(&c), ["a-0", "a-1", "a-2"], "there is room for one, and that may be a-4");
        if carried_out {
            c.arrive();
        }
        c.advance(60);
        assert_eq!(free(&c), ["a-0", "a-1", "a-2", "a-4"]);
        c.blind = None;
        c.api.edit(&pod("a-4"), &json!({"status": {"phase": "Succeeded"}}));
        c.advance(60);
        assert_eq!(free(&c), ["a-0", "a-1", "a-2", "a-3", "a-4"]);
    }
}

#[test]
fn preemption_stops_the_whole_job() {
    let policy = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let mut c = running("4", &policy);
    c.api.priority_class("high", 10);
    scale(&mut c, 6);
    let mut high = job("team-a", "high", "lq", 4, "1");
    high.workload_priority_class = Some("high".to_owned());
    c.api.add_job(high);
    c.settle();
    assert!(c.api.job("a").view.suspended && !c.api.job("high").view.suspended);
    assert_eq!(slices(&c), ["3 OutOfSync", "6 waits"]);
    scale(&mut c, 3);
    c.api.finish_job("high", true);
    c.settle();
    assert_eq!(slices(&c), ["3 OutOfSync", "3 runs"]);
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_job_that_ends_ends_all_its_slices() {
    let mut c = running("4", &json!({}));
    scale(&mut c, 6);
    c.api.finish_job("a", true);
    c.settle();
    assert_eq!(slices(&c), ["3 Succeeded", "6 Succeeded"]);
    assert_eq!(used(&c), "0");
}

#[test]
fn a_deactivated_job_is_not_got_round_by_the_slice_that_waits() {
    let mut c = running("4", &json!({}));
    scale(&mut c, 6);
    let of = slice(&c, 3);
    c.api.edit(&Api::workload_ref(&of), &json!({"spec": {"active": false}}));
    c.settle();
    scale(&mut c, 4);
    assert!(c.api.job("a").view.suspended);
    assert_eq!(slices(&c), ["4 waits", "6 OutOfSync"]);
    c.api.edit(&Api::workload_ref(&of), &json!({"spec": {"active": true}}));
    c.settle();
    assert_eq!(slices(&c)[0], "4 runs");
}

#[test]
fn a_deleted_slice_that_waits_is_made_again_and_one_that_runs_stops_the_job() {
    let mut c = running("4", &json!({}));
    scale(&mut c, 6);
    let waits = Api::workload_ref(&slice(&c, 6));
    c.api.delete(&waits);
    c.settle();
    assert_eq!(slices(&c), ["3 runs", "6 waits"]);
    let runs = Api::workload_ref(&slice(&c, 3));
    c.api.delete(&runs);
    c.settle();
    assert!(c.api.job("a").view.suspended);
    assert_eq!(slices(&c), ["6 waits"]);
    scale(&mut c, 4);
    assert_eq!(slices(&c), ["4 runs"]);
}

#[test]
fn a_slice_that_waits_for_checks_takes_over_once_they_are_ready() {
    let checks = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "look"}]}});
    let mut c = Cluster::plain();
    c.api.active_check("look");
    c.api.simple("5", &checks);
    add(&mut c, "a", 3);
    c.settle();
    let answer = |c: &mut Cluster, count: i32, state: &str| {
        let reference = Api::workload_ref(&slice(c, count));
        c.api.edit_status(&reference, |status| status["admissionChecks"][0]["state"] = json!(state));
        c.settle();
        c.advance(1);
    };
    answer(&mut c, 3, "Ready");
    scale(&mut c, 5);
    assert_eq!((slices(&c), used(&c).as_str()), (vec!["3 runs".to_owned(), "5 reserved".to_owned()], "5"));
    assert_eq!(free(&c).len(), 3);
    answer(&mut c, 5, "Retry");
    assert_eq!(slices(&c)[0], "3 runs");
    assert!(!c.api.job("a").view.suspended);
    answer(&mut c, 5, "Ready");
    assert_eq!(
        (slices(&c), free(&c).len()),
        (vec!["3 WorkloadSliceReplaced".to_owned(), "5 runs".to_owned()], 5)
    );
}

#[test]
fn a_crash_between_any_two_writes_neither_stops_the_job_nor_counts_anything_twice() {
    for writes in 0..14 {
        for count in [5, 2] {
            let mut c = running("5", &json!({}));
            c.writes_left = Some(writes);
            c.api.edit_job("a", |job| {
                job.view.pod_sets[0].count = count;
                job.view.generation += 1;
            });
            pods(&mut c, "a", count);
            c.settle();
            c.writes_left = None;
            c.restart();
            c.settle();
            c.advance(120);
            let at = format!("after {writes} writes to {count}");
            let last = format!("{count} runs");
            assert_eq!(slices(&c).last(), Some(&last), "{at}");
            assert_eq!(used(&c), count.to_string(), "{at}");
            assert!(c.notes("Stopped").is_empty(), "{at}");
            assert!(free(&c).len() >= usize::try_from(count).unwrap(), "{at}: {:?}", free(&c));
        }
    }
}

#[test]
fn between_the_two_writes_the_replaced_slice_counts_nothing() {
    let mut c = running("5", &json!({}));
    c.slow = Some(Purpose::Finish);
    scale(&mut c, 5);
    assert_eq!(slices(&c), ["3 runs", "5 runs"]);
    assert_eq!(used(&c), "5");
    c.restart();
    c.settle();
    assert_eq!(used(&c), "5", "a new leader counts as the former did");
}

#[test]
fn a_failed_admission_of_a_slice_gives_the_one_that_runs_its_quota_back() {
    for error in [WriteError::Refused("no".to_owned()), WriteError::Conflict("meanwhile".to_owned())] {
        let mut c = running("5", &json!({}));
        c.fail.push_back((Purpose::ReserveQuota, error));
        c.api.add_job(job("team-a", "b", "lq", 4, "1"));
        scale(&mut c, 5);
        c.advance(30);
        assert_eq!((slices(&c).last().unwrap().as_str(), used(&c).as_str()), ("5 runs", "5"));
        assert!(c.api.job("b").view.suspended);
    }
    let mut c = running("5", &json!({}));
    c.lost = Some(Purpose::ReserveQuota);
    scale(&mut c, 5);
    c.advance(30);
    assert_eq!(
        (slices(&c), used(&c).as_str()),
        (vec!["3 WorkloadSliceReplaced".to_owned(), "5 runs".to_owned()], "5")
    );
}

#[test]
fn pods_without_a_gate_are_those_of_no_elastic_job() {
    let mut c = Cluster::plain();
    c.api.simple("5", &json!({}));
    c.config.gates = c.config.gates.with(sluice_api::gates::Gate::ElasticJobsViaWorkloadSlices, false);
    c.restart();
    let mut view = job("team-a", "a", "lq", 3, "1");
    view.annotations.insert(GATE.to_owned(), "true".to_owned());
    c.api.add_job(view);
    c.settle();
    c.config.gates = c.config.gates.with(sluice_api::gates::Gate::ElasticJobsViaWorkloadSlices, true);
    c.restart();
    c.settle();
    assert!(!c.api.job("a").view.suspended, "it continues as it was started");
    c.advance(1);
    scale(&mut c, 4);
    assert_eq!(c.notes("Stopped").len(), 1, "nothing would have held its fourth pod back");
    assert_eq!(slices(&c).last().unwrap(), "4 runs");
    assert!(c.api.job("a").view.pod_sets[0].scheduling.scheduling_gates.iter().any(|gate| gate.name == GATE));
}

/// `count` pods are asked for at a time, of which `ended` will not come any more.
fn ask(c: &mut Cluster, count: i32, ended: i32) {
    c.api.edit_job("a", |job| {
        job.view.generation += i64::from(job.view.pod_sets[0].count != count);
        job.view.pod_sets[0].count = count;
        job.view.reclaimable = if ended > 0 { vec![("main".to_owned(), ended)] } else { Vec::new() };
    });
    pods(c, "a", count);
    c.settle();
    c.advance(1);
}

#[test]
fn a_job_near_its_end_does_not_grow_beyond_what_can_still_run() {
    let mut c = running("9", &json!({}));
    ask(&mut c, 3, 2);
    assert_eq!((slices(&c), used(&c).as_str()), (vec!["3 runs".to_owned()], "1"));
    // One completion is left, however many pods the job may have at a time.
    for count in [4, 9, 3] {
        ask(&mut c, count, count - 1);
        assert_eq!((slices(&c), used(&c).as_str()), (vec!["3 runs".to_owned()], "1"), "{count}");
    }
    // Four are left, by more completions.
    ask(&mut c, 9, 5);
    assert_eq!(slices(&c), ["3 WorkloadSliceReplaced", "4 runs"]);
    assert_eq!((used(&c).as_str(), free(&c).len()), ("4", 4));
    ask(&mut c, 9, 7);
    assert_eq!((slices(&c).last().unwrap().as_str(), used(&c).as_str()), ("4 runs", "2"));
    assert!(c.notes("Stopped").is_empty());
}

#[test]
fn a_slice_that_waits_asks_for_the_pods_that_can_still_run() {
    let mut c = running("4", &json!({}));
    ask(&mut c, 6, 0);
    assert_eq!(slices(&c), ["3 runs", "6 waits"]);
    ask(&mut c, 6, 1);
    assert_eq!(slices(&c), ["3 runs", "5 waits"]);
    // Fewer than the slice that runs has.
    ask(&mut c, 6, 4);
    assert_eq!((slices(&c), used(&c).as_str()), (vec!["3 runs".to_owned(), "5 OutOfSync".to_owned()], "2"));
    // What it has room for is started.
    ask(&mut c, 7, 3);
    assert_eq!(slices(&c).last().unwrap(), "4 runs");
    assert_eq!(used(&c), "4");
}

#[test]
fn a_job_that_waits_near_its_end_asks_for_what_is_left() {
    let mut c = running("4", &json!({}));
    ask(&mut c, 3, 2);
    c.api.edit(
        &ObjectRef::cluster(Kind::ClusterQueue, "cq"),
        &json!({"spec": {"stopPolicy": "HoldAndDrain"}}),
    );
    c.settle();
    assert!(c.api.job("a").view.suspended);
    ask(&mut c, 8, 7);
    assert_eq!(slices(&c), ["3 waits"]);
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": {"stopPolicy": "None"}}));
    c.settle();
    assert_eq!((slices(&c), used(&c).as_str()), (vec!["3 runs".to_owned()], "1"));
}

#[test]
fn a_job_that_grows_while_quota_becomes_free_gets_what_it_asks_for_now() {
    let mut c = Cluster::plain();
    c.api.simple("5", &json!({}));
    c.api.add_job(job("team-a", "first", "lq", 5, "1"));
    c.settle();
    add(&mut c, "a", 2);
    c.settle();
    assert_eq!(slices(&c), ["2 waits"]);
    c.slow = Some(Purpose::ResizeSlice);
    scale(&mut c, 5);
    c.api.finish_job("first", true);
    c.settle();
    c.release();
    c.advance(1);
    assert_eq!((slices(&c), free(&c).len()), (vec!["5 runs".to_owned()], 5));
    assert_eq!(used(&c), "5");
}
