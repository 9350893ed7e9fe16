//! Worlds that are split into parts give the same result, and are not split if something reaches across. Worlds as text.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluice_sim::parts::{Played, play};
use sluice_sim::{File, Kind, Manifests, Options, Packed, Record, Report, Simulation, prepare, settings};

const COHORTS: usize = 5;
const QUEUES: usize = 20;

/// 20 queues in 5 cohorts and more work than they have quota for, in streams of which each serves all queues; and a
/// namespace that no queue serves.
fn world(more: &str) -> String {
    let mut text = String::from(
        "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: f}, spec: {}}\n---\n\
         {apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: high}, value: 9}\n",
    );
    for queue in 0..QUEUES {
        let cohort = queue % COHORTS;
        let _ = write!(
            text,
            "---\n{{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {{name: q{queue}}}, spec: {{cohortName: c{cohort}, \
             namespaceSelector: {{}}, preemption: {{reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}}, resourceGroups: \
             [{{coveredResources: [cpu], flavors: [{{name: f, resources: [{{name: cpu, nominalQuota: 4}}]}}]}}]}}}}\n\
             ---\n{{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {{name: main, namespace: n{queue}}}, spec: \
             {{clusterQueue: q{queue}}}}}\n"
        );
    }
    let queues: Vec<String> =
        (0..=QUEUES).map(|queue| format!("{{namespace: n{queue}, queue: main}}")).collect();
    let stream = |name: &str, class: &str, mean: &str| {
        format!(
            "{{name: {name}, every: {{exponential: {{mean: {mean}}}}}, runTime: {{lognormal: {{p50: 5m, p90: 40m}}}}, queues: [{}], \
             template: {{apiVersion: batch/v1, kind: Job, metadata: {{labels: {{{class}}}}}, spec: {{template: {{spec: \
             {{restartPolicy: Never, containers: [{{name: main, image: i, resources: {{requests: {{cpu: 3}}}}}}]}}}}}}}}}}",
            queues.join(", ")
        )
    };
    let streams =
        [stream("low", "", "25s"), stream("high", "kueue.x-k8s.io/priority-class: high", "3m")].join(", ");
    let _ = write!(
        text,
        "---\n{{apiVersion: sluice.dev/v1alpha1, kind: Scenario, spec: {{until: 4h, seed: 3, arrivals: [{streams}]{more}}}}}\n"
    );
    text
}

fn read(text: &str) -> (Manifests, Options) {
    let file = File { name: "world.yaml".to_owned(), text: text.to_owned(), named: true };
    let manifests = Manifests::read(&[file]).unwrap();
    let mut options = Options::new(Options::default_configuration());
    settings(&mut options, &manifests.scenarios, false);
    (manifests, options)
}

/// Plays a world, and how many parts it had.
fn in_parts(text: &str) -> (Played, usize) {
    let (manifests, options) = read(text);
    let parts = AtomicUsize::new(0);
    let played = play(&manifests, &BTreeMap::new(), &options, &|progress| {
        parts.store(progress.parts, Ordering::Relaxed);
    });
    (played.unwrap(), parts.into_inner())
}

/// A report as text; what happened at one instant in the order of the words.
fn shown(record: &Record, lasted: i64) -> (String, Vec<String>) {
    let mut report = Report::new(record, lasted, 3, Vec::new());
    let timeline = std::mem::take(&mut report.timeline);
    let mut lines: Vec<(i64, String)> = record
        .entries
        .iter()
        .zip(&timeline)
        // UIDs count the objects of a part.
        .map(|(entry, line)| (entry.at, serde_json::to_string(line).unwrap()))
        .map(|(at, line)| (at, line.split("(UID: ").next().unwrap().to_owned()))
        .collect();
    lines.sort();
    (serde_json::to_string_pretty(&report).unwrap(), lines.into_iter().map(|(_, line)| line).collect())
}

#[test]
fn a_world_in_parts_is_as_the_whole() {
    let text = world("");
    let (played, parts) = in_parts(&text);
    assert_eq!(parts, COHORTS, "one for each cohort");
    let (manifests, options) = read(&text);
    let mut whole = prepare(&manifests, &BTreeMap::new(), options).unwrap();
    whole.run(|_| {}).unwrap();
    let report = shown(whole.record(), whole.lasted());
    let preemptions = report.1.iter().filter(|line| line.contains("\"preempted\"")).count();
    assert!(preemptions > 20, "{preemptions} preemptions: too few to prove anything");
    let joined = shown(&played.record, played.lasted);
    assert_eq!(report.0, joined.0);
    for (one, other) in report.1.iter().zip(&joined.1) {
        assert_eq!(one, other);
    }
    assert_eq!(report.1.len(), joined.1.len());
    // Statuses of queues share one pace, which each part has for itself: the whole writes fewer of them.
    assert!(whole.writes() <= played.writes, "{} {}", whole.writes(), played.writes);
    assert!(played.writes - whole.writes() < whole.writes() / 100, "{} {}", whole.writes(), played.writes);
}

#[test]
fn what_reaches_across_keeps_a_world_whole() {
    let parts = |text: &str| in_parts(text).1;
    let event = ", events: [{at: 1h, stop: {clusterQueue: q0, policy: Hold}}]";
    assert_eq!(parts(&world(event)), 1, "an event of the scenario");
    let node =
        "---\n{apiVersion: v1, kind: Node, metadata: {name: host}, status: {allocatable: {cpu: 900}}}\n";
    assert_eq!(parts(&(world("") + node)), 1, "nodes");
    let mut cohorts = String::new();
    for cohort in 0..COHORTS {
        let _ = write!(
            cohorts,
            "---\n{{apiVersion: kueue.x-k8s.io/v1beta1, kind: Cohort, metadata: {{name: c{cohort}}}, spec: {{parentName: root}}}}\n"
        );
    }
    assert_eq!(parts(&(world("") + &cohorts)), 1, "one tree of Cohorts");
    let shared = "---\n{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: other, namespace: n0}, spec: \
                  {clusterQueue: q1}}\n";
    assert_eq!(parts(&(world("") + shared)), COHORTS - 1, "a namespace with queues of two cohorts");
}

/// The objects of the world, and jobs in a queue of it: as a cluster has them.
fn objects() -> (Manifests, Options) {
    let mut text = world("");
    for job in 0..40 {
        let _ = write!(
            text,
            "---\n{{apiVersion: batch/v1, kind: Job, metadata: {{name: job-{job}, namespace: n{}, labels: {{kueue.x-k8s.io/queue-name: main}}}}, \
             spec: {{suspend: true, template: {{spec: {{restartPolicy: Never, containers: [{{name: c, resources: {{requests: {{cpu: {}}}}}}}]}}}}}}}}\n",
            job % QUEUES,
            job % 3 + 1
        );
    }
    let (mut manifests, options) = read(&text);
    manifests.scenarios.clear();
    (manifests, options)
}

fn run(mut simulation: Simulation) -> (String, Vec<String>) {
    simulation.run(|_| {}).unwrap();
    let lasted = simulation.lasted();
    shown(&simulation.into_record(), lasted)
}

#[test]
fn a_world_that_was_kept_as_text_is_played_as_it_was_read() {
    let (mut manifests, options) = objects();
    let as_read = run(prepare(&manifests, &BTreeMap::new(), options.clone()).unwrap());
    assert!(as_read.1.len() > 80, "{} lines", as_read.1.len());
    let packed = Packed::of(&manifests);
    assert_eq!(run(packed.prepare(options.clone()).unwrap()), as_read);
    assert_eq!(run(packed.prepare(options.clone()).unwrap()), as_read, "once more");
    // In whatever order it was read: queues come before jobs.
    let jobs: Vec<_> = manifests.objects.extract_if(.., |m| matches!(m.kind, Kind::Job(_))).collect();
    manifests.objects.splice(0..0, jobs);
    let mut packed = Packed::new(manifests);
    assert_eq!(run(packed.prepare(options.clone()).unwrap()), as_read);
    packed.retain(|manifest| !matches!(manifest.kind, Kind::Job(_)));
    assert_eq!(packed.iter().filter(|manifest| matches!(manifest.kind, Kind::Job(_))).count(), 0);
    assert!(run(packed.prepare(options).unwrap()).1.is_empty());
}

#[test]
fn a_copy_of_a_simulation_shares_the_documents_until_one_of_them_writes() {
    let (manifests, options) = objects();
    let mut simulation = prepare(&manifests, &BTreeMap::new(), options).unwrap();
    simulation.settle().unwrap();
    let mut copy = simulation.fork();
    let shared = |copy: &Simulation| {
        let workloads = simulation.objects(Kind::Workload);
        workloads
            .filter(|(name, own)| copy.object(name).is_some_and(|other| std::ptr::eq(*own, other)))
            .count()
    };
    let all = simulation.objects(Kind::Workload).count();
    assert_eq!((shared(&copy), all), (40, 40));
    let (first, before) =
        simulation.objects(Kind::Workload).next().map(|(n, v)| (n.clone(), v.clone())).unwrap();
    let merge = serde_json::json!({"spec": {"priority": 77}});
    copy.patch("workload", Some(&*first.namespace), &first.name, &merge).unwrap();
    assert_eq!(shared(&copy), 39);
    assert_eq!(simulation.object(&first), Some(&before), "the other one is as it was");
    assert_eq!(copy.object(&first).unwrap()["spec"]["priority"], 77);
}
