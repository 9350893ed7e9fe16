//! Queued pods and serving objects in the simulator: Deployments, StatefulSets, groups of pods.
#![expect(clippy::disallowed_methods, reason = "a test reads its files")]
#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

mod worlds;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_api::config::{Configuration, DeclaredKind};
use sluice_api::job::JobKind;
use sluice_engine::{Kind, ObjectRef};
use sluice_sim::{File, Manifests, Simulation, prepare, series};
use worlds::{options, report, run};

/// A queue `main` with `cpus` CPUs, and these documents.
fn world(cpus: u32, documents: &[Value]) -> String {
    let mut text = format!(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: f}}\n---\n\
         apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {{name: q}}\nspec: {{namespaceSelector: {{}}, resourceGroups: \
         [{{coveredResources: [cpu], flavors: [{{name: f, resources: [{{name: cpu, nominalQuota: {cpus}}}]}}]}}]}}\n---\n\
         apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {{name: main, namespace: t}}\nspec: {{clusterQueue: q}}\n"
    );
    for document in documents {
        let _ = write!(text, "---\n{document}\n");
    }
    text
}

fn object(kind: &str, name: &str, queue: Option<&str>, replicas: i64) -> Value {
    let labels = queue.map(|queue| json!({"kueue.x-k8s.io/queue-name": queue}));
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}});
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "t", "labels": labels},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
    })
}

fn manifests(text: String) -> Manifests {
    Manifests::read(&[File { name: "world".to_owned(), text, named: true }]).unwrap()
}

/// What happens in `hours` hours.
fn played(text: String, hours: i64) -> Simulation {
    played_with(text, hours, &[])
}

/// The same with kinds that are declared.
fn played_with(text: String, hours: i64, declared: &[DeclaredKind]) -> Simulation {
    let manifests = manifests(text);
    let mut options = options(&manifests);
    options.configuration.integrations.declared = declared.to_vec();
    options.until = Some(SignedDuration::from_hours(hours));
    let mut simulation = prepare(&manifests, &BTreeMap::new(), options).unwrap();
    simulation.run(|_| {}).unwrap();
    simulation
}

/// The pods that are there, and whether each may be scheduled.
fn pods(simulation: &Simulation) -> Vec<(String, bool)> {
    let free = |pod: &Value| pod["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty);
    let all = simulation.objects(Kind::Job(JobKind::POD));
    all.map(|(reference, pod)| (reference.name.to_string(), free(pod))).collect()
}

fn status(simulation: &Simulation, kind: JobKind, name: &str) -> Value {
    simulation.object(&ObjectRef::namespaced(Kind::Job(kind), "t", name)).unwrap()["status"].clone()
}

#[test]
fn what_serves_is_preempted_comes_back_is_scaled_and_is_deleted() {
    let simulation = run("serving.yaml");
    let record = simulation.record();
    let count = |word: &str, job: &str| {
        let of = |entry: &&sluice_sim::TimelineEntry| {
            entry.what.word() == word && entry.job.is_some_and(|at| *record.jobs[at].name == *job)
        };
        record.entries.iter().filter(of).count()
    };
    for job in ["web-0", "web-1", "db", "train", "nightly"] {
        assert!(count("admitted", job) >= 1, "{job}");
    }
    assert_eq!((count("finished", "train"), count("finished", "nightly")), (1, 1), "a group is one job");
    assert_eq!((count("submitted", "train"), count("submitted", "db")), (1, 1));
    assert_eq!((count("preempted", "db"), count("admitted", "db"), count("deleted", "db")), (1, 2, 1));
    assert_eq!((count("admitted", "web-2"), count("admitted", "web-3")), (1, 1), "it was scaled");
    let report = report(&simulation);
    assert_eq!(
        (report.totals.running, report.totals.waiting, report.totals.refused),
        (4, 0, 0),
        "{report:#?}"
    );
    let web: Vec<_> = (0..4).map(|number| (format!("web-{number}"), true)).collect();
    assert_eq!(pods(&simulation), web);
    let used = series::steps(record, simulation.lasted());
    assert_eq!(used.values().next().unwrap().last().unwrap().used, 4_000);
}

#[test]
fn a_deployment_runs_as_many_pods_as_there_is_quota_for_and_a_statefulset_all_or_none() {
    let documents =
        [object("Deployment", "web", Some("main"), 3), object("StatefulSet", "db", Some("main"), 3)];
    let simulation = played(world(2, &documents), 5);
    let totals = report(&simulation).totals;
    // They do not end.
    assert_eq!(
        (totals.submitted, totals.running, totals.waiting, totals.finished),
        (4, 2, 2, 0),
        "{totals:?}"
    );
    let free: Vec<_> = pods(&simulation).into_iter().filter(|(_, free)| *free).collect();
    assert_eq!(free, [("web-0".to_owned(), true), ("web-1".to_owned(), true)]);
    assert_eq!(pods(&simulation).len(), 6);
    let simulation = played(world(3, &documents[1..]), 5);
    assert_eq!(pods(&simulation), ["db-0", "db-1", "db-2"].map(|name| (name.to_owned(), true)));
    assert_eq!(status(&simulation, JobKind::STATEFUL_SET, "db"), json!({"replicas": 3, "readyReplicas": 3}));
    assert_eq!(report(&simulation).totals.running, 1);
}

#[test]
fn each_group_of_a_leaderworkerset_runs_as_a_whole() {
    let container = |cpu: u32| json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]});
    let set = |name: &str, queue: &str, groups: u32| {
        json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
            "metadata": {"name": name, "namespace": "t", "labels": {"kueue.x-k8s.io/queue-name": queue}},
            "spec": {"replicas": groups, "leaderWorkerTemplate": {
                "size": 3, "leaderTemplate": {"spec": container(2)}, "workerTemplate": {"spec": container(1)},
            }},
        })
    };
    // A group takes four processors.
    let simulation = played(world(9, &[set("web", "main", 3)]), 5);
    let all: BTreeMap<_, _> = pods(&simulation).into_iter().collect();
    assert_eq!(all.len(), 9);
    let group = |number: usize| ["", "-1", "-2"].map(|index| all[&format!("web-{number}{index}")]);
    let whole = (0..3).filter(|number| group(*number) == [true; 3]).count();
    let none = (0..3).filter(|number| group(*number) == [false; 3]).count();
    assert_eq!((whole, none), (2, 1), "{all:?}");
    // Each group is a job.
    let totals = report(&simulation).totals;
    assert_eq!((totals.submitted, totals.running, totals.waiting), (3, 2, 1), "{totals:?}");
    let admitted =
        |name: &str| simulation.record().job_named(&format!("t/{name}")).unwrap().admitted.is_some();
    for number in 0..3 {
        assert_eq!(admitted(&format!("web-{number}")), group(number) == [true; 3], "web-{number}");
    }
    // One that is not queued runs, and holds nothing.
    let mut free = set("web", "main", 2);
    free["metadata"]["labels"] = Value::Null;
    let totals = report(&played(world(0, &[free]), 1)).totals;
    assert_eq!((totals.submitted, totals.admitted, totals.waiting), (2, 0, 0), "{totals:?}");
}

#[test]
fn groups_of_a_leaderworkerset_go_one_by_one_and_with_it() {
    let container =
        json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}}]});
    let set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "web", "namespace": "t", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"replicas": 3, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": container}}},
    });
    let named = json!({"kind": "LeaderWorkerSet", "namespace": "t", "name": "web"});
    let mut fewer = named.clone();
    fewer["merge"] = json!({"spec": {"replicas": 1}});
    let scenario = json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Scenario", "spec": {
        "events": [{"at": "1m", "patch": fewer}, {"at": "2m", "delete": named}]}});
    let simulation = played(world(4, &[set, scenario]), 1);
    let job = |number: usize| {
        let job = simulation.record().job_named(&format!("t/web-{number}")).unwrap();
        (job.admitted, job.deleted)
    };
    let minute = 60_000;
    assert_eq!(job(0), (Some(0), Some(2 * minute)));
    assert_eq!(job(1), (Some(0), Some(minute)));
    // It never had room, and does not wait any more.
    assert_eq!(job(2), (None, Some(minute)));
    assert_eq!(report(&simulation).totals.waiting, 0);
    assert!(pods(&simulation).is_empty());
}

#[test]
fn without_a_queue_pods_run_at_once_and_hold_no_quota() {
    let documents = [object("Deployment", "web", None, 2), object("StatefulSet", "db", None, 1)];
    let simulation = played(world(0, &documents), 1);
    assert!(pods(&simulation).iter().all(|(_, free)| *free) && pods(&simulation).len() == 3);
    assert_eq!(report(&simulation).totals.admitted, 0);
    assert_eq!(status(&simulation, JobKind::DEPLOYMENT, "web"), json!({"replicas": 2, "readyReplicas": 2}));
}

#[test]
fn a_pod_that_runs_alone_ends_and_one_that_is_deleted_does_not_come_back() {
    let pod = |name: &str, seconds: &str, after: &str| {
        let mut pod = object("Pod", name, Some("main"), 0);
        pod["apiVersion"] = json!("v1");
        pod["spec"] = pod["spec"]["template"]["spec"].take();
        pod["metadata"]["annotations"] =
            json!({"sluice.dev/run-seconds": seconds, "sluice.dev/submit-after-seconds": after});
        pod
    };
    let scenario = json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Scenario", "spec": {
        "events": [{"at": "1m", "delete": {"kind": "Pod", "namespace": "t", "name": "long"}}]}});
    let documents = [pod("short", "30", "0"), pod("long", "3000", "0"), pod("next", "60", "5"), scenario];
    let simulation = played(world(2, &documents), 1);
    let outcome = |name: &str| {
        let job = simulation.record().job_named(&format!("t/{name}")).unwrap();
        (job.managed, job.admitted, job.finished, job.deleted, job.lost)
    };
    assert_eq!(outcome("short"), (true, Some(0), Some(30_000), None, 0));
    assert_eq!(outcome("long"), (true, Some(0), None, Some(60_000), 60_000), "its work is lost");
    assert_eq!(outcome("next"), (true, Some(30_000), Some(90_000), None, 0));
    assert_eq!(report(&simulation).totals.waiting, 0, "what is deleted does not wait");
    assert!(pods(&simulation).is_empty());
}

#[test]
fn pods_of_a_node_that_fails_are_made_again_elsewhere() {
    let node = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"allocatable": {"cpu": 2, "pods": 10}}})
    };
    let scenario = json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Scenario", "spec": {
        "events": [{"at": "1m", "failNodes": {"names": ["one"]}}]}});
    let documents = [
        node("one"),
        node("two"),
        object("Deployment", "web", Some("main"), 1),
        object("StatefulSet", "db", Some("main"), 1),
        scenario,
    ];
    let simulation = played(world(4, &documents), 1);
    assert_eq!(pods(&simulation), [("db-0".to_owned(), true), ("web-0".to_owned(), true)]);
    for (kind, name) in [(JobKind::DEPLOYMENT, "web"), (JobKind::STATEFUL_SET, "db")] {
        assert_eq!(status(&simulation, kind, name), json!({"replicas": 1, "readyReplicas": 1}), "{name}");
    }
    assert_eq!(report(&simulation).totals.running, 2);
}

/// Whatever an object says, the world runs, or says what is wrong with it.
#[test]
fn odd_objects_are_refused_or_played() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut odd = object("Deployment", "web", Some("main"), 2);
        change(&mut odd);
        odd
    };
    let many = with(&|odd| odd["spec"]["replicas"] = json!(2_000_000_000));
    let error = prepared(&many).unwrap_err();
    assert!(error.contains("expected at most 20000 pods to simulate, found 2000000000"), "{error}");
    for (odd, there) in [
        (with(&|odd| odd["spec"]["replicas"] = json!(-3)), 0),
        (with(&|odd| odd["spec"]["replicas"] = json!(null)), 1),
        (with(&|odd| odd["spec"]["selector"] = json!(null)), 2),
        (with(&|odd| odd["spec"]["template"]["metadata"] = json!(null)), 2),
        (with(&|odd| odd["metadata"]["name"] = json!("w".repeat(63))), 2),
    ] {
        let simulation = prepared(&odd).unwrap();
        assert_eq!(pods(&simulation).len(), there, "{odd}");
    }
    for odd in [
        with(&|odd| odd["spec"] = json!("x")),
        with(&|odd| odd["spec"]["template"] = json!(["x"])),
        with(&|odd| odd["spec"]["template"]["metadata"] = json!("x")),
        with(&|odd| odd["spec"]["template"]["spec"] = json!(null)),
    ] {
        if let Ok(simulation) = prepared(&odd) {
            assert!(pods(&simulation).is_empty(), "{odd}");
        }
    }
    // The name of a pod may be taken.
    let mut pod = object("Pod", "web-1", None, 0);
    pod["apiVersion"] = json!("v1");
    pod["spec"] = pod["spec"]["template"]["spec"].take();
    let simulation = played(world(4, &[pod, object("Deployment", "web", Some("main"), 3)]), 1);
    assert_eq!(report(&simulation).totals.refused, 1);
    let names: Vec<_> = pods(&simulation).into_iter().map(|(name, _)| name).collect();
    assert!(names.starts_with(&["web-0".to_owned()]) && names.contains(&"web-2".to_owned()), "{names:?}");
}

fn prepared(document: &Value) -> Result<Simulation, String> {
    let manifests = Manifests::read(&[File {
        name: "world".to_owned(),
        text: world(4, std::slice::from_ref(document)),
        named: true,
    }])
    .map_err(|errors| format!("{errors:?}"))?;
    let mut options = options(&manifests);
    options.until = Some(SignedDuration::from_hours(1));
    let mut simulation =
        prepare(&manifests, &BTreeMap::new(), options).map_err(|errors| format!("{errors:?}"))?;
    simulation.run(|_| {}).map_err(|error| error.to_string())?;
    Ok(simulation)
}

/// Declares a kind that no field suspends, with so much more; gives a job of it with two pods.
fn gated(group: &str, more: &Value) -> (Vec<DeclaredKind>, JobKind, impl Fn(&str, i64) -> Value + use<>) {
    let mut declaration = json!({
        "group": group, "version": "v1", "kind": "Crew", "suspend": {"gatesPods": true},
        "podSets": [{"name": "main", "template": "spec.template", "countPath": "spec.replicas"}],
        "active": "self.status.readyReplicas > 0",
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        declaration[field] = value.clone();
    }
    let configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "integrations": {"declared": [declaration]},
    });
    let (configuration, _) = Configuration::parse(&configuration.to_string()).unwrap();
    sluice_jobs::declare(&configuration).unwrap();
    let kind = JobKind::named(&format!("{group}/crew")).unwrap();
    let make = move |name: &str, seconds: i64| {
        let mut made = object("Crew", name, Some("main"), 2);
        made["apiVersion"] = json!(kind.api_version());
        made["metadata"]["annotations"] = json!({"sluice.dev/run-seconds": seconds.to_string()});
        made
    };
    (configuration.integrations.declared, kind, make)
}

#[test]
fn a_declared_kind_that_no_field_suspends_runs_as_a_whole_and_needs_no_states() {
    let (declared, kind, make) = gated("serves.sim.example.com", &json!({}));
    assert!(sluice_jobs::is_simulated(kind));
    let simulation = played_with(world(3, &[make("a", 60), make("b", 60)]), 5, &declared);
    let totals = report(&simulation).totals;
    assert_eq!(
        (totals.submitted, totals.running, totals.waiting, totals.finished),
        (2, 1, 1, 0),
        "{totals:?}"
    );
    let all: Vec<_> = pods(&simulation);
    assert_eq!(
        all,
        [("a-0", true), ("a-1", true), ("b-0", false), ("b-1", false)].map(|(n, f)| (n.to_owned(), f))
    );
}

#[test]
fn a_declared_kind_that_no_field_suspends_ends_as_its_states_say() {
    let ends = json!({
        "finished": "self.status.phase == 'Done'",
        "states": {"running": {"readyReplicas": 2}, "succeeded": {"phase": "Done"}, "failed": {"phase": "Done"}},
    });
    let without = json!({"finished": "self.status.phase == 'Done'"});
    assert!(!sluice_jobs::is_simulated(gated("unsaid.sim.example.com", &without).1));
    let (declared, kind, make) = gated("ends.sim.example.com", &ends);
    assert!(sluice_jobs::is_simulated(kind));
    let simulation = played_with(world(2, &[make("a", 60), make("b", 120)]), 5, &declared);
    let totals = report(&simulation).totals;
    assert_eq!(
        (totals.submitted, totals.running, totals.waiting, totals.finished),
        (2, 0, 0, 2),
        "{totals:?}"
    );
    // One after the other, each for as long as it runs.
    let record = simulation.record();
    let ended: Vec<_> = record.jobs.iter().map(|job| (&*job.name, job.finished)).collect();
    assert_eq!(ended, [("a", Some(60_000)), ("b", Some(180_000))]);
}
