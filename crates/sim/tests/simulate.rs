//! Whole simulations: the scenarios of `examples/simulate`, determinism, conservation of quota, reports, replay.
#![expect(clippy::disallowed_methods, reason = "a test reads its files")]
#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

mod worlds;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use sluice_sim::replay::Replay;
use sluice_sim::{File, Manifests, Options, Record, prepare, prepare_with_log, series};
use worlds::{example, folder, options, report, run};

fn events(record: &Record) -> Vec<String> {
    let known = ["admitted", "preempted", "evicted", "finished"];
    let entries = record.entries.iter().filter(|e| known.contains(&e.what.word()));
    entries.filter_map(|e| Some(format!("{} {}", e.what.word(), record.jobs[e.job?].key()))).collect()
}

/// Each scenario of an example brings the order of events that the example's `expected.yaml` says of a control plane.
#[test]
fn scenarios_of_examples_have_the_order_seen_on_a_control_plane() {
    let mut compared = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if PathBuf::from(&name).extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        let (manifests, _) = example(&name);
        let title = manifests.scenarios[0].1.metadata["name"].as_str().unwrap().to_owned();
        let Some((story, scenario)) = title.split_once('/') else { continue };
        let expected = fs::read_to_string(folder().join("..").join(story).join("expected.yaml")).unwrap();
        let expected: serde_json::Value = serde_saphyr::from_str(&expected).unwrap();
        let all = expected["scenarios"].as_array().unwrap();
        let wanted = all.iter().find(|s| s["name"] == scenario).unwrap();
        let happened = events(run(&name).record());
        let orders = wanted["orders"].as_array().cloned().unwrap_or_default();
        for order in orders.iter().chain(wanted.get("order")) {
            let mut rest = happened.iter();
            for event in order.as_array().unwrap() {
                assert!(
                    rest.any(|e| event == e.as_str()),
                    "{title}: {event} is missing in its place: {happened:#?}"
                );
            }
            compared += 1;
        }
    }
    assert!(compared >= 5, "only {compared} orders were compared");
}

/// What happens where `job` is preempted by `other`, which matters more, and runs again once that has ended.
fn preempted(job: &str, other: &str) -> Vec<String> {
    let reported =
        [("admitted", job), ("preempted", job), ("admitted", other), ("finished", other), ("admitted", job)];
    reported.map(|(what, job)| format!("{what} team-a/{job}")).into()
}

#[test]
fn jobs_of_every_kind_are_preempted_and_run_again() {
    for (file, job, other) in [
        ("kubeflow.yaml", "finetune", "allreduce"),
        ("appwrapper.yaml", "finetune", "release"),
        ("spark.yaml", "backfill", "report"),
        ("trainjob.yaml", "finetune", "release"),
    ] {
        let mut wanted = preempted(job, other);
        wanted.push(format!("finished team-a/{job}"));
        assert_eq!(events(run(file).record()), wanted, "{file}");
    }
    // A RayCluster does not end by itself.
    assert_eq!(events(run("ray.yaml").record()), preempted("notebook", "tune"));
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let json = |seed| {
        let (manifests, files) = example("arrivals.yaml");
        let options = Options { seed, audit: false, ..options(&manifests) };
        let mut simulation = prepare(&manifests, &files, options).unwrap();
        simulation.run(|_| {}).unwrap();
        serde_json::to_string(&report(&simulation)).unwrap()
    };
    let first = json(3);
    assert_eq!(first, json(3));
    assert_ne!(first, json(4));
}

#[test]
fn a_drained_queue_and_a_failed_node_cost_work() {
    let simulation = run("arrivals.yaml");
    let report = report(&simulation);
    assert!(report.totals.finished > 40, "{:?}", report.totals);
    let team_b = report.queues.iter().find(|q| &*q.name == "team-b").unwrap();
    assert!(team_b.work_lost > 0.0);
    assert!(team_b.usage[0].borrowed_hours > 0.0);
    conserved(simulation.record(), simulation.lasted());
}

/// At no time do the queues of a cohort use more than all of them have, nor one more than it may borrow.
fn conserved(record: &Record, end: i64) {
    /// When use and quota change, and by how much.
    type Moves = BTreeMap<i64, (i64, i64)>;
    let mut total: BTreeMap<(Arc<str>, Arc<str>), Moves> = BTreeMap::new();
    for ((_, flavor, resource), points) in series::steps(record, end) {
        let (mut used, mut nominal) = (0, 0);
        for point in points {
            assert!(point.used >= 0);
            let delta =
                total.entry((flavor.clone(), resource.clone())).or_default().entry(point.at).or_default();
            delta.0 += point.used - used;
            delta.1 += point.nominal - nominal;
            (used, nominal) = (point.used, point.nominal);
        }
    }
    for (slot, moves) in total {
        let (mut used, mut nominal) = (0, 0);
        for (at, delta) in moves {
            used += delta.0;
            nominal += delta.1;
            assert!(used <= nominal, "at {at} {slot:?}: {used} of {nominal}");
        }
    }
}

fn random_world(quotas: &[u32], jobs: &[(usize, u32, u32, bool)]) -> String {
    let mut text = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: f}\n---\n\
                    apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: high}\nvalue: 5\n"
        .to_owned();
    for (number, quota) in quotas.iter().enumerate() {
        let _ = write!(
            text,
            "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {{name: q{number}}}\nspec:\n  cohortName: all\n  \
             namespaceSelector: {{}}\n  preemption: {{reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}}\n  resourceGroups:\n  \
             - coveredResources: [cpu]\n    flavors: [{{name: f, resources: [{{name: cpu, nominalQuota: {quota}}}]}}]\n---\n\
             apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {{name: q{number}}}\nspec: {{clusterQueue: q{number}}}\n"
        );
    }
    for (number, (queue, cpus, seconds, high)) in jobs.iter().enumerate() {
        let queue = queue % quotas.len();
        let class = if *high { ", kueue.x-k8s.io/priority-class: high" } else { "" };
        let _ = write!(
            text,
            "---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: j{number}\n  labels: {{kueue.x-k8s.io/queue-name: q{queue}{class}}}\n  \
             annotations: {{sluice.dev/run-seconds: \"{seconds}\", sluice.dev/submit-after-seconds: \"{}\"}}\nspec:\n  template:\n    spec:\n      \
             restartPolicy: Never\n      containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpus}}}}}}}]\n",
            number * 7
        );
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Usage equals what is recomputed in every step (audit), never exceeds quota, and whatever can run runs in the end.
    #[test]
    fn random_worlds_conserve_quota_and_starve_no_job(
        quotas in prop::collection::vec(2_u32..10, 1..4),
        jobs in prop::collection::vec((0_usize..4, 1_u32..6, 1_u32..200, any::<bool>()), 1..12),
    ) {
        let text = random_world(&quotas, &jobs);
        let manifests = Manifests::read(&[File { name: "w".to_owned(), text, named: true }]).unwrap();
        let mut simulation = prepare(&manifests, &BTreeMap::new(), options(&manifests)).unwrap();
        simulation.run(|_| {}).unwrap();
        conserved(simulation.record(), simulation.lasted());
        let all: u32 = quotas.iter().sum();
        for (job, (_, cpus, ..)) in simulation.record().jobs.iter().zip(&jobs) {
            prop_assert!(job.finished.is_some() || *cpus > all, "{} never ends", job.key());
        }
    }

    /// No text makes it panic.
    #[test]
    fn arbitrary_documents_are_distinguished_or_refused(text in "(?s)(kind|spec|metadata|Job|:|-|\\{|\\}|\\[|\\]| |\n|[a-z0-9\"]){0,60}") {
        let _ = Manifests::read(&[File { name: "x".to_owned(), text, named: true }]);
    }
}

/// Values that stand where others were expected.
fn odd() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::json;
    prop_oneof![
        Just(json!(null)),
        Just(json!("")),
        Just(json!("9999999999999999999999Ei")),
        Just(json!(-1)),
        Just(json!(i64::MAX)),
        Just(json!(1.5)),
        Just(json!([])),
        Just(json!({})),
        Just(json!([{"name": "cpu"}, {"name": "cpu"}])),
        Just(json!("\u{0}/../é")),
        any::<bool>().prop_map(|b| json!(b)),
        "[a-z0-9-]{1,70}".prop_map(|text| json!(text)),
    ]
}

/// Puts `odd` at one of the places of a document, or takes the place away.
fn disturb(value: &mut serde_json::Value, at: &mut usize, odd: Option<&serde_json::Value>) -> bool {
    let places: Vec<String> = match value {
        serde_json::Value::Object(map) => map.keys().cloned().collect(),
        serde_json::Value::Array(items) => (0..items.len()).map(|i| i.to_string()).collect(),
        _ => Vec::new(),
    };
    for place in places {
        if *at == 0 {
            match (&mut *value, odd) {
                (serde_json::Value::Object(map), None) => drop(map.remove(&place)),
                (value, odd) => {
                    let inner = value
                        .pointer_mut(&format!("/{}", place.replace('~', "~0").replace('/', "~1")))
                        .unwrap();
                    *inner = odd.cloned().unwrap_or_default();
                }
            }
            return true;
        }
        *at -= 1;
        let inner = value.pointer_mut(&format!("/{}", place.replace('~', "~0").replace('/', "~1"))).unwrap();
        if disturb(inner, at, odd) {
            return true;
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A world with one field gone or odd runs, or is refused with the place of the mistake: nothing panics.
    #[test]
    fn a_disturbed_world_runs_or_is_refused(
        file in 0_usize..4,
        at in 0_usize..400,
        odd in prop::option::weighted(0.8, odd()),
    ) {
        let name = ["tpu-preemption.yaml", "cohort-borrowing.yaml", "gpu-flavors.yaml", "hotswap.yaml"][file];
        let (scenarios, mut files) = example(name);
        let mut at = at;
        let mut all: Vec<&mut String> = files.values_mut().collect();
        let count = all.len();
        let text = &mut *all[at % count];
        let mut documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(text).unwrap();
        let _ = documents.iter_mut().any(|document| disturb(document, &mut at, odd.as_ref()));
        *text = documents.iter().map(|d| serde_json::to_string(d).unwrap()).collect::<Vec<_>>().join("\n---\n");
        let mut options = options(&scenarios);
        options.until = Some(jiff::SignedDuration::from_hours(2));
        match prepare(&scenarios, &files, options) {
            Err(errors) => prop_assert!(errors.iter().all(|e| e.to_string().contains(", document "))),
            Ok(mut simulation) => {
                simulation.run(|_| {}).unwrap();
            }
        }
    }
}

#[test]
fn patches_of_a_scenario_that_make_nonsense_are_refused() {
    let (base, _) = example("tpu-preemption.yaml");
    for (patch, wanted) in [
        ("{kind: clusterqueue, name: cluster-queue, merge: {spec: 5}}", "expected an object, found 5"),
        ("{kind: clusterqueue, name: cluster-queue, merge: {metadata: x}}", "metadata"),
        ("{kind: clusterqueue, name: cluster-queue, merge: {spec: {cohort: a}}}", "unknown field"),
    ] {
        let text = format!(
            "apiVersion: sluice.dev/v1alpha1\nkind: Scenario\nspec: {{events: [{{at: 1s, patch: {patch}}}]}}\n"
        );
        let more = Manifests::read(&[File { name: "s.yaml".to_owned(), text, named: true }]).unwrap();
        let queues = fs::read_to_string(folder().join("../tpu-preemption/queues.yaml")).unwrap();
        let mut manifests =
            Manifests::read(&[File { name: "q.yaml".to_owned(), text: queues, named: true }]).unwrap();
        manifests.scenarios = more.scenarios;
        let mut simulation = prepare(&manifests, &BTreeMap::new(), options(&base)).unwrap();
        simulation.run(|_| {}).unwrap();
        let refused = simulation.record().entries.iter().map(|e| format!("{:?}", e.what)).collect::<Vec<_>>();
        assert!(refused.iter().any(|what| what.contains(wanted)), "{patch}: {refused:?}");
    }
}

/// A Job that runs in a cluster, with its Workload, as they are read from there; nothing happens to them in the time that is simulated.
#[test]
fn what_runs_in_a_cluster_already_holds_its_quota_from_the_beginning() {
    let uid = "6f3f1f0e-0000-4000-8000-000000000001";
    let spec = "{parallelism: 2, completions: 2, suspend: false, template: {spec: {restartPolicy: Never, containers: \
                [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}";
    let owner = format!(
        "{{apiVersion: batch/v1, kind: Job, name: runs, uid: {uid}, controller: true, blockOwnerDeletion: true}}"
    );
    let condition = |kind: &str, reason: &str| {
        format!(
            "{{type: {kind}, status: \"True\", reason: {reason}, message: m, lastTransitionTime: \"2026-01-05T00:00:00Z\"}}"
        )
    };
    let assigned = "{name: main, count: 2, flavors: {cpu: f}, resourceUsage: {cpu: 2}}";
    let text = format!(
        "{queues}---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload\nmetadata:\n  name: job-runs-1\n  namespace: default\n  finalizers: [kueue.x-k8s.io/resource-in-use]\n  labels: {{kueue.x-k8s.io/job-uid: {uid}}}\n  ownerReferences: [{owner}]\n\
         spec:\n  queueName: q0\n  podSets: [{{name: main, count: 2, template: {{spec: {{restartPolicy: Never, containers: \
         [{{name: c, image: i, resources: {{requests: {{cpu: 1}}}}}}]}}}}}}]\nstatus:\n  admission: {{clusterQueue: q0, podSetAssignments: [{assigned}]}}\n  \
         conditions: [{reserved}, {admitted}, {ready}]\n---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: runs, namespace: default, uid: {uid}, \
         labels: {{kueue.x-k8s.io/queue-name: q0}}}}\nspec: {spec}\nstatus: {{active: 2, ready: 2, startTime: \"2026-01-05T00:00:00Z\"}}\n",
        queues = random_world(&[4], &[]),
        reserved = condition("QuotaReserved", "QuotaReserved"),
        admitted = condition("Admitted", "Admitted"),
        ready = condition("PodsReady", "Started"),
    );
    let manifests = Manifests::read(&[File { name: "w".to_owned(), text, named: true }]).unwrap();
    let mut options = options(&manifests);
    options.until = Some(jiff::SignedDuration::from_secs(5));
    let mut simulation = prepare(&manifests, &BTreeMap::new(), options).unwrap();
    simulation.run(|_| {}).unwrap();
    let report = report(&simulation);
    assert_eq!((report.totals.admitted, report.totals.unmanaged), (1, 0), "{:?}", report.totals);
    assert_eq!(series::steps(simulation.record(), 5000).values().next().unwrap()[0].used, 2000);
}

#[test]
fn a_job_whose_pods_terminated_when_it_was_read_from_a_cluster_does_not_wait_for_them_for_good() {
    let template =
        "{spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}";
    let text = format!(
        "{queues}---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: stopped, namespace: default, \
         uid: 6f3f1f0e-0000-4000-8000-000000000001, labels: {{kueue.x-k8s.io/queue-name: q0}}}}\n\
         spec: {{parallelism: 1, completions: 1, suspend: true, template: {template}}}\nstatus: {{active: 0, terminating: 2}}\n",
        queues = random_world(&[4], &[]),
    );
    let manifests = Manifests::read(&[File { name: "w".to_owned(), text, named: true }]).unwrap();
    let options = options(&manifests);
    let mut simulation = prepare(&manifests, &BTreeMap::new(), options).unwrap();
    simulation.run(|_| {}).unwrap();
    assert_eq!(report(&simulation).totals.admitted, 1);
}

#[test]
fn a_recorded_run_replays_byte_for_byte_and_a_changed_one_is_reported() {
    let (manifests, files) = example("cohort-borrowing.yaml");
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let log = Box::new(move |line: &str| sink.lock().unwrap().push(line.to_owned()));
    let mut simulation = prepare_with_log(&manifests, &files, options(&manifests), Some(log)).unwrap();
    simulation.run(|_| {}).unwrap();
    let lines = lines.lock().unwrap().clone();
    let replay = |lines: &[String]| {
        let mut replay = Replay::default();
        for line in lines {
            replay.line(line).unwrap();
        }
        replay.finish()
    };
    let outcome = replay(&lines);
    assert!(outcome.mismatches.is_empty() && outcome.effects > 50, "{outcome:?}");
    let changed: Vec<_> =
        lines.iter().map(|l| l.replace("\"nominalQuota\":8", "\"nominalQuota\":9")).collect();
    assert_ne!(changed, lines);
    assert!(!replay(&changed).mismatches.is_empty());
}

#[test]
fn a_workload_without_a_job_starts_and_so_is_not_evicted() {
    let world = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: plain}\n---\n\
                 apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: cq}\nspec:\n  namespaceSelector: {}\n  \
                 resourceGroups: [{coveredResources: [cpu], flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 4}]}]}]\n---\n\
                 apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: main, namespace: team}\nspec: {clusterQueue: cq}\n---\n\
                 apiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload\n\
                 metadata: {name: long, namespace: team, annotations: {sluice.dev/run-seconds: '36000'}}\n\
                 spec: {queueName: main, podSets: [{name: main, count: 1, template: {spec: {restartPolicy: Never, containers: [\
                 {name: main, image: train, resources: {requests: {cpu: 4}}}]}}}]}\n";
    let file = File { name: "world.yaml".to_owned(), text: world.to_owned(), named: true };
    let manifests = Manifests::read(&[file]).unwrap();
    let mut simulation =
        prepare(&manifests, &BTreeMap::new(), Options::new(Options::default_configuration())).unwrap();
    simulation.run(|_| {}).unwrap();
    let report = report(&simulation);
    assert_eq!((report.totals.finished, report.queues[0].work_lost), (1, 0.0), "{report:?}");
    assert!((report.seconds - 36_000.0).abs() < 1.0, "{}", report.seconds);
}

/// Two jobs of an hour, of which one at a time has quota.
#[test]
fn until_is_the_end_of_all_times_and_shares() {
    let queues = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: f}\n---\n\
        apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: q}\nspec: {namespaceSelector: {}, resourceGroups: \
        [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 4}]}]}]}\n---\n\
        apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: main, namespace: t}\nspec: {clusterQueue: q}\n";
    let job = |name: &str| {
        format!(
            "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, namespace: t, labels: {{kueue.x-k8s.io/queue-name: main}}, \
             annotations: {{sluice.dev/run-seconds: '3600'}}}}\nspec: {{parallelism: 4, completions: 4, template: {{spec: {{restartPolicy: Never, \
             containers: [{{name: c, image: i, resources: {{requests: {{cpu: 1}}}}}}]}}}}}}\n"
        )
    };
    let text = [queues.to_owned(), job("one"), job("two")].concat();
    let manifests = Manifests::read(&[File { name: "world".to_owned(), text, named: true }]).unwrap();
    let figures = |hours: f64| {
        let mut options = options(&manifests);
        options.until = Some(jiff::SignedDuration::from_secs_f64(hours * 3600.0));
        let mut simulation = prepare(&manifests, &BTreeMap::new(), options).unwrap();
        simulation.run(|_| {}).unwrap();
        let report = report(&simulation);
        let (totals, queue) = (&report.totals, &report.queues[0]);
        let counts = (totals.finished, totals.running, totals.waiting, queue.running);
        let still = queue.longest_still_waiting / 3600.0;
        (report.seconds / 3600.0, counts, queue.wait.max / 3600.0, still, queue.usage[0].utilisation)
    };
    assert_eq!(figures(0.5), (0.5, (0, 1, 1, 1), 0.5, 0.5, Some(100.0)));
    assert_eq!(figures(1.5), (1.5, (1, 1, 0, 1), 1.0, 0.0, Some(100.0)));
    // Nothing happens in the last three hours, which say nothing about how well quota was used.
    assert_eq!(figures(5.0), (5.0, (2, 0, 0, 0), 1.0, 0.0, Some(100.0)));
}
