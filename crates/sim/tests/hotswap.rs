//! Pods and failing nodes: the real Hotswap with simulated machines.
#![expect(clippy::disallowed_methods, reason = "a test reads its files")]
#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_engine::{Kind, ObjectRef};
use sluice_sim::{File, Manifest, Manifests, Options, Report, Simulation, Source, prepare};

const POOL: &str = "cloud.google.com/gke-nodepool";

/// The files of the example, with four pools and quota for both JobSets.
fn page() -> Manifests {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/hotswap");
    let names = [
        "nodes.yaml",
        "pool-fails/nodes.yaml",
        "priority-classes.yaml",
        "pool-fails/queues.yaml",
        "jobs.yaml",
    ];
    let read = |name: &str| File {
        name: name.to_owned(),
        text: fs::read_to_string(folder.join(name)).unwrap(),
        named: true,
    };
    Manifests::read(&names.map(read)).unwrap()
}

/// A simulation of these objects and events; what runs runs for an hour.
fn with_events(mut manifests: Manifests, events: &Value) -> Simulation {
    let scenario = json!({"spec": {"runTime": "1h", "events": events}});
    manifests.scenarios.push((Source::default(), serde_json::from_value(scenario).unwrap()));
    let mut options = Options::new(Options::default_configuration());
    options.audit = true;
    prepare(&manifests, &BTreeMap::new(), options).unwrap()
}

fn pool(name: &str) -> Value {
    json!({"selector": {POOL: name}})
}

/// What happened to a JobSet, in words: `evicted NodeFailures`, `preempted OutOfCohortReclamation`, with minutes and seconds.
fn story(simulation: &Simulation, job: &str) -> Vec<String> {
    let record = simulation.record();
    let entries = record.entries.iter().filter(|e| e.job.is_some_and(|at| *record.jobs[at].name == *job));
    let words = entries.map(|e| {
        let reported = serde_json::to_value(&e.what).unwrap();
        let reason = reported["reason"].as_str().map(|r| format!(" {r}")).unwrap_or_default();
        format!("{}:{:02} {}{reason}", e.at / 60_000, e.at / 1000 % 60, e.what.word())
    });
    words.collect()
}

/// The pools that the pods of a JobSet are on.
fn pools(simulation: &Simulation, job: &str) -> BTreeSet<String> {
    let pods = simulation.objects(Kind::Pod);
    let own = pods.filter(|(_, pod)| pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == job);
    own.map(|(_, pod)| {
        let node = ObjectRef::cluster(Kind::Node, pod["spec"]["nodeName"].as_str().unwrap());
        simulation.object(&node).unwrap()["metadata"]["labels"][POOL].as_str().unwrap().to_owned()
    })
    .collect()
}

fn run(mut simulation: Simulation) -> Simulation {
    simulation.run(|_| {}).unwrap();
    simulation
}

fn stories(simulation: &Simulation) -> (Vec<String>, Vec<String>) {
    (story(simulation, HIGH), story(simulation, LOW))
}

fn after(simulation: &mut Simulation, minutes: i64) {
    simulation.advance(SignedDuration::from_mins(minutes)).unwrap();
}

fn names<const N: usize>(pools: [&str; N]) -> BTreeSet<String> {
    pools.map(str::to_owned).into()
}

const HIGH: &str = "high-jax-trillium";
const LOW: &str = "low-jax-trillium";

#[test]
fn a_pool_that_is_about_to_go_is_left_at_once_and_the_preempted_one_runs_again_when_it_is_back() {
    let events = json!([
        {"at": "10m", "departNodes": pool("v6e-pool-1")},
        {"at": "20m", "recoverNodes": pool("v6e-pool-1")},
    ]);
    let mut simulation = with_events(page(), &events);
    after(&mut simulation, 5);
    assert_eq!(pools(&simulation, HIGH), names(["v6e-pool-1", "v6e-pool-2"]));
    assert_eq!(pools(&simulation, LOW), names(["v6e-pool-3", "v6e-pool-4"]));
    after(&mut simulation, 10);
    assert_eq!(pools(&simulation, HIGH), names(["v6e-pool-2", "v6e-pool-3"]));
    let waits = &simulation.record().job_named(&format!("default/{LOW}")).unwrap().waits_for;
    assert!(waits.as_ref().unwrap().1.ends_with("flavor tpu-v6e-slice, 16 more needed"), "{waits:?}");
    simulation.run(|_| {}).unwrap();
    let (high, low) = stories(&simulation);
    assert_eq!(
        high,
        ["0:00 submitted", "0:00 admitted", "10:00 evicted NodeFailures", "10:01 admitted", "70:01 finished"]
    );
    assert_eq!(
        low,
        [
            "0:00 submitted",
            "0:00 admitted",
            "10:00 preempted OutOfCohortReclamation",
            "10:01 waiting WaitingForCapacity",
            "20:00 admitted",
            "80:00 finished"
        ]
    );
    assert_eq!(simulation.objects(Kind::Pod).count(), 0, "nothing is left behind");
}

#[test]
fn a_jobset_leaves_a_pool_of_which_a_node_is_drained() {
    let events = json!([{"at": "10m", "drainNodes": {"names": ["v6e-pool-1-0"]}}]);
    let mut simulation = with_events(page(), &events);
    after(&mut simulation, 15);
    assert_eq!(pools(&simulation, HIGH), names(["v6e-pool-2", "v6e-pool-3"]));
    let (high, low) = stories(&simulation);
    assert!(high.contains(&"10:00 evicted NodeFailures".to_owned()), "{high:?}");
    assert!(low.contains(&"10:00 preempted OutOfCohortReclamation".to_owned()), "{low:?}");
}

#[test]
fn a_pool_that_fails_counts_after_thirty_seconds_and_its_pods_end_when_it_is_back() {
    let events = json!([
        {"at": "10m", "failNodes": pool("v6e-pool-1")},
        {"at": "20m", "recoverNodes": pool("v6e-pool-1")},
    ]);
    let mut simulation = with_events(page(), &events);
    after(&mut simulation, 15);
    assert_eq!(simulation.objects(Kind::Pod).count(), 12, "eight run, and four can never end");
    let (high, low) = stories(&simulation);
    assert_eq!(high[2..], ["10:30 evicted NodeFailures", "10:31 admitted"]);
    assert_eq!(low[2..], ["10:30 preempted OutOfCohortReclamation", "10:31 waiting WaitingForCapacity"]);
    after(&mut simulation, 6);
    assert_eq!(simulation.objects(Kind::Pod).count(), 16);
    assert_eq!(pools(&simulation, LOW), names(["v6e-pool-1", "v6e-pool-4"]));
    simulation.run(|_| {}).unwrap();
    let (high, low) = stories(&simulation);
    assert_eq!((high.len(), low.len()), (5, 6), "{high:?} {low:?}");
    let lost = simulation.record().job_named(&format!("default/{HIGH}")).unwrap().lost;
    assert_eq!(lost, 600_000, "what ran on it was lost when it failed");
}

#[test]
fn a_pool_that_flaps_displaces_no_jobset_and_what_ran_there_begins_again() {
    let events = json!([
        {"at": "10m", "failNodes": pool("v6e-pool-1")},
        {"at": 625, "recoverNodes": pool("v6e-pool-1")},
    ]);
    let (high, low) = stories(&run(with_events(page(), &events)));
    assert_eq!(high[1..], ["0:00 admitted", "70:25 finished"]);
    assert_eq!(low[1..], ["0:00 admitted", "60:00 finished"]);
}

#[test]
fn when_most_nodes_fail_nothing_is_evicted() {
    let three = json!({"names": [], "selector": {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}});
    let events = json!([{"at": "10m", "failNodes": three}, {"at": "12m", "recoverNodes": three}]);
    let (high, low) = stories(&run(with_events(page(), &events)));
    let expected = ["0:00 admitted", "72:00 finished"];
    assert_eq!((&high[1..], &low[1..]), (&expected.map(str::to_owned)[..], &expected.map(str::to_owned)[..]));
}

#[test]
fn nodes_that_are_deleted_are_left_at_once() {
    let events = json!([
        {"at": "10m", "deleteNodes": pool("v6e-pool-1")},
        {"at": "20m", "recoverNodes": pool("v6e-pool-1")},
    ]);
    let (high, low) = stories(&run(with_events(page(), &events)));
    assert_eq!(high[2..], ["10:00 evicted NodeFailures", "10:01 admitted", "70:01 finished"]);
    assert_eq!(low[2..4], ["10:00 preempted OutOfCohortReclamation", "10:01 waiting WaitingForCapacity"]);
    assert_eq!(low[4..], ["20:00 admitted", "80:00 finished"]);
}

#[test]
fn without_workloads_to_preempt_a_jobset_waits_for_its_nodes() {
    let mut alone = page();
    alone.objects.retain(|m| m.object["metadata"]["name"] != LOW);
    let two = json!({"selector": {POOL: "v6e-pool-2"}});
    let gone = |name: &str| json!({"at": 0, "deleteNodes": pool(name)});
    let events = json!([
        gone("v6e-pool-3"), gone("v6e-pool-4"),
        {"at": "10m", "failNodes": two}, {"at": "20m", "recoverNodes": two},
    ]);
    let mut simulation = with_events(alone, &events);
    after(&mut simulation, 16);
    assert_eq!(simulation.objects(Kind::Pod).count(), 4, "the others ended with the JobSet's restart");
    let jobset = ObjectRef::namespaced(Kind::Job(JobKind::JOB_SET), "default", HIGH);
    assert_eq!(simulation.object(&jobset).unwrap()["status"]["restarts"], 1);
    simulation.run(|_| {}).unwrap();
    assert_eq!(story(&simulation, HIGH)[1..], ["0:00 admitted", "80:00 finished"]);
}

/// A Job of one pod, which takes all of a node.
fn single(name: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"limits": {"google.com/tpu": 4}}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": {
        "kueue.x-k8s.io/queue-name": "default-queue"}}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [container]}}}})
}

#[test]
fn a_job_replaces_its_pod_after_five_minutes() {
    let mut few = page();
    few.objects.retain(|m| !matches!(m.kind, Kind::Job(_)));
    let node = json!({"names": ["v6e-pool-1-0"]});
    let events = json!([{"at": 0, "objects": [single("one")]}, {"at": "10m", "failNodes": node}]);
    let mut simulation = with_events(few, &events);
    after(&mut simulation, 14);
    let on = |s: &Simulation| -> Vec<String> {
        s.objects(Kind::Pod).map(|(_, p)| p["spec"]["nodeName"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(on(&simulation), ["v6e-pool-1-0"]);
    after(&mut simulation, 2);
    assert_eq!(on(&simulation), ["v6e-pool-1-0", "v6e-pool-1-1"]);
    simulation.run(|_| {}).unwrap();
    assert_eq!(story(&simulation, "one")[1..], ["0:00 admitted", "75:00 finished"]);
}

#[test]
fn work_of_unknown_length_keeps_off_nodes_whose_maintenance_is_announced() {
    let mut few = page();
    few.objects.retain(|m| !matches!(m.kind, Kind::Job(_)));
    let soon = json!({"nodes": pool("v6e-pool-1"), "in": "30m"});
    let events = json!([{"at": 0, "announceMaintenance": soon}, {"at": "1m", "objects": [single("one")]}]);
    let mut simulation = with_events(few, &events);
    after(&mut simulation, 5);
    let nodes: Vec<_> = simulation.objects(Kind::Pod).map(|(_, p)| p["spec"]["nodeName"].clone()).collect();
    assert_eq!(nodes, ["v6e-pool-2-0"]);
}

#[test]
fn pods_are_no_objects_where_hotswap_does_not_act() {
    let mut without = page();
    for manifest in &mut without.objects {
        if manifest.kind == Kind::ClusterQueue {
            manifest.object["spec"]["preemption"]["reclaimOutOfCohort"]["enable"] = json!(false);
        }
    }
    let events = json!([{"at": "10m", "failNodes": pool("v6e-pool-1")}]);
    let mut simulation = with_events(without, &events);
    after(&mut simulation, 5);
    assert_eq!(simulation.objects(Kind::Pod).count(), 0);
    simulation.run(|_| {}).unwrap();
    let (high, low) = stories(&simulation);
    assert_eq!(low[1..], ["0:00 admitted", "60:00 finished"]);
    let patience = "40:00 evicted PodsReadyTimeout";
    assert_eq!(high[1..], ["0:00 admitted", patience, "41:00 admitted", "120:00 finished"]);
}

/// The example of a topology, two sub-blocks of two machines each, with more machines like one of those: their letter says in which sub-block.
fn machines(more: &[(&str, &str)]) -> Manifests {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/topology");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let nodes = read("nodes.yaml");
    let copies = more.iter().map(|(name, like)| {
        let one = nodes.split("---\n").find(|one| one.contains(&format!("name: {like}\n"))).unwrap();
        let block = |name: &str| format!("subblock-{}", &name["gpu-".len()..][..1]);
        format!("---\n{}", one.replace(like, name).replace(&block(like), &block(name)))
    });
    let nodes = format!("{nodes}{}", copies.collect::<String>());
    let file = |name: &str, text: String| File { name: name.to_owned(), text, named: true };
    Manifests::read(&[file("nodes.yaml", nodes), file("queues.yaml", read("queues.yaml"))]).unwrap()
}

/// A Job of two pods, each of which takes a whole machine, in one sub-block.
fn together() -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 8}}});
    let asks = json!({"kueue.x-k8s.io/podset-required-topology": "cloud.google.com/gce-topology-subblock"});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "together", "labels": {
        "kueue.x-k8s.io/queue-name": "gpus"}}, "spec": {"parallelism": 2, "completions": 2, "template": {
            "metadata": {"annotations": asks},
            "spec": {"restartPolicy": "Never", "containers": [container]}}}})
}

/// Where the simulation's only job had its pods, one after the other.
fn places(simulation: &Simulation) -> Vec<Vec<String>> {
    let changes = simulation.record().places.iter();
    let nodes = changes.map(|change| change.sets.iter().flat_map(|set| &set.domains));
    nodes.map(|domains| domains.map(|(values, _)| values.concat()).collect()).collect()
}

#[test]
fn a_failed_node_of_a_topology_is_replaced_by_another_one_of_its_domain() {
    let one = json!({"names": ["gpu-a0"]});
    let events = json!([{"at": 0, "objects": [together()]}, {"at": "10m", "failNodes": one}]);
    let simulation = run(with_events(machines(&[("gpu-a2", "gpu-a0"), ("gpu-b2", "gpu-b0")]), &events));
    assert_eq!(
        story(&simulation, "together"),
        ["0:00 submitted", "0:00 admitted", "10:01 moved", "70:01 finished"]
    );
    assert_eq!(places(&simulation), [["gpu-a0", "gpu-a1"], ["gpu-a1", "gpu-a2"]]);
    let report = Report::new(simulation.record(), simulation.lasted(), 0, Vec::new());
    let moved = report.timeline.iter().find(|line| line.what.word() == "moved").unwrap();
    assert_eq!(moved.what.details(), "from gpu-a0 to gpu-a2");
    assert_eq!(simulation.record().job_named("default/together").unwrap().lost, 600_000);
}

#[test]
fn without_another_node_in_its_domain_a_job_starts_again_in_another_one() {
    let one = json!({"names": ["gpu-a0"]});
    let events = json!([{"at": 0, "objects": [together()]}, {"at": "10m", "failNodes": one}]);
    let simulation = run(with_events(machines(&[]), &events));
    let story = story(&simulation, "together");
    assert_eq!(
        story[1..],
        ["0:00 admitted", "10:01 evicted NodeFailures", "10:01 admitted", "70:01 finished"]
    );
    assert_eq!(places(&simulation), [["gpu-a0", "gpu-a1"], ["gpu-b0", "gpu-b1"]]);
}

#[test]
fn a_slice_that_lost_its_machine_moves_and_the_other_one_stays() {
    let mut manifests = machines(&[("gpu-c0", "gpu-b0"), ("gpu-c1", "gpu-b1")]);
    let queue = manifests.objects.iter_mut().find(|one| one.kind == Kind::ClusterQueue).unwrap();
    queue.object["spec"]["preemption"] = json!({"reclaimOutOfCohort": {"enable": true}});
    let mut job = together();
    let spec = &mut job["spec"];
    (spec["parallelism"], spec["completions"], spec["completionMode"]) =
        (json!(4), json!(4), json!("Indexed"));
    spec["podFailurePolicy"] =
        json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]});
    spec["template"]["metadata"]["annotations"] = json!({
        "kueue.x-k8s.io/podset-required-topology": "cloud.google.com/gce-topology-block",
        "kueue.x-k8s.io/podset-slice-required-topology": "cloud.google.com/gce-topology-subblock",
        "kueue.x-k8s.io/podset-slice-size": "2",
    });
    let one = json!({"names": ["gpu-a0"]});
    let events = json!([{"at": 0, "objects": [job]}, {"at": "10m", "failNodes": one}]);
    let simulation = run(with_events(manifests, &events));
    let story = story(&simulation, "together");
    assert_eq!(story[1..3], ["0:00 admitted", "10:01 moved"], "{story:?}");
    assert!(story.iter().all(|line| !line.contains("evicted")), "{story:?}");
    assert_eq!(
        places(&simulation),
        [["gpu-a0", "gpu-a1", "gpu-b0", "gpu-b1"], ["gpu-c0", "gpu-c1", "gpu-b0", "gpu-b1"]]
    );
}

#[test]
fn pods_that_were_read_from_a_cluster_stay_where_they_are() {
    let mut before = with_events(page(), &json!([]));
    after(&mut before, 5);
    let mut manifests = Manifests::default();
    for kind in [
        Kind::ResourceFlavor,
        Kind::ClusterQueue,
        Kind::LocalQueue,
        Kind::PriorityClass,
        Kind::Node,
        Kind::Workload,
        Kind::Job(JobKind::JOB_SET),
        Kind::Pod,
    ] {
        let found = before.objects(kind).map(|(_, value)| value.clone());
        let manifest = |object| Manifest { source: Source::default(), kind, object };
        manifests.objects.extend(found.map(manifest));
    }
    // On other nodes than the simulation's own scheduler would choose.
    let swap = |name: &str| match name.split_at(name.len() - 3) {
        (head, tail) if tail.starts_with('1') => format!("{head}4{}", &tail[1..]),
        (head, tail) if tail.starts_with('4') => format!("{head}1{}", &tail[1..]),
        _ => name.to_owned(),
    };
    for pod in manifests.objects.iter_mut().filter(|m| m.kind == Kind::Pod) {
        pod.object["spec"]["nodeName"] = json!(swap(pod.object["spec"]["nodeName"].as_str().unwrap()));
    }
    let mut simulation = with_events(manifests, &json!([{"at": "10m", "departNodes": pool("v6e-pool-4")}]));
    after(&mut simulation, 5);
    assert_eq!(pools(&simulation, HIGH), names(["v6e-pool-2", "v6e-pool-4"]));
    assert_eq!(simulation.objects(Kind::Pod).count(), 16);
    after(&mut simulation, 10);
    assert_eq!(pools(&simulation, HIGH), names(["v6e-pool-1", "v6e-pool-2"]));
    assert!(story(&simulation, LOW).contains(&"10:00 preempted OutOfCohortReclamation".to_owned()));
}
