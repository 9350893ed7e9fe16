//! Run times: of jobs that were read while they ran, of elastic jobs, of jobs with a bound, and of jobs with admission checks.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

#[path = "worlds/queue.rs"]
mod queue;

use std::collections::BTreeMap;

use jiff::SignedDuration;
use queue::{WORLD, job, question, read};
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_sim::{
    JobRecord, Kind, Manifest, Manifests, Options, Report, Simulation, Source, TimelineEvent, prepare,
    settings, whatif,
};

/// How long everything is played.
const LONG: SignedDuration = SignedDuration::from_hours(24);

fn options(manifests: &Manifests) -> Options {
    let mut options = Options::new(Options::default_configuration());
    settings(&mut options, &manifests.scenarios, false);
    Options { audit: true, until: Some(LONG), ..options }
}

fn scenario(spec: &Value) -> String {
    format!("---\n{}\n", json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Scenario", "spec": spec}))
}

fn begun(manifests: &Manifests) -> Simulation {
    prepare(manifests, &BTreeMap::new(), options(manifests)).unwrap()
}

fn played(world: &str) -> Simulation {
    let mut simulation = begun(&read(world));
    simulation.run(|_| {}).unwrap();
    simulation
}

/// The objects of a world after a while, as they are read from a cluster, with others beside them.
fn as_read(simulation: &Simulation, others: &str) -> Manifests {
    let mut manifests = Manifests::default();
    let jobs = [JobKind::JOB, JobKind::JOB_SET].map(Kind::Job);
    let settings = [Kind::Namespace, Kind::ResourceFlavor, Kind::ClusterQueue, Kind::LocalQueue];
    for kind in settings.into_iter().chain([Kind::WorkloadPriorityClass, Kind::Workload]).chain(jobs) {
        for (document, (_, object)) in simulation.objects(kind).enumerate() {
            let source = Source { file: kind.plural().to_owned(), document: document + 1 };
            manifests.objects.push(Manifest { source, kind, object: object.clone() });
        }
    }
    manifests.objects.extend(read(others).objects);
    manifests
}

/// Continues from there.
fn gone_on(simulation: &Simulation, others: &str) -> Simulation {
    let manifests = as_read(simulation, others);
    let options = Options { start: simulation.now(), ..options(&manifests) };
    let mut simulation = prepare(&manifests, &BTreeMap::new(), options).unwrap();
    simulation.run(|_| {}).unwrap();
    simulation
}

fn after(world: &str, minutes: i64) -> Simulation {
    let mut simulation = begun(&read(world));
    simulation.advance(SignedDuration::from_mins(minutes)).unwrap();
    simulation
}

fn record<'a>(simulation: &'a Simulation, name: &str) -> &'a JobRecord {
    let found = simulation.record().job_named(&format!("a/{name}"));
    found.unwrap_or_else(|| unreachable!("no {name}: {:#?}", simulation.record().entries))
}

/// How much of a resource a job held, from when until when, in seconds.
fn holds(job: &JobRecord) -> Vec<(i64, Option<i64>, i64)> {
    let hold = |hold: &sluice_sim::Hold| {
        (hold.from / 1000, hold.to.map(|to| to / 1000), hold.holdings.iter().map(|h| h.amount).sum())
    };
    job.holds.iter().map(hold).collect()
}

fn finishes(simulation: &Simulation) -> usize {
    let entries = simulation.record().entries.iter();
    entries.filter(|entry| matches!(entry.what, TimelineEvent::Finished { .. })).count()
}

#[test]
fn a_job_of_another_kind_that_was_read_continues_from_where_it_was() {
    let set = "---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set, namespace: a, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {sluice.dev/run-seconds: \"3600\"}}
spec:
  replicatedJobs:
  - name: workers
    template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}}
";
    let before = after(&[WORLD, set].concat(), 50);
    let later = gone_on(&before, "");
    let set = record(&later, "set");
    assert_eq!((set.finished, set.success), (Some(600_000), true), "{:#?}", later.record().entries);
}

#[test]
fn a_job_that_has_outlived_what_was_thought_runs_as_long_again() {
    let jobs = [job("first", 10, "sluice.dev/run-seconds: \"14400\""), job("second", 10, "")].concat();
    let mut before = after(&[WORLD, &jobs].concat(), 180);
    let note = json!({"metadata": {"annotations": {"sluice.dev/run-seconds": null}}});
    before.patch("Job", Some("a"), "first", &note).unwrap();
    let later = gone_on(&before, "");
    assert_eq!(record(&later, "first").finished, Some(3 * 3_600_000));
    let manifests = as_read(&before, "");
    let now = Options { start: before.now(), ..options(&manifests) };
    let forecast = question(&manifests, now, 0, "second").forecast_only().unwrap().unwrap();
    assert_eq!((forecast.p50, forecast.p90), (Some(3 * 3600), Some(3 * 3600)));
    // It does not go beyond its own deadline.
    before.patch("Job", Some("a"), "first", &json!({"spec": {"activeDeadlineSeconds": 4 * 3600}})).unwrap();
    let later = gone_on(&before, "");
    let first = record(&later, "first");
    assert_eq!((first.finished, first.success), (Some(3_600_000), false));
}

/// A node that is smaller than each pod.
const TINY: &str = "---
apiVersion: v1
kind: Node
metadata: {name: tiny UID}
status: {allocatable: {cpu: 100m, pods: 1}, conditions: [{type: Ready, status: \"True\"}]}
";

#[test]
fn what_runs_in_a_cluster_ends_and_what_waits_starts_though_the_nodes_that_were_read_are_too_small() {
    let jobs = ["first", "second"].map(|name| job(name, 10, "sluice.dev/run-seconds: \"3600\""));
    let before = after(&[WORLD, &jobs.concat()].concat(), 10);
    let later = gone_on(&before, &TINY.replace(" UID", ", uid: tiny"));
    let (first, second) = (record(&later, "first"), record(&later, "second"));
    assert_eq!(first.finished, Some(50 * 60_000), "{:#?}", later.record().entries);
    assert_eq!((second.admitted, second.finished), (first.finished, Some(110 * 60_000)));
    // Where the nodes come from files, they are all there are, wherever the queues were read.
    let tiny = TINY.replace(" UID", "");
    let stored = WORLD.replace("{name: cq}", "{name: cq, uid: stored}");
    assert_ne!(stored, WORLD);
    for queues in [WORLD, &stored] {
        let files = played(&[queues, &tiny, &jobs[0]].concat());
        assert_eq!(record(&files, "first").finished, None);
    }
}

fn elastic(pods: u32, to: u32) -> Simulation {
    let more = "kueue.x-k8s.io/elastic-job: \"true\", sluice.dev/run-seconds: \"60\"";
    let job = job("grows", pods, more).replace(&format!("completions: {pods}"), "completions: 8");
    let patch =
        json!({"kind": "Job", "namespace": "a", "name": "grows", "merge": {"spec": {"parallelism": to}}});
    let size = scenario(&json!({"events": [{"at": "30s", "patch": patch}]}));
    played(&[WORLD, &job, &size].concat())
}

#[test]
fn an_elastic_job_that_changes_its_size_runs_on_and_ends_once() {
    for (pods, to) in [(2_u32, 4_u32), (4, 2)] {
        let simulation = elastic(pods, to);
        let job = record(&simulation, "grows");
        let said = format!("{pods} to {to}: {:#?}", simulation.record().entries);
        assert_eq!((job.finished, job.success, job.lost), (Some(60_000), true, 0), "{said}");
        assert_eq!((finishes(&simulation), simulation.record().jobs.len()), (1, 1), "{said}");
        let [before, after] = [pods, to].map(|pods| i64::from(pods) * 1000);
        assert_eq!(holds(job), [(0, Some(30), before), (30, Some(60), after)], "{said}");
        assert!(job.deleted.is_none() && job.holds.iter().all(|hold| hold.to.is_some()), "{said}");
    }
}

#[test]
fn an_elastic_job_that_cannot_grow_runs_on_as_it_is() {
    let simulation = elastic(6, 8);
    let job = record(&simulation, "grows");
    assert_eq!((job.finished, job.success), (Some(60_000), true));
    let simulation = elastic(6, 20);
    let job = record(&simulation, "grows");
    assert_eq!((job.finished, job.success), (Some(60_000), true), "{:#?}", simulation.record().entries);
    assert_eq!(finishes(&simulation), 1);
}

/// A Job with a bound of a minute, in a world that begins between two seconds.
fn bounded(more: &str, startup: &str) -> Simulation {
    let label = "kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/max-exec-time-seconds: \"60\"}";
    let job = job("bounded", 1, more).replace("kueue.x-k8s.io/queue-name: main}", label);
    let start = scenario(&json!({"start": "2026-01-01T00:00:00.7Z", "podStartup": startup}));
    played(&[WORLD, &job, &start].concat())
}

#[test]
fn a_job_of_which_only_a_bound_is_known_ends_well_before_it() {
    for startup in ["0s", "5s"] {
        let simulation = bounded("", startup);
        let job = record(&simulation, "bounded");
        let ended = job.finished.unwrap_or_else(|| unreachable!("{:#?}", simulation.record().entries));
        assert!(
            job.success && (59_000..60_000).contains(&ended),
            "{ended}: {:#?}",
            simulation.record().entries
        );
    }
}

#[test]
fn a_job_that_was_deactivated_does_not_count_as_waiting() {
    let simulation = bounded("sluice.dev/run-seconds: \"3600\"", "0s");
    let job = record(&simulation, "bounded");
    assert!(job.finished.is_none() && job.deactivated, "{:#?}", simulation.record().entries);
    let report = Report::new(simulation.record(), simulation.lasted(), 0, Vec::new());
    assert_eq!((report.totals.waiting, report.queues[0].waiting), (0, 0));
    assert!(report.queues[0].longest_still_waiting.abs() < 1e-9);
}

#[test]
fn the_answer_of_a_check_to_one_reservation_is_none_to_the_next() {
    let check = "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: AdmissionCheck\nmetadata: {name: budget}\nspec: {controllerName: example.com/budget}\n";
    let world = WORLD.replace(
        "namespaceSelector: {}",
        "namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: budget}]}",
    );
    let own = job("own", 10, "sluice.dev/run-seconds: \"60\"");
    let urgent = job("urgent", 10, "sluice.dev/submit-after-seconds: \"540\"")
        .replace("queue-name: main}", "queue-name: main, kueue.x-k8s.io/priority-class: urgent}");
    let delete = json!({"kind": "Job", "namespace": "a", "name": "urgent"});
    let events = json!({"checkDelay": "10m", "events": [{"at": "570s", "delete": delete}]});
    let simulation = played(&[check, "---", &world, &own, &urgent, &scenario(&events)].concat());
    let own = record(&simulation, "own");
    let said = format!("{:#?}", simulation.record().entries);
    assert_eq!(own.holds.iter().map(|hold| hold.from / 1000).collect::<Vec<_>>(), [0, 570], "{said}");
    assert_eq!(own.admitted.map(|at| at / 1000), Some(570 + 600), "{said}");
}

#[test]
fn a_change_keeps_what_controllers_say_of_the_object_that_it_replaces() {
    let before = after(&[WORLD, &job("first", 10, "")].concat(), 1);
    let mut objects = as_read(&before, "").objects;
    let queue = objects.iter_mut().find(|m| m.kind == Kind::LocalQueue).unwrap();
    let history = json!({"fairSharing": {"admissionFairSharingStatus": {"consumedResources": {"cpu": "7"}}}});
    queue.object["status"] = history.clone();
    let change = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: main, namespace: a}\nspec: {clusterQueue: cq, stopPolicy: None}\n";
    let change = read(&[change, &job("first", 10, "example.com/note: \"x\"")].concat()).objects;
    let changed = whatif::overlay(objects.clone(), change);
    let of = |kind: Kind| &changed.iter().find(|m| m.kind == kind).unwrap().object;
    assert_eq!(of(Kind::LocalQueue)["status"], history);
    let job = of(Kind::Job(JobKind::JOB));
    assert_eq!((&job["spec"]["suspend"], job["status"]["active"].as_i64()), (&json!(false), Some(10)));
    assert_eq!(job["metadata"]["annotations"]["example.com/note"], "x");
    // What the change says itself stands.
    let said = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: main, namespace: a}\nspec: {clusterQueue: cq}\nstatus: {pendingWorkloads: 3}\n";
    let changed = whatif::overlay(objects, read(said).objects);
    let queue = changed.iter().find(|m| m.kind == Kind::LocalQueue).unwrap();
    assert_eq!(queue.object["status"], json!({"pendingWorkloads": 3}));
}
