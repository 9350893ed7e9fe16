//! Every state of a job: the explanation, and that its advice lets the job start.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

mod advised;
mod alternatives;
mod amounts;
mod bounds;
mod changes;
mod covered;
mod flavors;
mod left_out;
mod more_quota;
mod names;
mod nodes;
mod objects;
mod owners;
mod pod_memory;
mod table;
mod terminating;
mod topology;
mod unqueued;
mod waiting;
mod webhooks;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_engine::{Account, ObjectRef, WhyNotMoved};
use sluice_sim::explain::{Advice, Code, Effect, Explained, Patience, Question, Remedy, State, Subject};
use sluice_sim::{File, Kind, Manifest, Manifests, Options, Simulation, Source};

const FLAVOR: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
";
const CLUSTER_QUEUE: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 10}]}]
---
";
const LOCAL_QUEUE: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: a}
spec: {clusterQueue: cq}
---
";
/// A StatefulSet with `replicas` pods.
fn stateful_set(replicas: u32) -> String {
    format!(
        "
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: mine, namespace: a, labels: {{kueue.x-k8s.io/queue-name: main}}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: x}}}}
  template:
    metadata: {{labels: {{app: x}}}}
    spec:
      containers: [{{name: c, image: i, resources: {{requests: {{cpu: 1}}}}}}]
---
"
    )
}

/// The answer about a Workload that is there, from what a running manager knows of it.
fn reported(workload: Value, account: &Account) -> Explained {
    reported_in(FLAVOR, workload, account)
}

/// The same with this flavor.
fn reported_in(flavor: &str, workload: Value, account: &Account) -> Explained {
    let mut manifests = read(&[flavor, CLUSTER_QUEUE, LOCAL_QUEUE].concat());
    manifests.subject = Some(Subject { workload: Some(workload), ..Subject::default() });
    let (at, live) = (SignedDuration::ZERO, Some(account));
    Question { at, live, decides: true, ..question(&manifests, "mine") }.answer().unwrap()
}

const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata:
  name: mine
  namespace: a
  labels: {kueue.x-k8s.io/queue-name: main}
  annotations: {sluice.dev/run-seconds: \"3600\"}
spec:
  suspend: true
  parallelism: 4
  completions: 4
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]
---
";

fn world() -> String {
    [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, JOB].concat()
}

fn read(world: &str) -> Manifests {
    let file = File { name: "world".to_owned(), text: world.to_owned(), named: true };
    Manifests::read(&[file]).unwrap()
}

/// A question about a job or Workload of the namespace `a`, after ten seconds.
fn question<'a>(manifests: &'a Manifests, name: &'a str) -> Question<'a> {
    static NO_FILES: BTreeMap<String, String> = BTreeMap::new();
    Question {
        manifests,
        files: &NO_FILES,
        options: options(),
        at: SignedDuration::from_secs(10),
        namespace: "a",
        kind: None,
        name,
        all_namespaces: false,
        names_nodes: false,
        names_queues: true,
        live: None,
        decides: false,
        patience: Patience::ENDLESS,
    }
}

fn ask(manifests: &Manifests, options: Options) -> Explained {
    Question { options, ..question(manifests, "mine") }.answer().unwrap()
}

fn options() -> Options {
    Options::new(Options::default_configuration())
}

fn codes(explained: &Explained) -> Vec<Code> {
    explained.findings.iter().map(|f| f.code).collect()
}

/// The objects of a virtual cluster, as a manager reads them: each with a UID and a status.
fn as_read(simulation: &Simulation) -> Manifests {
    let mut manifests = Manifests::default();
    for kind in [
        Kind::Namespace,
        Kind::ResourceFlavor,
        Kind::AdmissionCheck,
        Kind::ClusterQueue,
        Kind::LocalQueue,
        Kind::WorkloadPriorityClass,
        Kind::Workload,
        Kind::Job(JobKind::JOB),
    ] {
        for (document, (_, object)) in simulation.objects(kind).enumerate() {
            let source = Source { file: kind.plural().to_owned(), document: document + 1 };
            manifests.objects.push(Manifest { source, kind, object: object.clone() });
        }
    }
    manifests
}

/// What was read of a Job and its Workload, if it has one, and the engine's account of that.
fn asked_about(simulation: &Simulation, job: &str) -> (Subject, Option<Account>) {
    let of = ObjectRef::namespaced(Kind::Job(JobKind::JOB), "a", job);
    let object = simulation.object(&of).unwrap();
    let workload = simulation.workloads_of(object["metadata"]["uid"].as_str().unwrap()).next();
    let name = workload.map(|workload| workload["metadata"]["name"].as_str().unwrap());
    let account = name.and_then(|name| simulation.engine().account(Some(Kind::Workload), "a", name, 5));
    (Subject { workload: workload.cloned(), job: Some(object.clone()), ..Subject::default() }, account)
}

/// The cluster ten seconds after the beginning.
fn cluster(world: &str) -> Simulation {
    let mut simulation = sluice_sim::prepare(&read(world), &BTreeMap::new(), options()).unwrap();
    simulation.advance(SignedDuration::from_secs(10)).unwrap();
    simulation
}

fn runs(simulation: &Simulation) -> bool {
    let jobs = &simulation.record().jobs;
    let own = jobs.iter().find(|j| *j.name == *"mine");
    own.is_some_and(|j| j.holds.iter().any(|h| h.to.is_none() && h.admitted.is_some()))
}

/// What a reader of the answer does.
enum Act {
    /// Carries out the patches of the remedy that says so.
    Follow(&'static str),
    /// Applies a manifest, as the remedy says it in words.
    Apply(&'static str, &'static str),
    /// Changes an object, as the remedy says it in words.
    Change(&'static str, (&'static str, &'static str, &'static str), Value),
}

fn remedy<'a>(explained: &'a Explained, part: &str) -> &'a Remedy {
    let found = explained.remedies.iter().find(|r| r.text.contains(part));
    found.unwrap_or_else(|| unreachable!("no remedy says {part:?}: {}", explained.text()))
}

thread_local! {
    /// The advice that was carried out on this thread.
    static DONE: RefCell<BTreeSet<Advice>> = const { RefCell::new(BTreeSet::new()) };
}

/// A remedy that is carried out next.
fn carried_out<'a>(explained: &'a Explained, part: &str) -> &'a Remedy {
    let remedy = remedy(explained, part);
    DONE.with_borrow_mut(|done| done.extend(&remedy.advice));
    remedy
}

fn act(simulation: &mut Simulation, explained: &Explained, act: &Act) {
    match act {
        Act::Follow(part) => {
            let remedy = carried_out(explained, part);
            assert!(!remedy.patches.is_empty(), "{remedy:?}");
            for patch in &remedy.patches {
                let namespace = Some(patch.namespace.as_str()).filter(|n| !n.is_empty());
                simulation.patch(&patch.kind, namespace, &patch.name, &patch.merge).unwrap();
            }
        }
        Act::Apply(part, manifest) => {
            carried_out(explained, part);
            for manifest in &read(manifest).objects {
                simulation.apply(manifest).unwrap();
            }
        }
        Act::Change(part, (kind, namespace, name), merge) => {
            carried_out(explained, part);
            let namespace = Some(*namespace).filter(|n| !n.is_empty());
            simulation.patch(kind, namespace, name, merge).unwrap();
        }
    }
    simulation.advance(SignedDuration::from_secs(120)).unwrap();
}

/// The page of reasons has an entry for each.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its files")]
fn every_code_is_on_the_page_of_reasons() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/troubleshooting/reasons.md");
    let page = std::fs::read_to_string(page).unwrap();
    for code in Code::ALL {
        let name = serde_json::to_value(code).unwrap();
        let heading = format!("### {}\n", name.as_str().unwrap());
        assert!(page.contains(&heading), "{heading}");
    }
}
